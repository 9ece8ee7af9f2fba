"""Plan workflow/rules/collections.smk: archives, collections, statistics, and sections of users' own folders."""

from typing import Any

from zerodr.config.load import refuse_absent
from zerodr.config.registry import Collection
from zerodr.config.transform import Transform
from zerodr.config.user_folders import SHORT
from zerodr.errors import CollectionError, ConfigError
from zerodr.plan import paths
from zerodr.plan.plan import Files, Params, Plan, inputs, params

NORMALIZED = {
    *("name", "kind", "format", "archive", "member", "documents", "queries", "splits", "known_gaps", "drop_missing"),
    "language",
}


def archive_row(plan: Plan, archive: str) -> Collection:
    """The first row of the registry that uses an archive."""
    rows = [row for row in plan.bench.collections.values() if row.archive == archive]
    if not rows:
        raise ConfigError(f"archive {archive}", "no collection of config/collections uses it", "check the name")
    return rows[0]


@inputs("fetch_archive")
def _fetch_inputs(plan: Plan, wc: Any) -> Files:
    """Return what mirror folders have without a checksum, so that a change there is noticed."""
    row = archive_row(plan, wc.archive)
    refuse_absent(plan.bench, row)
    unpinned = [name for name, pinned in row.mirror_files.items() if not pinned]
    return {"mirror": [plan.bench.mirrored[name] for name in unpinned if name in plan.bench.mirrored]}


@params("fetch_archive")
def _fetch_params(plan: Plan, wc: Any) -> Params:
    row = archive_row(plan, wc.archive)
    names = {"archive", "urls", "checksums", "access", "registration"} | ({"originals"} if row.originals else set())
    sizes = {name: plan.bench.mirror_bytes[name] for name in row.mirror_files if name in plan.bench.mirror_bytes}
    unpinned = {"mirror_bytes": sizes} if sizes else {}
    return row.model_dump(mode="json", include=names) | {"bytes": row.archive_bytes} | unpinned


@inputs("normalize_collection")
def _normalize_inputs(plan: Plan, wc: Any) -> Files:
    row = plan.collection(wc.collection)
    return {"archive": paths.archive(row.archive)}


@params("normalize_collection")
def _normalize_params(plan: Plan, wc: Any) -> Params:
    row = plan.collection(wc.collection)
    source = {"original": row.originals.format} if row.originals else {}
    pinned = {} if row.pinned else {"pinned": False}
    selection = {"judged_split": row.judged_split, "cut": row.cut} if row.judged_split or row.cut else {}
    return row.model_dump(mode="json", include=NORMALIZED) | source | pinned | selection


@inputs("transform_collection")
def _transform_inputs(plan: Plan, wc: Any) -> Files:
    return {"sources": [paths.collection(source) for source in _transform(plan, wc).sources]}


@params("transform_collection")
def _transform_params(plan: Plan, wc: Any) -> Params:
    transform, row = _transform(plan, wc).model_dump(mode="json"), plan.collection(wc.collection)
    gaps = row.model_dump(include={"known_gaps", "drop_missing"}, exclude_defaults=True)
    return {"name": wc.collection, "splits": list(row.splits), "transform": transform} | gaps


def _transform(plan: Plan, wc: Any) -> Transform:
    transform = plan.collection(wc.collection).transform
    assert transform is not None, "the rule's pattern has transformed collections alone"
    return transform


@inputs("measure_statistics")
def _statistics_inputs(plan: Plan, wc: Any) -> Files:
    return {"collection": paths.collection(wc.collection), "source": paths.collection(plan.source)}


@params("measure_statistics")
def _statistics_params(plan: Plan, wc: Any) -> Params:
    row = plan.collection(wc.collection)
    return {
        "collection": row.name,
        "source": plan.source,
        "evaluation_split": row.evaluation_split,
        "language": row.language,
        "documents": plan.bench.scale.statistics_documents,
    }


# ---- users' folders ----------------------------------------------------------------------------------------------
@inputs("normalize_corpus", "normalize_queries")
def _section_inputs(plan: Plan, wc: Any) -> Files:
    """No file: they are content digests among the params, and inputs of the rule file."""
    return {}


@inputs("normalize_judgements")
def _judgement_inputs(plan: Plan, wc: Any) -> Files:
    return {"collection": paths.collection(wc.collection)}


@params("normalize_corpus")
def _corpus_params(plan: Plan, wc: Any) -> Params:
    return _section_params(plan, wc.collection, "corpus")


@params("normalize_queries")
def _queries_params(plan: Plan, wc: Any) -> Params:
    return _section_params(plan, wc.collection, "queries")


@params("normalize_judgements")
def _judgement_params(plan: Plan, wc: Any) -> Params:
    row = plan.collection(wc.collection)
    return _section_params(plan, wc.collection, "judgements") | {"drop_missing": row.drop_missing}


def section_files(plan: Plan, collection: str, section: str) -> list[str]:
    """Files of a section of a user's own folder, which was found usable.

    Raises:
        CollectionError: the contents can't be used, or the folder has no such file.
    """
    folder = plan.bench.folders[collection]
    folder.check()
    if section not in folder.files:
        step = "add qrels/test.tsv" if section == "judgements" else f"add {section}.{SHORT}"
        raise CollectionError(folder.path, f"has no {section}{f' ({folder.unread})' if folder.unread else ''}", step)
    return list(folder.files[section])


def _section_params(plan: Plan, collection: str, section: str) -> Params:
    folder = plan.bench.folders[collection]
    params: Params = {"name": collection, "archive": folder.path, "content": folder.content(section)}
    if section == "corpus":
        columns = folder.columns.model_dump(exclude_defaults=True)
        params |= {"columns": columns} if columns else {}
        params |= {"cut": folder.cut.model_dump()} if folder.loose else {}
    return params
