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
        significance=report(
            paths.beir("significance.tsv"),
            caption="../report/significance.rst",
            category="Main table",
            labels={"file": "significance tests"},
        ),
        per_query=paths.beir("all.per_query.parquet"),
        holes=report(
            paths.beir("holes.tsv"),
            caption="../report/holes.rst",
            category="Main table",
            labels={"file": "unjudged documents"},
        ),
    log:
        "results/logs/compare_runs/all.log",
    benchmark:
        "results/benchmarks/compare_runs/all.tsv"
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("compare_runs"),
    params:
        settings=PLAN.settings("compare_runs"),
    script:
        "../scripts/run_stage.py"
