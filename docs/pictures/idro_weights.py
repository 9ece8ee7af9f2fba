"""Draw `docs/pictures/idro-weights.svg`: `python docs/pictures/idro_weights.py` simulates weights of query clusters.

No network: queries' gradients are drawn, of a direction that all share, one of their cluster and their own noise. What
is done with them is the library's.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
import torch

matplotlib.use("svg")
from matplotlib import pyplot as plt

from zerodr.papers.coco_dr import cluster_weights
from zerodr.papers.coco_dr.losses import effective_share
from zerodr.papers.coco_dr.settings import GroupSettings

PICTURE = Path(__file__).parent / "idro-weights.svg"
CLUSTERS, WIDTH = 50, 128  # K as published; numbers of a drawn gradient
SHARED, OWN, NOISE = 1.0, 0.7, 3.0  # lengths of a query's gradient along all, its cluster's and its own direction
FORMS = {
    "released (cosine, exponent .1)": {},
    "published (inner product, exponent 1)": {"similarity": "dot", "kappa": 1.0, "layers": "all", "timing": "current"},
}
TEMPERATURES = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6)


class Seen(NamedTuple):
    """Weights of a simulated episode.

    Attributes:
        effective: share of the clusters that weights are those of, at the end.
        spread: largest of the last step's weights in use, divided by the smallest; mean over steps and devices.
        present: clusters of a device's queries; mean over steps and devices.
    """

    effective: float
    spread: float
    present: float


def simulate(
    settings: GroupSettings,
    steps: int,
    queries: int = 512,
    counted: int | None = None,
    seed: int = 13,
    triples: int = 1,
) -> Seen:
    """Run an episode of `steps` steps with batches of `queries` rows.

    Args:
        triples: consecutive rows of a query.
        counted: steps of the real episode, of which the last `steps` are run; those before had their similarities.
    """
    draw = np.random.default_rng(seed)
    sizes, losses = draw.dirichlet(np.full(CLUSTERS, 3.0)), draw.lognormal(-1.5, 0.5, CLUSTERS)
    shared, own = draw.normal(size=WIDTH), draw.normal(size=(CLUSTERS, WIDTH))
    of_cluster = (SHARED * shared + OWN * own) / WIDTH**0.5
    state = cluster_weights.ClusterState.start(settings.mode, CLUSTERS * settings.devices)
    total, spreads, present = counted or steps, [], []
    first = total - steps
    for step in range(first, total):
        clusters = torch.from_numpy(np.repeat(draw.choice(CLUSTERS, queries, p=sizes), triples)[:queries])
        device = torch.arange(queries) * settings.devices // queries
        gradients = of_cluster[clusters] + NOISE / WIDTH**0.5 * draw.normal(size=(queries, WIDTH))
        of_query = torch.from_numpy(losses[clusters] * draw.lognormal(0, 0.7, queries))
        seen = cluster_weights.SeenClusters.of(clusters + device * CLUSTERS, of_query)
        part = torch.nn.functional.one_hot(seen.members).double().T / seen.counts[:, None]
        means = part @ torch.from_numpy(gradients)
        for one in range(settings.devices):
            here = state.omega[seen.present[seen.present // CLUSTERS == one]]
            spreads.append(float(here.max() / here.min()))
            present.append(len(here))
        sums = _sums(settings, seen, means)
        if step == first and first:
            state.added = sums * first
        state, _ = cluster_weights.updated(settings, state, sums, seen.mask(len(state.omega)), step + 1, total)
    effective = np.mean([effective_share(omega) for omega in state.omega.view(settings.devices, -1)])
    return Seen(float(effective), float(np.mean(spreads[-settings.devices * steps // 2 :])), float(np.mean(present)))


def _sums(settings: GroupSettings, seen: cluster_weights.SeenClusters, means: torch.Tensor) -> torch.Tensor:
    alpha, count = cluster_weights.powers(settings, seen), CLUSTERS * settings.devices
    if settings.devices == 1:
        gram = means @ means.T
        return seen.spread(cluster_weights.similarity_sums(settings, alpha, gram, gram @ alpha), count)
    together = torch.zeros(CLUSTERS, WIDTH, dtype=torch.float64).index_add_(0, seen.present % CLUSTERS, means)
    alphas = seen.spread(alpha, count).view(settings.devices, -1)
    return cluster_weights.device_sums(alphas, together @ together.T).flatten()


def draw_all() -> None:
    """Draw both panels."""
    matplotlib.rcParams["svg.hashsalt"] = "zerodr"
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
    for (form, settings), mark in zip(FORMS.items(), "os", strict=True):
        shares = [simulate(GroupSettings(temperature=t, **settings), 1000).effective for t in TEMPERATURES]
        (line,) = left.plot(TEMPERATURES, shares, mark + "-", markersize=4, linewidth=1.2, label=form)
        steered = simulate(GroupSettings(effective=0.7, **settings), 1000).effective
        left.axhline(
            steered, color=line.get_color(), linestyle=":", linewidth=1.2, label=f"effective: .7, {steered:.2f}"
        )
    left.set(xscale="log", xlabel="temperature", ylabel="effective clusters, share of 50", title="After 1,000 steps")
    for triples, label in ((1, "512 queries of one triple"), (6, "512 triples, 6 of a query")):
        counts = [1, 2, 4, 8]
        seen = [simulate(GroupSettings(mode="official", devices=devices), 200, triples=triples) for devices in counts]
        right.plot(counts, [one.spread for one in seen], "o-", markersize=4, linewidth=1.2, label=label)
        for x, one in zip(counts, seen, strict=True):
            right.annotate(f"{one.present:.0f}", (x, one.spread), xytext=(2, 5), textcoords="offset points", fontsize=7)
    right.set(
        xscale="log", yscale="log", xlabel="devices", ylabel="largest weight in use / smallest", title="mode: official"
    )
    right.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    for axes in (left, right):
        axes.legend(fontsize=7, frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    draw_all()
