# Pages for people: the leaderboard, and two methods query by query.


rule build_queries:
    input:
        unpack(PLAN.inputs("build_queries")),
    output:
        pages=paths.query_pages(PLAN.selection),
    log:
        f"results/logs/build_queries/{PLAN.selection}.log",
    benchmark:
        f"results/benchmarks/build_queries/{PLAN.selection}.tsv"
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("build_queries"),
    params:
        settings=PLAN.settings("build_queries"),
    script:
        "../scripts/run_stage.py"


rule build_query_page:
    input:
        unpack(PLAN.inputs("build_query_page")),
    output:
        page=paths.query_page.pattern,
    log:
        "results/logs/build_query_page/{collection}/{protocol}/{model}/{baseline}.log",
    benchmark:
        "results/benchmarks/build_query_page/{collection}/{protocol}/{model}/{baseline}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("lexical", "encoder", "feedback", "fusion", "trained", "run"),
        baseline=PATTERNS.methods("lexical", "encoder", "feedback", "fusion", "trained", "run"),
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("build_query_page"),
    script:
        "../scripts/run_stage.py"


rule build_leaderboard:
    input:
        unpack(PLAN.inputs("build_leaderboard")),
    output:
        page=paths.beir(f"{PLAN.selection}.html"),
    log:
        f"results/logs/build_leaderboard/{PLAN.selection}.log",
    benchmark:
        f"results/benchmarks/build_leaderboard/{PLAN.selection}.tsv"
    conda:
        ENVIRONMENT
    params:
        settings=PLAN.settings("build_leaderboard"),
    script:
        "../scripts/run_stage.py"
