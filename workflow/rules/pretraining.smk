# Stages that learn from texts alone: spans of documents, pretraining.


rule cut_spans:
    input:
        collection=paths.collection("{collection}"),
        model=PLAN.parent_model,
    output:
        spans=paths.spans("{model}", "{scope}", "{stage}", "{collection}"),
    log:
        "results/logs/cut_spans/{model}/{scope}/{stage}/{collection}.log",
    benchmark:
        "results/benchmarks/cut_spans/{model}/{scope}/{stage}/{collection}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("pretrain"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("cut_spans")
    resources:
        mem_mb=PLAN.memory_mib("cut_spans"),
        runtime=PLAN.minutes("cut_spans"),
    params:
        settings=PLAN.settings("cut_spans"),
    script:
        "../scripts/run_stage.py"


rule pretrain:
    input:
        unpack(PLAN.pretrain_inputs),
    output:
        model=paths.model("{model}", "{scope}", "{stage}"),
    log:
        "results/logs/pretrain/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/pretrain/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("pretrain"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("pretrain")
    resources:
        **PLAN.placement("pretrain"),
        mem_mb=PLAN.memory_mib("pretrain"),
        runtime=PLAN.minutes("pretrain"),
        gpu=PLAN.gpus("pretrain"),
    params:
        settings=PLAN.settings("pretrain"),
    script:
        "../scripts/run_stage.py"
