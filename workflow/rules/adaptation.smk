# A folder with documents: known items held out, all candidates compared, the best one exported with a page about it.


rule hold_out_items:
    """Hold known items out of a folder's documents, as a collection of its own.

    Reads: collection, earlier.
    """
    input:
        unpack(PLAN.inputs("hold_out_items")),
    output:
        collection=paths.collection.pattern,
    wildcard_constraints:
        collection=PATTERNS.proxies(),
    priority: 1  # a folder of which nothing can be held out is refused before anything is embedded
    script:
        "../scripts/run_stage.py"


rule judge_adaptation:
    """Compare all candidates, and choose the best one.

    Reads: per_query, runs, collections, asked_runs, asked, judged.
    """
    input:
        unpack(PLAN.inputs("judge_adaptation")),
    output:
        answer=paths.adapted_answer.pattern,
    script:
        "../scripts/run_stage.py"


rule export_adapted:
    """Write the chosen candidate as a folder that answers queries, with its index of the whole documents.

    Reads: answer, collection, models, vectors, indexes, attentions.
    """
    input:
        unpack(PLAN.inputs("export_adapted")),
    output:
        model=paths.adapted_model.pattern,
    script:
        "../scripts/run_stage.py"


rule build_adapted_page:
    """Write the page about an adaptation.

    Reads: answer, model.
    """
    input:
        unpack(PLAN.inputs("build_adapted_page")),
    output:
        page=paths.adapted_page.pattern,
    script:
        "../scripts/run_stage.py"
