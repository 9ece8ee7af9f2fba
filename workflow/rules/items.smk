# Tables and figures of the papers (config/papers).


rule build_item:
    """Build a table, or the numbers of a figure, of a paper: published values next to ours.

    Reads: per_query, reference, measures, projections, models, collections, statistics, spaces, search, losses,
    main, queries, learning, augmenter, source_per_query, nearest, latency, clusters, indexes, index, memory_index,
    lexical, corpus, learned.
    """
    input:
        unpack(PLAN.inputs("build_item")),
    output:
        table=paths.item("{paper}", "{item}", "tsv"),
        published=paths.item_published("{paper}", "{item}"),
        markdown=paths.item("{paper}", "{item}", "md"),
        html=paths.item("{paper}", "{item}", "html"),
    wildcard_constraints:
        paper=PATTERNS.papers(),
        item=PATTERNS.items(),
    script:
        "../scripts/run_stage.py"


rule plot_item:
    """Draw an item of a paper.

    Reads: table.
    """
    input:
        unpack(PLAN.inputs("plot_item")),
    output:
        svg=paths.item("{paper}", "{item}", "svg"),
        png=paths.item("{paper}", "{item}", "png"),
    wildcard_constraints:
        paper=PATTERNS.papers(),
        item=PATTERNS.items(),
    script:
        "../scripts/run_stage.py"


rule build_paper:
    """Put all items of a paper on one page.

    Reads: tables, figures.
    """
    input:
        unpack(PLAN.inputs("build_paper")),
    output:
        html=paths.item("{paper}", "all", "html"),
    wildcard_constraints:
        paper=PATTERNS.papers(),
    script:
        "../scripts/run_stage.py"


rule build_published:
    """Compare all published numbers of a paper with ours.

    Reads: reference, summaries.
    """
    input:
        unpack(PLAN.inputs("build_published")),
    output:
        table=paths.item("{paper}", "{comparison}", "tsv"),
        html=paths.item("{paper}", "{comparison}", "html"),
    wildcard_constraints:
        paper=PATTERNS.papers(),
        comparison=PATTERNS.comparisons(),
    script:
        "../scripts/run_stage.py"
