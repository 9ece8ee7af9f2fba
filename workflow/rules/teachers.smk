# Cross-encoders that score pairs for distillation.


rule init_teacher:
    input:
        unpack(PLAN.teacher_start),
    output:
        teacher=paths.model("{model}", "{scope}", "init"),
    log:
        "results/logs/init_teacher/{model}/{scope}.log",
    benchmark:
        "results/benchmarks/init_teacher/{model}/{scope}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("teacher"),
        scope="shared",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("init_teacher"),
        runtime=PLAN.minutes("init_teacher"),
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
        model=PLAN.pattern("teacher"),


rule train_teacher:
    input:
        unpack(PLAN.teacher_inputs),
    output:
        teacher=paths.model("{model}", "{scope}", "teacher"),
    log:
        "results/logs/train_teacher/{model}/{scope}.log",
    benchmark:
        "results/benchmarks/train_teacher/{model}/{scope}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("teacher"),
        scope="shared",
    conda:
        ENVIRONMENT
    threads: PLAN.threads("train_teacher")
    resources:
        **PLAN.placement("train_teacher"),
        mem_mb=PLAN.memory_mib("train_teacher"),
        runtime=PLAN.minutes("train_teacher"),
        gpu=PLAN.gpus("train_teacher"),
    params:
        settings=PLAN.settings("train_teacher"),
    script:
        "../scripts/run_stage.py"


rule score_pairs:
    input:
        unpack(PLAN.scoring_inputs),
    output:
        scored=paths.scored("{model}", "{scope}", "{stage}"),
    log:
        "results/logs/score_pairs/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/score_pairs/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("finetune"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("score_pairs")
    resources:
        mem_mb=PLAN.memory_mib("score_pairs"),
        runtime=PLAN.minutes("score_pairs"),
        gpu=PLAN.gpus("score_pairs"),
    params:
        settings=PLAN.settings("score_pairs"),
    script:
        "../scripts/run_stage.py"
