# Where training queries get their negatives from: a ranking by BM25 or by a model, then a choice.
# In rankings, `split` may be a sample of a split.


rule sample_queries:
    """Draw a sample of training queries.

    Reads: collection.
    """
    input:
        unpack(PLAN.inputs("sample_queries")),
    output:
        sample=paths.sample.pattern,
    wildcard_constraints:
        queries=r"\d+",
        stage_index=r"\d+",
        dev_queries=r"\d+",
        seed=r"\d+",
    script:
        "../scripts/run_stage.py"


rule rank_bm25:
    """Rank training queries by BM25.

    Reads: collection, index, sample.
    """
    input:
        unpack(PLAN.inputs("rank_bm25")),
    output:
        candidates=paths.candidates.pattern,
    wildcard_constraints:
        model=PATTERNS.methods("lexical"),
        scope="shared",
        split=PATTERNS.ranked_splits(),
    script:
        "../scripts/run_stage.py"


rule search_candidates:
    """Search one shard for training queries.

    Reads: collection, corpus, queries, sample.
    """
    input:
        unpack(PLAN.inputs("search_candidates")),
    output:
        hits=temp(
            paths.candidate_hits(
                "{model}",
                "{scope}",
                "{collection}",
                "{split}",
                "{depth}",
                "shard-{shard}",
            )
        ),
    wildcard_constraints:
        model=PATTERNS.methods("encoder", "trained"),
        split=PATTERNS.ranked_splits(),
    script:
        "../scripts/run_stage.py"


rule merge_candidates:
    """Merge the hits of all shards to a ranking of training queries.

    Reads: collection, hits, sample.
    """
    input:
        unpack(PLAN.inputs("merge_candidates")),
    output:
        candidates=paths.candidates.pattern,
    wildcard_constraints:
        model=PATTERNS.methods("encoder", "trained"),
        split=PATTERNS.ranked_splits(),
    script:
        "../scripts/run_stage.py"


rule fuse_candidates:
    """Fuse two rankings of training queries.

    Reads: rankings.
    """
    input:
        unpack(PLAN.inputs("fuse_candidates")),
    output:
        candidates=paths.candidates.pattern,
    wildcard_constraints:
        model=PATTERNS.methods("fusion"),
        scope="shared",
        split=PATTERNS.ranked_splits(),
    script:
        "../scripts/run_stage.py"


rule mine_negatives:
    """Mine negatives from rankings of training queries.

    Reads: source, candidates, previous, file.
    """
    input:
        unpack(PLAN.inputs("mine_negatives")),
    output:
        mined=paths.mined.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune", "moma"),
    script:
        "../scripts/run_stage.py"


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


# Cross-encoders that score pairs for distillation.


rule score_pairs:
    """Score mined pairs with a cross-encoder.

    Reads: mined, source, teacher.
    """
    input:
        unpack(PLAN.inputs("score_pairs")),
    output:
        scored=paths.scored.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    script:
        "../scripts/run_stage.py"
