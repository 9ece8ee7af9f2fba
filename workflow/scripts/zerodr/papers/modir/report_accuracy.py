"""Build and draw Domain-Acc after adversarial training, over seeds: what a momentum queue hides, without retrieval."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from zerodr.artifacts.stage import Stage
from zerodr.config.item import Item
from zerodr.papers.modir.domain_measures import KINDS
from zerodr.papers.modir.items import DomainAccuracyItem
from zerodr.reporting.claims import LEVEL, few_seeds
from zerodr.reporting.item_inputs import ItemParams, ItemTable, printed
from zerodr.reporting.panels import difference_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = 28  # letters of a method's name in a line of the figure
BEHIND = 0.02  # of the training's classifier to one that converged: more says that it could not teach the encoder
COLUMNS = {
    "": "{collection}",
    "method": "{method}",
    "converged": "{accuracy:.3f}",
    "difference": "{difference:+.3f}",
    "95 % over seeds": "{span}",
    "own": "{own:.3f}",
    "own - converged": "{gap:+.3f}",
}


def domain_accuracy(stage: Stage, settings: ItemParams, item: Item) -> ItemTable:
    """Compare converged Domain-Acc of methods with their control's: a row a target and method."""
    assert isinstance(item, DomainAccuracyItem)
    seeds, named, rows = [one["seed"] for one in settings.values], [item.baseline, *item.methods], []
    values = np.array([_accuracies(path) for path in stage.paths("measures")])
    values = values.reshape(len(seeds), len(named), len(settings.collections), 2)
    for column, target in enumerate(settings.collections):
        for number, method in enumerate(named):
            converged, trained = values[:, number, column].T
            difference = converged - values[:, 0, column, 0]
            low, high = _interval(difference)
            rows.append(
                {
                    "collection": target,
                    "method": method,
                    "accuracy": converged.mean(),
                    "difference": difference.mean(),
                    "difference_low": low,
                    "difference_high": high,
                    **{f"difference_seed{s}": one for s, one in zip(seeds, difference, strict=True)},
                    "own": trained.mean(),
                    "gap": (trained - converged).mean(),
                }
            )
    frame = pd.DataFrame(rows)
    behind = {settings.methods[row["method"]]: 1 for row in rows if row["gap"] < -BEHIND}
    notes = [
        "Domain-Acc: accuracy on held-out vectors of a classifier of domains, mean of queries and documents (0.5: "
        "nothing tells them apart); converged: logistic regression; own: the one that training learned from, at its "
        f"end; difference from {settings.methods[item.baseline]}; seed{'s' * (len(seeds) > 1)} "
        f"{', '.join(map(str, seeds))}, intervals by t over seeds",
        *([f"own accuracy more than {BEHIND} below converged: {'; '.join(behind)}"] if behind else []),
        *few_seeds(seeds),
    ]
    spans = [{**row, "span": _span(row)} for row in rows]
    by_seed = {f"seed {seed}": f"{{difference_seed{seed}:+.3f}}" for seed in seeds}
    columns = COLUMNS | (by_seed if len(seeds) > 1 else {})
    return ItemTable(frame, notes, printed(spans, settings, columns))


def _accuracies(path: object) -> tuple[float, float]:
    """Read converged and own accuracy, means of queries and documents."""
    measures = pd.read_csv(str(path), sep="\t", index_col="metric")["value"]
    converged, trained = (np.mean([measures[f"domain_accuracy_{w}_{k}"] for k in KINDS]) for w in ("converged", "own"))
    return float(converged), float(trained)


def _interval(differences: np.ndarray) -> tuple[float, float]:
    """Compute the 95 % interval of a mean over seeds; NaN of one seed."""
    count = len(differences)
    if count < 2:
        return float("nan"), float("nan")
    half = stats.t.ppf(1 - LEVEL / 2, count - 1) * differences.std(ddof=1) / np.sqrt(count)
    return float(differences.mean() - half), float(differences.mean() + half)


def _span(row: dict) -> str:
    low, high = row["difference_low"], row["difference_high"]
    return "" if np.isnan(low) else f"[{low:+.3f}, {high:+.3f}]"


def draw_domain_accuracy(frame: pd.DataFrame, settings: ItemParams) -> Figure:
    """Draw differences from the control, a panel a target, small dots for seeds."""
    methods = list(settings.item["methods"])
    labels = [textwrap.fill(settings.methods[method], NAME) for method in methods]
    of_methods = frame[frame["method"].isin(methods)]
    shown = {title: of_methods[of_methods["collection"] == target] for target, title in settings.collections.items()}
    what = f"converged Domain-Acc minus that of {settings.methods[settings.item['baseline']]}"
    return difference_panels(shown, labels, 0.4, what)
