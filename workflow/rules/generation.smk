# Queries that are made from a target's documents, for stages that learn without judgements.


rule generate_queries:
    """Write queries for documents of a target.

    Reads: collection, index.
    """
    input:
        unpack(PLAN.inputs("generate_queries")),
    output:
        collection=paths.generated.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    script:
        "../scripts/run_stage.py"
