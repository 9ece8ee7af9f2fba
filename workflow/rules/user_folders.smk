# Users' own folders: documents, queries and judgements are artifacts of their own. Content digests, which are among the
# settings, say whether a file changed; its time says nothing.


rule normalize_corpus:
    input:
        unpack(PLAN.inputs("normalize_corpus")),
        files=lambda wildcards: map(
            ancient, list_files(PLAN, wildcards.collection, "corpus")
        ),
    output:
        section=paths.collection.pattern,
    log:
        "results/logs/normalize_corpus/{collection}.log",
    benchmark:
        "results/benchmarks/normalize_corpus/{collection}.tsv"
    wildcard_constraints:
        collection=PATTERNS.of_folders(),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("normalize_corpus"),
    params:
        settings=PLAN.settings("normalize_corpus"),
    script:
        "../scripts/run_stage.py"


rule normalize_queries:
    input:
        unpack(PLAN.inputs("normalize_queries")),
        files=lambda wildcards: map(
            ancient, list_files(PLAN, wildcards.collection, "queries")
        ),
    output:
        section=paths.collection_section("{collection}", "queries"),
    log:
        "results/logs/normalize_queries/{collection}.log",
    benchmark:
        "results/benchmarks/normalize_queries/{collection}.tsv"
    wildcard_constraints:
        collection=PATTERNS.of_folders(),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("normalize_queries"),
    params:
        settings=PLAN.settings("normalize_queries"),
    script:
        "../scripts/run_stage.py"


rule normalize_judgements:
    input:
        unpack(PLAN.inputs("normalize_judgements")),
        files=lambda wildcards: map(
            ancient, list_files(PLAN, wildcards.collection, "judgements")
        ),
    output:
        section=paths.collection_section("{collection}", "judgements"),
    log:
        "results/logs/normalize_judgements/{collection}.log",
    benchmark:
        "results/benchmarks/normalize_judgements/{collection}.tsv"
    wildcard_constraints:
        collection=PATTERNS.of_folders(),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("normalize_judgements"),
    params:
        settings=PLAN.settings("normalize_judgements"),
    script:
        "../scripts/run_stage.py"
