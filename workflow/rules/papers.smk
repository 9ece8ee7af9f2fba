# Tables and figures of the papers (config/papers), and what they measure.


rule measure_space:
    input:
        unpack(PLAN.space_inputs),
    output:
        measures=paths.space("{model}", "{scope}", "{collection}"),
    log:
        "results/logs/measure_space/{model}/{scope}/{collection}.log",
    benchmark:
        "results/benchmarks/measure_space/{model}/{scope}/{collection}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("trained"),
        scope="shared",
    conda:
        ENVIRONMENT
    threads: PLAN.threads("measure_space")
    resources:
        mem_mb=PLAN.memory_mib("measure_space"),
        runtime=PLAN.minutes("measure_space"),
        gpu=PLAN.gpus("measure_space"),
    params:
        settings=PLAN.settings("measure_space"),
    script:
        "../scripts/run_stage.py"


rule build_item:
    input:
        unpack(PLAN.item_inputs),
    output:
        table=paths.item("{paper}", "{item}", "tsv"),
        markdown=paths.item("{paper}", "{item}", "md"),
        html=report(
            paths.item("{paper}", "{item}", "html"),
            caption="../report/item.rst",
            category="{paper}",
            labels={"file": "{item}", "kind": "table"},
        ),
    log:
        "results/logs/build_item/{paper}/{item}.log",
    benchmark:
        "results/benchmarks/build_item/{paper}/{item}.tsv"
    wildcard_constraints:
        paper=PLAN.pattern_of_papers(),
        item=PLAN.pattern_of_items(),
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("build_item"),
    script:
        "../scripts/run_stage.py"


rule plot_item:
    input:
        table=paths.item("{paper}", "{item}", "tsv"),
    output:
        svg=report(
            paths.item("{paper}", "{item}", "svg"),
            caption="../report/item.rst",
            category="{paper}",
            labels={"file": "{item}", "kind": "figure"},
        ),
        png=paths.item("{paper}", "{item}", "png"),
    log:
        "results/logs/plot_item/{paper}/{item}.log",
    benchmark:
        "results/benchmarks/plot_item/{paper}/{item}.tsv"
    wildcard_constraints:
        paper=PLAN.pattern_of_papers(),
        item=PLAN.pattern_of_items(),
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("plot_item"),
    script:
        "../scripts/run_stage.py"


rule build_paper:
    input:
        tables=lambda wc: [
            paths.item(wc.paper, name, "md") for name in PLAN.items_of(wc.paper)
        ],
        figures=lambda wc: PLAN.figures_of(wc.paper),
    output:
        html=paths.item("{paper}", "all", "html"),
    log:
        "results/logs/build_paper/{paper}.log",
    benchmark:
        "results/benchmarks/build_paper/{paper}.tsv"
    wildcard_constraints:
        paper=PLAN.pattern_of_papers(),
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("build_paper"),
    script:
        "../scripts/run_stage.py"
