# Stages that learn from texts alone: spans of documents, pretraining.


rule cut_spans:
    """Cut documents into spans.

    Reads: collection, model.
    """
    input:
        unpack(PLAN.inputs("cut_spans")),
    output:
        spans=paths.spans.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("pretrain"),
    script:
        "../scripts/run_stage.py"


rule pretrain:
    """Train a stage on texts alone.

    Reads: model, collections, spans.
    """
    input:
        unpack(PLAN.inputs("pretrain")),
    output:
        model=paths.model.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("pretrain"),
    script:
        "../scripts/run_stage.py"
