# Bi-encoders: model folder, embeddings by shard, search by shard, merge; fusion of two runs; runs made elsewhere.


rule import_model:
    """Import a bi-encoder from a folder, a package or the hub.

    Reads: files.
    """
    input:
        unpack(PLAN.inputs("import_model")),
    output:
        model=paths.model("{model}", "{scope}", "imported"),
    wildcard_constraints:
        model=PATTERNS.methods("encoder"),
        scope="shared",
    script:
        "../scripts/run_stage.py"


rule embed_corpus:
    """Embed one shard of a corpus.

    Reads: collection, model.
    """
    input:
        unpack(PLAN.inputs("embed_corpus")),
    output:
        embeddings=paths.embeddings(
            "{model}", "{scope}", "{collection}", "{protocol}", "corpus-{shard}"
        ),
    wildcard_constraints:
        model=PATTERNS.methods("encoder", "trained"),
    script:
        "../scripts/run_stage.py"


rule embed_queries:
    """Embed the queries of a split.

    Reads: collection, model.
    """
    input:
        unpack(PLAN.inputs("embed_queries")),
    output:
        embeddings=paths.embeddings(
            "{model}", "{scope}", "{collection}", "{protocol}", "queries.{split}"
        ),
    wildcard_constraints:
        model=PATTERNS.methods("encoder", "trained"),
    script:
        "../scripts/run_stage.py"


rule search_shard:
    """Search one shard of a corpus for all queries.

    Reads: collection, corpus, queries.
    """
    input:
        unpack(PLAN.inputs("search_shard")),
    output:
        hits=paths.shard_hits("{model}", "{collection}", "{protocol}", "shard-{shard}"),
    wildcard_constraints:
        model=PATTERNS.methods("encoder", "feedback", "mixture", "trained"),
    script:
        "../scripts/run_stage.py"


rule merge_run:
    """Merge the hits of all shards to a run.

    Reads: collection, hits.
    """
    input:
        unpack(PLAN.inputs("merge_run")),
    output:
        run=paths.run.pattern,
    wildcard_constraints:
        model=PATTERNS.methods("encoder", "feedback", "mixture", "trained"),
    script:
        "../scripts/run_stage.py"


rule fuse_runs:
    """Fuse two runs to one.

    Reads: runs, collection.
    """
    input:
        unpack(PLAN.inputs("fuse_runs")),
    output:
        run=paths.run.pattern,
    wildcard_constraints:
        model=PATTERNS.methods("fusion"),
    script:
        "../scripts/run_stage.py"


rule import_run:
    """Import a run that was made elsewhere.

    Reads: file, collection.
    """
    input:
        unpack(PLAN.inputs("import_run")),
    output:
        run=paths.run.pattern,
    wildcard_constraints:
        model=PATTERNS.methods("run"),
    script:
        "../scripts/run_stage.py"
