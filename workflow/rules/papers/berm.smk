# BERM: units of passages, their labels, and the readers that score them.

from zerodr.papers.berm.plan import pattern_of_units


rule segment_units:
    input:
        unpack(PLAN.inputs("segment_units")),
    output:
        units=paths.units("{model}", "{scope}", "{stage}", "cut"),
    log:
        "results/logs/segment_units/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/segment_units/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("segment_units"),
    params:
        settings=PLAN.settings("segment_units"),
    script:
        "../../scripts/run_stage.py"


rule label_units:
    input:
        unpack(PLAN.inputs("label_units")),
    output:
        labels=paths.units("{model}", "{scope}", "{stage}", "labels"),
    log:
        "results/logs/label_units/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/label_units/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("label_units"),
    params:
        settings=PLAN.settings("label_units"),
    script:
        "../../scripts/run_stage.py"


rule read_units:
    input:
        unpack(PLAN.inputs("read_units")),
    output:
        read=paths.units("{model}", "{scope}", "{stage}", "read"),
    log:
        "results/logs/read_units/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/read_units/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("read_units")
    resources:
        **PLAN.resources("read_units"),
    params:
        settings=PLAN.settings("read_units"),
    script:
        "../../scripts/run_stage.py"


rule measure_units:
    input:
        unpack(PLAN.inputs("measure_units")),
    output:
        measures=paths.unit_measures.pattern,
    log:
        "results/logs/measure_units/{units_of}/{model}.log",
    benchmark:
        "results/benchmarks/measure_units/{units_of}/{model}.tsv"
    wildcard_constraints:
        units_of=pattern_of_units(PLAN),
        model=PATTERNS.methods("trained"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("measure_units")
    resources:
        **PLAN.resources("measure_units"),
    params:
        settings=PLAN.settings("measure_units"),
    script:
        "../../scripts/run_stage.py"
