# Bi-encoders: model folder, embeddings by shard, search by shard, merge; fusion of two runs; runs made elsewhere.


rule import_model:
    input:
        unpack(PLAN.inputs("import_model")),
    output:
        model=paths.model("{model}", "{scope}", "imported"),
    log:
        "results/logs/import_model/{model}/{scope}.log",
    benchmark:
        "results/benchmarks/import_model/{model}/{scope}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("encoder"),
        scope="shared",
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("import_model"),
    params:
        settings=PLAN.settings("import_model"),
    script:
        "../scripts/run_stage.py"


rule embed_corpus:
    input:
        unpack(PLAN.inputs("embed_corpus")),
    output:
        embeddings=paths.embeddings(
            "{model}", "{scope}", "{collection}", "{protocol}", "corpus-{shard}"
        ),
    log:
        "results/logs/embed_corpus/{model}/{scope}/{collection}/{protocol}/{shard}.log",
    benchmark:
        "results/benchmarks/embed_corpus/{model}/{scope}/{collection}/{protocol}/{shard}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("encoder", "trained"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("embed_corpus")
    resources:
        **PLAN.resources("embed_corpus"),
    params:
        settings=PLAN.settings("embed_corpus"),
    script:
        "../scripts/run_stage.py"


rule embed_queries:
    input:
        unpack(PLAN.inputs("embed_queries")),
    output:
        embeddings=paths.embeddings(
            "{model}", "{scope}", "{collection}", "{protocol}", "queries.{split}"
        ),
    log:
        "results/logs/embed_queries/{model}/{scope}/{collection}/{protocol}/{split}.log",
    benchmark:
        "results/benchmarks/embed_queries/{model}/{scope}/{collection}/{protocol}/{split}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("encoder", "trained"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("embed_queries")
    resources:
        **PLAN.resources("embed_queries"),
    params:
        settings=PLAN.settings("embed_queries"),
    script:
        "../scripts/run_stage.py"


rule search_shard:
    input:
        unpack(PLAN.inputs("search_shard")),
    output:
        hits=paths.shard_hits("{model}", "{collection}", "{protocol}", "shard-{shard}"),
    log:
        "results/logs/search_shard/{model}/{collection}/{protocol}/{shard}.log",
    benchmark:
        "results/benchmarks/search_shard/{model}/{collection}/{protocol}/{shard}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("encoder", "feedback", "trained"),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("search_shard")
    resources:
        **PLAN.resources("search_shard"),
    params:
        settings=PLAN.settings("search_shard"),
    script:
        "../scripts/run_stage.py"


rule merge_run:
    input:
        unpack(PLAN.inputs("merge_run")),
    output:
        run=paths.run.pattern,
    log:
        "results/logs/merge_run/{model}/{collection}/{protocol}.log",
    benchmark:
        "results/benchmarks/merge_run/{model}/{collection}/{protocol}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("encoder", "feedback", "trained"),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("merge_run"),
    params:
        settings=PLAN.settings("merge_run"),
    script:
        "../scripts/run_stage.py"


rule fuse_runs:
    input:
        unpack(PLAN.inputs("fuse_runs")),
    output:
        run=paths.run.pattern,
    log:
        "results/logs/fuse_runs/{model}/{collection}/{protocol}.log",
    benchmark:
        "results/benchmarks/fuse_runs/{model}/{collection}/{protocol}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("fusion"),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("fuse_runs"),
    params:
        settings=PLAN.settings("fuse_runs"),
    script:
        "../scripts/run_stage.py"


rule import_run:
    input:
        unpack(PLAN.inputs("import_run")),
    output:
        run=paths.run.pattern,
    log:
        "results/logs/import_run/{model}/{collection}/{protocol}.log",
    benchmark:
        "results/benchmarks/import_run/{model}/{collection}/{protocol}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("run"),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("import_run"),
    params:
        settings=PLAN.settings("import_run"),
    script:
        "../scripts/run_stage.py"
