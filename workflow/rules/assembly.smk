# DDR: a relevance module on a domain module. One of the first serves many of the second.


rule assemble:
    input:
        unpack(PLAN.assemble_inputs),
    output:
        model=paths.model("{model}", "{scope}", "{stage}"),
    log:
        "results/logs/assemble/{model}/{scope}/{stage}.log",
    benchmark:
        "results/benchmarks/assemble/{model}/{scope}/{stage}.tsv"
    wildcard_constraints:
        model=PLAN.pattern_of_chains(),
        stage=PLAN.pattern_of_stages("assemble"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=PLAN.memory_mib("assemble"),
        runtime=PLAN.minutes("assemble"),
    params:
        settings=PLAN.settings("assemble"),
    script:
        "../scripts/run_stage.py"
