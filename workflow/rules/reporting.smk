# Tables, figures and the lineage publisher.


rule build_table:
    input:
        unpack(PLAN.inputs("build_table")),
    output:
        table=paths.beir(f"{PLAN.selection}.tsv"),
        csv=paths.beir(f"{PLAN.selection}.csv"),
        notes=paths.beir(f"{PLAN.selection}.notes.md"),
        markdown=paths.beir(f"{PLAN.selection}.md"),
        tex=paths.beir(f"{PLAN.selection}.tex"),
        published=paths.compared(PLAN.selection, "published.tsv"),
    log:
        f"results/logs/build_table/{PLAN.selection}.log",
    benchmark:
        f"results/benchmarks/build_table/{PLAN.selection}.tsv"
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
        model=PATTERNS.methods("lexical", "encoder", "feedback", "fusion", "trained", "run"),
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
        svg=paths.beir(f"{PLAN.selection}.svg"),
        png=paths.beir(f"{PLAN.selection}.png"),
    log:
        f"results/logs/plot_table/{PLAN.selection}.log",
    benchmark:
        f"results/benchmarks/plot_table/{PLAN.selection}.tsv"
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
