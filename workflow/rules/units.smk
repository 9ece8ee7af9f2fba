# Units of passages: cut, read, labelled; and the readers that score them  (BERM).


rule segment_units:
    input:
        unpack(PLAN.unit_inputs),
    output:
        units=paths.units("{model}", "{scope}", "{stage}", "cut"),
    log:
        "results/logs/segment_units/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/segment_units/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("finetune"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("segment_units"),
        runtime=PLAN.minutes("segment_units"),
    params:
        settings=PLAN.settings("segment_units"),
    script:
        "../scripts/run_stage.py"


rule label_units:
    input:
        unpack(PLAN.label_inputs),
    output:
        labels=paths.units("{model}", "{scope}", "{stage}", "labels"),
    log:
        "results/logs/label_units/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/label_units/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("finetune"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("label_units"),
        runtime=PLAN.minutes("label_units"),
    params:
        settings=PLAN.settings("label_units"),
    script:
        "../scripts/run_stage.py"


rule init_reader:
    input:
        unpack(PLAN.reader_start),
    output:
        reader=paths.model("{model}", "{scope}", "init"),
    log:
        "results/logs/init_reader/{model}/{scope}.log",
    benchmark:
        "results/benchmarks/init_reader/{model}/{scope}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("reader"),
        scope="shared",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("init_reader"),
        runtime=PLAN.minutes("init_reader"),
    params:
        settings=PLAN.settings("init_reader"),
    script:
        "../scripts/run_stage.py"


rule train_reader:
    input:
        unpack(PLAN.reader_inputs),
    output:
        reader=paths.model("{model}", "{scope}", "reader"),
    log:
        "results/logs/train_reader/{model}/{scope}.log",
    benchmark:
        "results/benchmarks/train_reader/{model}/{scope}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("reader"),
        scope="shared",
    conda:
        ENVIRONMENT
    threads: PLAN.threads("train_reader")
    resources:
        **PLAN.placement("train_reader"),
        mem_mb=PLAN.memory_mib("train_reader"),
        runtime=PLAN.minutes("train_reader"),
        gpu=PLAN.gpus("train_reader"),
    params:
        settings=PLAN.settings("train_reader"),
    script:
        "../scripts/run_stage.py"


rule read_units:
    input:
        unpack(PLAN.reading_inputs),
    output:
        read=paths.units("{model}", "{scope}", "{stage}", "read"),
    log:
        "results/logs/read_units/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/read_units/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("finetune"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("read_units")
    resources:
        mem_mb=PLAN.memory_mib("read_units"),
        runtime=PLAN.minutes("read_units"),
        gpu=PLAN.gpus("read_units"),
    params:
        settings=PLAN.settings("read_units"),
    script:
        "../scripts/run_stage.py"


rule measure_units:
    input:
        unpack(PLAN.measuring_inputs),
    output:
        measures=paths.unit_measures("{units_of}", "{model}"),
    log:
        "results/logs/measure_units/{units_of}/{model}.log",
    benchmark:
        "results/benchmarks/measure_units/{units_of}/{model}.tsv"
    wildcard_constraints:
        units_of=PLAN.pattern_of_units(),
        model=PLAN.pattern("trained"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("measure_units")
    resources:
        mem_mb=PLAN.memory_mib("measure_units"),
        runtime=PLAN.minutes("measure_units"),
        gpu=PLAN.gpus("measure_units"),
    params:
        settings=PLAN.settings("measure_units"),
    script:
        "../scripts/run_stage.py"
