"""Evaluate a pretrained encoder on held-out documents, corpus by corpus. The model's mode is restored."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from zerodr.encoders.network.moving import features_on, on_device
from zerodr.losses.spans import alignment, span_contrastive, uniformity
from zerodr.training.distributed.processes import Group
from zerodr.training.pretraining.passages import PassageBatch
from zerodr.training.pretraining.span_forward import SpanForward, compared
from zerodr.training.pretraining.views import ViewMaker, Views

NO_STEP = 2**31  # views of the evaluation are drawn as if for this step: always the same, and of no training step


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
