# Tables, figures and the lineage publisher.


rule build_table:
    """Build the main table, and its comparison with published numbers.

    Reads: summaries, scores, significance, references, papers.
    """
    input:
        unpack(PLAN.inputs("build_table")),
    output:
        table=paths.beir(f"{PLAN.selection}.tsv"),
        csv=paths.beir(f"{PLAN.selection}.csv"),
        notes=paths.beir(f"{PLAN.selection}.notes.md"),
        markdown=paths.beir(f"{PLAN.selection}.md"),
        tex=paths.beir(f"{PLAN.selection}.tex"),
        published=paths.compared(PLAN.selection, "published.tsv"),
    script:
        "../scripts/run_stage.py"


rule build_row:
    """Build the row of one method.

    Reads: summaries.
    """
    input:
        unpack(PLAN.inputs("build_row")),
    output:
        table=paths.beir("{model}.tsv"),
        markdown=paths.beir("{model}.md"),
    wildcard_constraints:
        model=PATTERNS.methods(
            "lexical", "encoder", "feedback", "mixture", "fusion", "trained", "run"
        ),
    script:
        "../scripts/run_stage.py"


rule plot_table:
    """Draw the main table.

    Reads: per_query, table.
    """
    input:
        unpack(PLAN.inputs("plot_table")),
    output:
        svg=paths.beir(f"{PLAN.selection}.svg"),
        png=paths.beir(f"{PLAN.selection}.png"),
    script:
        "../scripts/run_stage.py"


rule publish_lineage:
    """Publish lineage records to MLflow.

    Reads: artifacts.
    """
    input:
        unpack(PLAN.inputs("publish_lineage")),
    output:
        published=paths.lineage("published.json"),
    script:
        "../scripts/run_stage.py"


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
            "lexical", "encoder", "feedback", "mixture", "fusion", "trained", "run"
        ),
        baseline=PATTERNS.methods(
            "lexical", "encoder", "feedback", "mixture", "fusion", "trained", "run"
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
