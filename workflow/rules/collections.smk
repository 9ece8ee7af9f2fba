# Download, normalise and measure collections.


rule fetch_archive:
    """Download an archive and check it; or link that of a mirror folder.

    Reads: mirror.
    """
    input:
        unpack(PLAN.inputs("fetch_archive")),
    output:
        archive=paths.archive.pattern,
    script:
        "../scripts/run_stage.py"


rule normalize_collection:
    """Read an archive of the registry as corpus, queries and judgements of one format.

    Reads: archive.
    """
    input:
        unpack(PLAN.inputs("normalize_collection")),
    output:
        collection=paths.collection.pattern,
    wildcard_constraints:
        collection=PATTERNS.published(),
    script:
        "../scripts/run_stage.py"


rule transform_collection:
    """Make a collection of others by changing their texts, for ablations.

    Reads: sources.
    """
    input:
        unpack(PLAN.inputs("transform_collection")),
    output:
        collection=paths.collection.pattern,
    wildcard_constraints:
        collection=PATTERNS.transformed(),
    script:
        "../scripts/run_stage.py"


rule measure_statistics:
    """Measure a collection: sizes, lengths, kinds of queries, overlap with the source.

    Reads: collection, source.
    """
    input:
        unpack(PLAN.inputs("measure_statistics")),
    output:
        statistics=paths.statistics.pattern,
    script:
        "../scripts/run_stage.py"


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
