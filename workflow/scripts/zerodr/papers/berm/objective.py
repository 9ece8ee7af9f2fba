"""The two losses of BERM as an objective, over the vectors of a batch with units."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from zerodr.errors import ConfigError, ModelError
from zerodr.papers.berm.losses import balanced, labelled, matching_vector, r1, r2, unit_scores
from zerodr.papers.berm.settings import BalanceSettings, BermSettings
from zerodr.training.objectives.base import Encoded, Objective


@dataclass(frozen=True)
class Units:
    """The units of each query's positive.

    Attributes:
        vectors: (B, U, D) float32.
        valid: (B, U) bool.
        labels: (B,) int64 the essential unit, -100 where there is none.
    """

    vectors: Tensor
    valid: Tensor
    labels: Tensor


@dataclass(frozen=True)
class EncodedUnits(Encoded):
    """The vectors of a batch whose positives have units."""

    units: Units | None = None


def check_space(model: Any, settings: BermSettings | BalanceSettings, key: str = "berm") -> None:
    """Units and passages have vectors that can be compared; `key` is where the settings stand.

    Raises:
        ModelError: vectors of another size than token states, and units in raw space.
    """
    size, states = model.contract.dimension, model.tower("document").transformer.config.hidden_size
    if size != states and settings.unit_space == "raw":
        raise ModelError(
            model.contract.source,
            f"makes vectors of {size} components, its tokens have {states}: units "
            "in raw space can't be compared with them",
            f"set {key}.unit_space: head",
        )


class BermTerms(Objective):
    """R1 and R2, weighted by the step of the chain; to be stacked on any loss of a batch with units  # BERM eq. 4, 5

    Args:
        settings: forms and weights.
        first_step: steps of the chain's earlier stages.
    """

    def __init__(self, settings: BermSettings, first_step: int = 0) -> None:
        self.settings, self.first_step = settings, first_step
        self._seen: dict[str, float | Tensor] = {}

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """`{"r1": scalar, "r2": scalar}` with weights applied, those of weight 0 left out."""
        if not isinstance(batch, EncodedUnits) or batch.units is None:
            raise ConfigError("berm", "the batch has no units of its positives", "give the stage units and labels")
        settings, units = self.settings, batch.units
        w_r1, w_r2 = settings.weights(self.first_step + batch.step)
        passages, preset = batch.documents[:, 0], settings.how
        how = settings.similarity, settings.temperature, preset.skips_last
        terms = {}
        if w_r1:
            terms["r1"] = w_r1 * r1(passages, units.vectors, units.valid, preset.over_units, *how)
        if w_r2:
            terms["r2"] = w_r2 * r2(
                batch.queries, passages, units.vectors, units.valid, units.labels, preset.softmaxes, *how
            )
        with torch.no_grad():
            self._seen = watch(batch.queries, passages, units) | {"w_r1": w_r1, "w_r2": w_r2}
        return terms

    def on_step(self, finished: int) -> dict[str, float | Tensor]:
        """Measures that distinguish a solution from a trivial one: R1 is 0, too, where all units are one vector."""
        return self._seen


def watch(queries: Tensor, passages: Tensor, units: Units) -> dict[str, float | Tensor]:
    """Of a batch: shares of samples that count, R2's accuracy, norms, mean cosine between units of a passage."""
    counted, many = labelled(units.valid, units.labels), balanced(units.valid)
    scores = unit_scores(matching_vector(queries, passages), units.vectors).masked_fill(~units.valid, -torch.inf)
    right = (scores.argmax(-1) == units.labels) & counted
    unit = functional.normalize(units.vectors, dim=-1) * units.valid[..., None]
    counts = units.valid.sum(-1)
    between = unit.sum(1).square().sum(-1) - counts  # sum of cosines over ordered pairs of different units
    pairs = (counts * (counts - 1)).sum().clamp(min=1)
    values = torch.stack(
        [
            many.float().mean(),
            counted.float().mean(),
            right.sum() / counted.sum().clamp(min=1),
            passages.norm(dim=-1).mean(),
            units.vectors.norm(dim=-1).sum() / counts.sum().clamp(min=1),
            torch.where(many, between, 0.0).sum() / pairs,
        ]
    )
    names = ("balanced_share", "labelled_share", "unit_accuracy", "passage_norm", "unit_norm", "unit_cosine")
    return dict(zip(names, values.unbind(), strict=True))
