"""Adversarial adaptation to a target as an objective next to a ranking loss (MoDIR section 3.3).

A micro-batch goes into the momentum queue; once a step, with its last micro-batch, the classifier learns from the
queue; then the encoder gets the gradient of the adversarial loss through frozen logits. Earlier micro-batches of a step
see the classifier of the step before. Every process sees the vectors of the whole batch and draws the same samples, so
all have the same queue and the same classifier, those of one process on that batch, without a collective.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zerodr.errors import ArtifactError, ClassifierDiverged
from zerodr.papers.modir.domain_classifier import DomainClassifier, MomentumQueue, logistic_regression
from zerodr.papers.modir.losses import adversarial_loss, adversary_weight, clamped, classifier_gradient, margins
from zerodr.papers.modir.settings import AdversarySettings
from zerodr.training.loop.checkpoint import read_tensors, write_tensors
from zerodr.training.objectives.base import Encoded, Objective, State
from zerodr.training.optimizers import Lamb, Schedule, load_moments, moments, moments_fit, set_rate

CLASSIFIER = Path("adversary") / "classifier.safetensors"
POSITIONS = ("filled", "next")  # of a queue, next to its rows
SAMPLES, WEIGHTS = 6, 7  # first words of a seed: what the random numbers are for


@dataclass(frozen=True)
class EncodedDomains(Encoded):
    """The vectors of a DomainBatch.

    Attributes:
        target_documents: (B, D) float32.
        target_queries: (B, D) float32, or None.
    """

    target_documents: Tensor | None = None
    target_queries: Tensor | None = None


class Adversary(Objective):
    """The adversarial term of a batch of both domains, and the classifier that it is taken from.

    Args:
        name: of the stage, for messages.
        settings: of the adversary.
        batch: texts of each group in a step, over all processes.
        dimension: D of embeddings.
        seed: words that random numbers come from.
        schedule: factor on the classifier's learning rate by finished steps of the chain.
        first_step: steps of the chain before this stage.
        micro_batches: of a step.
        goes_on: a stage after this one goes on with the queue.
    """

    def __init__(
        self,
        name: str,
        settings: AdversarySettings,
        batch: int,
        dimension: int,
        seed: list[int],
        schedule: Schedule,
        first_step: int = 0,
        micro_batches: int = 1,
        goes_on: bool = False,
    ) -> None:
        self.goes_on = goes_on
        self.name, self.settings, self.seed = name, settings, seed
        self.schedule, self.first_step, self.micro_batches = schedule, first_step, micro_batches
        self.pushes = 1 if settings.official else micro_batches  # of an entry of the queue
        groups = 2 if settings.queries == "none" else 4
        size = batch // micro_batches * self.pushes
        self.queue = MomentumQueue(settings.queue_length, size, groups, dimension)
        self.labels = torch.tensor([True] * (groups // 2) + [False] * (groups // 2))
        word = np.random.SeedSequence([WEIGHTS, *seed]).generate_state(1)[0]
        self.classifier = DomainClassifier(dimension, int(word))
        self.optimizer = self._optimizer()
        self.micro = 0
        self.pile: Tensor | None = None
        self.seen: dict[str, list[float | Tensor]] = {}
        self.snapshot: dict[str, Any] = {}

    def _optimizer(self) -> torch.optim.Optimizer:
        weights = [self.classifier.weight]
        if self.settings.optimizer == "lamb":
            return Lamb(weights, lr=self.settings.learning_rate)
        return torch.optim.AdamW(weights, lr=self.settings.learning_rate, weight_decay=0.0)

    def on_start(self, model: Any, device: str) -> None:
        """Move queue and classifier to the model's device."""
        saved = moments(self.optimizer)
        self.queue.to(device)
        self.labels = self.labels.to(device)
        self.classifier.to(device)
        self.optimizer = self._optimizer()
        load_moments(self.optimizer, saved)

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """`{<loss>: lambda * L_M}`; the queue has the batch, and the classifier has learned, when it returns."""
        assert isinstance(batch, EncodedDomains), "batches come from DomainForward"
        source, target = self.groups(batch)
        if not self.micro:
            self._keep()
        with torch.no_grad():
            vectors = torch.stack([*source, *target], 1)
            if not self.settings.official:
                self._look(vectors)
            self.queue.push(vectors, self.micro % self.pushes, self.pushes)
            if self.settings.official and self.queue.filled:
                self._look(self.queue.oldest())  # the released code looks at entry 0
            self._learn(batch.step)
        self.micro += 1
        weight = self.strength(batch.step)
        frozen = self.classifier.weight.detach()
        logits = [[clamped(x @ frozen.T, self.settings.clamp) for x in domain] for domain in (source, target)]
        return {self.settings.loss: weight * adversarial_loss(self.settings.loss, *logits)}

    def groups(self, batch: EncodedDomains) -> tuple[list[Tensor], list[Tensor]]:
        """Return source and target vectors, (B, D) each: queries, where the target has some, and one document for each.

        The source's are positives in one micro-batch and negatives in the next, where there are negatives; the released
        code begins with negatives.
        """
        assert batch.target_documents is not None, "the target has documents"
        count = batch.step * self.micro_batches + self.micro + self.settings.official
        source, target = [batch.documents[:, count % min(2, batch.documents.shape[1])]], [batch.target_documents]
        if batch.target_queries is None:
            return source, target
        return [batch.queries, *source], [batch.target_queries, *target]

    def strength(self, step: int) -> float:
        """Compute lambda of a step of the stage."""
        return adversary_weight(self.first_step + step, self.settings.weight, self.settings.half_life_steps)

    # ---- the classifier ----------------------------------------------------------------------------------------
    def _look(self, vectors: Tensor) -> None:
        """Add to local Domain-Acc: the classifier's accuracy on texts that it has not seen (MoDIR section 4.4)."""
        differences = margins(clamped(self.classifier(vectors), self.settings.clamp))  # (b, G)
        right = ((differences > 0) == self.labels).float() * (differences != 0) + 0.5 * (differences == 0)
        by_group = right.mean(0)
        half = len(by_group) // 2
        facts = {"domain_accuracy": by_group.mean(), "domain_accuracy_documents": by_group[half - 1 :: half].mean()}
        if half == 2:
            facts["domain_accuracy_queries"] = by_group[::half].mean()
        for fact, value in facts.items():
            self.seen.setdefault(fact, []).append(value.double())

    def _learn(self, step: int) -> None:
        """Train the classifier, with the last micro-batch of a step."""
        last = self.micro == self.micro_batches - 1
        if self.settings.oracle_steps is not None:
            if last and (self.first_step + step) % self.settings.oracle_steps == 0:
                self._converge()
            return
        if not last:
            if self.settings.official and self.queue.filled:  # these pile up for the first update
                gradients = [gradient for _, gradient in map(self._gradient, self._samples(step))]
                self.pile = torch.stack(gradients if self.pile is None else [*gradients, self.pile]).sum(0)
            return
        set_rate(self.optimizer, self.settings.learning_rate * self.schedule(self.first_step + step))
        losses = [self._update(vectors) for vectors in self._samples(step)]
        self._check(step, torch.stack(losses))

    def _samples(self, step: int) -> Iterator[Tensor]:
        how = self.settings
        if how.official:
            return self.queue.in_order(how.updates, how.batches_per_update)
        whole = max(self.queue.size, self.queue.filled * self.queue.size // how.updates)  # eq. 6: over all of Q
        return self.queue.samples(how.updates, how.minibatch or whole, [SAMPLES, *self.seed, step])

    def _gradient(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Mean loss, and the gradient that an update takes.

        In mode official it is that of the released code's sum, whose size matters where it is clipped: batches of an
        update times groups, over micro-batches.
        """
        labels = self.labels.expand(len(vectors), -1).reshape(-1)
        loss, gradient = classifier_gradient(self.classifier.weight, vectors.flatten(0, 1), labels, self.settings.clamp)
        if self.settings.official:
            gradient = gradient * (self.settings.batches_per_update * len(self.labels) / self.micro_batches)
        return loss, gradient

    def _update(self, vectors: Tensor) -> Tensor:
        loss, gradient = self._gradient(vectors)
        if self.pile is not None:
            gradient, self.pile = gradient + self.pile, None
        self.classifier.weight.grad = gradient
        if self.settings.gradient_limit is not None:
            torch.nn.utils.clip_grad_norm_([self.classifier.weight], self.settings.gradient_limit)
        self.optimizer.step()
        self.classifier.weight.grad = None
        return loss

    def _converge(self) -> None:
        vectors = self.queue.rows[: self.queue.filled * self.queue.size]
        labels = self.labels.expand(len(vectors), -1).reshape(-1)
        fitted = logistic_regression(vectors.flatten(0, 1), labels, self.settings.l2)
        self.classifier.weight.copy_(torch.stack([fitted, -fitted]) / 2)

    def _check(self, step: int, losses: Tensor) -> None:
        # one copy from the device, not two
        mean, finite = torch.stack([losses.mean(), self.classifier.weight.isfinite().all().to(losses)]).tolist()
        self.seen["classifier_loss"] = [mean]
        if finite and mean <= self.settings.largest_loss:
            return
        weight, at = self.strength(step), self.first_step + step
        self._restore()
        what = (
            f"its loss is {mean:.4g}, at most {self.settings.largest_loss:g} is expected"
            if finite and not (math.isnan(mean))
            else "its weights hold NaN or infinity"
        )
        raise ClassifierDiverged(
            f"{self.name}, domain classifier, step {at}",
            f"diverged with lambda {weight:.4g}: {what}",
            "lower adversary.learning_rate or adversary.weight, or set adversary.mode: official",
        )

    def _keep(self) -> None:
        """Copy the state that a step changes before it can fail."""
        held = {key: value.clone() for key, value in moments(self.optimizer).items()}
        self.snapshot = {
            "queue": self.queue.overwritten(self.micro_batches // self.pushes),
            "moments": held,
            "weight": self.classifier.weight.clone(),
        }

    def _restore(self) -> None:
        self.classifier.weight.copy_(self.snapshot["weight"])
        load_moments(self.optimizer, self.snapshot["moments"])
        self.queue.put_back(self.snapshot["queue"])
        self._forget()

    def _forget(self) -> None:
        self.micro, self.pile, self.seen = 0, None, {}

    # ---- hooks -------------------------------------------------------------------------------------------------
    def on_step(self, finished: int) -> dict[str, float | Tensor]:
        """Report local Domain-Acc before the step, the classifier's loss and norm, lambda, batches in the queue."""
        facts = {name: sum(values) / len(values) for name, values in self.seen.items()}
        facts["classifier_norm"] = self.classifier.weight.norm()
        self._forget()
        return facts | {"lambda": self.strength(finished - 1), "queue_batches": float(self.queue.filled)}

    def save(self, folder: Path) -> None:
        """Write `adversary/classifier.safetensors`: weights, moments, and a queue that the next stage goes on with."""
        positions = {key: torch.tensor(getattr(self.queue, key)) for key in POSITIONS}
        queue = {"queue": self.queue.rows} | positions if self.goes_on else {}
        write_tensors(folder / CLASSIFIER, self._tensors() | queue)

    def go_on_from(self, parent: Path) -> None:
        """Begin with the classifier and the queue of the stage before.

        Raises:
            ArtifactError: it has none.
        """
        if not (parent / CLASSIFIER).exists():
            raise ArtifactError(parent, f"has no domain classifier ({CLASSIFIER}) to go on with", "train it again")
        saved = read_tensors(parent / CLASSIFIER)
        if "queue" not in saved or saved["queue"].shape != self.queue.rows.shape:
            problem = f"{CLASSIFIER} has no queue of {self.queue.length} batches of {self.queue.size}"
            raise ArtifactError(parent, problem, "train it again, with the same queue_length and batch_queries")
        moved = _moments_in(saved)
        if moved and not moments_fit(self.optimizer, moved):
            problem = f"{CLASSIFIER} has moments of another optimiser than {self.settings.optimizer}"
            raise ArtifactError(parent, problem, "set adversary.optimizer as it was")
        self.queue.load_state_dict({key: saved[key] for key in ("queue", *POSITIONS)})
        self._take(saved)

    def _tensors(self) -> dict[str, Tensor]:
        saved_moments = {f"moments.{key}": value for key, value in moments(self.optimizer).items()}
        return {"weight": self.classifier.weight.data} | saved_moments

    def _take(self, state: State) -> None:
        self.classifier.weight.data.copy_(state["weight"])
        load_moments(self.optimizer, _moments_in(state))

    def state_dict(self) -> State:
        """Return queue, classifier, moments."""
        return self.queue.state_dict() | self._tensors()

    def load_state_dict(self, state: State) -> None:
        """Restore the state of `state_dict`."""
        self.queue.load_state_dict(state)
        self._take(state)


def _moments_in(state: State) -> State:
    return {key.removeprefix("moments."): value for key, value in state.items() if key.startswith("moments.")}
