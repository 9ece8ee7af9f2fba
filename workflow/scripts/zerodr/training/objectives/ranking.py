"""Objectives over the vectors or the scores of queries and documents, distillation among them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from zerodr.config.custom import check_planned, load_code
from zerodr.config.training import CUSTOM, LOSSES, LossSettings, ObjectiveSettings
from zerodr.errors import ConfigError
from zerodr.losses.contrastive import Reduction, info_nce, known_positive_mask, pairwise_nll
from zerodr.papers import modules
from zerodr.training.objectives.base import Encoded, Objective, QueryObjective


class PairwiseNLL(QueryObjective):
    """Two-way softmax of the positive and each hard negative, no in-batch negatives (ANCE's released code)."""

    name = "pairwise_nll"

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """`{"pairwise_nll": scalar}`, mean over queries and their negatives."""
        return {self.name: self._losses(batch, "mean")}

    def per_query(self, batch: Encoded) -> Tensor:
        """Mean over each query's negatives, (B,)."""
        return self._losses(batch, "none").mean(1)

    def _losses(self, batch: Encoded, reduction: Reduction) -> Tensor:
        negatives = batch.documents[:, 1:]  # (B, K, D)
        queries, positives = (x.expand_as(negatives) for x in (batch.queries[:, None], batch.documents[:, :1]))
        return pairwise_nll(queries, positives, negatives, reduction)


@dataclass
class InfoNCE(QueryObjective):
    """Softmax of the query's positive among all positives and hard negatives of the batch (DDR section 4.3)."""

    in_batch: bool = True
    mask_known_positives: bool = True
    inverse_temperature: float = 1.0
    name = "info_nce"

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """`{"info_nce": scalar}`, mean over queries."""
        return {self.name: self._losses(batch, "mean")}

    def per_query(self, batch: Encoded) -> Tensor:
        """Loss of each query, (B,)."""
        return self._losses(batch, "none")

    def _losses(self, batch: Encoded, reduction: Reduction) -> Tensor:
        return self._in_batch(batch, reduction) if self.in_batch else self._in_row(batch, reduction)

    def _in_batch(self, batch: Encoded, reduction: Reduction) -> Tensor:
        """Candidates are the B positives, then the B * K hard negatives."""
        count, width = batch.documents.shape[:2]
        numbers = torch.arange(count * width).view(count, width)
        columns = torch.cat([numbers[:, 0], numbers[:, 1:].reshape(-1)]).to(batch.documents.device, non_blocking=True)
        candidates, masked = batch.documents.flatten(0, 1)[columns], None
        if self.mask_known_positives:
            masked = known_positive_mask(known_of(batch), count * width, numbers[:, 0])[:, columns]
        return info_nce(batch.queries @ candidates.T, torch.arange(count), masked, self.inverse_temperature, reduction)

    def _in_row(self, batch: Encoded, reduction: Reduction) -> Tensor:
        count, width = batch.documents.shape[:2]
        targets, masked = torch.zeros(count, dtype=torch.long), None
        if self.mask_known_positives:
            query, document = known_of(batch).unbind(1)
            same_row = document // width == query
            column = torch.where(same_row, document % width, width)  # a column more, for those of other queries
            masked = known_positive_mask(torch.stack([query, column], 1), width + 1, targets)[:, :width]
        return info_nce(batch.document_scores(), targets, masked, self.inverse_temperature, reduction)


def known_of(batch: Encoded) -> Tensor:
    """Return the known positives of a batch, (n, 2).

    Raises:
        ConfigError: nobody looked them up.
    """
    if batch.known is None:
        raise ConfigError(
            "objective", "masks known positives, found a batch without them", "set mask_known_positives: false"
        )
    return batch.known


class ScoreLoss(Objective):
    """A function of zerodr.losses, of the scores of a query's documents, its positive first.

    Args:
        name: of LOSSES, or of the user's own.
        loss: the user's own function.
        options: keyword arguments of the function.
    """

    def __init__(self, name: str, loss: Callable[..., Tensor] | None = None, **options: Any) -> None:
        self.name, self.options = name, options
        self.custom = loss is not None
        if loss is None:
            module, function = LOSSES[name].function.split(":")
            loss = getattr(import_module(f"zerodr.losses.{module}"), function)
        self.loss = loss
        self.distils = "teacher" in signature(self.loss).parameters

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """`{name: scalar}`.

        Raises:
            ConfigError: the user's own function returned something else.
        """
        teacher, scores = {"teacher": teacher_scores(batch)} if self.distils else {}, batch.document_scores()
        loss = self.loss(scores, **teacher, **self.options)
        if self.custom:
            refuse_unlinked(f"loss {self.name}", [loss], [scores])
        return {self.name: loss}


def refuse_unlinked(where: str, losses: Sequence[object], inputs: Sequence[Tensor]) -> None:
    """Refuse what is no number of torch, or of which no gradient reaches the scores or vectors that it was given.

    Raises:
        ConfigError: names the first.
    """
    step = "compute it from these with torch alone, and end with .mean() (docs/add-loss.md)"
    learns = [tensor for tensor in inputs if tensor.requires_grad]
    for loss in losses:
        what = ""
        if not isinstance(loss, Tensor):
            what = f"{loss!r:.40}, a {type(loss).__name__}"
        elif loss.ndim:
            what = f"numbers of shape {list(loss.shape)}"
        elif learns and not loss.requires_grad:
            what = "a number without a gradient"
        if what:
            raise ConfigError(where, f"returned {what}, expected one number with a gradient", step)
    if learns:
        total = sum(loss for loss in losses if isinstance(loss, Tensor))
        linked = torch.autograd.grad(total, learns, retain_graph=True, allow_unused=True) if losses else [None]  # type: ignore
        if all(gradient is None for gradient in linked):
            raise ConfigError(where, "returned what does not depend on the scores or vectors", step)


def teacher_scores(batch: Encoded) -> Tensor:
    """Return the teacher's scores of a batch, (B, 1 + K).

    Raises:
        ConfigError: it has none.
    """
    if batch.teacher is None:
        raise ConfigError(
            "objective", "distillation needs a teacher's scores, found none", "give the stage a teacher (scored input)"
        )
    return batch.teacher


OBJECTIVES: dict[str, Callable[[Any], Objective]] = {  # losses of vectors, by the name in their settings
    "pairwise_nll": lambda settings: PairwiseNLL(),
    "info_nce": lambda how: InfoNCE(how.in_batch, how.mask_known_positives, how.inverse_temperature),
}


def make_objective(settings: LossSettings) -> Objective:
    """Make the objective that the settings name, of the core or of a paper.

    Raises:
        ConfigError: it needs hard negatives and the settings draw none.
    """
    if settings.compares and settings.negatives_per_query < 1:
        raise ConfigError(
            "objective.negatives_per_query",
            f"{settings.name} compares a positive with hard negatives, found 0",
            "set it to at least 1",
        )
    if isinstance(settings, ObjectiveSettings) and settings.code:
        return _custom(settings)
    every = dict(OBJECTIVES)
    for paper in modules("training"):
        every |= paper.TRAINING.objectives
    if settings.name in every:
        return every[settings.name](settings)
    return ScoreLoss(settings.name, **{option: getattr(settings, option) for option in LOSSES[settings.name].options})


def _custom(settings: ObjectiveSettings) -> Objective:
    """Make an objective of the user's own function of scores, or class.

    Raises:
        ConfigError: its code is not the planned one.
    """
    custom = load_code(CUSTOM, settings.name)
    check_planned(CUSTOM, settings.code, settings.name)
    if isinstance(custom, type):
        return _checked(settings.name, custom)(**settings.arguments)
    return ScoreLoss(settings.name, custom, **settings.arguments)


def _weights_in(objective: Objective) -> str:
    """Name the first attribute that wants a gradient; empty where there is none."""
    for name, value in vars(objective).items():
        tensors = value.parameters() if isinstance(value, nn.Module) else [value]
        if any(isinstance(tensor, Tensor) and tensor.requires_grad and tensor.is_leaf for tensor in tensors):
            return name
    return ""


def _checked(name: str, kind: Any) -> type[Objective]:
    """Return a class of the user's own that refuses terms which teach nothing.

    Raises:
        ConfigError: it is no Objective.
    """
    where = f"objective {name}"
    if not issubclass(kind, Objective):
        step = "begin it with class NAME(Objective): from zerodr.training.objectives.base (docs/add-loss.md)"
        raise ConfigError(where, "is no Objective", step)

    updates = any(getattr(kind, hook) is not getattr(Objective, hook) for hook in ("before", "after", "on_step"))

    class Checked(kind):
        def __call__(self, batch: Encoded) -> dict[str, Tensor]:
            if not updates and (name := _weights_in(self)):
                step = "give it as an argument (a number), or update it in on_step (docs/add-loss.md)"
                raise ConfigError(where, f"has weights of its own ({name}), which nothing trains", step)
            terms = super().__call__(batch)
            if not isinstance(terms, dict):
                problem = f"returned a {type(terms).__name__}, expected the terms of the loss by name"
                raise ConfigError(where, problem, 'return {"name": loss} (docs/add-loss.md)')
            if terms or kind.direct is Objective.direct:
                refuse_unlinked(where, list(terms.values()), [batch.queries, batch.documents])
            return terms

    return Checked
