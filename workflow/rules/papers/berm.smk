# BERM: units of passages, their labels, and the readers that score them.

from zerodr.papers.berm.plan import pattern_of_units


rule segment_units:
    """Cut positive passages into units.

    Reads: model, source.
    """
    input:
        unpack(PLAN.inputs("segment_units")),
    output:
        units=paths.units("{model}", "{scope}", "{stage}", "cut"),
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    script:
        "../../scripts/run_stage.py"


rule label_units:
    """Label the essential units of positives.

    Reads: index, source, units, mined, read.
    """
    input:
        unpack(PLAN.inputs("label_units")),
    output:
        labels=paths.units("{model}", "{scope}", "{stage}", "labels"),
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    script:
        "../../scripts/run_stage.py"


rule read_units:
    """Score units with a reader.

    Reads: reader, source, units, mined.
    """
    input:
        unpack(PLAN.inputs("read_units")),
    output:
        read=paths.units("{model}", "{scope}", "{stage}", "read"),
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    script:
        "../../scripts/run_stage.py"


rule measure_units:
    """Measure how a model pools units.

    Reads: labels, model, source, units.
    """
    input:
        unpack(PLAN.inputs("measure_units")),
    output:
        measures=paths.unit_measures.pattern,
    wildcard_constraints:
        units_of=pattern_of_units(PLAN),
        model=PATTERNS.methods("trained"),
    script:
        "../../scripts/run_stage.py"
