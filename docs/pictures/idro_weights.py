"""Draw `docs/pictures/idro-weights.svg`: `python docs/pictures/idro_weights.py` simulates weights of query clusters.

No network: queries' gradients are drawn, of a direction that all share, one of their cluster and their own noise. What
is done with them is the library's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

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
FORMS = {  # settings, and consecutive rows of a query
    "cosine, exponent .1 (as released)": ({}, 1),
    "cosine, exponent 1 (coco-dr)": ({"kappa": 1.0}, 1),
    "inner product, exponent 1 (coco-dr+paper)": (
        {"similarity": "dot", "kappa": 1.0, "layers": "all", "timing": "current"},
        1,
    ),
    "official, 1 device": ({"mode": "official"}, 1),
    "official, 8 devices": ({"mode": "official", "devices": 8}, 6),
}
TEMPERATURES = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6)
STEPS, MOST = 1000, 1e4  # of a simulated episode; largest spread that is drawn


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
    sizes: float = 3.0,
) -> Seen:
    """Run an episode of `steps` steps with batches of `queries` rows.

    Args:
        triples: consecutive rows of a query.
        sizes: concentration of the clusters' sizes; infinity: equal ones.
        counted: steps of the real episode, of which the last `steps` are run; those before had their similarities.
    """
    draw = np.random.default_rng(seed)
    shares = draw.dirichlet(np.full(CLUSTERS, sizes)) if np.isfinite(sizes) else np.full(CLUSTERS, 1 / CLUSTERS)
    losses = draw.lognormal(-1.5, 0.5, CLUSTERS)
    shared, own = draw.normal(size=WIDTH), draw.normal(size=(CLUSTERS, WIDTH))
    of_cluster = (SHARED * shared + OWN * own) / WIDTH**0.5
    state = cluster_weights.ClusterState.start(settings.mode, CLUSTERS * settings.devices)
    total, spreads, present = counted or steps, [], []
    first = total - steps
    for step in range(first, total):
        clusters = torch.from_numpy(np.repeat(draw.choice(CLUSTERS, queries, p=shares), triples)[:queries])
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


def at(temperature: float, settings: dict[str, Any]) -> dict[str, Any]:
    """Give settings of a form at a temperature; the released code has it as factor of a mean over all clusters."""
    official = settings.get("mode") == "official"
    return settings | ({"rho": CLUSTERS / temperature} if official else {"temperature": temperature})


def draw_all() -> None:
    """Draw effective clusters and spreads by temperature, and spreads by devices."""
    matplotlib.rcParams["svg.hashsalt"] = "zerodr"
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12.5, 4.2), layout="constrained")
    for (form, (settings, triples)), mark in zip(FORMS.items(), "oDs^v", strict=True):
        seen = [simulate(GroupSettings(**at(t, settings)), STEPS, triples=triples) for t in TEMPERATURES]
        look = {"marker": mark, "markersize": 4, "linewidth": 1.2}
        (line,) = left.plot(TEMPERATURES, [one.effective for one in seen], label=form, **look)
        middle.plot(TEMPERATURES, [min(one.spread, 10 * MOST) for one in seen], label=form, **look)
        if "mode" not in settings:
            steered = simulate(GroupSettings(effective=0.7, **settings), STEPS)
            about = {"color": line.get_color(), "linestyle": ":", "linewidth": 1.2}
            left.axhline(steered.effective, label=f"effective: .7, {steered.effective:.2f}", **about)
            middle.axhline(steered.spread, label=f"effective: .7, {steered.spread:.1f}", **about)
    left.set(xscale="log", xlabel="temperature", ylabel="effective clusters, share of 50", title="Effective clusters")
    middle.set(xscale="log", yscale="log", xlabel="temperature", ylabel="largest ω in use / smallest", ylim=(0.8, MOST))
    middle.set_title("Spread of ω")
    for triples, label in ((1, "512 queries of one triple"), (6, "512 triples, 6 of a query")):
        counts = [1, 2, 4, 8]
        seen = [simulate(GroupSettings(mode="official", devices=devices), 200, triples=triples) for devices in counts]
        right.plot(counts, [one.spread for one in seen], "o-", markersize=4, linewidth=1.2, label=label)
        for x, one in zip(counts, seen, strict=True):
            right.annotate(f"{one.present:.0f}", (x, one.spread), xytext=(2, 5), textcoords="offset points", fontsize=7)
    right.set(xscale="log", yscale="log", xlabel="devices", ylabel="largest ω in use / smallest")
    right.set_title("mode: official, T = 1,000")
    right.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    right.minorticks_off()
    right.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    right.set_ylim(1, 14)
    right.legend(fontsize=7, frameon=False)
    handles, labels = left.get_legend_handles_labels()
    spreads = middle.get_legend_handles_labels()[1]
    joined = [
        one if one == other else f"{one} effective, spread {other.rpartition(', ')[2]}"
        for one, other in zip(labels, spreads, strict=True)
    ]
    figure.legend(handles, joined, loc="outside lower left", ncols=3, fontsize=7, frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    draw_all()
