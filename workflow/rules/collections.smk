# Download, normalise and measure collections.


rule fetch_archive:
    input:
        unpack(PLAN.inputs("fetch_archive")),
    output:
        archive=paths.archive.pattern,
    log:
        "results/logs/fetch_archive/{archive}.log",
    benchmark:
        "results/benchmarks/fetch_archive/{archive}.tsv"
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("fetch_archive"),
    params:
        settings=PLAN.settings("fetch_archive"),
    script:
        "../scripts/run_stage.py"


rule normalize_collection:
    input:
        unpack(PLAN.inputs("normalize_collection")),
    output:
        collection=paths.collection.pattern,
    log:
        "results/logs/normalize_collection/{collection}.log",
    benchmark:
        "results/benchmarks/normalize_collection/{collection}.tsv"
    wildcard_constraints:
        collection=PATTERNS.published(),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("normalize_collection"),
    params:
        settings=PLAN.settings("normalize_collection"),
    script:
        "../scripts/run_stage.py"


rule measure_statistics:
    input:
        unpack(PLAN.inputs("measure_statistics")),
    output:
        statistics=paths.statistics.pattern,
    log:
        "results/logs/measure_statistics/{collection}.log",
    benchmark:
        "results/benchmarks/measure_statistics/{collection}.tsv"
    conda:
        ENVIRONMENT
    threads: PLAN.threads("measure_statistics")
    resources:
        **PLAN.resources("measure_statistics"),
    params:
        settings=PLAN.settings("measure_statistics"),
    script:
        "../scripts/run_stage.py"
