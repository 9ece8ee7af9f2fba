"""Build and draw items about source and target in a model's space.

MoDIR tables 3 and 4, figures 3 to 5; BERM figures 5 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import split_queries
from zerodr.config.item import Item
from zerodr.errors import ArtifactError
from zerodr.papers.modir.items import DomainsItem, NearestQueriesItem, ProjectionsItem
from zerodr.papers.modir.report_accuracy import domain_accuracy, draw_domain_accuracy
from zerodr.reporting import item_inputs
from zerodr.reporting.cells import Key
from zerodr.reporting.panels import COLORS, blank, legend, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOCAL, SOURCE_DEV = "adversary.domain_accuracy", "dev.ndcg_cut_10"
KINDS = ("queries", "documents")
DOMAIN_COLUMNS = {
    "": "{collection}",
    "method": "{method}",
    "steps": "{steps}",
    "global": "{domain_accuracy:.3f}",
    "converged": "{converged_accuracy:.3f}",
    "local": "{local_accuracy:.3f}",
    "KNN-Source%": "{knn_source:.1%}",
    "base rate": "{knn_base_rate:.1%}",
    "source dev": "{source_dev:.3f}",
    "nDCG@10": f"{{{item_inputs.METRIC}:.4f}}",
}
SOURCE_MRR = "source_recip_rank_cut_10"
FULL_COLUMNS = {
    "KNN-Source%, full": "{knn_source_full:.1%}",
    "base rate, full": "{knn_full_base_rate:.1%}",
    "source MRR@10": "{source_mrr:.4f}",
    "loss of it": "{source_loss:+.2%}",
}
FULL_NOTES = [
    "full: among all documents of source and target, as published; source MRR@10: of the source's evaluated queries "
    "among all its documents; loss of it: share that training took, against the model before"
]
AROUND = 10  # neighbours in the plane
Curve = list[tuple[int, float]]
ROWS = {"domain_accuracy": "Domain-Acc (dashed: local)", "knn_source": "KNN-Source%", item_inputs.METRIC: "nDCG@10"}
MARK = {"queries": "^", "documents": "o"}
DOMAINS = {"source": COLORS[0], "target": COLORS[4]}  # blue and orange, as in MoDIR's figure 4


def domains(stage: Stage, settings: item_inputs.ItemParams, item: Item) -> item_inputs.ItemTable:
    """Domain-Acc, KNN-Source% and nDCG@10 of each model of each line, by steps."""
    assert isinstance(item, DomainsItem)
    scores, rows = item_inputs.read_scores(stage.paths("per_query")), list[dict[str, Any]]()
    measures = _by_model(stage, "measures", settings)
    curves, full = _curves(stage, settings), _of_indexes(stage)
    for target in settings.collections:
        for method, models in settings.points.items():
            start, before = next(iter(models)), -1
            for model, steps in models.items():
                values = scores[model, target]
                local, dev = (_between(curves[method, target, name], before, steps) for name in (LOCAL, SOURCE_DEV))
                row = {"collection": target, "method": method, "model": model, "steps": steps}
                row |= _measure_columns(_measures(measures[model, target]))
                row |= {"local_accuracy": local, "source_dev": dev}
                row |= _full_columns(full.get((model, target)), full.get((start, target))) if full else {}
                row |= item_inputs.level(values, settings.bootstrap_samples, stage.seed).columns(item_inputs.METRIC)
                row |= item_inputs.gain(values, scores[start, target], settings.bootstrap_samples, stage.seed).columns(
                    "gain"
                )
                rows.append(row)
                before = steps
    frame = pd.DataFrame(rows)
    measured = {
        (f"{row['method']}, step {row['steps']}", row["collection"], name): float(row[key])
        for row in rows
        for name, key in {item_inputs.METRIC: item_inputs.METRIC, "knn_source": "knn_source_full"}.items()
        if not np.isnan(row.get(key, np.nan))
    }
    if full:
        worst = frame.groupby("method")["source_loss"].max().dropna()
        measured |= {(str(name), settings.source, "loss_of_accuracy"): float(loss) for name, loss in worst.items()}
    notes = [*_domain_notes(frame, settings), *(FULL_NOTES if full else [])]
    columns = DOMAIN_COLUMNS | (FULL_COLUMNS if full else {})
    return item_inputs.ItemTable(frame, notes, item_inputs.printed(rows, settings, columns), measured)


def _of_indexes(stage: Stage) -> dict[tuple[str, str], dict[str, float]]:
    """Measures of full indexes by model and target: `results/domains/<model>/<target>/<protocol>.indexes.tsv`."""
    files = stage.paths("indexes") if "indexes" in stage.spec.inputs else []
    return {(path.parts[-3], path.parts[-2]): _measures(path) for path in files}


def _full_columns(values: dict[str, float] | None, start: dict[str, float] | None) -> dict[str, float]:
    """KNN-Source% over full indexes, its base rate, MRR@10 of the source and what of it training takes; NaN: none."""
    names = {
        "knn_source_full": "knn_source_100",
        "knn_full_base_rate": "knn_source_base_rate",
        "source_mrr": SOURCE_MRR,
    }
    columns = {key: float("nan") if values is None else values[name] for key, name in names.items()}
    lost = float("nan") if values is None or start is None else 1 - values[SOURCE_MRR] / start[SOURCE_MRR]
    return columns | {"source_loss": lost}


def _measure_columns(values: dict[str, float]) -> dict[str, float]:
    """Accuracies of queries and documents and their means, share of source documents, base rate."""
    accuracies = {who: [values[f"domain_accuracy_{who}_{kind}"] for kind in KINDS] for who in ("released", "converged")}
    share = next(value for name, value in values.items() if name.startswith("knn_source_") and name[11:].isdigit())
    return {
        "domain_accuracy": float(np.mean(accuracies["released"])),
        "domain_accuracy_queries": accuracies["released"][0],
        "domain_accuracy_documents": accuracies["released"][1],
        "converged_accuracy": float(np.mean(accuracies["converged"])),
        "knn_source": share,
        "knn_base_rate": values["knn_source_base_rate"],
    }


def _domain_notes(frame: pd.DataFrame, settings: item_inputs.ItemParams) -> list[str]:
    notes = [
        "Domain-Acc: accuracy on held-out vectors of a linear classifier of domains, mean of queries and documents "
        "(0.5: nothing tells them apart); global: a fresh one as in the released code; converged: logistic regression; "
        "local: the training's own classifier on new batches, mean over the steps since the row above, at the start "
        "its first batch",
        "KNN-Source%: share of source documents among the 100 nearest of a target query, in samples of both domains; "
        "mixed perfectly it is the base rate",
        f"source dev: nDCG@10 on held-out queries of {settings.source} against their own mined negatives, as training "
        "measured it; comparable within this table alone. nDCG@10 with 95 % intervals over queries",
    ]
    for (target, method), rows in frame.groupby(["collection", "method"], sort=False):
        first, last = rows.iloc[0], rows.iloc[-1]
        notes.append(
            f"{settings.collections[str(target)]}, {settings.methods[str(method)]}, step {first['steps']} to "
            f"{last['steps']}: Domain-Acc {first['domain_accuracy']:.3f} to {last['domain_accuracy']:.3f} (converged "
            f"{first['converged_accuracy']:.3f} to {last['converged_accuracy']:.3f}), KNN-Source% "
            f"{first['knn_source']:.1%} to {last['knn_source']:.1%}, nDCG@10 {item_inputs.Gain.of(last, 'gain')}"
        )
    for target, rows in frame.drop_duplicates(["collection", "model"]).groupby("collection", sort=False):
        what = f"{settings.collections[str(target)]}: Domain-Acc and nDCG@10"
        notes.append(item_inputs.correlation(rows["domain_accuracy"], rows[item_inputs.METRIC], what, "models"))
    return notes


def _curves(stage: Stage, settings: item_inputs.ItemParams) -> dict[tuple[str, str, str], Curve]:
    """Points (step, value) of a training's curve, by method, target and name."""
    curves: dict[tuple[str, str, str], Curve] = {}
    files = iter(stage.paths("models"))
    for method, stages in settings.stages.items():
        for target in settings.collections:
            records = [_record(next(files)) for _ in stages]
            for name in (LOCAL, SOURCE_DEV):
                curves[method, target, name] = [
                    (point["step"], point["value"])
                    for record in records
                    for point in record["metrics"]
                    if point["name"] == name
                ]
    return curves


def _record(model: Path) -> dict:
    record = read_record(model)
    if record is None:
        raise ArtifactError(model, "has no lineage record, so nothing is known of its training", "train it again")
    return record


def _between(curve: Curve, after: int, upto: int) -> float:
    """Mean of the points with after < step <= upto; at the start the first point, where it is the next step's."""
    values = [value for step, value in curve if after < step <= upto]
    if not values and after < 0:
        values = [value for step, value in curve if step == upto + 1]
    return float(np.mean(values)) if values else float("nan")


def _by_model(stage: Stage, name: str, settings: item_inputs.ItemParams) -> dict[tuple[str, str], Path]:
    """Input files by model and target, in the order of `ModelItems.looked_into`."""
    models = dict.fromkeys(model for line in settings.points.values() for model in line)
    keys = [(model, target) for model in models for target in settings.collections]
    return dict(zip(keys, stage.paths(name), strict=True))


def _measures(path: Path) -> dict[str, float]:
    return pd.read_csv(path, sep="\t", index_col="metric")["value"].to_dict()


def nearest_queries(stage: Stage, settings: item_inputs.ItemParams, item: Item) -> item_inputs.ItemTable:
    """Target queries with the largest gains and losses, and their nearest source queries on both sides."""
    assert isinstance(item, NearestQueriesItem)
    scores, near = item_inputs.read_scores(stage.paths("per_query")), _by_model(stage, "nearest", settings)
    before, after = settings.points[item.method]
    rows, measured = [], dict[Key, float | str]()
    for target, manifest in zip(settings.collections, stage.paths("collections"), strict=True):
        asked = split_queries(manifest.parent, settings.splits[target]).drop_duplicates("text").set_index("text")["id"]
        sources, later = (_neighbours(near[model, target], item.neighbours) for model in (before, after))
        differences = scores[after, target] - scores[before, target]
        asked = asked[asked.isin(differences.index)]  # others have no positive judgement
        texts = [text for text in sources if text in later and text in asked.index]
        by_id = pd.Series(asked.index, index=asked.to_numpy())
        measured |= item_inputs.case_gains(item.cases, by_id, differences, (item.method, target))
        gains = differences.loc[asked[texts]].to_numpy()
        for position in item_inputs.extremes(gains, item.examples):
            text, gained = texts[position], float(gains[position])
            rows += [
                {"collection": target, "query": text, "gain": gained, "source_before": one, "source_after": other}
                for one, other in zip(sources[text], later[text], strict=True)
            ]
    notes = [
        f"the {item.examples} queries of each collection with the largest gains of {settings.methods[after]} over "
        f"{settings.methods[before]} in nDCG@10, and as many with the largest losses, each with the nearest "
        f"queries of {settings.source} by either model: chosen examples, no evidence"
    ]
    columns = {"": "{collection}", "query": "{query}", "gain": "{gain:+z.4f}"}
    columns |= {"near it before training": "{source_before}", "near it after training": "{source_after}"}
    return item_inputs.ItemTable(pd.DataFrame(rows), notes, item_inputs.printed(rows, settings, columns), measured)


def _neighbours(path: Path, count: int) -> dict[str, list[str]]:
    """Source queries of each target query, the nearest first."""
    frame = pq.read_table(path).to_pandas()
    frame = frame[frame["rank"] <= count].sort_values("rank", kind="stable").drop_duplicates(["query", "rank"])
    return {str(text): rows["source"].tolist() for text, rows in frame.groupby("query", sort=False)}


def projections(stage: Stage, settings: item_inputs.ItemParams, item: Item) -> item_inputs.ItemTable:
    """Points of every picture, and how mixed the domains are in it."""
    assert isinstance(item, ProjectionsItem)
    files, frames, shown, uneven = _by_model(stage, "projections", settings), [], [], dict[str, None]()
    for target, model, label in pictures(settings):
        points = pq.read_table(files[model, target]).to_pandas()
        frames.append(points.assign(collection=target, model=model, picture=label))
        shown.append([settings.collections[target], label, *(f"{_mixed(points, kind):.1%}" for kind in KINDS)])
        uneven |= dict.fromkeys(_uneven(points, settings.collections[target]))
    notes = [
        f"t-SNE of samples of both domains, queries and documents of a model together; share of source points among "
        f"the {AROUND} nearest of a target's points of the same kind in the picture, half of it in a perfect mixture. "
        "Distances between groups in such a picture mean nothing",
        *uneven,
    ]
    columns = ["collection", "model", "picture", "domain", "kind", "x", "y"]
    frame = pd.concat(frames, ignore_index=True)[columns]
    return item_inputs.ItemTable(
        frame, notes, (["", "model", "source near target's queries", "near its documents"], shown)
    )


def _mixed(points: pd.DataFrame, kind: str) -> float:
    rows = points[points["kind"] == kind]
    coordinates, source = rows[["x", "y"]].to_numpy(), (rows["domain"] == "source").to_numpy()
    target = np.flatnonzero(~source)
    distances = np.square(coordinates[target][:, None] - coordinates[None]).sum(2)
    distances[np.arange(len(target)), target] = np.inf
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : min(AROUND, len(rows) - 1)]
    return float(source[nearest].mean())


def _uneven(points: pd.DataFrame, target: str) -> Iterator[str]:
    """Note the share of a perfect mixture for each kind with more points of one domain than of the other."""
    for kind in KINDS:
        counts = points.loc[points["kind"] == kind, "domain"].value_counts()
        source, other = int(counts["source"]), int(counts["target"])
        if source != other:
            share = source / (source + other - 1)  # a point is no neighbour of its own
            yield f"{target}, {kind}: {source} of the source, {other} of the target, {share:.0%} in a perfect mixture"


def draw_domains(frame: pd.DataFrame, settings: item_inputs.ItemParams) -> Figure:
    """Draw a column a target: Domain-Acc, KNN-Source%, nDCG@10 over steps, and Domain-Acc against nDCG@10."""
    from matplotlib.ticker import PercentFormatter

    figure, grid = blank(len(ROWS) + 1, len(settings.collections))
    for column, (target, label) in enumerate(settings.collections.items()):
        grid[0, column].set_title(label, fontsize=9)
        for number, method in enumerate(settings.points):
            rows = frame[(frame["collection"] == target) & (frame["method"] == method)]
            steps, look, label = rows["steps"], style(number) | {"markersize": 4}, settings.methods[method]
            for axes, key in zip(grid[:, column], ROWS, strict=False):
                axes.plot(steps, rows[key], label=label, linewidth=1.2, **look)
            grid[0, column].plot(steps, rows["local_accuracy"], linestyle="--", linewidth=1.0, color=look["color"])
            interval = rows[f"{item_inputs.METRIC}_low"], rows[f"{item_inputs.METRIC}_high"]
            grid[2, column].fill_between(steps, *interval, alpha=0.12, linewidth=0, color=look["color"])
            grid[3, column].plot(rows["domain_accuracy"], rows[item_inputs.METRIC], linewidth=0.8, **look)
        rate = frame.loc[frame["collection"] == target, "knn_base_rate"].iloc[0]
        grid[1, column].yaxis.set_major_formatter(PercentFormatter(1.0))
        grid[1, column].axhline(rate, color="#888888", linewidth=0.8, linestyle=":")
        grid[2, column].set_xlabel("steps")
        grid[3, column].set_xlabel("Domain-Acc")
    for axes, label in zip(grid[:, 0], [*ROWS.values(), "nDCG@10"], strict=True):
        axes.set_ylabel(label)
    legend(figure, grid[0, 0])
    return figure


def draw_projections(frame: pd.DataFrame, settings: item_inputs.ItemParams) -> Figure:
    """Draw a row a target and line, a picture a model; lines of one model share a row."""
    sizes = [len(models) for models in settings.points.values()]
    rows = [sum(sizes)] if max(sizes) == 1 else sizes
    every = list(pictures(settings))
    figure, grid = blank(len(settings.collections) * len(rows), max(rows), 2.8, 2.8)
    lines = [(line, size) for _ in settings.collections for line, size in enumerate(rows)]
    cells = [(row, column) for row, (_, size) in enumerate(lines) for column in range(size)]
    for axes in grid.ravel():
        axes.set_axis_off()
    for cell, (target, model, label) in zip(cells, every, strict=True):
        points = frame[(frame["collection"] == target) & (frame["model"] == model) & (frame["picture"] == label)]
        _picture(grid[cell], points, f"{settings.collections[target]}: {label}")
    legend(figure, grid[0, 0], markers=2.5)
    return figure


def _picture(axes: Axes, points: pd.DataFrame, title: str) -> None:
    for (domain, kind), rows in points.groupby(["domain", "kind"], sort=False):
        look: Any = {"color": DOMAINS[str(domain)], "marker": MARK[str(kind)], "label": f"{domain}, {kind}"}
        axes.scatter(rows["x"], rows["y"], s=7, alpha=0.6, linewidths=0, **look)
    axes.set_title(title, fontsize=7)


def pictures(settings: item_inputs.ItemParams) -> Iterator[tuple[str, str, str]]:
    """Target, model and label of every picture, line by line; a model once in each line."""
    for target in settings.collections:
        for method, models in settings.points.items():
            for model, steps in models.items():
                label = settings.methods.get(method, settings.methods[model])
                yield target, model, f"{label}, step {steps}" if len(models) > 1 else label


REPORT = item_inputs.Report(
    {
        "domains": domains,
        "domain_accuracy": domain_accuracy,
        "nearest_queries": nearest_queries,
        "projections": projections,
    },
    {"domains": draw_domains, "domain_accuracy": draw_domain_accuracy, "projections": draw_projections},
)
