# Tables, figures and the lineage publisher.


rule build_table:
    input:
        unpack(PLAN.inputs("build_table")),
    output:
        table=paths.beir("all.tsv"),
        markdown=paths.beir("all.md"),
        html=report(
            paths.beir("all.html"),
            caption="../report/table.rst",
            category="Main table",
            labels={"file": "nDCG@10 of every method on every collection"},
        ),
        tex=paths.beir("all.tex"),
        published=report(
            paths.beir("published.tsv"),
            caption="../report/published.rst",
            category="Main table",
            labels={"file": "comparison with published numbers"},
        ),
    log:
        "results/logs/build_table/all.log",
    benchmark:
        "results/benchmarks/build_table/all.tsv"
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("build_table"),
    script:
        "../scripts/run_stage.py"


rule build_row:
    input:
        unpack(PLAN.inputs("build_row")),
    output:
        table=paths.beir("{model}.tsv"),
        markdown=paths.beir("{model}.md"),
    log:
        "results/logs/build_row/{model}.log",
    benchmark:
        "results/benchmarks/build_row/{model}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("lexical", "encoder", "fusion", "trained", "run"),
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("build_row"),
    script:
        "../scripts/run_stage.py"


rule plot_table:
    input:
        unpack(PLAN.inputs("plot_table")),
    output:
        svg=report(
            paths.beir("all.svg"),
            caption="../report/figure.rst",
            category="Main table",
            labels={"file": "nDCG@10 with 95 % intervals"},
        ),
        png=paths.beir("all.png"),
    log:
        "results/logs/plot_table/all.log",
    benchmark:
        "results/benchmarks/plot_table/all.tsv"
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("plot_table"),
    script:
        "../scripts/run_stage.py"


rule publish_lineage:
    input:
        unpack(PLAN.inputs("publish_lineage")),
    output:
        published=paths.lineage("published.json"),
    log:
        "results/logs/publish_lineage/all.log",
    benchmark:
        "results/benchmarks/publish_lineage/all.tsv"
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("publish_lineage"),
    script:
        "../scripts/run_stage.py"
