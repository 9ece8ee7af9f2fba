# Tables and figures of the papers (config/papers).


rule build_item:
    input:
        unpack(PLAN.inputs("build_item")),
    output:
        table=paths.item("{paper}", "{item}", "tsv"),
        published=paths.item_published("{paper}", "{item}"),
        markdown=paths.item("{paper}", "{item}", "md"),
        html=paths.item("{paper}", "{item}", "html"),
    log:
        "results/logs/build_item/{paper}/{item}.log",
    benchmark:
        "results/benchmarks/build_item/{paper}/{item}.tsv"
    wildcard_constraints:
        paper=PATTERNS.papers(),
        item=PATTERNS.items(),
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("build_item"),
    script:
        "../scripts/run_stage.py"


rule plot_item:
    input:
        unpack(PLAN.inputs("plot_item")),
    output:
        svg=paths.item("{paper}", "{item}", "svg"),
        png=paths.item("{paper}", "{item}", "png"),
    log:
        "results/logs/plot_item/{paper}/{item}.log",
    benchmark:
        "results/benchmarks/plot_item/{paper}/{item}.tsv"
    wildcard_constraints:
        paper=PATTERNS.papers(),
        item=PATTERNS.items(),
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("plot_item"),
    script:
        "../scripts/run_stage.py"


rule build_paper:
    input:
        unpack(PLAN.inputs("build_paper")),
    output:
        html=paths.item("{paper}", "all", "html"),
    log:
        "results/logs/build_paper/{paper}.log",
    benchmark:
        "results/benchmarks/build_paper/{paper}.tsv"
    wildcard_constraints:
        paper=PATTERNS.papers(),
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("build_paper"),
    script:
        "../scripts/run_stage.py"


rule build_published:
    input:
        unpack(PLAN.inputs("build_published")),
    output:
        table=paths.item("{paper}", "published", "tsv"),
        html=paths.item("{paper}", "published", "html"),
    log:
        "results/logs/build_published/{paper}.log",
    benchmark:
        "results/benchmarks/build_published/{paper}.tsv"
    wildcard_constraints:
        paper=PATTERNS.papers(),
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("build_published"),
    script:
        "../scripts/run_stage.py"
