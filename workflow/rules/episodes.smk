# One episode of MoMA: main model, its attention, what that teaches the augmenter, both joined to one model.


rule train_main:
    input:
        unpack(PLAN.main_inputs),
    output:
        model=paths.component("{model}", "{scope}", "{stage}", "main"),
    log:
        "results/logs/train_main/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/train_main/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("moma"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("train_main")
    resources:
        **PLAN.placement("train_main"),
        mem_mb=PLAN.memory_mib("train_main"),
        runtime=PLAN.minutes("train_main"),
        gpu=PLAN.gpus("train_main"),
    params:
        settings=PLAN.settings("train_main"),
    script:
        "../scripts/run_stage.py"


rule measure_attention:
    input:
        unpack(PLAN.attention_inputs),
    output:
        attention=paths.attention(
            "{model}", "{scope}", "{stage}", "{use}", "{collection}", "{split}"
        ),
    log:
        "results/logs/measure_attention/{model}/{scope}/{stage}/{use}/{collection}/{split}.log",
    benchmark:
        "results/benchmarks/measure_attention/{model}/{scope}/{stage}/{use}/{collection}/{split}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("moma"),
        use="learning|search",
    conda:
        ENVIRONMENT
    threads: PLAN.threads("measure_attention")
    resources:
        mem_mb=PLAN.memory_mib("measure_attention"),
        runtime=PLAN.minutes("measure_attention"),
        gpu=PLAN.gpus("measure_attention"),
    params:
        settings=PLAN.settings("measure_attention"),
    script:
        "../scripts/run_stage.py"


rule mine_memories:
    input:
        unpack(PLAN.learned_inputs),
    output:
        learned=paths.learned("{model}", "{scope}", "{stage}"),
    log:
        "results/logs/mine_memories/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/mine_memories/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("moma"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("mine_memories"),
        runtime=PLAN.minutes("mine_memories"),
    params:
        settings=PLAN.settings("mine_memories"),
    script:
        "../scripts/run_stage.py"


rule train_augmenter:
    input:
        unpack(PLAN.augmenter_inputs),
    output:
        model=paths.component("{model}", "{scope}", "{stage}", "augmenter"),
    log:
        "results/logs/train_augmenter/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/train_augmenter/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("moma"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("train_augmenter")
    resources:
        **PLAN.placement("train_augmenter"),
        mem_mb=PLAN.memory_mib("train_augmenter"),
        runtime=PLAN.minutes("train_augmenter"),
        gpu=PLAN.gpus("train_augmenter"),
    params:
        settings=PLAN.settings("train_augmenter"),
    script:
        "../scripts/run_stage.py"


rule join_components:
    input:
        unpack(PLAN.joining_inputs),
    output:
        model=paths.model("{model}", "{scope}", "{stage}"),
    log:
        "results/logs/join_components/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/join_components/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("moma"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("join_components"),
        runtime=PLAN.minutes("join_components"),
    params:
        settings=PLAN.settings("join_components"),
    script:
        "../scripts/run_stage.py"
