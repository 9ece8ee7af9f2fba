# BM25 and RM3: inverted index, then a ranking.


rule index_bm25:
    input:
        unpack(PLAN.inputs("index_bm25")),
    output:
        index=paths.bm25_index.pattern,
    log:
        "results/logs/index_bm25/{index}/{collection}.log",
    benchmark:
        "results/benchmarks/index_bm25/{index}/{collection}.tsv"
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("index_bm25"),
    params:
        settings=PLAN.settings("index_bm25"),
    script:
        "../scripts/run_stage.py"


rule search_bm25:
    input:
        unpack(PLAN.inputs("search_bm25")),
    output:
        run=paths.run.pattern,
    log:
        "results/logs/search_bm25/{model}/{collection}/{protocol}.log",
    benchmark:
        "results/benchmarks/search_bm25/{model}/{collection}/{protocol}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("lexical"),
        protocol=PATTERNS.protocols(titles=True),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("search_bm25")
    resources:
        **PLAN.resources("search_bm25"),
    params:
        settings=PLAN.settings("search_bm25"),
    script:
        "../scripts/run_stage.py"
