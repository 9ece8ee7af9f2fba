# MoMA: memories are embedded and searched by augmenters, and their documents join the queries.

from zerodr.papers.moma.plan.memories import pattern_of_augmenters


rule embed_memory:
    input:
        unpack(PLAN.inputs("embed_memory")),
    output:
        embeddings=paths.memory_embeddings(
            "{model}", "{scope}", "{stage}", "{collection}", "corpus-{shard}"
        ),
    log:
        "results/logs/embed_memory/{model}/{scope}/{stage}/{collection}/{shard}.log",
    benchmark:
        "results/benchmarks/embed_memory/{model}/{scope}/{stage}/{collection}/{shard}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("embed_memory")
    resources:
        **PLAN.resources("embed_memory"),
    params:
        settings=PLAN.settings("embed_memory"),
    script:
        "../../scripts/run_stage.py"


rule embed_memory_queries:
    input:
        unpack(PLAN.inputs("embed_memory_queries")),
    output:
        embeddings=paths.memory_embeddings(
            "{model}", "{scope}", "{stage}", "{collection}", "queries.{split}"
        ),
    log:
        "results/logs/embed_memory_queries/{model}/{scope}/{stage}/{collection}/{split}.log",
    benchmark:
        "results/benchmarks/embed_memory_queries/{model}/{scope}/{stage}/{collection}/{split}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("embed_memory_queries")
    resources:
        **PLAN.resources("embed_memory_queries"),
    params:
        settings=PLAN.settings("embed_memory_queries"),
    script:
        "../../scripts/run_stage.py"


rule search_memory:
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
    log:
        "results/logs/search_memory/{model}/{scope}/{stage}/{kind}/{collection}/{split}.top{depth}/{memory}/{shard}.log",
    benchmark:
        "results/benchmarks/search_memory/{model}/{scope}/{stage}/{kind}/{collection}/{split}.top{depth}/{memory}/{shard}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=pattern_of_augmenters(PLAN),
        kind="hits|hits-with-self",
        memory=PATTERNS.collections(),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("search_memory")
    resources:
        **PLAN.resources("search_memory"),
    params:
        settings=PLAN.settings("search_memory"),
    script:
        "../../scripts/run_stage.py"


rule merge_memories:
    input:
        unpack(PLAN.inputs("merge_memories")),
    output:
        rankings=paths.augmentations.pattern,
    log:
        "results/logs/merge_memories/{model}/{scope}/{stage}/{use}/{collection}/{split}.log",
    benchmark:
        "results/benchmarks/merge_memories/{model}/{scope}/{stage}/{use}/{collection}/{split}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
        use="learning|search",
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("merge_memories"),
    params:
        settings=PLAN.settings("merge_memories"),
    script:
        "../../scripts/run_stage.py"


rule embed_fused_queries:
    input:
        unpack(PLAN.inputs("embed_fused_queries")),
    output:
        embeddings=paths.fused_queries.pattern,
    log:
        "results/logs/embed_fused_queries/{model}/{scope}/{stage}/{collection}/{protocol}/{split}.log",
    benchmark:
        "results/benchmarks/embed_fused_queries/{model}/{scope}/{stage}/{collection}/{protocol}/{split}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("embed_fused_queries")
    resources:
        **PLAN.resources("embed_fused_queries"),
    params:
        settings=PLAN.settings("embed_fused_queries"),
    script:
        "../../scripts/run_stage.py"


rule export_memory:
    input:
        unpack(PLAN.inputs("export_memory")),
    output:
        memory=paths.exported_memory.pattern,
    log:
        "results/logs/export_memory/{model}/{scope}/{memory}.log",
    benchmark:
        "results/benchmarks/export_memory/{model}/{scope}/{memory}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("trained"),
        memory=PATTERNS.collections(),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("export_memory"),
    params:
        settings=PLAN.settings("export_memory"),
    script:
        "../../scripts/run_stage.py"
