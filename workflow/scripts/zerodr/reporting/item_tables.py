"""Build items that compare methods and stages by collection."""

import json

import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.item import Item
from zerodr.config.papers import EpisodesItem, MethodsItem, SimilarityItem
from zerodr.evaluation.metrics import LABELS
from zerodr.evaluation.significance import holm, t_test
from zerodr.reporting.cells import Measured
from zerodr.reporting.item_inputs import (
    METRIC,
    Gain,
    ItemParams,
    ItemTable,
    correlation,
    gain,
    read_scores,
)
from zerodr.reporting.render import BETTER, WORSE

LEVEL = 0.05
LIKENESS = ("corpus", "queries", "query_types")
PRINTED_LIKENESS = {
    "jaccard_unigrams": "corpus",
    "document_lexical_similarity": "corpus",
    "query_intent_similarity": "query_types",
}
"""Similarities as the papers call them."""
HOLES = (
    "Hole@k: share of the first k documents without a judgement for the query (pairs), or without one for any query of "
    "the split (corpus)"
)


def methods(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare methods (rows) by collection (columns), with marks of tests against the baseline (Holm correction)."""
    assert isinstance(item, MethodsItem)
    measures: list[str] = [item.measure, *item.beside]
    scores, rows = {key: read_scores(stage.paths("per_query"), key) for key in measures}, []
    for name in settings.collections:
        base = scores[item.measure][item.baseline, name]
        for method in settings.methods:
            values = scores[item.measure][method, name]
            difference = gain(values, base, settings.bootstrap_samples, stage.seed).columns("difference")
            p_value = float(t_test((values - base).to_numpy()[:, None])[0])
            means = {key: float(scores[key][method, name].mean()) for key in measures}
            row = {"method": method, "collection": name, "queries": len(values)}
            rows.append(row | means | difference | {"p_t": p_value})
    frame = pd.DataFrame(rows)
    tested = frame["method"] != item.baseline
    frame.loc[tested, "p_t_holm"] = holm(frame.loc[tested, "p_t"].to_numpy(float))
    count = int(tested.sum())
    notes = [
        f"{_label(item.measure)}; {BETTER} better, {WORSE} worse than {settings.methods[item.baseline]}: paired "
        f"t-test over queries, p < .05 after Holm's correction over {count} test{'s' * (count != 1)}",
        *([HOLES] if any(key.startswith("hole") for key in measures) else []),
    ]
    return ItemTable(frame, notes, _pivot(frame, settings, measures), _measured(frame, measures))


def _measured(frame: pd.DataFrame, measures: list[str]) -> Measured:
    return {(row["method"], row["collection"], key): float(row[key]) for _, row in frame.iterrows() for key in measures}


def _pivot(frame: pd.DataFrame, settings: ItemParams, measures: list[str]) -> tuple[list[str], list[list[str]]]:
    header, rows = ["", *settings.collections.values(), "mean"], []
    cells = {(row["method"], row["collection"]): row for _, row in frame.iterrows()}
    for key in measures:
        for method, label in settings.methods.items():
            line = [cells[method, name] for name in settings.collections]
            first = key == measures[0]
            values = [f"{row[key]:.4f}{_mark(row) if first else ''}" for row in line]
            mean = sum(row[key] for row in line) / len(line)
            rows.append([label if first else f"{_label(key)}: {label}", *values, f"{mean:.4f}"])
    return header, rows


def _label(measure: str) -> str:
    return LABELS.get(measure, measure)


def _mark(row: pd.Series) -> str:
    if not row["p_t_holm"] < LEVEL:
        return ""
    return f" {BETTER}" if row["difference"] > 0 else f" {WORSE}"


def similarity(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare similarities with the source (COCO-DR tables 5, 6) with gains over the baseline (figure 2)."""
    assert isinstance(item, SimilarityItem)
    scores = read_scores(stage.paths("per_query"))
    facts = [json.loads(path.read_text(encoding="utf-8")) for path in stage.paths("statistics")]
    likeness, rows = {fact["collection"]: fact["similarity"] for fact in facts}, []
    for name in settings.collections:
        values: dict[str, str | float] = {"collection": name} | {key: likeness[name][key] for key in LIKENESS}
        for method in item.methods:
            values |= _gain(scores, method, item.baseline, name, settings, stage).columns(f"gain.{method}")
        rows.append(values)
    frame = pd.DataFrame(rows).sort_values("corpus", ascending=False, kind="stable").reset_index(drop=True)
    notes = [
        f"similarity with {settings.source}: weighted Jaccard of word frequencies of documents and of queries, and "
        f"of shares of nine query types; gain: nDCG@10 minus that of {settings.methods[item.baseline]}, with 95 % "
        "bootstrap intervals over queries"
    ]
    notes += [
        correlation(frame[key], frame[f"gain.{m}"], f"similarity of {what} and gain of {settings.methods[m]}")
        for m in item.methods
        for key, what in (("corpus", "documents"), ("query_types", "query types"))
    ]
    pairs = (f"{settings.methods[m]} - {settings.methods[item.baseline]}" for m in item.methods)
    header, shown = ["", "documents", "queries", "query types", *pairs], []
    for _, row in frame.iterrows():
        gains = (str(Gain.of(row, f"gain.{m}")) for m in item.methods)
        shown.append([settings.collections[row["collection"]], *(f"{row[key]:.3f}" for key in LIKENESS), *gains])
    return ItemTable(frame, notes, (header, shown), _likeness(frame, item))


def _likeness(frame: pd.DataFrame, item: SimilarityItem) -> Measured:
    measured: dict[tuple[str, str, str], float | str] = {}
    for _, row in frame.iterrows():
        for name, key in PRINTED_LIKENESS.items():
            measured["", row["collection"], name] = float(row[key])
        for method in item.methods:
            measured[method, row["collection"], f"{METRIC}_over_bm25"] = float(row[f"gain.{method}"])
    return measured


def episodes(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare methods after each stage (COCO-DR figures 4, 6; MoMA figure 4)."""
    assert isinstance(item, EpisodesItem)
    scores, rows = read_scores(stage.paths("per_query"), item.measure), []
    stages = list(dict.fromkeys(name.partition("@")[2] for name in settings.methods))
    for name in settings.collections:
        for method in item.methods:
            for at in stages:
                values = scores[f"{method}@{at}", name]
                level = gain(values, values * 0, settings.bootstrap_samples, stage.seed)
                rows.append({"collection": name, "method": method, "stage": at, **level.columns(item.measure)})
    frame = pd.DataFrame(rows)
    header = ["", "method", *stages]
    shown = [
        [
            settings.collections[name],
            method_label(settings, method, stages[0]),
            *(f"{value:.4f}" for value in line[item.measure]),
        ]
        for (name, method), line in frame.groupby(["collection", "method"], sort=False)
    ]
    note = f"{_label(item.measure)} after each stage; in the figure with 95 % bootstrap intervals over queries"
    return ItemTable(frame, [note], (header, shown))


def method_label(settings: ItemParams, method: str, stage: str) -> str:
    """The label of a method whose stages are shown, by that of one of them."""
    return settings.methods[f"{method}@{stage}"].removesuffix(f" @{stage}")


def _gain(scores: dict, method: str, baseline: str, name: str, settings: ItemParams, stage: Stage) -> Gain:
    return gain(scores[method, name], scores[baseline, name], settings.bootstrap_samples, stage.seed)
