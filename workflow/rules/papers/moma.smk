# MoMA: one episode trains a main model, then the augmenter that learns its attention, and joins both.


include: "moma_memory.smk"


localrules:
    join_components,


rule train_main:
    input:
        unpack(PLAN.inputs("train_main")),
    output:
        model=paths.component("{model}", "{scope}", "{stage}", "main"),
    log:
        "results/logs/train_main/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/train_main/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("train_main")
    resources:
        **PLAN.resources("train_main"),
    params:
        settings=PLAN.settings("train_main"),
    script:
        "../../scripts/run_stage.py"


rule measure_attention:
    input:
        unpack(PLAN.inputs("measure_attention")),
    output:
        attention=paths.attention.pattern,
    log:
        "results/logs/measure_attention/{model}/{scope}/{stage}/{use}/{collection}/{split}.log",
    benchmark:
        "results/benchmarks/measure_attention/{model}/{scope}/{stage}/{use}/{collection}/{split}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
        use="learning|search",
    conda:
        ENVIRONMENT
    threads: PLAN.threads("measure_attention")
    resources:
        **PLAN.resources("measure_attention"),
    params:
        settings=PLAN.settings("measure_attention"),
    script:
        "../../scripts/run_stage.py"


rule mine_memories:
    input:
        unpack(PLAN.inputs("mine_memories")),
    output:
        learned=paths.learned.pattern,
    log:
        "results/logs/mine_memories/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/mine_memories/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("mine_memories"),
    params:
        settings=PLAN.settings("mine_memories"),
    script:
        "../../scripts/run_stage.py"


rule train_augmenter:
    input:
        unpack(PLAN.inputs("train_augmenter")),
    output:
        model=paths.component("{model}", "{scope}", "{stage}", "augmenter"),
    log:
        "results/logs/train_augmenter/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/train_augmenter/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("train_augmenter")
    resources:
        **PLAN.resources("train_augmenter"),
    params:
        settings=PLAN.settings("train_augmenter"),
    script:
        "../../scripts/run_stage.py"


rule join_components:
    input:
        unpack(PLAN.inputs("join_components")),
    output:
        model=paths.model.pattern,
    log:
        "results/logs/join_components/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/join_components/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("join_components"),
    params:
        settings=PLAN.settings("join_components"),
    script:
        "../../scripts/run_stage.py"


rule measure_shares:
    input:
        unpack(PLAN.inputs("measure_shares")),
    output:
        shares=paths.shares(
            "{model}",
            "{scope}",
            "{stage}",
            "{use}",
            "{collection}",
            "{split}",
            "shares.tsv",
        ),
        cases=paths.shares(
            "{model}",
            "{scope}",
            "{stage}",
            "{use}",
            "{collection}",
            "{split}",
            "cases.tsv",
        ),
    log:
        "results/logs/measure_shares/{model}/{scope}/{stage}/{use}/{collection}/{split}.log",
    benchmark:
        "results/benchmarks/measure_shares/{model}/{scope}/{stage}/{use}/{collection}/{split}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
        use="learning|search",
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("measure_shares"),
    params:
        settings=PLAN.settings("measure_shares"),
    script:
        "../../scripts/run_stage.py"


rule measure_latency:
    input:
        unpack(PLAN.inputs("measure_latency")),
    output:
        latency=paths.latency.pattern,
    log:
        "results/logs/measure_latency/{model}/{scope}/{stage}/{collection}/{split}.log",
    benchmark:
        "results/benchmarks/measure_latency/{model}/{scope}/{stage}/{collection}/{split}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("measure_latency")
    resources:
        **PLAN.resources("measure_latency"),
    params:
        settings=PLAN.settings("measure_latency"),
    script:
        "../../scripts/run_stage.py"
