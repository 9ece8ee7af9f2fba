# Queries that are made from a target's documents, for stages that learn without judgements.


rule generate_queries:
    input:
        unpack(PLAN.inputs("generate_queries")),
    output:
        collection=paths.generated.pattern,
    log:
        "results/logs/generate_queries/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/generate_queries/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("generate_queries")
    resources:
        **PLAN.resources("generate_queries"),
    params:
        settings=PLAN.settings("generate_queries"),
    script:
        "../scripts/run_stage.py"
