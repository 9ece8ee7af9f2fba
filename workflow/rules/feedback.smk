# Feedback: attention to documents learned on the source; queries of a bi-encoder that read documents.


rule learn_attention:
    input:
        unpack(PLAN.inputs("learn_attention")),
    output:
        attention=paths.learned_attention("{model}"),
    log:
        "results/logs/learn_attention/{model}.log",
    benchmark:
        "results/benchmarks/learn_attention/{model}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("feedback"),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("learn_attention"),
    params:
        settings=PLAN.settings("learn_attention"),
    script:
        "../scripts/run_stage.py"


rule augment_queries:
    input:
        unpack(PLAN.inputs("augment_queries")),
    output:
        embeddings=paths.embeddings(
            "{model}", "{scope}", "{collection}", "{protocol}", "queries.{split}"
        ),
    log:
        "results/logs/augment_queries/{model}/{scope}/{collection}/{protocol}/{split}.log",
    benchmark:
        "results/benchmarks/augment_queries/{model}/{scope}/{collection}/{protocol}/{split}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("feedback"),
        scope="shared",
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("augment_queries"),
    params:
        settings=PLAN.settings("augment_queries"),
    script:
        "../scripts/run_stage.py"
