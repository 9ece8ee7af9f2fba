# MoMA: memories are embedded and searched by augmenters, and their documents join the queries.

from zerodr.papers.moma.plan.memories import pattern_of_augmenters, pattern_of_hits


rule embed_memory:
    """Embed one shard of a memory with an augmenter.

    Reads: collection, model.
    """
    input:
        unpack(PLAN.inputs("embed_memory")),
    output:
        embeddings=paths.memory_embeddings(
            "{model}", "{scope}", "{stage}", "{collection}", "corpus-{shard}"
        ),
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    script:
        "../../scripts/run_stage.py"


rule embed_memory_queries:
    """Embed queries with an augmenter.

    Reads: collection, model.
    """
    input:
        unpack(PLAN.inputs("embed_memory_queries")),
    output:
        embeddings=paths.memory_embeddings(
            "{model}", "{scope}", "{stage}", "{collection}", "queries.{split}"
        ),
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    script:
        "../../scripts/run_stage.py"


rule search_memory:
    """Search one shard of a memory.

    Reads: collection, corpus, memory, queries.
    """
    input:
        unpack(PLAN.inputs("search_memory")),
    output:
        hits=temp(
            paths.memory_hits(
                "{model}",
                "{scope}",
                "{stage}",
                "{kind}",
                "{collection}",
                "{split}",
                "{depth}",
                "{memory}",
                "shard-{shard}",
            )
        ),
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=pattern_of_augmenters(PLAN),
        kind=pattern_of_hits(PLAN),
        memory=PATTERNS.collections(),
    script:
        "../../scripts/run_stage.py"


rule merge_memories:
    """Merge the hits of all memories and shards to the documents that augment queries.

    Reads: hits, memories, collection.
    """
    input:
        unpack(PLAN.inputs("merge_memories")),
    output:
        rankings=paths.augmentations.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
        use="learning|search",
    script:
        "../../scripts/run_stage.py"


rule embed_fused_queries:
    """Embed queries together with the documents that augment them.

    Reads: memories, collection, model, rankings.
    """
    input:
        unpack(PLAN.inputs("embed_fused_queries")),
    output:
        embeddings=paths.fused_queries.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    script:
        "../../scripts/run_stage.py"


rule export_memory:
    """Write a memory next to an exported model, so that it can augment queries.

    Reads: collection, embeddings, model.
    """
    input:
        unpack(PLAN.inputs("export_memory")),
    output:
        memory=paths.exported_memory.pattern,
    wildcard_constraints:
        model=PATTERNS.methods("trained"),
        memory=PATTERNS.collections(),
    script:
        "../../scripts/run_stage.py"
