# MoMA: one episode trains a main model, then the augmenter that learns its attention, and joins both.


include: "moma_memory.smk"
include: "moma_mixture.smk"


rule train_main:
    """Train an episode's main model, with augmented queries.

    Reads: memories, mined, model, rankings, source.
    """
    input:
        unpack(PLAN.inputs("train_main")),
    output:
        model=paths.component("{model}", "{scope}", "{stage}", "main"),
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    script:
        "../../scripts/run_stage.py"


rule measure_attention:
    """Measure the main model's attention to the documents that augment its queries.

    Reads: memories, collection, model, rankings, mined.
    """
    input:
        unpack(PLAN.inputs("measure_attention")),
    output:
        attention=paths.attention.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
        use="learning|search",
    script:
        "../../scripts/run_stage.py"


rule mine_memories:
    """Mine what the augmenter learns from the main model's attention.

    Reads: memories, attention, rankings, source.
    """
    input:
        unpack(PLAN.inputs("mine_memories")),
    output:
        learned=paths.learned.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    script:
        "../../scripts/run_stage.py"


rule train_augmenter:
    """Train an episode's augmenter.

    Reads: learned, model.
    """
    input:
        unpack(PLAN.inputs("train_augmenter")),
    output:
        model=paths.component("{model}", "{scope}", "{stage}", "augmenter"),
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    script:
        "../../scripts/run_stage.py"


rule join_components:
    """Join main model and augmenter to the model of an episode.

    Reads: main, augmenter, parent.
    """
    input:
        unpack(PLAN.inputs("join_components")),
    output:
        model=paths.model.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    script:
        "../../scripts/run_stage.py"


rule measure_shares:
    """Measure which memories augment queries, and list cases.

    Reads: memories, attention, collection.
    """
    input:
        unpack(PLAN.inputs("measure_shares")),
    output:
        shares=paths.shares(
            "{model}",
            "{scope}",
            "{stage}",
            "{use}",
            "{collection}",
            "{split}",
            "shares.tsv",
        ),
        cases=paths.shares(
            "{model}",
            "{scope}",
            "{stage}",
            "{use}",
            "{collection}",
            "{split}",
            "cases.tsv",
        ),
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
        use="learning|search",
    script:
        "../../scripts/run_stage.py"


rule measure_latency:
    """Measure the time of augmented queries.

    Reads: memories, memory_vectors, collection, corpus, index, model, rankings.
    """
    input:
        unpack(PLAN.inputs("measure_latency")),
    output:
        latency=paths.latency.pattern,
    wildcard_constraints:
        model=PATTERNS.chains(),
        stage=PATTERNS.stages("moma"),
    script:
        "../../scripts/run_stage.py"
