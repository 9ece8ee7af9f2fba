"""The one training loop. Methods differ by objective and hooks, never by a loop of their own.

A step is a pure function of (weights, moments, objective state, step number): batches, drawn negatives and dropout
follow from (seed, step, process). So a run that was killed and continued ends with the same bits.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from zerodr.artifacts.progress import Progress, log_waiting
from zerodr.config.training import TrainingSettings
from zerodr.encoders.inference.processor import lasting_blocks
from zerodr.errors import ClassifierDiverged, ConfigError, NonFiniteLoss
from zerodr.training.distributed.overlap import GradientSums
from zerodr.training.distributed.processes import Group, Preempted, Termination
from zerodr.training.loop.checkpoint import (
    Saving,
    Snapshot,
    checkpoints,
    finished_steps,
    finite,
    load_checkpoint,
    snapshot,
)
from zerodr.training.loop.feed import Feed
from zerodr.training.loop.gradcache import Forward, Share, add_gradients, prepare
from zerodr.training.objectives.base import Objective
from zerodr.training.optimizers import Schedule, make_scaler, set_rate

log = logging.getLogger("zerodr")
CURVE_POINTS = 200
NAMED_QUERIES = 8
STILL = 10  # steps without any gradient after which a training is refused
Curve = list[tuple[str, float, int]]


@dataclass(frozen=True)
class Run:
    """Facts of one training run.

    Attributes:
        name: for messages.
        state: folder of checkpoints.
        identity: digest of all that decides the result; a checkpoint of another is refused.
        seed: words that random numbers come from.
        first_step: optimiser steps of earlier stages; the schedule continues there.
        evaluate: finished steps -> dev measures, or None.
        keep: called with finished steps of `settings.save_steps`, to keep the model.
    """

    name: str
    state: Path
    identity: str
    seed: Sequence[int]
    first_step: int = 0
    evaluate: Callable[[], dict[str, float]] | None = None
    keep: Callable[[int], None] | None = None


@dataclass
class Position:
    """State of a run: finished steps, curves so far, and sums since the last point of the curves."""

    step: int = 0
    curves: Curve = field(default_factory=list)
    sums: dict[str, float | Tensor] = field(default_factory=dict)
    seconds: float = 0.0

    def read(self) -> dict[str, float]:
        """Read the sums as numbers."""
        return {name: float(total) for name, total in self.sums.items()}

    def facts(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        return {"step": self.step, "curves": self.curves, "sums": self.read(), "seconds": self.seconds}

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Position:
        """From JSON values."""
        return cls(facts["step"], [tuple(point) for point in facts["curves"]], facts["sums"], facts["seconds"])


class Batches(Protocol):
    """The batches of a stage."""

    def batch(self, step: int) -> Any:
        """Return the batch of step `step`, a pure function of it; it has `shard(number, shards)`."""
        ...


class Engine:
    """`Engine(...).fit()` trains a model in place.

    Args:
        forward: the model and how it encodes.
        objective: the loss and its hooks.
        stream: batches by step.
        optimizer: over the model's weights.
        schedule: factor on the learning rate by finished steps of the chain.
        settings: of the stage.
        run: names, state folder, evaluation.
        group: the processes.
    """

    def __init__(
        self,
        forward: Forward,
        objective: Objective,
        stream: Batches,
        optimizer: Optimizer,
        schedule: Schedule,
        settings: TrainingSettings,
        run: Run,
        group: Group | None = None,
    ) -> None:
        self.forward, self.objective, self.stream = forward, objective, stream
        forward.by_group = objective.by_group
        self.optimizer, self.schedule, self.settings = optimizer, schedule, settings
        self.run, self.group, self.model = run, group or Group(), forward.model
        self.saving = Saving(run.state)
        self.scaler = make_scaler(settings, forward.device)
        self.weights = [p for g in optimizer.param_groups for p in g["params"]]
        self.sums = GradientSums(self.model, self.weights, self.group)
        self.compared: dict[str, Tensor] = {}
        self.seconds = self.resumed = self.waited = 0.0
        self.stop, self.stopping = Termination(), False
        self.still: float = 0  # steps without a gradient, from the first on
        self.lock = threading.Lock()
        self.point_every = max(1, settings.steps // CURVE_POINTS)
        shares = settings.accumulation * self.group.world
        if settings.batch_queries % shares:
            raise ConfigError(
                run.name,
                f"batch_queries {settings.batch_queries} can't be shared equally by "
                f"{settings.accumulation} micro-batches x {self.group.world} processes",
                f"make it a multiple of {shares}",
            )

    def fit(self) -> Curve:
        """Train to `settings.steps`, from the newest checkpoint of this run if there is one.

        Returns:
            points (name, value, step of the chain) of all curves, those before an interruption included.

        Raises:
            ConfigError: no gradient reaches a weight in the first STILL steps.
            NonFiniteLoss: a loss or gradient is NaN or infinite; the last good weights are in a checkpoint.
            ClassifierDiverged: an objective's classifier is lost; names the checkpoint of the state before this step.
            Preempted: SIGTERM came; a checkpoint was written.
            ArtifactError: the state folder holds a checkpoint of another run.
        """
        position = self._resume()
        self.resumed = position.seconds
        if self.settings.cache_chunk is not None:
            for weight in self.weights:  # below the activations: among them, they leave holes that no activation fits
                weight.grad = torch.zeros_like(weight)
        self.objective.on_start(self.model, self.forward.device)
        self.model.train()
        progress = Progress("train", self.settings.steps, "steps", position.step)
        feed = Feed(self._shares, self.settings.steps)
        with self.stop:
            try:
                while position.step < self.settings.steps:
                    progress.note = f"loss {self._one(position, feed):.4f}"
                    progress.add()
                    self.saving.check()
                    if self._asked_to_stop() and position.step < self.settings.steps:
                        self._checkpoint(position)
                        self.group.any(True, self.forward.device)  # nobody leaves before the checkpoint is complete
                        raise Preempted(self.run.name)
            finally:
                feed.close()
                self.forward.close()
                self.saving.close()
        progress.finish()
        self.seconds, self.waited = position.seconds, feed.waited
        log_waiting("train", self.waiting())
        return position.curves

    def rate(self) -> float:
        """Queries a second of the finished run, evaluation and checkpoints not counted."""
        return self.settings.batch_queries * self.settings.steps / max(self.seconds, 1e-9)

    def waiting(self) -> float:
        """Share of the time since the start, or since the run was resumed, in which the device waited for data."""
        return self.waited / max(self.seconds - self.resumed, 1e-9)

    def _resume(self) -> Position:
        facts = load_checkpoint(self.run.state, self.run.identity, self.model, self.optimizer, self.objective)
        if facts is None:
            return Position()
        self.scaler.load_state_dict(facts["scaler"])
        self.still = -math.inf
        return Position.of(facts)

    def _shares(self, step: int) -> list[Share]:
        with self.lock:
            batch, shards = self.stream.batch(step), self.settings.accumulation
        return [prepare(self.forward, batch.shard(number, shards), self.group) for number in range(shards)]

    def _asked_to_stop(self) -> bool:
        """Decide whether to stop after this step: several processes as they agreed during it, one alone at once."""
        return self.stopping or (self.group.world == 1 and self.stop.requested)

    def _one(self, position: Position, feed: Feed[list[Share]]) -> float:
        """Take one optimiser step, and do what is due after it; returns the step's loss."""
        step, started = position.step, time.perf_counter()
        shares = feed.get(step)
        try:
            losses = self._gradients(step, shares)
        except ClassifierDiverged as error:
            raise self._diverged(error, position) from None
        terms: dict[str, float | Tensor] = dict(self._update(step, shares, losses, position))
        position.step += 1
        terms |= self.objective.on_step(position.step)
        position.seconds += time.perf_counter() - started
        self._note(position, terms)
        self._due(position)
        return float(terms["loss"])

    def _gradients(self, step: int, shares: list[Share]) -> list[dict[str, Tensor]]:
        """Fill the weights' gradients; returns the loss terms of each micro-batch, on the device."""
        # With gradient caching, gradients were allocated below the activations and must stay there.
        self.optimizer.zero_grad(set_to_none=self.settings.cache_chunk is None)
        self.compared = {}
        facts = self.compared if self._is_point(step + 1) else None
        factor: Tensor | float = 1.0 / len(shares)
        if self.scaler.is_enabled():
            factor = self.scaler.scale(torch.ones((), device=self.forward.device)) * factor
        return [
            add_gradients(
                self.forward,
                self.objective,
                share,
                self.group,
                [*self.run.seed, step, number],
                factor,
                self.sums if number == len(shares) - 1 else None,
                facts if number == len(shares) - 1 else None,
            )
            for number, share in enumerate(shares)
        ]

    def _update(
        self, step: int, shares: list[Share], losses: list[dict[str, Tensor]], position: Position
    ) -> dict[str, float]:
        """Add up gradients, clip, and step; returns the loss, its terms and the gradient's norm before clipping.

        The one time that the host waits for the device in a step is before weights change: so a loss or a gradient that
        is no number leaves weights, moments and the objective as they were. Whether some process is asked to stop is
        read with them.
        """
        gradients = self.sums.finish()
        self.scaler.unscale_(self.optimizer) if self.scaler.is_enabled() else None
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.settings.max_grad_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self.weights, self.settings.max_grad_norm, norm)
        flag = self.group.flag(self.stop.requested, norm)
        values = torch.stack([value for terms in losses for value in terms.values()] + [norm, flag]).tolist()
        terms, norm_value = self._checked(shares, losses, values[:-2], position), values[-2]
        self.stopping = values[-1] > 0
        # fp16's scaler skips a step whose scaled gradients overflow, and halves its scale; below 1 none was scaled up.
        if not math.isfinite(norm_value) and (not self.scaler.is_enabled() or self.scaler.get_scale() < 1):
            self._stop(position, f"the gradient's norm is {norm_value}", shares[0])
        self._refuse_standstill(norm_value)
        set_rate(self.optimizer, self.settings.learning_rate * self.schedule(self.run.first_step + step))
        with nullcontext() if self.optimizer.state else lasting_blocks():  # the first step makes the moments
            self.scaler.step(self.optimizer)
        self.scaler.update()
        return terms | {"gradient_norm": norm_value if math.isfinite(norm_value) else 0.0}

    def _refuse_standstill(self, norm: float) -> None:
        """Refuse a loss of which no gradient reaches a weight from the first step on."""
        self.still = self.still + 1 if norm == 0 else -math.inf
        if self.still == (steps := min(STILL, self.settings.steps)):
            problem = f"the gradient is 0 in each of the first {steps} steps, so that no weight changes"
            step = "a loss must depend on vectors or scores (docs/add-loss.md), masked words need texts to mask"
            raise ConfigError(self.run.name, problem, step)

    def _checked(
        self, shares: list[Share], losses: list[dict[str, Tensor]], values: list[float], position: Position
    ) -> dict[str, float]:
        """Return the loss and its terms, means over micro-batches."""
        sums, read, share_of_one = {"loss": 0.0}, iter(values), 1.0 / len(shares)
        for share, terms in zip(shares, losses, strict=True):
            for name in terms:
                value = next(read)
                sums[name] = sums.get(name, 0.0) + value * share_of_one
                sums["loss"] += value * share_of_one
                if not math.isfinite(value):
                    self._stop(position, f"{name} is {value}", share)
        return sums

    def _stop(self, position: Position, what: str, share: Share) -> None:
        if self.group.rank == 0 and finite(self.model):
            self._checkpoint(position)
        count, names = len(share.batch.rows), self.forward.names(share.batch, NAMED_QUERIES)
        more = f" and {count - NAMED_QUERIES} more" if count > NAMED_QUERIES else ""
        named = f"{self.forward.unit} of the batch: {', '.join(names)}{more}"
        step = "lower learning_rate, set max_grad_norm, or use precision fp32 (changed settings train from the start)"
        raise NonFiniteLoss(
            f"{self.run.name}, step {position.step}",
            f"{what}; {named}; the last good weights are kept in {self.run.state}",
            step
            if position.step
            else f"nothing has changed the weights yet: look at the loss and the texts; then {step}",
        )

    def _diverged(self, error: ClassifierDiverged, position: Position) -> ClassifierDiverged:
        """Return the error with the checkpoint that remains: the objective has restored its state before this step."""
        if self.group.rank == 0 and finite(self.model):
            self._checkpoint(position)
        saved = checkpoints(self.run.state)
        where = f"in {saved[-1]}, after {finished_steps(saved[-1])} steps of the stage" if saved else "nowhere"
        return ClassifierDiverged(
            error.where,
            f"{error.what}; the encoder's last finite weights are kept {where}",
            "the same command goes on from there, which helps where the cause has passed; "
            f"changed settings train from the start: {error.next_step}",
        )

    def _is_point(self, step: int) -> bool:
        """Whether a point of the curves is due after `step` steps."""
        return step % self.point_every == 0 or step == self.settings.steps

    def _note(self, position: Position, terms: dict[str, float | Tensor]) -> None:
        """Curves hold means over `point_every` steps; facts on the device stay there until a point is due.

        Comparisons of terms are those of the point's own step, of its last micro-batch.
        """
        for name, value in terms.items():
            more = value.double() if isinstance(value, Tensor) else value
            position.sums[name] = position.sums.get(name, 0.0) + more
        if self._is_point(position.step):
            steps = (position.step - 1) % self.point_every + 1
            at = self.run.first_step + position.step
            points = {name: total / steps for name, total in position.read().items()}
            points |= {name: float(value) for name, value in self.compared.items()}
            points["learning_rate"] = self.optimizer.param_groups[0]["lr"]
            position.curves += [(name, value, at) for name, value in points.items()]
            position.sums = {}

    def _due(self, position: Position) -> None:
        """Evaluate, save models and write checkpoints that are due."""
        step, settings = position.step, self.settings
        last = step == settings.steps
        # A rehearsal ends before the steps whose models it keeps: each is that of its end.
        due = [n for n in settings.save_steps if n == step or (last and n > step)]
        if self.run.keep and self.group.rank == 0:
            for number in due:
                self.run.keep(number)
        if self.run.evaluate and (last or (settings.evaluate_steps and step % settings.evaluate_steps == 0)):
            measures = self.run.evaluate()
            position.curves += [(f"dev.{name}", value, self.run.first_step + step) for name, value in measures.items()]
            log.info("step %d, dev %s", step, ", ".join(f"{k} {v:.4f}" for k, v in measures.items()))
        if last or step % settings.checkpoint_steps == 0:
            self._checkpoint(position, self.saving.now if last else self.saving.later)

    def _checkpoint(self, position: Position, save: Callable[[Snapshot], Any] | None = None) -> None:
        """Write a checkpoint; it is complete afterwards unless `save` does otherwise."""
        if self.group.rank == 0:
            facts = position.facts() | {"scaler": self.scaler.state_dict()}
            (save or self.saving.now)(snapshot(self.run.identity, facts, self.model, self.optimizer, self.objective))
