"""Plan workflow/rules/collections.smk: archives, collections, statistics."""

from __future__ import annotations

from typing import Any

from zerodr.config.registry import Collection
from zerodr.errors import ConfigError
from zerodr.plan import paths
from zerodr.plan.plan import Plan
from zerodr.plan.registry import Files, Params, inputs, params

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


@params("fetch_archive")
def _fetch_params(plan: Plan, wc: Any) -> Params:
    row = archive_row(plan, wc.archive)
    names = {"archive", "urls", "checksums", "access", "registration"}
    return row.model_dump(mode="json", include=names) | {"bytes": row.archive_bytes}


@inputs("normalize_collection")
def _normalize_inputs(plan: Plan, wc: Any) -> Files:
    row = plan.collection(wc.collection)
    return {"archive": list(plan.bench.user_files) if row.kind == "own" else [paths.archive(row.archive)]}


@params("normalize_collection")
def _normalize_params(plan: Plan, wc: Any) -> Params:
    return plan.collection(wc.collection).model_dump(mode="json", include=NORMALIZED)


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
