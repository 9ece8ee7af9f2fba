# Cross-encoders that score pairs for distillation.


rule init_teacher:
    input:
        unpack(PLAN.inputs("init_teacher")),
    output:
        teacher=paths.model("{model}", "{scope}", "init"),
    log:
        "results/logs/init_teacher/{model}/{scope}.log",
    benchmark:
        "results/benchmarks/init_teacher/{model}/{scope}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("teacher"),
        scope="shared",
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("init_teacher"),
    params:
        settings=PLAN.settings("init_teacher"),
    script:
        "../scripts/run_stage.py"


use rule mine_negatives as mine_for_teacher with:
    output:
        mined=paths.mined("{model}", "{scope}", "teacher"),
    log:
        "results/logs/mine_for_teacher/{model}/{scope}.log",
    benchmark:
        "results/benchmarks/mine_for_teacher/{model}/{scope}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("teacher"),


rule train_teacher:
    input:
        unpack(PLAN.inputs("train_teacher")),
    output:
        teacher=paths.model("{model}", "{scope}", "teacher"),
    log:
        "results/logs/train_teacher/{model}/{scope}.log",
    benchmark:
        "results/benchmarks/train_teacher/{model}/{scope}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("teacher"),
        scope="shared",
    conda:
        ENVIRONMENT
    threads: PLAN.threads("train_teacher")
    resources:
        **PLAN.resources("train_teacher"),
    params:
        settings=PLAN.settings("train_teacher"),
    script:
        "../scripts/run_stage.py"


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
