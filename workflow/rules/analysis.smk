# What models know beyond their rankings.


rule measure_domains:
    input:
        unpack(PLAN.domain_inputs),
    output:
        measures=paths.domains("{model}", "{target}", "measures.tsv"),
        nearest=paths.domains("{model}", "{target}", "nearest.parquet"),
    log:
        "results/logs/measure_domains/{model}/{target}.log",
    benchmark:
        "results/benchmarks/measure_domains/{model}/{target}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("trained"),
        target=PLAN.pattern_of_targets(),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("measure_domains")
    resources:
        mem_mb=PLAN.memory_mib("measure_domains"),
        runtime=PLAN.minutes("measure_domains"),
        gpu=PLAN.gpus("measure_domains"),
    params:
        settings=PLAN.settings("measure_domains"),
    script:
        "../scripts/run_stage.py"


rule project_domains:
    input:
        unpack(PLAN.domain_inputs),
    output:
        projection=paths.domains("{model}", "{target}", "tsne.parquet"),
    log:
        "results/logs/project_domains/{model}/{target}.log",
    benchmark:
        "results/benchmarks/project_domains/{model}/{target}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("trained"),
        target=PLAN.pattern_of_targets(),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("project_domains")
    resources:
        mem_mb=PLAN.memory_mib("project_domains"),
        runtime=PLAN.minutes("project_domains"),
        gpu=PLAN.gpus("project_domains"),
    params:
        settings=PLAN.settings("project_domains"),
    script:
        "../scripts/run_stage.py"


rule measure_shares:
    input:
        unpack(PLAN.shares_inputs),
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
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("moma"),
        use="learning|search",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("measure_shares"),
        runtime=PLAN.minutes("measure_shares"),
    params:
        settings=PLAN.settings("measure_shares"),
    script:
        "../scripts/run_stage.py"
