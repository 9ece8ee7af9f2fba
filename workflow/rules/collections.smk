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
