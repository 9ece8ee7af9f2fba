"""Run pretraining's passes through the network: objectives of its vectors, evaluation on held-out documents.

The loop is the engine's. An evaluation goes corpus by corpus and restores the model's mode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from zerodr.config.pretraining import PretrainSettings
from zerodr.encoders.network.moving import Features, features_on, on_device
from zerodr.encoders.network.tokenizing import padded
from zerodr.encoders.pretraining.condenser import HeadedEncoder, masked_tokens, real_tokens
from zerodr.losses.contrastive import info_nce
from zerodr.losses.spans import alignment, span_contrastive, uniformity
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import Forward, Share, set_random
from zerodr.training.objectives.base import Objective
from zerodr.training.pretraining.masking import NO_MARK, NOT_MASKED
from zerodr.training.pretraining.passages import PassageBatch, Passages
from zerodr.training.pretraining.views import ViewMaker, Views

TARGETS, WANTED = ("positions", "targets"), "wanted."
MASKED, RECONSTRUCTION, SPAN_CORRUPTION = ("late_mlm", "head_mlm"), "reconstruction", "span_corruption"
Losses = dict[str, Tensor]
NO_STEP = 2**31  # views of the evaluation are drawn as if for this step: always the same, and of no training step


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
        return Share(batch, self.padded(self.maker.make(batch.shard(group.rank, group.world))))

    def features(self, texts: Views, number: int) -> Features:
        """Pad one group: the network's input, what it is to predict, and marks for a paper's loss."""
        numbers = texts.groups[number][1]
        features = self._padded(texts.tokens, numbers)
        if not texts.targets:
            return features
        if self.maker.settings.masks:
            labels = torch.from_numpy(padded([texts.targets[line] for line in numbers], NOT_MASKED)[0])
            features |= dict(zip(TARGETS, masked_tokens(labels), strict=True))
            if texts.marks:
                marks = padded([texts.marks[line] for line in numbers], NO_MARK)[0]
                features["marks"] = torch.from_numpy(marks)
            return features
        wanted = self._padded(texts.targets, numbers)
        first = 0 if self.maker.settings.name == "t5_coco" else 1
        features |= {f"{WANTED}{name}": tensor for name, tensor in wanted.items()}
        return features | dict(zip(TARGETS, real_tokens(wanted, first), strict=True))

    def _padded(self, ids: list[np.ndarray], numbers: Sequence[int]) -> Features:
        return self.model.encoder.pad([ids[number] for number in numbers])  # type: ignore[misc]

    def names(self, batch: PassageBatch, count: int) -> list[str]:
        """Look up the names of the first `count` documents."""
        return self.examples.names(batch.rows[:count])

    def totals(self, texts: Views, group: Group) -> dict[str, float | Tensor]:
        """Count the texts or tokens that each loss is a mean over, of all processes; of several on the device."""
        counts = self.counts(texts)
        if not counts or group.world == 1:
            return {name: max(count, 1.0) for name, count in counts.items()}
        every = on_device(torch.tensor(list(counts.values()), dtype=torch.float64), self.device)
        return dict(zip(counts, group.total(every).clamp(min=1.0).float().unbind(), strict=True))

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
        features = features_on(texts.features[number], self.device)
        if self.maker.settings.name == "t5_coco":  # dropout draws as many numbers as in the pass with losses
            return self.measure(features)[0]
        return self.model.encode(features)

    def run(
        self, texts: Views, number: int, seed: Sequence[int], totals: Mapping[str, float | Tensor]
    ) -> tuple[Tensor | None, Losses]:
        """Encode one group where the objective compares vectors, and compute its share of token losses, weighted."""
        set_random(seed, number)
        vectors, sums = self.measure(features_on(texts.features[number], self.device))
        losses = {name: value / totals[name] for name, value in sums.items()}
        extra = self.maker.extra
        if extra is not None and extra.name in losses:
            losses[extra.name] = extra.weight * losses[extra.name]
        return vectors if self.has_vectors else None, losses

    def measure(self, features: Features) -> tuple[Tensor, Losses]:
        """Compute vectors of some texts, and sums of cross entropies of predicted tokens, and of a paper's loss.

        Args:
            features: of `features`, on the device.
        """
        if TARGETS[0] not in features:
            return self.model.encode(features), {}
        predicted = tuple(features[name] for name in TARGETS)
        if self.maker.settings.masks:
            vectors, last, early = self.model.states(features)
            sums = self.model.masked_losses(last, early, features["attention_mask"], *predicted)
            extra = self.maker.extra
            if extra is not None and "marks" in features:
                sums[extra.name] = extra.total(vectors, last, features["marks"])
            return vectors, sums
        wanted = {name: features[f"{WANTED}{name}"] for name in ("input_ids", "attention_mask")}
        if self.maker.settings.name == "t5_coco":
            vectors, loss = self.model.generation(features, wanted, *predicted)
            return vectors, {SPAN_CORRUPTION: loss}
        vectors = self.model.encode(features)
        return vectors, {RECONSTRUCTION: self.model.reconstruction(vectors, wanted, *predicted)}

    def view(self, share: Share, leaf: Tensor, group: Group) -> SpanVectors:
        """Gather the vectors of all processes."""
        return SpanVectors(share.batch.step, group.gather(leaf))


class OwnLosses(Objective):
    """Nothing but the losses of tokens."""


@dataclass
class SpanContrast(Objective):
    """The two spans of a document are near each other and far from all others  # COCO-DR eq. 4"""

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


def evaluate_spans(forward: SpanForward, dev: Mapping[str, np.ndarray], seed: int, group: Group) -> dict[str, float]:
    """Losses and measures by `<name>.<corpus>`, and by `<name>` their means over corpora.

    `contrastive`, `alignment` and `uniformity` are of the vectors of two spans as they are (COCO-DR sections 4.1, 5.4),
    compared as the objective does, by inner products where it has none. `masked_contrastive` is the same of masked
    spans. `late_mlm`, `head_mlm` and `reconstruction` are means over predicted tokens. Whole documents have
    no second span, so only `uniformity` and losses of tokens. A paper's loss is reported without its
    weight, a mean over the texts that it counts, and their share.

    Spans, crops and masks follow from the seed and the corpus, so stages of one seed can be compared.

    Args:
        dev: document numbers of each corpus.
    """
    was_training = forward.model.training
    forward.model.eval()
    maker = forward.maker.with_seed([seed])
    by_name: dict[str, list[float]] = {}
    measures: dict[str, float] = {}
    for corpus, rows in dev.items():
        draws = np.random.default_rng([seed, NO_STEP]).random((len(rows), 3))
        for name, value in _measure(forward, maker, PassageBatch(NO_STEP, rows, draws), group).items():
            measures[f"{name}.{corpus}"] = value
            by_name.setdefault(name, []).append(value)
    forward.model.train(was_training)
    return {name: float(np.mean(values)) for name, values in by_name.items()} | measures


def _measure(forward: SpanForward, maker: ViewMaker, batch: PassageBatch, group: Group) -> dict[str, float]:
    vectors, _ = _through(forward, maker.plain(batch), group)
    measures: dict[str, Tensor] = {}
    if maker.paired:
        measures = {"contrastive": _contrastive(vectors, maker), "alignment": alignment(vectors)}
        measures["uniformity"] = uniformity(vectors[0::2]) if len(batch) > 1 else torch.zeros(())
    elif len(batch) > 1:
        measures["uniformity"] = uniformity(vectors)
    views = maker.make(batch)
    if views.targets:
        masked, sums = _through(forward, views, group)
        counts = forward.counts(views)
        measures |= {name: value / max(counts[name], 1) for name, value in sums.items()}
        if maker.extra is not None and maker.extra.name in counts:
            measures[maker.extra.share] = torch.tensor(counts[maker.extra.name] / len(views.tokens))
        if maker.paired and maker.settings.masks:
            measures["masked_contrastive"] = _contrastive(masked, maker)
    return {name: float(value) for name, value in measures.items()}


def _contrastive(vectors: Tensor, maker: ViewMaker) -> Tensor:
    similarity, factor = maker.settings.comparison
    return span_contrastive(compared(vectors, similarity), factor)


def _through(forward: SpanForward, views: Views, group: Group) -> tuple[Tensor, dict[str, Tensor]]:
    """Vectors (T, D) and sums of losses of all views; processes share out the groups of texts."""
    size, device = forward.model.encoder.contract.dimension, forward.device
    vectors = torch.zeros(len(views.tokens), size, device=device)
    sums = {name: torch.zeros((), device=device) for name in forward.counts(views)}
    with torch.no_grad():
        for number in range(group.rank, len(views.groups), group.world):
            encoded, losses = forward.measure(features_on(forward.features(views, number), device))
            vectors[on_device(torch.tensor(views.groups[number][1]), device)] = encoded.float()
            for name, value in losses.items():
                sums[name] += value
    return group.total(vectors), {name: group.total(value) for name, value in sums.items()}
