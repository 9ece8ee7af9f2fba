# Cross-encoders that score pairs for distillation.


rule score_pairs:
    """Score mined pairs with a cross-encoder.

    Reads: mined, source, teacher.
    """
    input:
        unpack(PLAN.inputs("score_pairs")),
    output:
        scored=paths.scored.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    script:
        "../scripts/run_stage.py"
