# Download, normalise and measure collections.


rule fetch_archive:
    input:
        mirror=lambda wc: PLAN.mirrored(wc.archive),
    output:
        archive=paths.archive("{archive}"),
    log:
        "results/logs/fetch_archive/{archive}.log",
    benchmark:
        "results/benchmarks/fetch_archive/{archive}.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("fetch_archive"),
        runtime=PLAN.minutes("fetch_archive"),
    params:
        settings=PLAN.settings("fetch_archive"),
    script:
        "../scripts/run_stage.py"


rule normalize_collection:
    input:
        archive=lambda wc: PLAN.sources_of(wc.collection),
    output:
        collection=paths.collection("{collection}"),
    log:
        "results/logs/normalize_collection/{collection}.log",
    benchmark:
        "results/benchmarks/normalize_collection/{collection}.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("normalize_collection"),
        runtime=PLAN.minutes("normalize_collection"),
    params:
        settings=PLAN.settings("normalize_collection"),
    script:
        "../scripts/run_stage.py"


rule measure_statistics:
    input:
        collection=paths.collection("{collection}"),
        source=paths.collection(PLAN.source),
    output:
        statistics=paths.statistics("{collection}"),
    log:
        "results/logs/measure_statistics/{collection}.log",
    benchmark:
        "results/benchmarks/measure_statistics/{collection}.tsv"
    conda:
        ENVIRONMENT
    threads: PLAN.threads("measure_statistics")
    resources:
        mem_mb=PLAN.memory_mib("measure_statistics"),
        runtime=PLAN.minutes("measure_statistics"),
    params:
        settings=PLAN.settings("measure_statistics"),
    script:
        "../scripts/run_stage.py"
