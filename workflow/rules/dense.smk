# Bi-encoders: model folder, embeddings by shard, search by shard, merge; and fusion of two runs.


rule import_model:
    input:
        files=lambda wc: files_of_model(PLAN.method(wc.model).settings.model),
    output:
        model=paths.model("{model}", "{scope}", "imported"),
    log:
        "results/logs/import_model/{model}/{scope}.log",
    benchmark:
        "results/benchmarks/import_model/{model}/{scope}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("encoder"),
        scope="shared",
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("import_model"),
        runtime=PLAN.minutes("import_model"),
    params:
        settings=PLAN.settings("import_model"),
    script:
        "../scripts/run_stage.py"


rule embed_corpus:
    input:
        collection=paths.collection("{collection}"),
        model=lambda wc: PLAN.model_of(wc.model, wc.scope),
    output:
        embeddings=paths.embeddings(
            "{model}", "{scope}", "{collection}", "{protocol}", "corpus-{shard}"
        ),
    log:
        "results/logs/embed_corpus/{model}/{scope}/{collection}/{protocol}/{shard}.log",
    benchmark:
        "results/benchmarks/embed_corpus/{model}/{scope}/{collection}/{protocol}/{shard}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("encoder", "trained"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("embed_corpus")
    resources:
        mem_mb=PLAN.memory_mib("embed_corpus"),
        runtime=PLAN.minutes("embed_corpus"),
        gpu=PLAN.gpus("embed_corpus"),
    params:
        settings=PLAN.settings("embed_corpus"),
    script:
        "../scripts/run_stage.py"


rule embed_queries:
    input:
        collection=paths.collection("{collection}"),
        model=lambda wc: PLAN.model_of(wc.model, wc.scope),
    output:
        embeddings=paths.embeddings(
            "{model}", "{scope}", "{collection}", "{protocol}", "queries.{split}"
        ),
    log:
        "results/logs/embed_queries/{model}/{scope}/{collection}/{protocol}/{split}.log",
    benchmark:
        "results/benchmarks/embed_queries/{model}/{scope}/{collection}/{protocol}/{split}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("encoder", "trained"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("embed_queries")
    resources:
        mem_mb=PLAN.memory_mib("embed_queries"),
        runtime=PLAN.minutes("embed_queries"),
        gpu=PLAN.gpus("embed_queries"),
    params:
        settings=PLAN.settings("embed_queries"),
    script:
        "../scripts/run_stage.py"


rule search_shard:
    input:
        queries=PLAN.query_embeddings,
        corpus=lambda wc: PLAN.embeddings_for(wc, f"corpus-{wc.shard}"),
        collection=paths.collection("{collection}"),
    output:
        hits=paths.shard_hits("{model}", "{collection}", "{protocol}", "shard-{shard}"),
    log:
        "results/logs/search_shard/{model}/{collection}/{protocol}/{shard}.log",
    benchmark:
        "results/benchmarks/search_shard/{model}/{collection}/{protocol}/{shard}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("encoder", "trained"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("search_shard")
    resources:
        mem_mb=PLAN.memory_mib("search_shard"),
        runtime=PLAN.minutes("search_shard"),
    params:
        settings=PLAN.settings("search_shard"),
    script:
        "../scripts/run_stage.py"


rule merge_run:
    input:
        hits=lambda wc: [
            paths.shard_hits(wc.model, wc.collection, wc.protocol, part)
            for part in PLAN.shard_names("shard", wc.collection)
        ],
        collection=paths.collection("{collection}"),
    output:
        run=paths.run("{model}", "{collection}", "{protocol}"),
    log:
        "results/logs/merge_run/{model}/{collection}/{protocol}.log",
    benchmark:
        "results/benchmarks/merge_run/{model}/{collection}/{protocol}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("encoder", "trained"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("merge_run"),
        runtime=PLAN.minutes("merge_run"),
    params:
        settings=PLAN.settings("merge_run"),
    script:
        "../scripts/run_stage.py"


rule fuse_runs:
    input:
        runs=lambda wc: [
            paths.run(run, wc.collection, wc.protocol)
            for run in PLAN.method(wc.model).settings.runs
        ],
        collection=paths.collection("{collection}"),
    output:
        run=paths.run("{model}", "{collection}", "{protocol}"),
    log:
        "results/logs/fuse_runs/{model}/{collection}/{protocol}.log",
    benchmark:
        "results/benchmarks/fuse_runs/{model}/{collection}/{protocol}.tsv"
    wildcard_constraints:
        model=PLAN.pattern("fusion"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("fuse_runs"),
        runtime=PLAN.minutes("fuse_runs"),
    params:
        settings=PLAN.settings("fuse_runs"),
    script:
        "../scripts/run_stage.py"
