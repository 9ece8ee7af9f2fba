"""A tiny model, data with clusters, and one step of group weights, for the tests of groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from tests.unit.training_helpers import QUERIES, load_tiny

from zerodr.config.training import ObjectiveSettings
from zerodr.papers.coco_dr.cluster_engines import Agreement, Weights, make_engine, vector_gradients
from zerodr.papers.coco_dr.cluster_weights import similarity_sums
from zerodr.papers.coco_dr.settings import EngineName, GroupSettings
from zerodr.papers.coco_dr.training import ClusterWeighted, DeviceStream, weigh_clusters
from zerodr.training.data.batches import Batch, Stream
from zerodr.training.data.examples import Examples
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import Forward, add_gradients
from zerodr.training.objectives.base import Objective, QueryObjective, Turn
from zerodr.training.objectives.ranking import make_objective

PAIRWISE = ObjectiveSettings(name="pairwise_nll", negatives_per_query=2)
OWN = ObjectiveSettings(name="info_nce", negatives_per_query=2, in_batch=False)
IN_BATCH = ObjectiveSettings(name="info_nce", negatives_per_query=1)
IDRO = {"mode": "idro", "kappa": 1.0, "similarity": "dot", "temperature": 1.0, "layers": 1}
KINDS = 6


def with_groups(examples: Examples, kinds: int = KINDS, seed: int = 0) -> Examples:
    """Clusters 3, 5, 7, ... of the queries, of different sizes."""
    generator = np.random.default_rng(seed)
    shares = np.arange(1, kinds + 1) / np.arange(1, kinds + 1).sum()
    drawn = np.concatenate([np.arange(kinds), generator.choice(kinds, QUERIES - kinds, p=shares)])
    return replace(examples, groups=(3 + 2 * generator.permutation(drawn)).astype(np.int32))


def clusters_of(examples: Examples) -> list[int]:
    assert examples.groups is not None
    return np.unique(examples.groups).tolist()


def batch_of(examples: Examples, queries: int = 12, negatives: int = 2, step: int = 0) -> Batch:
    return Stream(examples, np.arange(QUERIES), queries, negatives, [0]).batch(step)


def on_devices(batch: Batch, devices: int) -> Batch:
    """Cut a batch into the parts of a released run's GPUs."""
    return DeviceStream(SimpleNamespace(batch=lambda step: batch), devices).batch(batch.step) if devices > 1 else batch


class Loop(Weights):
    """The reference that engines are compared with: one backward pass for each cluster, K times the cost."""

    def products(
        self, turn: Turn, members: torch.Tensor, losses: torch.Tensor, coefficients: torch.Tensor
    ) -> Agreement:
        scale = float(turn.scale)
        every = torch.stack(
            [
                torch.cat([g.flatten() for g in self.gradients(turn, vector_gradients(turn, loss * turn.scale))])
                for loss in losses
            ]
        )
        gram = (every / scale @ every.T / scale).double().cpu()
        return Agreement(gram, gram @ coefficients)


def weigh(
    base: Objective,
    settings: GroupSettings,
    objective: ObjectiveSettings,
    model: Any,
    clusters: list[int],
    steps: int = 1,
    engine: str | None = None,
) -> ClusterWeighted:
    """As `weigh_clusters`, with an engine by name; `loop` is the reference."""
    if engine is None:
        return weigh_clusters(base, settings, objective, model, clusters, steps)
    assert isinstance(base, QueryObjective)
    layers = None if settings.layers == "all" else settings.layers
    chosen = Loop(model, layers) if engine == "loop" else make_engine(cast(EngineName, engine), model, settings)
    return ClusterWeighted(base, settings, clusters, chosen, steps)


class Probe(ClusterWeighted):
    """Remembers the similarities of the last step."""

    sums = torch.zeros(0)

    def _update(self, seen, alpha, products) -> None:
        if self.settings.devices == 1:
            self.sums = similarity_sums(self.settings, alpha, products.gram, products.rows)
        super()._update(seen, alpha, products)


def weighted(
    model: Any, examples: Examples, objective: ObjectiveSettings = PAIRWISE, engine: Any = None, **settings: Any
) -> Probe:
    ours = IDRO | settings
    if ours["mode"] != "idro":
        del ours["kappa"]
    chosen = GroupSettings(**ours)
    made = weigh(make_objective(objective), chosen, objective, model, clusters_of(examples), engine=engine)
    return Probe(made.base, made.settings, made.clusters.tolist(), made.engine)


def one_step(
    model: Any,
    examples: Examples,
    objective: Any,
    batch: Batch,
    chunk: int | None = None,
    by_group: bool | None = None,
    scale: float = 1.0,
) -> dict[str, torch.Tensor]:
    """Gradients (the model's own, of this process) and terms of a batch."""
    model.zero_grad(set_to_none=True)
    forward = Forward(model, examples, "cpu", chunk)
    forward.by_group = objective.by_group if by_group is None else by_group
    group = Group()
    terms = add_gradients(forward, objective, forward.prepare(batch, group), group, [3, batch.step], scale)
    found = {name: p.grad.clone() / scale for name, p in model.named_parameters() if p.grad is not None}
    return found | {f"term.{name}": value.clone() for name, value in terms.items()}


def tiny(folder: Path, dropout: float = 0.0) -> Any:
    return load_tiny(folder, dropout=dropout)
