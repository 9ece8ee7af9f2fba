# DDR: a relevance module in a domain module. One of the first serves many of the second.


rule assemble:
    input:
        unpack(PLAN.inputs("assemble")),
    output:
        model=paths.model.pattern,
    log:
        "results/logs/assemble/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/assemble/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("assemble"),
    conda:
        ENVIRONMENT
    resources:
        **PLAN.resources("assemble"),
    params:
        settings=PLAN.settings("assemble"),
    script:
        "../../scripts/run_stage.py"
