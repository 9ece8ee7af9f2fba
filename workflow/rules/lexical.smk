# BM25 and RM3: inverted index, then a ranking.


rule index_bm25:
    input:
        collection=paths.collection("{collection}"),
    output:
        index=paths.bm25_index("{index}", "{collection}"),
    log:
        "results/logs/index_bm25/{index}/{collection}.log",
    benchmark:
        "results/benchmarks/index_bm25/{index}/{collection}.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("index_bm25"),
        runtime=PLAN.minutes("index_bm25"),
    params:
        settings=PLAN.settings("index_bm25"),
    script:
        "../scripts/run_stage.py"


rule search_bm25:
    input:
        index=lambda wc: paths.bm25_index(PLAN.index_of(wc.model), wc.collection),
        collection=paths.collection("{collection}"),
    output:
        run=paths.run("{model}", "{collection}", "{protocol}"),
    log:
        "results/logs/search_bm25/{model}/{collection}/{protocol}.log",
    benchmark:
        "results/benchmarks/search_bm25/{model}/{collection}/{protocol}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("lexical"),
        protocol=PLAN.pattern_of_protocols(titles=True),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("search_bm25")
    resources:
        mem_mb=PLAN.memory_mib("search_bm25"),
        runtime=PLAN.minutes("search_bm25"),
    params:
        settings=PLAN.settings("search_bm25"),
    script:
        "../scripts/run_stage.py"
