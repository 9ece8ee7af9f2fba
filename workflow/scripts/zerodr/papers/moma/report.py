"""Items about memories: whose documents augment queries, and how both components learn (MoMA figures 2 to 4)."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import Stage
from zerodr.config.item import Item
from zerodr.config.quantities import shortened
from zerodr.errors import ArtifactError
from zerodr.evaluation.numbers import signed
from zerodr.papers.moma.items import CasesItem, ComponentsItem, MixturesItem, SharesItem
from zerodr.papers.moma.learn_mixture import FACTS
from zerodr.papers.moma.report_costs import hours, latency, memories
from zerodr.reporting.cells import Key
from zerodr.reporting.claims import few_seeds
from zerodr.reporting.item_inputs import ItemParams, ItemTable, Report, printed
from zerodr.reporting.panels import legend, panels, style

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

MRR, RELEVANT = "dev.recip_rank_cut_10", "queries_with_relevant_document"
SHOWN = 160  # characters of a text in the printed table; the tsv has all
MAIN, AUGMENTER = "main model", "augmenter"


def mixtures(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Average by episode what was found for held-out questions. Input `learned`, manifests by method, then seed."""
    assert isinstance(item, MixturesItem)
    seeds, rows = [one["seed"] for one in settings.values], list[pd.DataFrame]()
    pairs = product(item.methods, seeds)
    for (method, seed), path in zip(pairs, stage.paths("learned"), strict=True):
        rows.append(pd.read_csv(path.parent / FACTS, sep="\t").assign(method=method, seed=seed))
    frame = pd.concat(rows, ignore_index=True)
    memories = list(dict.fromkeys(frame["memory"]))
    table = [
        line
        for method, of_method in frame.groupby("method", sort=False)
        for line in _shown(of_method, settings.methods[str(method)], memories)
    ]
    notes = [
        f"held-out questions of {settings.source}: {rows[0]['questions'].iloc[0]}, not of the split that teaches, "
        f"the same with every seed ({', '.join(map(str, seeds))}); reads a relevant one: questions with a judged "
        "document among those that the augmenter after the episode finds; episode 0: the bi-encoder's own queries",
        "change: from episode 0, mean over seeds and in brackets the least and the greatest of them; "
        "of a memory: its share of the documents read / of the attention to them",
    ]
    header = ["", "episode", "reads a relevant one", "change", *memories]
    return ItemTable(frame, notes + few_seeds(seeds), (header, table))


def _shown(frame: pd.DataFrame, label: str, memories: list[str]) -> list[list[str]]:
    once = frame.drop_duplicates(["seed", "episode"]).pivot(index="seed", columns="episode", values="relevant")
    shown = []
    for episode in once.columns:
        change = once[episode] - once[0]
        span = f"{signed(change.mean())} [{signed(change.min())}, {signed(change.max())}]" if episode else ""
        means = frame[frame["episode"] == episode].groupby("memory", sort=False)[["documents", "attention"]].mean()
        shares = {str(name): f"{one.documents:.1%} / {one.attention:.1%}" for name, one in means.iterrows()}
        read = f"{np.mean(once[episode]):.1%}"
        shown.append([label, str(episode), read, span, *(shares.get(name, "") for name in memories)])
    return shown


def shares(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Shares of documents and attention by episode, queries and memory.

    Inputs `learning` (of training queries) and `search` (of each target's), `shares.tsv` in the order of episodes.
    """
    assert isinstance(item, SharesItem)
    episodes, rows = settings.stages[item.method], []
    files = [
        (settings.source, stage.paths("learning"), [settings.source]),
        ("", stage.paths("search"), list(settings.collections)),
    ]
    for training, paths, names in files:
        for (number, name), path in zip(product(range(1, len(episodes) + 1), names), paths, strict=True):
            table = pd.read_csv(path, sep="\t")
            relevant = _values(path, RELEVANT)[-1]
            facts = {"queries": name, "training": bool(training), "episode": number, "relevant": relevant}
            rows += [facts | row for row in table.to_dict("records")]
    labelled = ({**row, "label": _label(row, settings)} for row in rows)
    columns = {"queries of": "{label}", "episode": "{episode}", "memory": "{memory}"}
    columns |= {"documents": "{document_share:.1%}", "attention": "{attention_share:.1%}", "lift": "{lift:.2f}"}
    columns |= {"tokens": "{mean_tokens:.0f}", "with a relevant one": "{relevant:.1%}"}
    notes = [
        "documents: share of all augmentation documents; attention: share of the main model's attention to them, "
        "attention to the query itself left out; lift: attention over documents; tokens: mean length, because longer "
        "documents draw more attention; with a relevant one: queries with a judged document among their augmentation",
        f"{settings.source}: training queries with the documents that the augmenter before the episode finds; targets: "
        "evaluated queries with those that the episode's own augmenter finds, `target` being their own collection",
    ]
    measured = {
        (f"{item.method}, episode {row['episode']}", row["queries"], "queries_with_relevant_memory"): float(
            row["relevant"]
        )
        for row in rows
        if row["training"]
    }
    mesh: dict[Key, float] = {}
    for row in (row for row in rows if row["training"] and "mesh" in row["memory"]):
        key = (f"{item.method}, episode {row['episode']}", row["queries"], "augmenting_documents_from_mesh")
        mesh[key] = mesh.get(key, 0.0) + float(row["document_share"])
    return ItemTable(pd.DataFrame(rows), notes, printed(labelled, settings, columns), measured | mesh)


def cases(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Queries with the documents that the main model attends to most (MoMA table 7)."""
    assert isinstance(item, CasesItem)
    files = zip(
        [settings.source, *settings.collections], [*stage.paths("learning"), *stage.paths("search")], strict=True
    )
    frames = []
    for name, path in files:
        frame = pd.read_csv(path, sep="\t", dtype={"query": str, "document": str}, keep_default_na=False)
        chosen = frame["query"].drop_duplicates().head(item.examples)
        frames.append(frame[frame["query"].isin(chosen)].assign(collection=name))
    frame = pd.concat(frames, ignore_index=True)
    short = (
        {
            **row,
            "label": settings.collections.get(row["collection"], f"{row['collection']}, training"),
            "document": shortened(row["document_text"], SHOWN, " [...]"),
        }
        for row in frame.to_dict("records")
    )
    columns = {"": "{label}", "query": "{text}", "memory": "{memory}", "attention": "{attention:.3f}"}
    columns |= {"document": "{document}"}
    notes = [
        f"training queries of {settings.source} and evaluated queries of the targets after the last episode, at equal "
        "distances: not chosen by what they show; attention: FidAtt (eq. 9), by which the augmenter learns; a "
        "sum over layers, heads and tokens, no share"
    ]
    return ItemTable(frame, notes, printed(short, settings, columns))


def components(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """MRR@10 on held-out source queries after each episode. Inputs `main`, `augmenter`: manifests with their records.

    Raises:
        ArtifactError: a record has no such measure.
    """
    assert isinstance(item, ComponentsItem)
    augmenters = {_model_of(path): path for path in stage.paths("augmenter")}
    rows: list[dict[str, Any]] = []
    mains = iter(stage.paths("main"))
    for method in item.methods:
        for number, _ in enumerate(settings.stages[method], 1):
            main = next(mains)
            both = {MAIN: main, AUGMENTER: augmenters.get(_model_of(main))}
            for name, path in both.items():
                values = [] if path is None else _values(path, MRR)
                for count, value in enumerate(values, 1):
                    episode = number - 1 + count / len(values) if count < len(values) else number
                    rows.append({"method": method, "episode": episode, "component": name, "mrr": value})
    notes = [
        f"MRR@10 of held-out training queries of {settings.source} against the documents that were mined for them "
        "in that episode, so pools differ from episode to episode; the augmenter's queries are not augmented; "
        "relevant are judged documents only, for both, not what attention selects",
        "episode 1.33: after a third of the second one's evaluations; at scale paper there is one after each epoch",
    ]
    columns = {"": "{method}", "episode": "{episode:.2f}", "component": "{component}", "MRR@10": "{mrr:.4f}"}
    return ItemTable(pd.DataFrame(rows), notes, printed(rows, settings, columns))


def draw_shares(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """A panel for each set of queries: attention (solid) and documents (dashed) of each memory over episodes."""
    sets = list(dict.fromkeys(zip(frame["queries"], frame["training"], strict=True)))
    figure, every = panels(len(sets))
    numbers = {name: number for number, name in enumerate(dict.fromkeys(frame["memory"]))}
    for axes, (name, training) in zip(every, sets, strict=True):
        chosen = frame[(frame["queries"] == name) & (frame["training"] == training)]
        for memory, series in chosen.groupby("memory", sort=False):
            look = style(numbers[str(memory)])
            axes.plot(series["episode"], series["attention_share"], markersize=4, linewidth=1.2, **look)
            axes.plot(series["episode"], series["document_share"], linestyle="--", linewidth=1.0, color=look["color"])
        axes.set_xticks(sorted(chosen["episode"].unique()))
        axes.set_ylim(-0.03, 1.03)
        axes.set_title(_label({"queries": name, "training": training}, settings), fontsize=9)
        axes.set_xlabel("episode")
    for memory, number in numbers.items():
        every[0].plot([], [], label=memory, markersize=4, **style(number))
    every[0].set_ylabel("share (solid: attention, dashed: documents)")
    legend(figure, every[0])
    return figure


def draw_components(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """A line for each method and component."""
    figure, (axes,) = panels(1, width=5, height=3.8)
    for number, method in enumerate(dict.fromkeys(frame["method"])):
        for component, line in ((MAIN, "-"), (AUGMENTER, "--")):
            series = frame[(frame["method"] == method) & (frame["component"] == component)]
            if len(series):
                look = style(number) | {"linestyle": line, "markersize": 5, "linewidth": 1.2}
                axes.plot(series["episode"], series["mrr"], label=f"{settings.methods[method]}: {component}", **look)
    axes.set_xticks(sorted(np.ceil(frame["episode"]).unique()))
    axes.set_xlabel("episode")
    axes.set_ylabel("MRR@10 on held-out source queries")
    legend(figure, axes)
    return figure


def _label(row: dict, settings: ItemParams) -> str:
    name = row["queries"]
    return f"{name}, training" if row["training"] else settings.collections[name]


def _model_of(manifest: Path) -> tuple[str, ...]:
    """Method, scope and stage of a component's manifest: `.../<method>/<scope>/<stage>/<which>/manifest.json`."""
    return manifest.parts[-5:-2]


def _values(path: Path, name: str) -> list[float]:
    """Values of a metric in the lineage record of an artifact, in the order of steps, one at least."""
    record = read_record(path)
    values = [float(point["value"]) for point in (record or {"metrics": []})["metrics"] if point["name"] == name]
    if not values:
        raise ArtifactError(path, f"has no {name} in its lineage record", "make it again")
    return values


REPORT = Report(
    {
        "shares": shares,
        "mixtures": mixtures,
        "components": components,
        "cases": cases,
        "latency": latency,
        "memories": memories,
        "hours": hours,
    },
    {"shares": draw_shares, "components": draw_components},
)
