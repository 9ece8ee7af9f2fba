# COCO-DR: clusters of training queries, and the vector spaces of pretrained models.


rule cluster_queries:
    input:
        unpack(PLAN.inputs("cluster_queries")),
    output:
        clusters=paths.clusters.pattern,
    log:
        "results/logs/cluster_queries/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/cluster_queries/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("cluster_queries")
    resources:
        **PLAN.resources("cluster_queries"),
    params:
        settings=PLAN.settings("cluster_queries"),
    script:
        "../../scripts/run_stage.py"


rule measure_clusters:
    input:
        unpack(PLAN.inputs("measure_clusters")),
    output:
        losses=paths.cluster_losses.pattern,
    log:
        "results/logs/measure_clusters/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/measure_clusters/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("measure_clusters")
    resources:
        **PLAN.resources("measure_clusters"),
    params:
        settings=PLAN.settings("measure_clusters"),
    script:
        "../../scripts/run_stage.py"


rule measure_space:
    input:
        unpack(PLAN.inputs("measure_space")),
    output:
        measures=paths.space.pattern,
    log:
        "results/logs/measure_space/{model}/{scope}/{collection}.log",
    benchmark:
        "results/benchmarks/measure_space/{model}/{scope}/{collection}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("trained"),
        scope="shared",
    conda:
        ENVIRONMENT
    threads: PLAN.threads("measure_space")
    resources:
        **PLAN.resources("measure_space"),
    params:
        settings=PLAN.settings("measure_space"),
    script:
        "../../scripts/run_stage.py"
