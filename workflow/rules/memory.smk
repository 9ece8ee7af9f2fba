# Models whose queries are augmented with documents of memories (MoMA): what follows what is in zerodr.plan.memories.


rule embed_memory:
    input:
        collection=paths.collection("{collection}"),
        model=PLAN.memory_model,
    output:
        embeddings=paths.memory_embeddings(
            "{model}", "{scope}", "{stage}", "{collection}", "corpus-{shard}"
        ),
    log:
        "results/logs/embed_memory/{model}/{scope}/{stage}/{collection}/{shard}.log",
    benchmark:
        "results/benchmarks/embed_memory/{model}/{scope}/{stage}/{collection}/{shard}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("moma"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("embed_memory")
    resources:
        mem_mb=PLAN.memory_mib("embed_memory"),
        runtime=PLAN.minutes("embed_memory"),
        gpu=PLAN.gpus("embed_memory"),
    params:
        settings=PLAN.settings("embed_memory"),
    script:
        "../scripts/run_stage.py"


rule embed_memory_queries:
    input:
        collection=paths.collection("{collection}"),
        model=PLAN.memory_model,
    output:
        embeddings=paths.memory_embeddings(
            "{model}", "{scope}", "{stage}", "{collection}", "queries.{split}"
        ),
    log:
        "results/logs/embed_memory_queries/{model}/{scope}/{stage}/{collection}/{split}.log",
    benchmark:
        "results/benchmarks/embed_memory_queries/{model}/{scope}/{stage}/{collection}/{split}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("moma"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("embed_memory_queries")
    resources:
        mem_mb=PLAN.memory_mib("embed_memory_queries"),
        runtime=PLAN.minutes("embed_memory_queries"),
        gpu=PLAN.gpus("embed_memory_queries"),
    params:
        settings=PLAN.settings("embed_memory_queries"),
    script:
        "../scripts/run_stage.py"


rule search_memory:
    input:
        unpack(PLAN.memory_search_inputs),
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
    log:
        "results/logs/search_memory/{model}/{scope}/{stage}/{kind}/{collection}/{split}.top{depth}/{memory}/{shard}.log",
    benchmark:
        "results/benchmarks/search_memory/{model}/{scope}/{stage}/{kind}/{collection}/{split}.top{depth}/{memory}/{shard}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_augmenters(),
        kind="hits|hits-with-self",
        memory=PLAN.pattern_of_collections(),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("search_memory")
    resources:
        mem_mb=PLAN.memory_mib("search_memory"),
        runtime=PLAN.minutes("search_memory"),
    params:
        settings=PLAN.settings("search_memory"),
    script:
        "../scripts/run_stage.py"


rule merge_memories:
    input:
        unpack(PLAN.mixture_inputs),
    output:
        rankings=paths.augmentations(
            "{model}", "{scope}", "{stage}", "{use}", "{collection}", "{split}"
        ),
    log:
        "results/logs/merge_memories/{model}/{scope}/{stage}/{use}/{collection}/{split}.log",
    benchmark:
        "results/benchmarks/merge_memories/{model}/{scope}/{stage}/{use}/{collection}/{split}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("moma"),
        use="learning|search",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("merge_memories"),
        runtime=PLAN.minutes("merge_memories"),
    params:
        settings=PLAN.settings("merge_memories"),
    script:
        "../scripts/run_stage.py"


rule embed_fused_queries:
    input:
        unpack(PLAN.fused_inputs),
    output:
        embeddings=paths.fused_queries(
            "{model}", "{scope}", "{stage}", "{collection}", "{protocol}", "{split}"
        ),
    log:
        "results/logs/embed_fused_queries/{model}/{scope}/{stage}/{collection}/{protocol}/{split}.log",
    benchmark:
        "results/benchmarks/embed_fused_queries/{model}/{scope}/{stage}/{collection}/{protocol}/{split}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("moma"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("embed_fused_queries")
    resources:
        mem_mb=PLAN.memory_mib("embed_fused_queries"),
        runtime=PLAN.minutes("embed_fused_queries"),
        gpu=PLAN.gpus("embed_fused_queries"),
    params:
        settings=PLAN.settings("embed_fused_queries"),
    script:
        "../scripts/run_stage.py"


rule export_memory:
    input:
        unpack(PLAN.exported_memory_inputs),
    output:
        memory=paths.exported_memory("{model}", "{scope}", "{memory}"),
    log:
        "results/logs/export_memory/{model}/{scope}/{memory}.log",
    benchmark:
        "results/benchmarks/export_memory/{model}/{scope}/{memory}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("trained"),
        memory=PLAN.pattern_of_collections(),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("export_memory"),
        runtime=PLAN.minutes("export_memory"),
    params:
        settings=PLAN.settings("export_memory"),
    script:
        "../scripts/run_stage.py"
