# Users' own folders: documents, queries and judgements are artifacts of their own. Content digests, which are among the
# settings, say whether a file changed; its time says nothing.


rule normalize_corpus:
    """Read the documents of a user's folder.

    Reads: files.
    """
    input:
        unpack(PLAN.inputs("normalize_corpus")),
        files=lambda wildcards: map(
            ancient, list_files(PLAN, wildcards.collection, "corpus")
        ),
    output:
        section=paths.collection.pattern,
    wildcard_constraints:
        collection=PATTERNS.of_folders(),
    script:
        "../scripts/run_stage.py"


rule normalize_queries:
    """Read the queries of a user's folder.

    Reads: files.
    """
    input:
        unpack(PLAN.inputs("normalize_queries")),
        files=lambda wildcards: map(
            ancient, list_files(PLAN, wildcards.collection, "queries")
        ),
    output:
        section=paths.collection_section("{collection}", "queries"),
    wildcard_constraints:
        collection=PATTERNS.of_folders(),
    script:
        "../scripts/run_stage.py"


rule normalize_judgements:
    """Read the judgements of a user's folder.

    Reads: files, collection.
    """
    input:
        unpack(PLAN.inputs("normalize_judgements")),
        files=lambda wildcards: map(
            ancient, list_files(PLAN, wildcards.collection, "judgements")
        ),
    output:
        section=paths.collection_section("{collection}", "judgements"),
    wildcard_constraints:
        collection=PATTERNS.of_folders(),
    script:
        "../scripts/run_stage.py"
