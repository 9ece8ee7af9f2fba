"""Add iDRO to a fine-tuning stage: the cluster of each query, and losses weighted by cluster (COCO-DR section 4.2).

The weightings that iDRO is compared with are here, too. Every process sees the vectors of the whole batch, so losses
and sizes of clusters are global without a collective; the engines add up gradients over processes. So all processes
have the same weights, those of one process on that batch.
"""

import logging
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from zerodr.artifacts.stage import Stage
from zerodr.config.params import FinetuneParams
from zerodr.config.training import ObjectiveSettings
from zerodr.errors import ConfigError
from zerodr.papers.coco_dr import cluster_weights
from zerodr.papers.coco_dr.cluster_engines import Agreement, ClusterEngine, SegmentEngine, make_engine
from zerodr.papers.coco_dr.cluster_queries import CLUSTERS, clusters_of
from zerodr.papers.coco_dr.settings import OFFICIAL_FLOOR, GroupKeys, GroupSettings, choose_engine
from zerodr.training.additions import Addition, PaperTraining, Prepared, together
from zerodr.training.data.batches import Batch
from zerodr.training.data.examples import Examples
from zerodr.training.loop.engine import Batches
from zerodr.training.objectives.base import Encoded, Objective, QueryObjective, State, Turn

log = logging.getLogger("zerodr")
TRACE = Path("groups") / "weights.parquet"
TRACE_STEPS = 100  # weights are written this often
EQUAL, ENOUGH = 1.01, 100  # a largest weight over the smallest of less, after as many steps, is warned of
COLLAPSED = 0.25  # part of the clusters; fewer effective ones, exp(entropy of weights), are warned of
DEVICE = 1 << 20  # above every cluster's id
READABLE = 1e-12  # a gradient that was scaled by less, relative to the batch's largest, is not scaled back


class ClusterWeighted(Objective):
    """A loss of queries as a weighted sum of cluster means.

    Args:
        base: the loss.
        settings: of the weights.
        clusters: ids of the K clusters that training queries belong to, ascending.
        engine: of similarities, for modes that use them.
        steps: of the episode.
    """

    def __init__(
        self,
        base: QueryObjective,
        settings: GroupSettings,
        clusters: Sequence[int],
        engine: ClusterEngine | None = None,
        steps: int = 1,
    ) -> None:
        count = len(clusters)
        self.base, self.settings, self.engine = base, settings, engine
        self.clusters = torch.tensor(list(clusters), dtype=torch.long)
        self.by_group = engine is not None and engine.by_group
        self.state = cluster_weights.ClusterState.start(settings.mode, count * settings.devices)
        self.steps, self.temperature = steps, math.nan
        self.skipped = self.finished = 0
        self.similarity_sd = math.nan
        self.warned = self.warned_of_batch = False
        self.trace_steps: list[int] = []
        self.trace: list[Tensor] = []
        self._forget()

    def _forget(self) -> None:
        """Reset what belongs to one step."""
        self._seen: cluster_weights.SeenClusters | None = None
        self._next: cluster_weights.ClusterState | None = None
        self._riding = False
        self._read_later = False
        self._skip = 0
        self._weightless = False

    @property
    def only_vectors(self) -> bool:
        """Return whether there is no engine, which may add gradients after training's backward pass."""
        return self.engine is None

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """Return the base's one term, reweighted."""
        seen = self._look(batch)
        if self._next is None:
            self._next = cluster_weights.from_losses(self.settings, self.state, seen)
        lagged = self.settings.uses_gradients and self.settings.timing == "lagged"
        omega = self.state.omega if lagged else self._next.omega
        weights = cluster_weights.weights_of(self.settings, omega, seen)
        self._weightless = not bool(weights.to(seen.losses.dtype).any())
        return {self.base.name: (weights.to(seen.losses) * seen.losses).sum()}

    def watching(self) -> AbstractContextManager[None]:
        """Let the engine see the texts."""
        self._forget()
        if self.engine is None:
            return nullcontext()
        self._riding = self.engine.rides and self.alone and self.settings.timing == "lagged"
        return self.engine.watching(self._riding)

    def before(self, turn: Turn) -> None:
        """Compute similarities by the engine's passes, unless the backward pass of training will do."""
        if self.engine is None:
            return
        seen = self._look(turn.batch)
        if self._riding:
            weights = cluster_weights.weights_of(self.settings, self.state.omega, seen)
            self._read_later = bool(weights.min() > READABLE * weights.max())
        if not self._read_later:
            alpha = cluster_weights.powers(self.settings, seen)
            self._update(seen, alpha, self.engine.products(turn, seen.members, seen.losses, alpha))

    def after(self, turn: Turn) -> None:
        """Read similarities from the backward pass of training."""
        if self.engine is not None and self._riding:
            seen = self._look(turn.batch)
            if self._read_later:
                alpha = cluster_weights.powers(self.settings, seen)
                factors = cluster_weights.weights_of(self.settings, self.state.omega, seen) * float(turn.scale)
                self._update(seen, alpha, self.engine.read(turn, seen.members, factors, alpha))
            else:
                self.engine.fill(turn, seen.members)
        if self.engine is not None:
            self.engine.forget()

    def on_step(self, finished: int) -> dict[str, float]:
        """Take the new weights; returns what the curves show."""
        assert self._seen is not None and self._next is not None, "a step has a batch"
        self.state, self.skipped, self.finished = self._next, self.skipped + self._skip, finished
        facts = self._facts(self._seen)
        if self.has_weights and finished % TRACE_STEPS == 0:
            self.trace_steps.append(finished)
            self.trace.append(self._mean_weights())
        self._forget()
        return facts

    def save(self, folder: Path) -> None:
        """`groups/weights.parquet`: step, cluster, weight; every TRACE_STEPS steps and at the end."""
        if not self.has_weights:
            return
        file = folder / TRACE
        file.parent.mkdir(parents=True, exist_ok=True)
        ids, steps, trace = self.clusters.tolist(), list(self.trace_steps), list(self.trace)
        if self.finished not in steps:
            steps, trace = [*steps, self.finished], [*trace, self._mean_weights()]
        self._check_spread(trace[-1])
        columns = {
            "step": pa.array([step for step in steps for _ in ids], pa.int64()),
            "cluster": pa.array(ids * len(steps), pa.int32()),
            "weight": pa.array(torch.cat(trace).tolist(), pa.float64()),
        }
        pq.write_table(pa.table(columns), file)

    def _mean_weights(self) -> Tensor:
        """Mean weights over devices, (K,)."""
        return self.state.omega.view(self.settings.devices, -1).mean(0)

    @property
    def has_weights(self) -> bool:
        """Return whether there are weights that change."""
        return self.settings.mode not in ("erm", "balanced", "alpha")

    def state_dict(self) -> State:
        """Return weights, running averages, skipped updates, the trace."""
        trace = torch.stack(self.trace) if self.trace else torch.zeros(0, len(self.clusters), dtype=torch.float64)
        numbers = {"skipped": self.skipped, "finished": self.finished, "trace_steps": self.trace_steps}
        return self.state.tensors() | numbers | {"trace": trace}

    def load_state_dict(self, state: State) -> None:
        """Restore the state of `state_dict`."""
        self.state = cluster_weights.ClusterState(**{name: state[name].clone() for name in self.state.tensors()})
        self.skipped, self.finished = int(state["skipped"]), int(state["finished"])
        self.trace_steps, self.trace = list(state["trace_steps"]), list(state["trace"])

    def _look(self, batch: Encoded) -> cluster_weights.SeenClusters:
        """Compute cluster losses of the batch, once a step."""
        if self._seen is None:
            if batch.groups is None:
                raise ConfigError("groups", "the batch has no clusters of its queries", "give the stage clusters")
            device, ids = batch.groups.cpu() // DEVICE, batch.groups.cpu() % DEVICE
            groups = (torch.searchsorted(self.clusters, ids) + device * len(self.clusters)).to(batch.groups.device)
            self._seen = cluster_weights.SeenClusters.of(groups, self.base.per_query(batch))
            if self.settings.devices > 1 and isinstance(self.engine, SegmentEngine):
                self.engine.owners = self._seen.present % len(self.clusters)
                self.engine.clusters = len(self.clusters)
        return self._seen

    def _update(self, seen: cluster_weights.SeenClusters, alpha: Tensor, products: Agreement) -> None:
        """Weights after this step; a gradient that is no number leaves them and is counted."""
        settings, count = self.settings, len(self.state.omega)
        if settings.devices > 1:
            assert products.gram is not None, "engine segment has the products of all clusters"
            sums = cluster_weights.device_sums(seen.spread(alpha, count).view(settings.devices, -1), products.gram)
            sums = sums.flatten()
        else:
            sums = seen.spread(cluster_weights.similarity_sums(settings, alpha, products.gram, products.rows), count)
        self._next, present = self.state, seen.mask(count)
        if not bool(sums.isfinite().all()):
            self._skip = 1
            return
        self.similarity_sd = float(sums[present].std(correction=0))
        self._next, self.temperature = cluster_weights.updated(
            settings, self.state, sums, present, self.finished + 1, self.steps
        )

    def _facts(self, seen: cluster_weights.SeenClusters) -> dict[str, float]:
        devices = self.settings.devices
        facts = {"present_groups": len(seen.present) / devices, "worst_group_loss": float(seen.losses.detach().max())}
        if self.has_weights:
            omega = self.state.omega
            shares = omega[omega > 0] / omega.sum()
            entropy = float(-(shares * shares.log()).sum())
            facts |= {"omega_max": float(omega.max()), "omega_min": float(omega.min())}
            effective = math.exp(entropy) / devices
            facts |= {"omega_entropy": entropy / math.log(max(len(omega), 2)), "effective_groups": effective}
            self._check(effective)
            if self.settings.mode == "group_dro" or not self.settings.normalise_present:
                facts["batches_without_weight"] = float(self._weightless)
                self._check_batch()
        if self.settings.uses_gradients:
            facts |= {"similarity_sd": self.similarity_sd, "skipped_updates": float(self.skipped)}
            facts |= {"temperature": self.temperature} if self.settings.effective is not None else {}
        if self.settings.uses_gradients or self.settings.mode == "alpha":
            facts["alpha"] = float(cluster_weights.powers(self.settings, seen).mean())
        return facts

    def _check(self, effective: float) -> None:
        """Warn once where weights that build up leave few clusters, and nobody asked for as few."""
        settings, count = self.settings, len(self.clusters)
        if self.warned or settings.effective is not None or effective >= count * COLLAPSED:
            return
        self.warned = True
        reason = {
            "idro": f"omega^{settings.kappa:g} exp(s / {settings.temperature:g}), and s of the groups differ by "
            f"{self.similarity_sd:.3g} (sd): lower groups.kappa, or raise groups.temperature",
            "official": f"groups that a batch lacks fall to {OFFICIAL_FLOOR:g}: take larger batches or fewer clusters",
            "group_dro": f"each step multiplies a weight by exp({settings.eta:g} loss): lower groups.eta",
        }[settings.mode]
        few = f"after {self.finished} steps the weights are those of {effective:.1f} of {count} groups"
        log.warning("groups: %s: %s", few, reason)

    def _check_spread(self, weights: Tensor) -> None:
        """Warn of weights (K,) that end as they began, so that the training was that of a mode without them."""
        steps = {
            "idro": "mode: alpha: lower groups.temperature, or set groups.effective",
            "group_dro": "mode: balanced: raise groups.eta",
        }
        step = steps.get(self.settings.mode)
        if step and len(weights) > 1 and self.finished >= ENOUGH and float(weights.max() / weights.min()) < EQUAL:
            log.warning("groups: after %d steps all weights are equal, as with %s", self.finished, step)

    def _check_batch(self) -> None:
        """Warn once of a batch whose groups have no weight left; the curves show the share of such batches."""
        if self.warned_of_batch or not self._weightless:
            return
        self.warned_of_batch = True
        what = f"nothing was learned from the batch of step {self.finished}: the weights of all its groups are 0"
        step = "lower groups.eta" if self.settings.mode == "group_dro" else "set groups.normalise_present: true"
        log.warning("groups: %s: %s, or take larger batches, which hold more groups", what, step)


def weigh_clusters(
    base: Objective,
    settings: GroupSettings,
    objective: ObjectiveSettings,
    model: Any,
    clusters: Sequence[int],
    steps: int = 1,
) -> ClusterWeighted:
    """Make an objective with weights of clusters; the log says how similarities are computed, and why.

    Args:
        base: of `objective`.
        clusters: ids of the clusters that training queries belong to, ascending.
        steps: of the episode.

    Raises:
        ConfigError: the loss is not one of queries, or settings exclude each other.
        ModelError: the model's layers can't be compared by the engine.
    """
    if not isinstance(base, QueryObjective):
        raise ConfigError(
            "groups", f"weigh losses of queries, objective {objective.name} is none", "take pairwise_nll or info_nce"
        )
    engine = None
    if settings.uses_gradients:
        try:
            name, reason = choose_engine(settings, objective)
        except ValueError as error:
            raise ConfigError("groups", str(error), "correct the settings") from None
        engine = make_engine(name, model, settings)
        compared = "all weights" if settings.layers == "all" else f"the last {settings.layers} layers"
        how = f"similarities of gradients of {compared} by engine {name}: {reason}"
        log.info("groups: %d, mode %s, %s", len(clusters), settings.mode, how)
    return ClusterWeighted(base, settings, clusters, engine, steps)


class DeviceStream:
    """Batches whose queries have the number of a device next to their cluster: `device * DEVICE + cluster`.

    Args:
        batches: of a stage with clusters.
        devices: parts of a batch.
    """

    def __init__(self, batches: Batches, devices: int) -> None:
        self.batches, self.devices = batches, devices

    def batch(self, step: int) -> Batch:
        """Return the batch of a step; its queries keep their order."""
        batch = self.batches.batch(step)
        assert isinstance(batch, Batch) and batch.groups is not None, "batches of query clusters have them"
        device = np.arange(len(batch)) * self.devices // len(batch)
        return replace(batch, groups=batch.groups + DEVICE * device)


class Groups(Addition):
    """Weights of query clusters, from input `clusters`. The output holds `groups/weights.parquet` where they change."""

    @classmethod
    def asked(cls, stage: Stage, params: FinetuneParams) -> bool:
        """Return whether the settings have `groups`."""
        return together(stage, "groups", _groups(params) is not None, "clusters")

    def examples(self, examples: Examples, model: Any) -> Examples:
        """Add the cluster of each query."""
        return replace(examples, groups=clusters_of(self.stage.path("clusters") / CLUSTERS, examples.queries))

    def batches(self, batches: Batches) -> Batches:
        """Tell the parts of a batch apart that the released run has on devices of their own."""
        groups = _groups(self.params)
        return batches if groups is None or groups.devices == 1 else DeviceStream(batches, groups.devices)

    def objective(self, objective: Objective, prepared: Prepared) -> Objective:
        """Weighted by the clusters that training queries belong to."""
        groups, of_queries = _groups(self.params), prepared.examples.groups
        assert groups is not None and of_queries is not None, "examples have clusters"
        loss = self.params.settings.objective
        assert isinstance(loss, ObjectiveSettings), "as of all stages with clusters"
        clusters = np.unique(of_queries[prepared.rows]).tolist()
        steps = self.params.settings.training.steps
        return weigh_clusters(objective, groups, loss, prepared.model, clusters, steps)


def _groups(params: FinetuneParams) -> GroupSettings | None:
    keys = GroupKeys.of(params.settings)
    return None if keys is None else keys.groups


TRAINING = PaperTraining((Groups,))
