# Where training queries get their negatives from: a ranking by BM25 or by a model, then a choice.
# In rankings, `split` may be a sample of a split.


rule sample_queries:
    input:
        unpack(PLAN.inputs("sample_queries")),
    output:
        sample=paths.sample.pattern,
    log:
        f"results/logs/sample_queries/{{collection}}/{paths.sampled.pattern}.log",
    benchmark:
        f"results/benchmarks/sample_queries/{{collection}}/{paths.sampled.pattern}.tsv"
    wildcard_constraints:
        queries=r"\d+",
        stage_index=r"\d+",
        dev_queries=r"\d+",
        seed=r"\d+",
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("sample_queries"),
    params:
        settings=PLAN.settings("sample_queries"),
    script:
        "../scripts/run_stage.py"


rule rank_bm25:
    input:
        unpack(PLAN.inputs("rank_bm25")),
    output:
        candidates=paths.candidates.pattern,
    log:
        "results/logs/rank_bm25/{model}/{scope}/{collection}/{split}.top{depth}.log",
    benchmark:
        "results/benchmarks/rank_bm25/{model}/{scope}/{collection}/{split}.top{depth}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("lexical"),
        scope="shared",
        split=PATTERNS.ranked_splits(),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("rank_bm25")
    resources:
        **PLAN.resources("rank_bm25"),
    params:
        settings=PLAN.settings("rank_bm25"),
    script:
        "../scripts/run_stage.py"


rule search_candidates:
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
    log:
        "results/logs/search_candidates/{model}/{scope}/{collection}/{split}.top{depth}/{shard}.log",
    benchmark:
        "results/benchmarks/search_candidates/{model}/{scope}/{collection}/{split}.top{depth}/{shard}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("encoder", "trained"),
        split=PATTERNS.ranked_splits(),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("search_candidates")
    resources:
        **PLAN.resources("search_candidates"),
    params:
        settings=PLAN.settings("search_candidates"),
    script:
        "../scripts/run_stage.py"


rule merge_candidates:
    input:
        unpack(PLAN.inputs("merge_candidates")),
    output:
        candidates=paths.candidates.pattern,
    log:
        "results/logs/merge_candidates/{model}/{scope}/{collection}/{split}.top{depth}.log",
    benchmark:
        "results/benchmarks/merge_candidates/{model}/{scope}/{collection}/{split}.top{depth}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("encoder", "trained"),
        split=PATTERNS.ranked_splits(),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("merge_candidates"),
    params:
        settings=PLAN.settings("merge_candidates"),
    script:
        "../scripts/run_stage.py"


rule fuse_candidates:
    input:
        unpack(PLAN.inputs("fuse_candidates")),
    output:
        candidates=paths.candidates.pattern,
    log:
        "results/logs/fuse_candidates/{model}/{scope}/{collection}/{split}.top{depth}.log",
    benchmark:
        "results/benchmarks/fuse_candidates/{model}/{scope}/{collection}/{split}.top{depth}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("fusion"),
        scope="shared",
        split=PATTERNS.ranked_splits(),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("fuse_candidates"),
    params:
        settings=PLAN.settings("fuse_candidates"),
    script:
        "../scripts/run_stage.py"


rule mine_negatives:
    input:
        unpack(PLAN.inputs("mine_negatives")),
    output:
        mined=paths.mined.pattern,
    log:
        "results/logs/mine_negatives/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/mine_negatives/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune", "moma"),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("mine_negatives"),
    params:
        settings=PLAN.settings("mine_negatives"),
    script:
        "../scripts/run_stage.py"
