"""Run pretraining's passes through the network, and the objectives of its vectors. The loop is the engine's."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from zerodr.config.pretraining import PretrainSettings
from zerodr.encoders.inference.encoder import padded
from zerodr.encoders.network.moving import on_device
from zerodr.encoders.pretraining.condenser import HeadedEncoder
from zerodr.losses.contrastive import info_nce
from zerodr.losses.spans import span_contrastive
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import Forward, Share, set_random
from zerodr.training.objectives.base import Objective
from zerodr.training.pretraining.masking import NOT_MASKED
from zerodr.training.pretraining.passages import PassageBatch, Passages
from zerodr.training.pretraining.token_losses import NO_MARK
from zerodr.training.pretraining.views import ViewMaker, Views

MASKED, RECONSTRUCTION, SPAN_CORRUPTION = ("late_mlm", "head_mlm"), "reconstruction", "span_corruption"
Losses = dict[str, Tensor]


@dataclass(frozen=True)
class SpanVectors:
    """Vectors of all views of a batch, of all processes: (2B, D) float32, views of one document next to each other."""

    step: int
    vectors: Tensor


@dataclass
class SpanForward(Forward):
    """Passes of a HeadedEncoder in pretraining.

    Losses of tokens are means over all predicted tokens of the micro-batch of all processes: a process divides its sum
    by the total of all. (COCO-DR's code takes means of the processes' means.) A paper's loss is a mean over texts.
    """

    model: HeadedEncoder
    examples: Passages
    device: str
    chunk: int | None = None
    maker: ViewMaker = field(kw_only=True)
    unit = "documents"

    def __post_init__(self) -> None:
        self.has_vectors = self.maker.settings.contrasts

    def prepare(self, batch: PassageBatch, group: Group) -> Share:
        """Prepare this process's views of a micro-batch."""
        views = self.maker.make(batch.shard(group.rank, group.world))
        return Share(batch, views, self.examples.names(batch.rows), [], [])

    def totals(self, texts: Views, group: Group) -> dict[str, float]:
        """Count the texts or tokens that each loss is a mean over, of all processes."""
        counts = self.counts(texts)
        if not counts:
            return {}
        if group.world == 1:
            return {name: max(count, 1.0) for name, count in counts.items()}
        sums = group.total(torch.tensor(list(counts.values()), device=self.device, dtype=torch.float64))
        return {name: max(count, 1.0) for name, count in zip(counts, sums.tolist(), strict=True)}

    def counts(self, texts: Views) -> dict[str, float]:
        """Count terms of each loss of these views: predicted tokens, or texts that a paper's loss counts."""
        counts = dict.fromkeys(self._of_tokens(texts), float(texts.asked))
        extra = self.maker.extra
        return counts | ({extra.name: float(extra.count(texts.marks))} if extra is not None and texts.marks else {})

    def _of_tokens(self, texts: Views) -> tuple[str, ...]:
        if not texts.targets:
            return ()
        if self.maker.settings.masks:
            return MASKED if len(self.model.layers) else MASKED[:1]
        return (SPAN_CORRUPTION,) if self.maker.settings.name == "t5_coco" else (RECONSTRUCTION,)

    def encode(self, texts: Views, number: int, seed: Sequence[int]) -> Tensor:
        """Encode one group, (n, D) float32."""
        set_random(seed, number)
        if self.maker.settings.name == "t5_coco":  # dropout draws as many numbers as in the pass with losses
            return self.measure(texts, texts.groups[number][1])[0]
        return self.model.encode(self._features(texts.tokens, texts.groups[number][1]))

    def run(
        self, texts: Views, number: int, seed: Sequence[int], totals: dict[str, float]
    ) -> tuple[Tensor | None, Losses]:
        """Encode one group where the objective compares vectors, and compute its share of token losses, weighted."""
        set_random(seed, number)
        vectors, sums = self.measure(texts, texts.groups[number][1])
        losses = {name: value / totals[name] for name, value in sums.items()}
        extra = self.maker.extra
        if extra is not None and extra.name in losses:
            losses[extra.name] = extra.weight * losses[extra.name]
        return vectors if self.has_vectors else None, losses

    def measure(self, texts: Views, numbers: Sequence[int]) -> tuple[Tensor, Losses]:
        """Compute vectors of some texts, and sums of cross entropies of predicted tokens, and of a paper's loss."""
        features = self._features(texts.tokens, numbers)
        if not texts.targets:
            return self.model.encode(features), {}
        if self.maker.settings.masks:
            labels = torch.from_numpy(padded([texts.targets[number] for number in numbers], NOT_MASKED)[0])
            vectors, last, early = self.model.states(features)
            sums = self.model.masked_losses(last, early, features["attention_mask"], labels)
            extra = self.maker.extra
            if texts.marks and extra is not None:
                marks = torch.from_numpy(padded([texts.marks[number] for number in numbers], NO_MARK)[0])
                sums[extra.name] = extra.total(vectors, last, on_device(marks, self.device))
            return vectors, sums
        if self.maker.settings.name == "t5_coco":
            vectors, loss = self.model.generation(features, self._features(texts.targets, numbers))
            return vectors, {SPAN_CORRUPTION: loss}
        vectors = self.model.encode(features)
        return vectors, {RECONSTRUCTION: self.model.reconstruction(vectors, self._features(texts.targets, numbers))}

    def _features(self, ids: list[np.ndarray], numbers: Sequence[int]) -> dict[str, Tensor]:
        features = self.model.encoder.pad([ids[number] for number in numbers])  # type: ignore[misc]
        return {key: on_device(value, self.device) for key, value in features.items()}

    def view(self, share: Share, leaf: Tensor, group: Group) -> SpanVectors:
        """Gather the vectors of all processes."""
        return SpanVectors(share.batch.step, group.gather(leaf))


class OwnLosses(Objective):
    """Nothing but the losses of tokens."""


@dataclass
class SpanContrast(Objective):
    """The two spans of a document are near each other and far from all others  # COCO-DR, specs 1.4"""

    similarity: str
    inverse_temperature: float

    def __call__(self, batch: SpanVectors) -> Losses:  # type: ignore[override]
        """`{"contrastive": scalar}`, mean over the spans of all processes."""
        vectors = compared(batch.vectors, self.similarity)
        return {"contrastive": span_contrastive(vectors, self.inverse_temperature)}


@dataclass
class ViewContrast(Objective):
    """The first view of a document finds its second among those of all documents  # ICT, SimCSE"""

    similarity: str
    inverse_temperature: float

    def __call__(self, batch: SpanVectors) -> Losses:  # type: ignore[override]
        """`{"contrastive": scalar}`, mean over the documents of all processes."""
        vectors = compared(batch.vectors, self.similarity)
        scores = vectors[0::2] @ vectors[1::2].T
        return {"contrastive": info_nce(scores, torch.arange(len(scores)), None, self.inverse_temperature)}


def compared(vectors: Tensor, similarity: str) -> Tensor:
    """Scale vectors so that inner products are the similarity."""
    return functional.normalize(vectors, dim=-1) if similarity == "cosine" else vectors


def make_span_objective(settings: PretrainSettings) -> Objective:
    """Make the objective that the settings name."""
    if not settings.contrasts:
        return OwnLosses()
    kind = SpanContrast if settings.name in ("coco", "t5_coco") else ViewContrast
    return kind(*settings.comparison)
