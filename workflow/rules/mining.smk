# Where training queries get their negatives from: a ranking by BM25 or by a model, then a choice. And their clusters.


rule rank_bm25:
    input:
        index=paths.bm25_index("bm25s-flat", "{collection}"),
        collection=paths.collection("{collection}"),
    output:
        candidates=paths.candidates(
            "{model}", "{scope}", "{collection}", "{split}", "{depth}"
        ),
    log:
        "results/logs/rank_bm25/{model}/{scope}/{collection}/{split}.top{depth}.log",
    benchmark:
        "results/benchmarks/rank_bm25/{model}/{scope}/{collection}/{split}.top{depth}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("lexical"),
        scope="shared",
    conda:
        ENVIRONMENT
    threads: PLAN.threads("rank_bm25")
    resources:
        mem_mb=PLAN.memory_mib("rank_bm25"),
        runtime=PLAN.minutes("rank_bm25"),
    params:
        settings=PLAN.settings("rank_bm25"),
    script:
        "../scripts/run_stage.py"


rule search_candidates:
    input:
        queries=lambda wc: PLAN.mining_embeddings(wc, f"queries.{wc.split}"),
        corpus=lambda wc: PLAN.mining_embeddings(wc, f"corpus-{wc.shard}"),
        collection=paths.collection("{collection}"),
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
    log:
        "results/logs/search_candidates/{model}/{scope}/{collection}/{split}.top{depth}/{shard}.log",
    benchmark:
        "results/benchmarks/search_candidates/{model}/{scope}/{collection}/{split}.top{depth}/{shard}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("encoder", "trained"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("search_candidates")
    resources:
        mem_mb=PLAN.memory_mib("search_candidates"),
        runtime=PLAN.minutes("search_candidates"),
    params:
        settings=PLAN.settings("search_candidates"),
    script:
        "../scripts/run_stage.py"


rule merge_candidates:
    input:
        hits=lambda wc: [
            paths.candidate_hits(
                wc.model, wc.scope, wc.collection, wc.split, wc.depth, part
            )
            for part in PLAN.shard_names("shard", wc.collection)
        ],
        collection=paths.collection("{collection}"),
    output:
        candidates=paths.candidates(
            "{model}", "{scope}", "{collection}", "{split}", "{depth}"
        ),
    log:
        "results/logs/merge_candidates/{model}/{scope}/{collection}/{split}.top{depth}.log",
    benchmark:
        "results/benchmarks/merge_candidates/{model}/{scope}/{collection}/{split}.top{depth}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("encoder", "trained"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("merge_candidates"),
        runtime=PLAN.minutes("merge_candidates"),
    params:
        settings=PLAN.settings("merge_candidates"),
    script:
        "../scripts/run_stage.py"


rule mine_negatives:
    input:
        unpack(PLAN.mining_inputs),
    output:
        mined=paths.mined("{model}", "{scope}", "{stage}"),
    log:
        "results/logs/mine_negatives/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/mine_negatives/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("finetune", "moma"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("mine_negatives"),
        runtime=PLAN.minutes("mine_negatives"),
    params:
        settings=PLAN.settings("mine_negatives"),
    script:
        "../scripts/run_stage.py"


rule cluster_queries:
    input:
        unpack(PLAN.cluster_inputs),
    output:
        clusters=paths.clusters("{model}", "{scope}", "{stage}"),
    log:
        "results/logs/cluster_queries/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/cluster_queries/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("finetune"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("cluster_queries")
    resources:
        mem_mb=PLAN.memory_mib("cluster_queries"),
        runtime=PLAN.minutes("cluster_queries"),
    params:
        settings=PLAN.settings("cluster_queries"),
    script:
        "../scripts/run_stage.py"
