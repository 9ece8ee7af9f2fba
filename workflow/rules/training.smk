# Trained methods: an initial model, fine-tuning stages, export. Which stage makes which model: zerodr.plan.chains.


rule init_model:
    """Make the initial model of a chain.

    Reads: parent, source, files.
    """
    input:
        unpack(PLAN.inputs("init_model")),
    output:
        model=paths.model("{model}", "{scope}", "init"),
    wildcard_constraints:
        model=PATTERNS.chains(),
    script:
        "../scripts/run_stage.py"


rule finetune:
    """Fine-tune a stage on queries and judgements.

    Reads: model, source, mined, scored, vectors, targets, clusters, units, labels, rem, corpora.
    """
    input:
        unpack(PLAN.inputs("finetune")),
    output:
        model=paths.model.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune"),
    script:
        "../scripts/run_stage.py"


rule take_step:
    """Take the model that a training kept at a step.

    Reads: model.
    """
    input:
        unpack(PLAN.inputs("take_step")),
    output:
        model=paths.model("{model}", "{scope}", "{stage}.{step}"),
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("finetune", "pretrain"),
        step=r"\d+",
    script:
        "../scripts/run_stage.py"


rule export_model:
    """Write a model as a folder that sentence-transformers loads.

    Reads: model.
    """
    input:
        unpack(PLAN.inputs("export_model")),
    output:
        exported=paths.exported.pattern,
    wildcard_constraints:
        model=PATTERNS.methods("trained"),
    script:
        "../scripts/run_stage.py"


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
