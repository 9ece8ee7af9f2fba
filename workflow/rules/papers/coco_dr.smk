# COCO-DR: clusters of training queries, and the vector spaces of pretrained models.


rule cluster_queries:
    """Cluster training queries by their vectors.

    Reads: collection, groups, queries.
    """
    input:
        unpack(PLAN.inputs("cluster_queries")),
    output:
        clusters=paths.clusters.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    script:
        "../../scripts/run_stage.py"


rule measure_clusters:
    """Measure the loss of each cluster of queries.

    Reads: clusters, model, queries, source.
    """
    input:
        unpack(PLAN.inputs("measure_clusters")),
    output:
        losses=paths.cluster_losses.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    script:
        "../../scripts/run_stage.py"


rule measure_training:
    """Measure a model's loss on training queries by cluster.

    Reads: clusters, model, queries, source.
    """
    input:
        unpack(PLAN.inputs("measure_training")),
    output:
        losses=paths.training_losses.pattern,
    wildcard_constraints:
        model=PATTERNS.methods("trained"),
        clusters_of=PATTERNS.methods("trained"),
    script:
        "../../scripts/run_stage.py"


rule measure_space:
    """Measure alignment and uniformity of a model's vectors.

    Reads: model, spans.
    """
    input:
        unpack(PLAN.inputs("measure_space")),
    output:
        measures=paths.space.pattern,
    wildcard_constraints:
        model=PATTERNS.methods("trained"),
        scope="shared",
    script:
        "../../scripts/run_stage.py"
