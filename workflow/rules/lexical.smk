# BM25 and RM3: inverted index, then a ranking.


rule index_bm25:
    """Index a corpus for BM25.

    Reads: collection.
    """
    input:
        unpack(PLAN.inputs("index_bm25")),
    output:
        index=paths.bm25_index.pattern,
    script:
        "../scripts/run_stage.py"


rule search_bm25:
    """Rank a collection by BM25, with or without RM3.

    Reads: collection, index.
    """
    input:
        unpack(PLAN.inputs("search_bm25")),
    output:
        run=paths.run.pattern,
    wildcard_constraints:
        model=PATTERNS.methods("lexical"),
    script:
        "../scripts/run_stage.py"
