"""Build and draw items about spaces, clusters and neighbours (COCO-DR figure 5, table 4).

The source's queries that items look for are those of its evaluated split, which training has not seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from zerodr.artifacts.stage import Stage
from zerodr.collections.access import read_qrels, split_queries
from zerodr.config.item import Item
from zerodr.config.quantities import shortened
from zerodr.errors import ArtifactError
from zerodr.papers.coco_dr.items import NearestClustersItem, NeighboursItem, PretrainingGainItem, SpacesItem
from zerodr.papers.coco_dr.report_clusters import draw_group_losses, draw_worst_cluster, group_losses, worst_cluster
from zerodr.reporting import item_inputs
from zerodr.reporting.cells import Key
from zerodr.reporting.claims import few_seeds
from zerodr.reporting.panels import draw_points, legend, name_points, panels, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CENTROIDS = "centroids.npy"
TEXTS = ("query", "source_query")
SHOWN = 160  # characters of a text in the printed table; the tsv has all
SPACE_MEASURES = {"contrastive": "contrastive loss", "alignment": "alignment", "uniformity": "uniformity"}
GAIN = "gain in nDCG@10"
COLLECTIONS = 18  # of BEIR, among whose nearest clusters the paper counts
SPACE_NOTE = (
    "two spans of each held-out document: contrastive loss (nats, among the spans of all of them), alignment "
    "(mean squared distance of a pair's unit vectors), uniformity (log of the mean of exp(-2 d^2))"
)


def nearest_clusters(stage: Stage, settings: item_inputs.ItemParams, item: Item) -> item_inputs.ItemTable:
    """For each collection the cluster with the highest mean inner product, and gains on both sides, with each seed.

    Inputs `clusters`, `losses` (the method's, the baseline's) and `queries` (of every collection) are seed by seed.
    """
    assert isinstance(item, NearestClustersItem)
    scores = item_inputs.read_scores([*stage.paths("per_query"), *stage.paths("source_per_query")])
    seeds = [one["seed"] for one in settings.values] or [stage.seed]
    runs = [one["names"] for one in settings.values] or [{name: name for name in settings.methods}]
    rows: list[dict[str, Any]] = []
    files = [_in_shares(stage.paths(key), len(seeds)) for key in ("clusters", "losses", "queries")]
    for seed, names, (manifest,), losses, embedded in zip(seeds, runs, *files, strict=True):
        drawn = item.model_copy(update={"method": names[item.method], "baseline": names[item.baseline]})
        centroids = np.load(manifest.parent / CENTROIDS, allow_pickle=False)
        asked, fallen = _queries(stage, settings, embedded), _loss_falls(losses, len(centroids))
        rows += [{"seed": seed, **row} for row in _nearest(stage, settings, drawn, scores, centroids, asked, fallen)]
    frame = pd.DataFrame(rows)
    by_seed = [one for _, one in frame.groupby("seed", sort=False)]
    members = settings.published.members if settings.published else {}
    column_of = {name: column for column, names in members.items() for name in names}
    falls = [one.groupby(one["collection"].replace(column_of))["loss_fall"].mean() for one in by_seed]
    lower, columns = [int((fall > 0).sum()) for fall in falls], len(falls[0])
    measured: dict[Key, float | str] = {}
    if columns == COLLECTIONS:
        measured[item.method, settings.source, "clusters_with_lower_loss"] = float(np.mean(lower))
    notes = _nearest_notes(settings, item, frame, by_seed) + [
        f"fall of the loss: {settings.methods[item.baseline]}'s minus {settings.methods[item.method]}'s on the "
        f"cluster's training queries, of {frame['measured'].iloc[0]:,} queries "
        "in all, each against the relevant documents of all of them; positive for "
        f"{', '.join(map(str, lower))} of {columns} collections",
        item_inputs.correlation(*_means(frame, settings, "loss_fall"), "falls of the loss and gains of collections"),
        *item_inputs.mean_note(settings, "correlations"),
    ]
    if len(seeds) > 1:
        counted = ", ".join(map(str, seeds))
        notes.append(
            f"{len(seeds)} seeds ({counted}): means with the least and the greatest in brackets; counts by seed"
        )
        notes += few_seeds(seeds)
    headings = {"": "{collection}", "cluster": "{cluster}", "its source queries": "{source_queries}"}
    headings |= {"gain there": "{source_gain_interval}", "training queries": "{training_queries}"}
    headings |= {"fall of their loss": "{loss_fall:+z.4f}", "gain on the collection": "{gain_interval}"}
    shown = rows if len(seeds) == 1 else _over_seeds(frame).to_dict("records")
    return item_inputs.ItemTable(frame, notes, item_inputs.printed(shown, settings, headings), measured)


def _in_shares(files: list[Path], count: int) -> list[list[Path]]:
    """Cut a list into as many equal ones, in order."""
    size = len(files) // count
    return [files[first : first + size] for first in range(0, len(files), size)]


def _nearest(
    stage: Stage,
    settings: item_inputs.ItemParams,
    item: NearestClustersItem,
    scores: dict,
    centroids: np.ndarray,
    asked: tuple[dict[str, pd.DataFrame], dict[str, np.ndarray]],
    losses: tuple[np.ndarray, np.ndarray],
) -> list[dict[str, Any]]:
    """Return a row a collection, of one seed's clusters; `others_gain` is that of clusters nearest to no collection.

    Args:
        scores: nDCG@10 by query of each (method, collection).
        centroids: (C, D).
        asked: queries and their vectors by collection, the source among them.
        losses: falls of the training loss and numbers of queries, by cluster.
    """
    (queries, vectors), (falls, counts) = asked, losses
    source = _differences(scores, item, settings.source, queries[settings.source])
    distances = np.square(centroids).sum(1) - 2 * vectors[settings.source] @ centroids.T  # up to a constant of a row
    owner = distances.argmin(1)
    samples, rows = settings.bootstrap_samples, list[dict[str, Any]]()
    for name in settings.collections:
        nearness = (vectors[name] @ centroids.T).mean(0)
        nearness[np.bincount(owner, minlength=len(centroids)) == 0] = -np.inf  # no source query to tell a gain on
        nearness[counts == 0] = -np.inf
        cluster = int(nearness.argmax())
        near = source[owner == cluster]
        there = item_inputs.gain(near, near * 0, samples, stage.seed)
        here = item_inputs.gain(scores[item.method, name], scores[item.baseline, name], samples, stage.seed)
        row = {"collection": name, "cluster": cluster, "source_queries": len(near), "measured": int(counts.sum())}
        row |= {"loss_fall": float(falls[cluster]), "training_queries": int(counts[cluster])}
        rows.append(row | there.columns("source_gain") | here.columns("gain"))
    others = source[~np.isin(owner, [row["cluster"] for row in rows])]
    if len(others):
        facts = item_inputs.gain(others, others * 0, samples, stage.seed).columns("others_gain")
        rows = [row | facts for row in rows]
    return rows


def _nearest_notes(
    settings: item_inputs.ItemParams, item: NearestClustersItem, frame: pd.DataFrame, by_seed: list[pd.DataFrame]
) -> list[str]:
    method, baseline = settings.methods[item.method], settings.methods[item.baseline]
    signs = [int(((one["source_gain"] > 0) == (one["gain"] > 0)).sum()) for one in by_seed]
    nearest = [one.drop_duplicates("cluster") for one in by_seed]
    risen = [f"{int((one['source_gain_low'] > 0).sum())} of {len(one)}" for one in nearest]
    notes = [
        f"clusters of {method}'s stage {item.stage}; nearest by the mean inner product of a collection's "
        f"queries with its centroid; gains: nDCG@10 of {method} minus that of {baseline}, on the cluster's "
        f"queries of {settings.source}/{settings.splits[settings.source]} and on the collection",
        f"nearest clusters whose gain has an interval above zero: {', '.join(risen)}",
    ]
    if "others_gain" in frame:
        gains = [item_inputs.Gain.of(one.iloc[0], "others_gain") for one in by_seed]
        others = ["there are none" if np.isnan(one.value) else str(one) for one in gains]
        notes.append(f"gain on source queries of the other clusters, nearest to no collection: {', '.join(others)}")
    return notes + [
        f"gains have one sign on both sides for {', '.join(map(str, signs))} of {len(by_seed[0])} collections",
        item_inputs.correlation(*_means(frame, settings, "source_gain"), "gains of clusters and of collections"),
    ]


def _means(frame: pd.DataFrame, settings: item_inputs.ItemParams, of: str) -> tuple[pd.Series, pd.Series]:
    """Average a column and the gains of collections over seeds, then over the collections of one column."""
    over_seeds = frame.groupby("collection", sort=False).mean(numeric_only=True).reset_index()
    points = item_inputs.by_column(over_seeds, settings)
    return points[of], points["gain"]


def _over_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row a collection: means over seeds with the least and the greatest, and each seed's cluster."""
    rows = list[dict[str, Any]]()
    for name, of in frame.groupby("collection", sort=False):
        row: dict[str, Any] = {"collection": name, "loss_fall": of["loss_fall"].mean()}
        row |= {key: ", ".join(map(str, of[key])) for key in ("cluster", "source_queries", "training_queries")}
        for key in ("source_gain", "gain"):
            row |= item_inputs.Gain(*of[key].agg(["mean", "min", "max"])).columns(key)
        rows.append(row)
    return pd.DataFrame(rows)


def _loss_falls(losses: Sequence[Path], clusters: int) -> tuple[np.ndarray, np.ndarray]:
    """Baseline's minus the method's mean training loss by cluster, and numbers of queries; NaN for none.

    Raises:
        ArtifactError: both are of other queries.
    """
    after, before = (pq.read_table(path).to_pandas() for path in losses)
    if not after[["query", "cluster"]].equals(before[["query", "cluster"]]):
        raise ArtifactError("training losses by cluster", "are of other queries or clusters", "measure both again")
    counts = np.bincount(after["cluster"], minlength=clusters)
    sums = np.bincount(after["cluster"], before["loss"] - after["loss"], minlength=clusters)
    with np.errstate(invalid="ignore"):
        return sums / counts, counts


def neighbours(stage: Stage, settings: item_inputs.ItemParams, item: Item) -> item_inputs.ItemTable:
    """Queries with the largest gains and losses, their nearest source queries, and gains on these."""
    assert isinstance(item, NeighboursItem)
    queries, vectors = _queries(stage, settings, stage.paths("queries"))
    scores = item_inputs.read_scores([*stage.paths("per_query"), *stage.paths("source_per_query")])
    asked = queries[settings.source]
    source, rows = _differences(scores, item, settings.source, asked), []
    texts = asked.set_index("id")["text"]
    measured = item_inputs.case_gains(item.cases.values(), texts, source, (item.method, settings.source))
    for name in settings.collections:
        gains = _differences(scores, item, name, queries[name])
        texts = queries[name].set_index("id")["text"]
        measured |= item_inputs.case_gains(item.cases, texts, gains, (item.method, name))
        for position in item_inputs.extremes(gains.to_numpy(), item.examples):
            near = np.argsort(-(vectors[settings.source] @ vectors[name][position]), kind="stable")[: item.neighbours]
            rows += [
                {
                    "collection": name,
                    "query": queries[name]["text"].iloc[position],
                    "gain": float(gains.iloc[position]),
                    "source_query": asked["text"].iloc[at],
                    "source_gain": float(source.iloc[at]),
                }
                for at in near
            ]
    notes = [
        f"the {item.examples} queries of each collection with the largest gains of "
        f"{settings.methods[item.method]} over {settings.methods[item.baseline]} in nDCG@10, and as many with the "
        f"largest losses, with the nearest queries of {settings.source}/{settings.splits[settings.source]} by the "
        "method's own vectors: chosen examples, no evidence"
    ]
    short = ({**row, **{key: shortened(row[key], SHOWN) for key in TEXTS}} for row in rows)
    columns = {"": "{collection}", "query": "{query}", "gain": "{gain:+z.4f}"}
    columns |= {"source query": "{source_query}", "gain there": "{source_gain:+z.4f}"}
    return item_inputs.ItemTable(pd.DataFrame(rows), notes, item_inputs.printed(short, settings, columns), measured)


def _queries(
    stage: Stage, settings: item_inputs.ItemParams, embedded: Sequence[Path]
) -> tuple[dict[str, pd.DataFrame], dict[str, np.ndarray]]:
    """Queries and their vectors by collection, the source among them, from the vectors' files in that order.

    Queries without a positive judgement are in no evaluation, and left out.
    """
    texts, vectors = dict[str, pd.DataFrame](), dict[str, np.ndarray]()
    for manifest, file in zip(stage.paths("collections"), embedded, strict=True):
        name, folder = manifest.parent.name, manifest.parent
        asked, judged = split_queries(folder, settings.splits[name]), read_qrels(folder, settings.splits[name])
        counted = asked["id"].isin(judged.loc[judged["grade"] > 0, "query"]).to_numpy()
        texts[name], vectors[name] = asked[counted], _vectors(file, len(asked), name)[counted]
    return texts, vectors


def _vectors(file: Path, count: int, name: str) -> np.ndarray:
    vectors = np.load(file, allow_pickle=False).astype(np.float32)
    if len(vectors) != count:
        raise ArtifactError(file, f"holds {len(vectors)} vectors, {name} has {count} queries", "embed them again")
    return vectors


def _differences(
    scores: dict, item: NearestClustersItem | NeighboursItem, name: str, queries: pd.DataFrame
) -> pd.Series:
    """Gain of each query, in the order of its vectors."""
    differences = (scores[item.method, name] - scores[item.baseline, name]).reindex(queries["id"])
    if differences.isna().any():
        problem = (
            f"lack {int(differences.isna().sum())} of its "
            f"{len(queries)} queries, the first is {differences.index[differences.isna()][0]}"
        )
        raise ArtifactError(f"metrics of {item.method} on {name}", problem, "evaluate it again")
    return differences


def read_spaces(paths: Sequence[Path]) -> dict[tuple[str, str], dict[str, float]]:
    """Read the measures of each (model, collection)."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return {(facts["model"], facts["collection"]): facts for facts in files}


def spaces(stage: Stage, settings: item_inputs.ItemParams, item: Item) -> item_inputs.ItemTable:
    """Compare contrastive loss, alignment, uniformity of models by collection (COCO-DR figure 5b)."""
    assert isinstance(item, SpacesItem)
    facts = read_spaces(stage.paths("spaces"))
    rows: list[dict[str, Any]] = []
    for name in settings.collections:
        for label, model in item.models.items():
            measures = {key: facts[model, name][key] for key in ("documents", *SPACE_MEASURES)}
            rows.append({"collection": name, "model": label} | measures)
    columns = {"": "{collection}", "model": "{model}", "held-out documents": "{documents}"}
    columns |= {heading: f"{{{key}:.4f}}" for key, heading in SPACE_MEASURES.items()}
    return item_inputs.ItemTable(pd.DataFrame(rows), [SPACE_NOTE], item_inputs.printed(rows, settings, columns))


def pretraining_gain(stage: Stage, settings: item_inputs.ItemParams, item: Item) -> item_inputs.ItemTable:
    """Compare contrastive loss without and with a pretraining with the gain in retrieval (COCO-DR figure 5a)."""
    assert isinstance(item, PretrainingGainItem)
    facts, scores, rows = read_spaces(stage.paths("spaces")), item_inputs.read_scores(stage.paths("per_query")), []
    for name in settings.collections:
        without, with_it = (facts[model, name]["contrastive"] for model in item.models)
        numbers: dict[str, str | float] = {"collection": name, "loss_without": without, "loss_with": with_it}
        after, before = (scores[method, name] for method in reversed(item.methods))
        gained = item_inputs.gain(after, before, settings.bootstrap_samples, stage.seed).columns("gain")
        rows.append({**numbers, "reduction": 1 - with_it / without, **gained})
    frame = pd.DataFrame(rows)
    points = item_inputs.by_column(frame, settings)
    notes = [
        SPACE_NOTE,
        f"loss without: of model {item.models[0]}, loss with: of {item.models[1]}; gain: nDCG@10 of "
        f"{settings.methods[item.methods[1]]} minus that of {settings.methods[item.methods[0]]}",
        item_inputs.correlation(points["reduction"], points["gain"], "reduction and gain"),
        *item_inputs.mean_note(settings, "correlations"),
    ]
    columns = {"": "{collection}", "loss without": "{loss_without:.4f}", "loss with": "{loss_with:.4f}"}
    columns |= {"reduction": "{reduction:+.1%}", GAIN: "{gain_interval}"}
    return item_inputs.ItemTable(frame, notes, item_inputs.printed(rows, settings, columns))


def draw_spaces(frame: pd.DataFrame, settings: item_inputs.ItemParams) -> Figure:
    """Draw alignment against uniformity, and the contrastive loss of each collection."""
    figure, (plane, losses) = panels(2, width=4.2, height=3.8)
    for number, (label, rows) in enumerate(frame.groupby("model", sort=False)):
        names = [settings.collections[name] for name in rows["collection"]]
        plane.plot(rows["alignment"], rows["uniformity"], linestyle="", markersize=6, label=label, **style(number))
        name_points(plane, rows["alignment"], rows["uniformity"], names)
        losses.plot(rows["contrastive"], range(len(rows)), linestyle="", markersize=6, **style(number))
        losses.set_yticks(range(len(rows)), names)
    for axes in (plane, losses):
        axes.locator_params(axis="x", nbins=5)
    plane.set_xlabel("alignment (lower is better)")
    plane.set_ylabel("uniformity (lower is better)")
    losses.set_xlabel("contrastive loss of held-out documents")
    legend(figure, plane)
    return figure


def draw_against(x: str, what: str) -> Callable[[pd.DataFrame, item_inputs.ItemParams], Figure]:
    """A function that draws gains against a column of the table; `what` the column is."""

    def draw(frame: pd.DataFrame, settings: item_inputs.ItemParams) -> Figure:
        from matplotlib.ticker import MaxNLocator

        figure, (axes,) = panels(1, width=5, height=3.8)
        several = "seed" in frame and frame["seed"].nunique() > 1
        frame = _over_seeds(frame) if several else frame
        draw_points(axes, frame, x, "gain", "", 0)
        name_points(axes, frame[x], frame["gain"], [settings.collections[name] for name in frame["collection"]])
        axes.axhline(0, color="#888888", linewidth=0.8)
        axes.axvline(0, color="#888888", linewidth=0.8)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.set_xlabel(what)
        axes.set_ylabel(f"{GAIN}, {'least and greatest of seeds' if several else '95 % interval'}")
        return figure

    return draw


REPORT = item_inputs.Report(
    {
        "spaces": spaces,
        "pretraining_gain": pretraining_gain,
        "nearest_clusters": nearest_clusters,
        "neighbours": neighbours,
        "worst_cluster": worst_cluster,
        "group_losses": group_losses,
    },
    {
        "spaces": draw_spaces,
        "pretraining_gain": draw_against("reduction", "part of the contrastive loss that the pretraining takes off"),
        "nearest_clusters": draw_against("loss_fall", "fall of the training loss of the nearest source cluster"),
        "worst_cluster": draw_worst_cluster,
        "group_losses": draw_group_losses,
    },
)
