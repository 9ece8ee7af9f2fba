# Metrics of runs, and significance between them.


rule evaluate_run:
    input:
        unpack(PLAN.inputs("evaluate_run")),
    output:
        summary=paths.summary.pattern,
        per_query=paths.per_query.pattern,
    log:
        "results/logs/evaluate_run/{model}/{collection}/{protocol}.log",
    benchmark:
        "results/benchmarks/evaluate_run/{model}/{collection}/{protocol}.tsv"
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("evaluate_run"),
    params:
        settings=PLAN.settings("evaluate_run"),
    script:
        "../scripts/run_stage.py"


rule compare_runs:
    input:
        unpack(PLAN.inputs("compare_runs")),
    output:
        significance=paths.compared(PLAN.selection, "significance.tsv"),
        per_query=paths.compared(PLAN.selection, "per_query.parquet"),
        holes=paths.compared(PLAN.selection, "holes.tsv"),
    log:
        f"results/logs/compare_runs/{PLAN.selection}.log",
    benchmark:
        f"results/benchmarks/compare_runs/{PLAN.selection}.tsv"
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("compare_runs"),
    params:
        settings=PLAN.settings("compare_runs"),
    script:
        "../scripts/run_stage.py"
