# Trained methods: an initial model, fine-tuning stages, export. What follows what: zerodr.plan.chains.


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
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("init_model"),
        runtime=PLAN.minutes("init_model"),
    params:
        settings=PLAN.settings("init_model"),
    script:
        "../scripts/run_stage.py"


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
        stage=PLAN.pattern_of_stages("finetune"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("finetune")
    resources:
        **PLAN.placement("finetune"),
        mem_mb=PLAN.memory_mib("finetune"),
        runtime=PLAN.minutes("finetune"),
        gpu=PLAN.gpus("finetune"),
    params:
        settings=PLAN.settings("finetune"),
    script:
        "../scripts/run_stage.py"


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
        stage=PLAN.pattern_of_stages("finetune", "pretrain"),
        step=r"\d+",
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("take_step"),
    script:
        "../scripts/run_stage.py"


rule export_model:
    input:
        model=lambda wc: PLAN.model_of(wc.model, wc.scope),
    output:
        exported=paths.exported("{model}", "{scope}"),
    log:
        "results/logs/export_model/{model}/{scope}.log",
    benchmark:
        "results/benchmarks/export_model/{model}/{scope}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("trained"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("export_model"),
        runtime=PLAN.minutes("export_model"),
    params:
        settings=PLAN.settings("export_model"),
    script:
        "../scripts/run_stage.py"
