# Cross-encoders that score pairs for distillation.


rule score_pairs:
    input:
        unpack(PLAN.inputs("score_pairs")),
    output:
        scored=paths.scored.pattern,
    log:
        "results/logs/score_pairs/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/score_pairs/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("score_pairs")
    resources:
        **PLAN.resources("score_pairs"),
    params:
        settings=PLAN.settings("score_pairs"),
    script:
        "../scripts/run_stage.py"
