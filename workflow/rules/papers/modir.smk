# MoDIR: how a model sees a target and its source.


rule measure_domains:
    input:
        unpack(PLAN.inputs("measure_domains")),
    output:
        measures=paths.domains("{model}", "{target}", "measures.tsv"),
        nearest=paths.domains("{model}", "{target}", "nearest.parquet"),
    log:
        "results/logs/measure_domains/{model}/{target}.log",
    benchmark:
        "results/benchmarks/measure_domains/{model}/{target}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("trained"),
        target=PATTERNS.targets(),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("measure_domains")
    resources:
        **PLAN.resources("measure_domains"),
    params:
        settings=PLAN.settings("measure_domains"),
    script:
        "../../scripts/run_stage.py"


rule project_domains:
    input:
        unpack(PLAN.inputs("project_domains")),
    output:
        projection=paths.domains("{model}", "{target}", "tsne.parquet"),
    log:
        "results/logs/project_domains/{model}/{target}.log",
    benchmark:
        "results/benchmarks/project_domains/{model}/{target}.tsv"
    wildcard_constraints:
        model=PATTERNS.methods("trained"),
        target=PATTERNS.targets(),
    conda:
        ENVIRONMENT
    threads: PLAN.threads("project_domains")
    resources:
        **PLAN.resources("project_domains"),
    params:
        settings=PLAN.settings("project_domains"),
    script:
        "../../scripts/run_stage.py"
