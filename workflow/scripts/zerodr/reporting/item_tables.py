"""Items that compare methods, stages and vector spaces by collection."""

from __future__ import annotations

import json

import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.item import Item
from zerodr.config.papers import EpisodesItem, MethodsItem, PretrainingGainItem, SimilarityItem, SpacesItem
from zerodr.evaluation.metrics import LABELS
from zerodr.evaluation.significance import holm, t_test
from zerodr.reporting.item_inputs import METRIC, Gain, ItemParams, Made, correlation, gain, read_scores, read_spaces
from zerodr.reporting.render import BETTER, WORSE

LEVEL = 0.05
LIKENESS = ("corpus", "queries", "query_types")
HOLES = (
    "Hole@k: share of the first k documents without a judgement for the query (pairs), or without one for any query of "
    "the split (corpus)"
)
SPACE_NOTE = (
    "two spans of each held-out document: contrastive loss (nats, among the spans of all of them), alignment "
    "(mean squared distance of a pair's unit vectors), uniformity (log of the mean of exp(-2 d^2))"
)


def methods(stage: Stage, settings: ItemParams, item: Item) -> Made:
    """Rows of methods, columns of collections, marks of tests against the baseline (Holm over the table)."""
    assert isinstance(item, MethodsItem)
    measures: list[str] = [item.measure, *item.beside]
    found, rows = {key: read_scores(stage.paths("per_query"), key) for key in measures}, []
    for name in settings.collections:
        base = found[item.measure][item.baseline, name]
        for method in settings.methods:
            own = found[item.measure][method, name]
            difference = gain(own, base, settings.bootstrap_samples, stage.seed)
            p_value = float(t_test((own - base).to_numpy()[:, None])[0])
            means = {key: float(found[key][method, name].mean()) for key in measures}
            rows.append(
                {
                    "method": method,
                    "collection": name,
                    "queries": len(own),
                    **means,
                    **difference.columns("difference"),
                    "p_t": p_value,
                }
            )
    frame = pd.DataFrame(rows)
    tested = frame["method"] != item.baseline
    frame.loc[tested, "p_t_holm"] = holm(frame.loc[tested, "p_t"].to_numpy(float))
    notes = [
        f"{_label(item.measure)}; {BETTER} better, {WORSE} worse than {settings.methods[item.baseline]}: paired "
        f"t-test over queries, p < .05 after Holm's correction over {int(tested.sum())} tests",
        *([HOLES] if any(key.startswith("hole") for key in measures) else []),
    ]
    return Made(frame, notes, _pivot(frame, settings, measures))


def _pivot(frame: pd.DataFrame, settings: ItemParams, measures: list[str]) -> tuple[list[str], list[list[str]]]:
    header, rows = ["", *settings.collections.values(), "mean"], []
    cells = {(row["method"], row["collection"]): row for _, row in frame.iterrows()}
    for key in measures:
        for method, label in settings.methods.items():
            own = [cells[method, name] for name in settings.collections]
            marks = [_mark(row) if key == measures[0] else "" for row in own]
            told = label if key == measures[0] else f"{_label(key)}: {label}"
            mean = sum(row[key] for row in own) / len(own)
            values = [f"{row[key]:.4f}{mark}" for row, mark in zip(own, marks, strict=True)]
            rows.append([told, *values, f"{mean:.4f}"])
    return header, rows


def _label(measure: str) -> str:
    return LABELS.get(measure, measure)


def _mark(row: pd.Series) -> str:
    if not row["p_t_holm"] < LEVEL:
        return ""
    return f" {BETTER}" if row["difference"] > 0 else f" {WORSE}"


def similarity(stage: Stage, settings: ItemParams, item: Item) -> Made:
    """Weighted Jaccard similarities with the source (COCO-DR tables 5, 6) and gains over the baseline (figure 2)."""
    assert isinstance(item, SimilarityItem)
    scores = read_scores(stage.paths("per_query"))
    facts = [json.loads(path.read_text(encoding="utf-8")) for path in stage.paths("statistics")]
    likeness, rows = {fact["collection"]: fact["similarity"] for fact in facts}, []
    for name in settings.collections:
        row: dict[str, str | float] = {"collection": name} | {key: likeness[name][key] for key in LIKENESS}
        for method in item.methods:
            row |= _gain(scores, method, item.baseline, name, settings, stage).columns(f"gain.{method}")
        rows.append(row)
    frame = pd.DataFrame(rows).sort_values("corpus", ascending=False, kind="stable").reset_index(drop=True)
    notes = [
        f"similarity with {settings.source}: weighted Jaccard of word frequencies of documents and of queries, and "
        f"of shares of nine query types; gain: nDCG@10 minus that of {settings.methods[item.baseline]}, with 95 % "
        "bootstrap intervals over queries"
    ]
    notes += [
        correlation(frame[key], frame[f"gain.{m}"], f"{key} and gain of {settings.methods[m]}")
        for m in item.methods
        for key in ("corpus", "query_types")
    ]
    header = [
        "",
        "documents",
        "queries",
        "query types",
        *(f"{settings.methods[m]} - {settings.methods[item.baseline]}" for m in item.methods),
    ]
    shown = [
        [
            settings.collections[row["collection"]],
            *(f"{row[key]:.3f}" for key in LIKENESS),
            *(str(Gain.of(row, f"gain.{m}")) for m in item.methods),
        ]
        for _, row in frame.iterrows()
    ]
    return Made(frame, notes, (header, shown))


def episodes(stage: Stage, settings: ItemParams, item: Item) -> Made:
    """nDCG@10 of methods after each stage (COCO-DR figures 4, 6)."""
    assert isinstance(item, EpisodesItem)
    scores, rows = read_scores(stage.paths("per_query")), []
    stages = list(dict.fromkeys(name.partition("@")[2] for name in settings.methods))
    for name in settings.collections:
        for method in item.methods:
            for at in stages:
                own = scores[f"{method}@{at}", name]
                level = gain(own, own * 0, settings.bootstrap_samples, stage.seed)
                rows.append({"collection": name, "method": method, "stage": at, **level.columns(METRIC)})
    frame = pd.DataFrame(rows)
    header = ["", "method", *stages]
    shown = [
        [settings.collections[name], method, *(f"{value:.4f}" for value in part[METRIC])]
        for (name, method), part in frame.groupby(["collection", "method"], sort=False)
    ]
    return Made(frame, ["nDCG@10 after each stage, with 95 % bootstrap intervals over queries"], (header, shown))


def spaces(stage: Stage, settings: ItemParams, item: Item) -> Made:
    """Contrastive loss, alignment, uniformity of models by collection (COCO-DR figure 5b)."""
    assert isinstance(item, SpacesItem)
    found = read_spaces(stage.paths("spaces"))
    frame = pd.DataFrame(
        [
            {
                "collection": name,
                "model": label,
                "documents": found[model, name]["documents"],
                **{key: found[model, name][key] for key in ("contrastive", "alignment", "uniformity")},
            }
            for name in settings.collections
            for label, model in item.models.items()
        ]
    )
    return Made(frame, [SPACE_NOTE])


def pretraining_gain(stage: Stage, settings: ItemParams, item: Item) -> Made:
    """Contrastive loss without and with a pretraining, and the gain in retrieval (COCO-DR figure 5a)."""
    assert isinstance(item, PretrainingGainItem)
    found, scores, rows = read_spaces(stage.paths("spaces")), read_scores(stage.paths("per_query")), []
    for name in settings.collections:
        without, with_it = (found[model, name]["contrastive"] for model in item.models)
        own = _gain(scores, item.methods[1], item.methods[0], name, settings, stage)
        rows.append(
            {
                "collection": name,
                "loss_without": without,
                "loss_with": with_it,
                "reduction": 1 - with_it / without,
                **own.columns("gain"),
            }
        )
    frame = pd.DataFrame(rows)
    notes = [
        SPACE_NOTE,
        f"loss of {item.models[0]} and {item.models[1]}; gain: nDCG@10 of {item.methods[1]} minus {item.methods[0]}",
        correlation(frame["reduction"], frame["gain"], "reduction and gain"),
    ]
    shown = [
        [
            settings.collections[row["collection"]],
            f"{row['loss_without']:.4f}",
            f"{row['loss_with']:.4f}",
            f"{row['reduction']:+.1%}",
            str(Gain.of(row, "gain")),
        ]
        for _, row in frame.iterrows()
    ]
    return Made(frame, notes, (["", "loss without", "loss with", "reduction", "gain in nDCG@10"], shown))


def _gain(scores: dict, method: str, baseline: str, name: str, settings: ItemParams, stage: Stage) -> Gain:
    return gain(scores[method, name], scores[baseline, name], settings.bootstrap_samples, stage.seed)
