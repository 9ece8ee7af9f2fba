# MoMA over vectors that stay: episodes on the source, then queries of targets that read documents of memories.


rule learn_mixture:
    """Learn on the source which documents of memories queries find, and how they read them.

    Reads: collection, corpus, queries, held_out, memories, collections.
    """
    input:
        unpack(PLAN.inputs("learn_mixture")),
    output:
        attention=paths.learned_attention("{model}"),
    wildcard_constraints:
        model=PATTERNS.methods("mixture"),
    script:
        "../../scripts/run_stage.py"


rule read_memories:
    """Add documents of memories to the vectors of queries.

    Reads: collection, queries, memories, collections, attention.
    """
    input:
        unpack(PLAN.inputs("read_memories")),
    output:
        embeddings=paths.embeddings(
            "{model}", "{scope}", "{collection}", "{protocol}", "queries.{split}"
        ),
    wildcard_constraints:
        model=PATTERNS.methods("mixture"),
        scope="shared",
    script:
        "../../scripts/run_stage.py"
