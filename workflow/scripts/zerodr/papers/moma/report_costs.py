"""Items about costs: time of a query by component, sizes of memories, hours of training (MoMA tables 3, 9 and 11)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_size
from zerodr.config.item import Item
from zerodr.errors import ArtifactError
from zerodr.papers.moma.items import HoursItem, LatencyItem, MemoriesItem
from zerodr.reporting.cells import Key
from zerodr.reporting.item_inputs import ItemParams, ItemTable, printed

if TYPE_CHECKING:
    from pathlib import Path

PRINTED_TIMES = {
    "BM25 Retrieval Per Query": ("bm25",),
    "MoMA Inference: Query Encoding": ("augmenter_query", "query"),
    "MoMA Inference: ANN Retrieval (batched q)": ("memory_search", "search"),
    "MoMA Inference: Dense Retrieval Total": ("augmenter_query", "memory_search", "query", "search"),
    "MoMA Inference: Encoding Per Doc": ("document",),
    "MoMA Training: Encoding Per Doc": ("document",),
}
"""Row of the paper's table 3 -> components here."""
PRINTED_HOURS = {"BM25 Index Build": "lexical", "MoMA Inference: Encoding of Corpus": "corpus"}
"""Row of the same table -> inputs here, whose jobs took these hours."""
COMPONENTS = {"End Retriever": ("main", "index"), "Augmentation Component": ("augmenter", "memory_index")}
"""Column of the paper's table 11 -> inputs here: models by episode, and vectors."""


def latency(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Milliseconds of a query and of a document by component, hours of whole corpora (MoMA table 3)."""
    assert isinstance(item, LatencyItem)
    facts = [json.loads(path.read_text(encoding="utf-8")) for path in stage.paths("latency")]
    rows = [
        {"collection": name, "component": key, "milliseconds": value}
        for name, fact in zip(settings.collections, facts, strict=True)
        for key, value in fact["milliseconds"].items()
    ]
    measured: dict[Key, float | str] = {}
    for row, components_of in PRINTED_TIMES.items():
        values = [sum(fact["milliseconds"][name] for name in components_of) for fact in facts]
        measured[row, "", "milliseconds"] = sum(values) / len(values)
    hours = {row: sum(map(_hours, stage.paths(name))) / len(facts) for row, name in PRINTED_HOURS.items()}
    measured |= {(row, "", "hours"): value for row, value in hours.items()}
    machines = dict.fromkeys(
        f"{fact['device']}, threads: {fact['threads']}, queries: {fact['queries']}" for fact in facts
    )
    notes = [
        f"medians on {'; '.join(machines)}. A query alone, searches of all queries in one batch and exact; a document "
        "in a batch. A query pays the augmenter's encoding and the search of the memories, too; the paper's 55 + 9 ms "
        "count one search. BM25: Lucene, one query at a time",
        f"hours of whole corpora, as the jobs' records tell: {', '.join(f'{k} {v:.3f}' for k, v in hours.items())}",
        "ours next to the published: means over the collections, and of another machine",
    ]
    named = ({**row, "component": str(row["component"]).replace("_", " ")} for row in rows)
    columns = {"": "{collection}", "component": "{component}", "milliseconds": "{milliseconds:.3f}"}
    return ItemTable(pd.DataFrame(rows), notes, printed(named, settings, columns), measured)


def memories(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Documents of each memory, and their mean length in words (MoMA table 9)."""
    assert isinstance(item, MemoriesItem)
    rows = []
    for path, manifest in zip(stage.paths("statistics"), stage.paths("collections"), strict=True):
        facts = json.loads(path.read_text(encoding="utf-8"))
        size = {"documents": corpus_size(manifest.parent), "document_words": facts["documents"]["mean"]}
        rows.append({"memory": facts["collection"]} | size)
    frame, measured = pd.DataFrame(rows), dict[Key, float | str]()
    for name, members in ({str(row["memory"]): (str(row["memory"]),) for row in rows} | item.members).items():
        chosen = frame[frame["memory"].isin(members)]
        if len(chosen) == len(members):
            mean = float(np.average(chosen["document_words"], weights=chosen["documents"]))
            measured["", name, "documents"] = float(chosen["documents"].sum())
            measured["", name, "document_words"] = mean
    notes = [
        f"memories of {', '.join(settings.methods.values())} in training; words: between blanks, with titles, of as "
        "many documents as the scale reads, evenly spread"
    ]
    columns = {"memory": "{memory}", "documents": "{documents:,}", "words of a document": "{document_words:.1f}"}
    return ItemTable(frame, notes, printed(rows, settings, columns), measured)


def hours(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Hours of each episode's trainings and of refreshing both indexes, as their jobs' records tell (MoMA table 11)."""
    assert isinstance(item, HoursItem)
    episodes = settings.stages[item.method]
    rows, measured = [], dict[Key, float | str]()
    for component, (models, vectors) in COMPONENTS.items():
        trained = {path.parts[-3]: path for path in stage.paths(models)}
        steps = {f"epi-{n}": [trained[name]] for n, name in enumerate(episodes, 1) if name in trained}
        for step, paths in (steps | {"index-refresh": stage.paths(vectors)}).items():
            spent = sum(map(_hours, paths)) / (len(episodes) if step == "index-refresh" else 1)
            of_gpus = sum(float(_record(path)["gpu_hours"]) for path in paths)
            rows.append({"component": component, "step": step, "hours": spent, "gpu_hours": of_gpus})
            measured[component, step, "hours"] = spent
        measured[component, "refresh-number", "count"] = float(len(episodes))
    notes = [
        f"wall-clock hours of the jobs of {settings.methods[item.method]}, here, from their lineage records; "
        f"epi-n: training of the nth of {len(episodes)} episodes; index-refresh: vectors of the source's documents "
        "(end retriever) and of all memories' (augmentation component), jobs of all shards in sum, mean of an episode"
    ]
    columns = {"component": "{component}", "": "{step}", "hours": "{hours:.3f}", "GPU-hours": "{gpu_hours:.3f}"}
    return ItemTable(pd.DataFrame(rows), notes, printed(rows, settings, columns), measured)


def _record(path: Path) -> dict:
    record = read_record(path)
    if record is None or "seconds" not in record:
        raise ArtifactError(path, "has no time in its lineage record", "make it again")
    return record


def _hours(path: Path) -> float:
    return float(_record(path)["seconds"]) / 3600
