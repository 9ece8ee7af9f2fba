# Feedback: attention to documents learned on the source; queries of a bi-encoder that read documents.


rule learn_attention:
    """Learn on the source how much queries attend to documents.

    Reads: collection, corpus, queries, ranking.
    """
    input:
        unpack(PLAN.inputs("learn_attention")),
    output:
        attention=paths.learned_attention("{model}"),
    wildcard_constraints:
        model=PATTERNS.methods("feedback"),
    script:
        "../scripts/run_stage.py"


rule augment_queries:
    """Add documents of another run to the vectors of queries.

    Reads: collection, corpus, queries, run, attention.
    """
    input:
        unpack(PLAN.inputs("augment_queries")),
    output:
        embeddings=paths.embeddings(
            "{model}", "{scope}", "{collection}", "{protocol}", "queries.{split}"
        ),
    wildcard_constraints:
        model=PATTERNS.methods("feedback"),
        scope="shared",
    script:
        "../scripts/run_stage.py"
