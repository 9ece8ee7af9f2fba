# Trained methods: an initial model, fine-tuning stages, export. Which stage makes which model: zerodr.plan.chains.


rule init_model:
    input:
        unpack(PLAN.inputs("init_model")),
    output:
        model=paths.model("{model}", "{scope}", "init"),
    log:
        "results/logs/init_model/{model}/{scope}.log",
    benchmark:
        "results/benchmarks/init_model/{model}/{scope}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("init_model"),
    params:
        settings=PLAN.settings("init_model"),
    script:
        "../scripts/run_stage.py"


rule finetune:
    input:
        unpack(PLAN.inputs("finetune")),
    output:
        model=paths.model.pattern,
    log:
        "results/logs/finetune/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/finetune/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("finetune")
    resources:
        **PLAN.resources("finetune"),
    params:
        settings=PLAN.settings("finetune"),
    script:
        "../scripts/run_stage.py"


rule take_step:
    input:
        unpack(PLAN.inputs("take_step")),
    output:
        model=paths.model("{model}", "{scope}", "{stage}.{step}"),
    log:
        "results/logs/take_step/{model}/{scope}/{stage}.{step}.log",
    benchmark:
        "results/benchmarks/take_step/{model}/{scope}/{stage}.{step}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune", "pretrain"),
        step=r"\d+",
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("take_step"),
    script:
        "../scripts/run_stage.py"


rule export_model:
    input:
        unpack(PLAN.inputs("export_model")),
    output:
        exported=paths.exported.pattern,
    log:
        "results/logs/export_model/{model}/{scope}.log",
    benchmark:
        "results/benchmarks/export_model/{model}/{scope}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("trained"),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("export_model"),
    params:
        settings=PLAN.settings("export_model"),
    script:
        "../scripts/run_stage.py"
