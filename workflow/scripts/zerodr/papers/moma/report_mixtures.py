"""Show what the episodes of mixtures changed on held-out questions of the source, with several seeds."""

from itertools import product

import numpy as np
import pandas as pd

from zerodr.artifacts.stage import Stage
from zerodr.config.item import Item
from zerodr.evaluation.numbers import signed
from zerodr.papers.moma.items import MixturesItem
from zerodr.papers.moma.learn_mixture import FACTS
from zerodr.reporting.claims import few_seeds
from zerodr.reporting.item_inputs import ItemParams, ItemTable

RELEVANT = "relevant"


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
    once = frame.drop_duplicates(["seed", "episode"]).pivot(index="seed", columns="episode", values=RELEVANT)
    shown = []
    for episode in once.columns:
        change = once[episode] - once[0]
        span = f"{signed(change.mean())} [{signed(change.min())}, {signed(change.max())}]" if episode else ""
        means = frame[frame["episode"] == episode].groupby("memory", sort=False)[["documents", "attention"]].mean()
        shares = {str(name): f"{one.documents:.1%} / {one.attention:.1%}" for name, one in means.iterrows()}
        read = f"{np.mean(once[episode]):.1%}"
        shown.append([label, str(episode), read, span, *(shares.get(name, "") for name in memories)])
    return shown
