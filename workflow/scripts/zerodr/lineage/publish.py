"""The one publisher: lineage records of finished artifacts, from the main table up to the archives, into MLflow.

Compute jobs never talk to a tracking store. Publishing is idempotent: an artifact with the same bytes, settings and
inputs is published once, a changed one becomes a new run beside the old one.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from zerodr.artifacts.progress import Progress
from zerodr.artifacts.record import Record, write_json
from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.lineage import entries
from zerodr.lineage.graph import Graph, short_name
from zerodr.lineage.store import Store, open_store, shown_uri, tracking_uri

log = logging.getLogger("zerodr")
MIXES_MODELS = {"fuse_runs"}  # a fused run's numbers belong to no single model
EVALUATION = "evaluate_run"


class PublishSettings(Settings):
    """The publisher needs no settings; the store is `MLFLOW_TRACKING_URI` of the environment."""


def publish_lineage(stage: Stage) -> None:
    """Input `artifacts`; output `published`: counts by rule and digests, the same for every store."""
    validate(PublishSettings, stage.params, "publish_lineage")
    graph = Graph()
    artifacts = [str(path) for path in stage.paths("artifacts")]
    uri = tracking_uri()
    added = publish(graph, artifacts, uri)
    records = published_records(graph, artifacts)
    write_json(stage.output("published"), summary(records))
    stage.note(store=shown_uri(uri), added=added, present=len(records) - added)


def published_records(graph: Graph, artifacts: list[str]) -> list[Record]:
    """Records of artifacts and of everything above them, sources first. Files that no stage made have none."""
    found = (graph.record(path) for path in graph.ancestors(*artifacts))
    return [record for record in found if record is not None]


def summary(records: list[Record]) -> dict[str, Any]:
    """Counts and digests, without times and places."""
    return {
        "artifacts": len(records),
        "by_rule": dict(sorted(Counter(record["rule"] for record in records).items())),
        "digests": {record["artifact"]: record["digest"] for record in records},
    }


def publish(graph: Graph, artifacts: list[str], uri: str) -> int:
    """Put artifacts and everything above them into the store at `uri`; returns how many were new."""
    records = published_records(graph, artifacts)
    _warn_of_stale(graph, records)
    progress = Progress("publish lineage", len(records), "artifacts")
    added = 0
    with open_store(uri) as store:
        for record in records:
            if store.find(entries.key_of(record)) is None:
                store.add(record, _input_models(graph, store, record), _measured(graph, store, record))
                added += 1
            progress.add()
    progress.finish()
    log.info("published to %s: %d new, %d were there", shown_uri(uri), added, len(records) - added)
    return added


def _warn_of_stale(graph: Graph, records: list[Record]) -> None:
    for record in records:
        for edge in graph.up(record["artifact"]):
            if edge.stale:
                log.warning("%s was made from another version of %s: its lineage ends there", edge.user, edge.source)


def _input_models(graph: Graph, store: Store, record: Record) -> list[str]:
    """LoggedModels that the artifact was made with: direct inputs, and for an evaluation the model behind the run."""
    if record["rule"] == EVALUATION:
        behind = _model_behind(graph, record)
        paths = [behind] if behind else []
    else:
        paths = [given["path"] for given in record["inputs"]]
    found = (graph.record(path) for path in paths)
    models = (store.model_of(source) for source in found if source is not None and entries.is_model(source))
    return [model for model in models if model is not None]


def _measured(graph: Graph, store: Store, record: Record) -> tuple[str, str, str] | None:
    """The LoggedModel and the dataset that an evaluation's metrics are about; None for other stages and for BM25."""
    model = _model_behind(graph, record) if record["rule"] == EVALUATION else None
    identity = store.model_of(graph.require(model)) if model else None
    collection = next((given for given in record["inputs"] if given["name"] == "collection"), None)
    if identity is None or collection is None:
        return None
    return identity, short_name(collection["path"]), entries.dataset_digest(collection["digest"])


def _model_behind(graph: Graph, record: Record) -> str | None:
    """The nearest model above an evaluation's run, unless the run mixes several."""
    pending = [record]
    seen: set[str] = set()
    while pending:
        current = pending.pop(0)
        if current["rule"] in MIXES_MODELS:
            return None
        if entries.is_model(current):
            return current["artifact"]
        fresh = [given["path"] for given in current["inputs"] if given["path"] not in seen]
        seen.update(fresh)
        pending += [source for source in map(graph.record, fresh) if source is not None]
    return None
