"""Publish lineage records of finished artifacts, from the main table up to the archives, to MLflow.

Compute jobs never talk to a tracking store. Publishing is idempotent: an artifact with the same bytes, settings and
inputs is published once, a changed one becomes a new run in addition to the old one.
"""

import logging
from collections import Counter
from typing import Any

from zerodr.artifacts.progress import Progress
from zerodr.artifacts.record import Record, write_json
from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.lineage import views
from zerodr.lineage.graph import Graph, short_name
from zerodr.lineage.store import FOLDER, Store, open_store, shown_uri, tracking_uri
from zerodr.plan.rules import facts_of

log = logging.getLogger("zerodr")


class PublishSettings(Settings):
    """Settings of the publisher; the store is `MLFLOW_TRACKING_URI` of the environment."""

    scale: str = ""
    """The preset of the run, a tag of what it publishes."""


def publish_lineage(stage: Stage) -> None:
    """Read input `artifacts`; write output `published`: counts by rule and digests, the same for every store.

    Tables and figures of papers that are there are published with them.
    """
    settings = validate(PublishSettings, stage.params, stage.spec.rule)
    graph = Graph()
    artifacts = [str(path) for path in stage.paths("artifacts")]
    uri = tracking_uri()
    items = [path for path in graph.final() if graph.require(path)["wildcards"].get("paper")]
    added = publish(graph, [*artifacts, *items], uri, settings.scale)
    records = published_records(graph, artifacts)
    write_json(stage.output("published"), summary(records))
    stage.note(store=shown_uri(uri), added=added, present=len(records) - added)


def published_records(graph: Graph, artifacts: list[str]) -> list[Record]:
    """List the records of artifacts and of everything above them, sources first; downloads have none."""
    records = (graph.record(path) for path in graph.ancestors(*artifacts))
    return [record for record in records if record is not None]


def summary(records: list[Record]) -> dict[str, Any]:
    """Return counts and digests, without times and paths of this machine."""
    return {
        "artifacts": len(records),
        "by_rule": dict(sorted(Counter(record["rule"] for record in records).items())),
        "digests": {record["artifact"]: record["digest"] for record in records},
    }


def publish(graph: Graph, artifacts: list[str], uri: str, scale: str = "") -> int:
    """Add artifacts and everything above them to the store at `uri`; return the number of new ones.

    Args:
        graph: the checkout's lineage.
        artifacts: their paths.
        uri: of the store.
        scale: the preset of the run; a tag.
    """
    records = published_records(graph, artifacts)
    _warn_of_stale(graph, records)
    progress = Progress("publish lineage", len(records), "artifacts")
    added = 0
    with open_store(uri) as store:
        published = store.published()
        for record in records:
            if views.key_of(record) not in published:
                store.add(record, _input_models(graph, store, record), _measured(graph, store, record), scale)
                added += 1
            else:
                store.renew_score(record, scale)
            progress.add()
        store.describe()
        address = views.link(shown_uri(uri), store.experiment, "methods")
    progress.finish()
    write_json(FOLDER / "link.json", address)
    log.info("published to %s: %d new, %d already published", shown_uri(uri), added, len(records) - added)
    log.info("see %s", address)
    return added


def _warn_of_stale(graph: Graph, records: list[Record]) -> None:
    for record in records:
        for edge in graph.up(record["artifact"]):
            if edge.stale:
                log.warning("%s was built from another version of %s: its lineage ends there", edge.user, edge.source)


def _input_models(graph: Graph, store: Store, record: Record) -> list[str]:
    """List the LoggedModels that the artifact used: direct inputs, and for an evaluation the model of the run."""
    if facts_of(record["rule"]).kind == "evaluate":
        model = _model_behind(graph, record)
        paths = [model] if model else []
    else:
        paths = [entry["path"] for entry in record["inputs"]]
    sources = (graph.record(path) for path in paths)
    models = (store.model_of(source) for source in sources if source is not None and views.is_model(source))
    return [model for model in models if model is not None]


def _measured(graph: Graph, store: Store, record: Record) -> tuple[str, str, str] | None:
    """Return LoggedModel and dataset of an evaluation's metrics; None for other stages and for BM25."""
    model = _model_behind(graph, record) if facts_of(record["rule"]).kind == "evaluate" else None
    identity = store.model_of(graph.require(model)) if model else None
    collection = next((entry for entry in record["inputs"] if entry["name"] == "collection"), None)
    if identity is None or collection is None:
        return None
    return identity, short_name(collection["path"]), views.dataset_digest(collection["digest"])


def _model_behind(graph: Graph, record: Record) -> str | None:
    """Return the nearest model above an evaluation's run, unless the run mixes several."""
    pending = [record]
    seen: set[str] = set()
    while pending:
        current = pending.pop(0)
        if facts_of(current["rule"]).kind == "fuse":
            return None
        if views.is_model(current):
            return current["artifact"]
        fresh = [entry["path"] for entry in current["inputs"] if entry["path"] not in seen]
        seen.update(fresh)
        pending += [source for source in map(graph.record, fresh) if source is not None]
    return None
