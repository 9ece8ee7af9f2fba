# Stages that learn from texts alone: spans of documents, pretraining.


rule cut_spans:
    input:
        unpack(PLAN.inputs("cut_spans")),
    output:
        spans=paths.spans.pattern,
    log:
        "results/logs/cut_spans/{model}/{scope}/{stage}/{collection}.log",
    benchmark:
        "results/benchmarks/cut_spans/{model}/{scope}/{stage}/{collection}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("pretrain"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("cut_spans")
    resources:
        **PLAN.resources("cut_spans"),
    params:
        settings=PLAN.settings("cut_spans"),
    script:
        "../scripts/run_stage.py"


rule pretrain:
    input:
        unpack(PLAN.inputs("pretrain")),
    output:
        model=paths.model.pattern,
    log:
        "results/logs/pretrain/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/pretrain/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("pretrain"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("pretrain")
    resources:
        **PLAN.resources("pretrain"),
    params:
        settings=PLAN.settings("pretrain"),
    script:
        "../scripts/run_stage.py"
