# Metrics of runs, and significance between them.


rule evaluate_run:
    """Compute the metrics of a run.

    Reads: collection, run.
    """
    input:
        unpack(PLAN.inputs("evaluate_run")),
    output:
        summary=paths.summary.pattern,
        per_query=paths.per_query.pattern,
    script:
        "../scripts/run_stage.py"


rule compare_runs:
    """Test differences between the runs of the main table.

    Reads: per_query.
    """
    input:
        unpack(PLAN.inputs("compare_runs")),
    output:
        significance=paths.compared(PLAN.selection, "significance.tsv"),
        per_query=paths.compared(PLAN.selection, "per_query.parquet"),
        holes=paths.compared(PLAN.selection, "holes.tsv"),
    script:
        "../scripts/run_stage.py"
