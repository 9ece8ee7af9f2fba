# DDR: a relevance module in a domain module. One of the first serves many of the second.


rule assemble:
    """Put a relevance module into a domain module.

    Reads: dam, rem.
    """
    input:
        unpack(PLAN.inputs("assemble")),
    output:
        model=paths.model.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("assemble"),
    script:
        "../../scripts/run_stage.py"
