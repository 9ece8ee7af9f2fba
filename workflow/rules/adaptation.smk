# A folder with documents: known items held out, all candidates compared, the best one exported with a page about it.


rule hold_out_items:
    input:
        unpack(PLAN.inputs("hold_out_items")),
    output:
        collection=paths.collection.pattern,
    log:
        "results/logs/hold_out_items/{collection}.log",
    benchmark:
        "results/benchmarks/hold_out_items/{collection}.tsv"
    wildcard_constraints:
        collection=PATTERNS.proxies(),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("hold_out_items")
    resources:
        **PLAN.resources("hold_out_items"),
    params:
        settings=PLAN.settings("hold_out_items"),
    script:
        "../scripts/run_stage.py"


rule judge_adaptation:
    input:
        unpack(PLAN.inputs("judge_adaptation")),
    output:
        answer=paths.adapted_answer.pattern,
    log:
        "results/logs/judge_adaptation/{collection}.log",
    benchmark:
        "results/benchmarks/judge_adaptation/{collection}.tsv"
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("judge_adaptation"),
    params:
        settings=PLAN.settings("judge_adaptation"),
    script:
        "../scripts/run_stage.py"


rule export_adapted:
    input:
        unpack(PLAN.inputs("export_adapted")),
    output:
        model=paths.adapted_model.pattern,
    log:
        "results/logs/export_adapted/{collection}.log",
    benchmark:
        "results/benchmarks/export_adapted/{collection}.tsv"
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("export_adapted"),
    params:
        settings=PLAN.settings("export_adapted"),
    script:
        "../scripts/run_stage.py"


rule build_adapted_page:
    input:
        unpack(PLAN.inputs("build_adapted_page")),
    output:
        page=paths.adapted_page.pattern,
    log:
        "results/logs/build_adapted_page/{collection}.log",
    benchmark:
        "results/benchmarks/build_adapted_page/{collection}.tsv"
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("build_adapted_page"),
    script:
        "../scripts/run_stage.py"
