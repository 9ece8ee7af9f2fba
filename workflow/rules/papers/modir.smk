# MoDIR: how a model sees a target and its source.


rule measure_domains:
    """Measure how far a model separates a target from the source.

    Reads: model, source, targets.
    """
    input:
        unpack(PLAN.inputs("measure_domains")),
    output:
        measures=paths.domains("{model}", "{target}", "measures.tsv"),
        nearest=paths.domains("{model}", "{target}", "nearest.parquet"),
    wildcard_constraints:
        model=PATTERNS.methods("trained"),
        target=PATTERNS.targets(),
    script:
        "../../scripts/run_stage.py"


rule project_domains:
    """Project vectors of source and target to a plane.

    Reads: model, source, targets.
    """
    input:
        unpack(PLAN.inputs("project_domains")),
    output:
        projection=paths.domains("{model}", "{target}", "tsne.parquet"),
    wildcard_constraints:
        model=PATTERNS.methods("trained"),
        target=PATTERNS.targets(),
    script:
        "../../scripts/run_stage.py"


rule search_domains:
    """Rank all documents of source and target with one model.

    Reads: source, source_corpus, source_queries, target_corpora, target_queries, targets.
    """
    input:
        unpack(PLAN.inputs("search_domains")),
    output:
        indexes=paths.domain_indexes.pattern,
    wildcard_constraints:
        model=PATTERNS.methods("trained"),
        target=PATTERNS.targets(),
    script:
        "../../scripts/run_stage.py"
