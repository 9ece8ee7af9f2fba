# Pages for people: the leaderboard, and two methods query by query.


rule build_queries:
    """Write pages that compare all runs of the main table with the baseline, query by query.

    Reads: runs, collections, per_query.
    """
    input:
        unpack(PLAN.inputs("build_queries")),
    output:
        pages=paths.query_pages(PLAN.selection),
    script:
        "../scripts/run_stage.py"


rule build_query_page:
    """Write a page that compares two methods query by query.

    Reads: runs, collections, per_query.
    """
    input:
        unpack(PLAN.inputs("build_query_page")),
    output:
        page=paths.query_page.pattern,
    wildcard_constraints:
        model=PATTERNS.methods(
            "lexical", "encoder", "feedback", "fusion", "trained", "run"
        ),
        baseline=PATTERNS.methods(
            "lexical", "encoder", "feedback", "fusion", "trained", "run"
        ),
    script:
        "../scripts/run_stage.py"


rule build_leaderboard:
    """Write the page of the main table.

    Reads: summaries, table, notes, figure, significance, published, queries.
    """
    input:
        unpack(PLAN.inputs("build_leaderboard")),
    output:
        page=paths.beir(f"{PLAN.selection}.html"),
    script:
        "../scripts/run_stage.py"
