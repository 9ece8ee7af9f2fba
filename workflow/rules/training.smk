# Trained methods: an initial model, fine-tuning stages, teachers, export. What follows what: zerodr.plan.chains.


rule init_model:
    input:
        unpack(PLAN.init_inputs),
    output:
        model=paths.model("{model}", "{scope}", "init"),
    log:
        "results/logs/init_model/{model}/{scope}.log",
    benchmark:
        "results/benchmarks/init_model/{model}/{scope}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        scope="shared",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("init_model"),
        runtime=PLAN.minutes("init_model"),
    params:
        settings=PLAN.settings("init_model"),
    script:
        "../scripts/init_model.py"


rule finetune:
    input:
        unpack(PLAN.finetune_inputs),
    output:
        model=paths.model("{model}", "{scope}", "{stage}"),
    log:
        "results/logs/finetune/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/finetune/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        scope="shared",
        stage=PLAN.pattern_of_stages(),
    retries: 1
    conda:
        ENVIRONMENT
    threads: PLAN.threads("finetune")
    resources:
        mem_mb=PLAN.memory_mib("finetune"),
        runtime=PLAN.minutes("finetune"),
        gpu=PLAN.gpus("finetune"),
    params:
        settings=PLAN.settings("finetune"),
    script:
        "../scripts/finetune.py"


rule take_step:
    input:
        model=paths.model("{model}", "{scope}", "{stage}"),
    output:
        model=paths.model("{model}", "{scope}", "{stage}.{step}"),
    log:
        "results/logs/take_step/{model}/{scope}/{stage}.{step}.log",
    benchmark:
        "results/benchmarks/take_step/{model}/{scope}/{stage}.{step}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        scope="shared",
        stage=PLAN.pattern_of_stages(),
        step=r"\d+",
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("take_step"),
    script:
        "../scripts/take_step.py"


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
        "../scripts/init_teacher.py"


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
    retries: 1
    conda:
        ENVIRONMENT
    threads: PLAN.threads("train_teacher")
    resources:
        mem_mb=PLAN.memory_mib("train_teacher"),
        runtime=PLAN.minutes("train_teacher"),
        gpu=PLAN.gpus("train_teacher"),
    params:
        settings=PLAN.settings("train_teacher"),
    script:
        "../scripts/train_teacher.py"


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
        stage=PLAN.pattern_of_stages(),
    retries: 1
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
        "../scripts/score_pairs.py"


rule export_model:
    input:
        model=lambda wc: PLAN.model_of(wc.model),
    output:
        exported=paths.exported("{model}", "{scope}"),
    log:
        "results/logs/export_model/{model}/{scope}.log",
    benchmark:
        "results/benchmarks/export_model/{model}/{scope}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("trained"),
        scope="shared",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("export_model"),
        runtime=PLAN.minutes("export_model"),
    params:
        settings=PLAN.settings("export_model"),
    script:
        "../scripts/export_model.py"
