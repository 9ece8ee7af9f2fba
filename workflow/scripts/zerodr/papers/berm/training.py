"""Extend a fine-tuning stage for BERM: units of positives in every pass, and two losses next to the stage's.

A unit's vector is the mean of its tokens' last hidden states. It is one more row of the representation, so gradient
caching, accumulation and several processes treat units as they treat texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from zerodr.artifacts.stage import Stage
from zerodr.config.params import FinetuneParams
from zerodr.encoders.network.moving import Features, features_on, on_device
from zerodr.errors import ArtifactError, ConfigError, ModelError
from zerodr.papers.berm.losses import balanced, labelled, matching_vector, pool_units, r1, r2, unit_scores
from zerodr.papers.berm.settings import BermSettings, UnitKeys, UnitSpace
from zerodr.papers.berm.train_reader import READER
from zerodr.papers.berm.unit_table import UnitTable, load_units
from zerodr.training.additions import Addition, PaperTraining, Prepared, together
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import Forward, Share, Texts, set_random
from zerodr.training.objectives.base import Encoded, Objective, Stack


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


def check_space(model: Any, space: UnitSpace, key: str = "berm") -> None:
    """Check that vectors of passages and of units have one size, so that inner products of both exist.

    `key` names the settings in messages.

    Raises:
        ModelError: vectors of another size than token states, and units in raw space.
    """
    size, states = model.contract.dimension, model.tower("document").transformer.config.hidden_size
    if size != states and space == "raw":
        problem = (
            f"makes vectors of {size} components, its tokens have {states}: units "
            "in raw space can't be compared with them"
        )
        raise ModelError(model.contract.source, problem, f"set {key}.unit_space: head")


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
            of_units = (units.vectors, units.valid, units.labels)
            gates = settings.matching == "scaled"
            terms["r2"] = w_r2 * r2(batch.queries, passages, *of_units, preset.softmaxes, *how, gates)
        with torch.no_grad():
            self._seen = watch(batch.queries, passages, units, settings.matching == "scaled") | {
                "w_r1": w_r1,
                "w_r2": w_r2,
            }
        return terms

    def on_step(self, finished: int) -> dict[str, float | Tensor]:
        """Measures that distinguish a solution from a trivial one: R1 is 0, too, where all units are one vector."""
        return self._seen


def watch(queries: Tensor, passages: Tensor, units: Units, scaled: bool = False) -> dict[str, float | Tensor]:
    """Of a batch: shares of samples that count, R2's accuracy, norms, mean cosine between units of a passage."""
    counted, many = labelled(units.valid, units.labels), balanced(units.valid)
    matching = matching_vector(queries, passages, scaled)
    scores = unit_scores(matching, units.vectors).masked_fill(~units.valid, -torch.inf)
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


@dataclass(frozen=True)
class UnitTexts(Texts):
    """Texts of which some have units.

    Attributes:
        unit_rows: first row of each text's units in the representation, (texts,).
        unit_tokens: tokens [first, stop) of each text's units, (units, 2); none for queries and mere negatives.
        size: rows of the representation: texts, then units.
    """

    unit_rows: np.ndarray
    unit_tokens: list[np.ndarray]
    size: int


@dataclass
class UnitForward(Forward):
    """Forward pass of a bi-encoder whose objective sees units."""

    table: UnitTable = field(kw_only=True)
    head: bool = field(kw_only=True)

    def texts(self, batch: Any) -> UnitTexts:
        """Texts of a batch; those that are some query's positive have units."""
        plain, nothing = super().texts(batch), np.zeros((0, 2), np.int64)
        tokens = [nothing] * len(plain.tokens)
        for index, document in zip(len(batch) + plain.documents[:, 0], batch.documents[:, 0].tolist(), strict=True):
            spans = np.stack([self.table.first[document], self.table.stop[document]], 1)
            tokens[index] = spans
            if len(spans) and spans[-1, 1] > len(plain.tokens[index]):
                name = self.examples.document_ids(np.array([document]))[0]
                problem = f"document {name} has a unit up to token {spans[-1, 1]} of {len(plain.tokens[index])}"
                raise ArtifactError("units", problem, "cut the units again")
        counts = np.array([len(spans) for spans in tokens], np.int64)
        ends = len(tokens) + np.cumsum(counts)
        return UnitTexts(plain.tokens, plain.documents, plain.groups, ends - counts, tokens, int(ends[-1]))

    def row_numbers(self, texts: UnitTexts, number: int) -> list[int]:
        """Rows of a group's texts, then of their units."""
        indices = texts.groups[number][1]
        units = [texts.unit_rows[index] + at for index in indices for at in range(len(texts.unit_tokens[index]))]
        return [*indices, *map(int, units)]

    def count(self, texts: UnitTexts) -> int:
        """Texts and units."""
        return texts.size

    def features(self, texts: UnitTexts, number: int) -> Features:
        """Pad one group. Of texts that have units also: `having` (n,) which, `numbers` (n, L) the unit of each token,
        -1 for none, and `there` (m,) the places of units among n times the most that a text has."""
        features, indices = super().features(texts, number), texts.groups[number][1]
        having = [line for line, index in enumerate(indices) if len(texts.unit_tokens[index])]
        if not having:
            return features
        spans = [texts.unit_tokens[indices[line]] for line in having]
        numbers = np.full((len(having), features["input_ids"].shape[1]), -1, np.int64)
        for line, passage_spans in enumerate(spans):
            for unit, (first, stop) in enumerate(passage_spans):
                numbers[line, first:stop] = unit
        sizes = np.array([len(passage_spans) for passage_spans in spans])
        there = np.flatnonzero(np.arange(sizes.max()) < sizes[:, None])
        arrays = {"having": np.array(having), "numbers": numbers, "there": there}
        return features | {name: torch.from_numpy(array) for name, array in arrays.items()}

    def encode(self, texts: UnitTexts, number: int, seed: Sequence[int]) -> Tensor:
        """Vectors of one group's texts, then of their units, float32."""
        side, indices = texts.groups[number]
        set_random(seed, number)
        features = features_on(texts.features[number], self.device)
        vectors, states = self.model.encode_tokens(features, side)
        if "having" not in features:
            return vectors.float()
        most = max(len(texts.unit_tokens[index]) for index in indices)
        pooled, _ = pool_units(states[features["having"]], features["numbers"], most)
        units = pooled.flatten(0, 1)[features["there"]]
        for project in self.model.tower(side).projections if self.head else ():
            units = project(units)
        return torch.cat([vectors.float(), units])

    def numbers(self, batch: Any, texts: UnitTexts) -> dict[str, np.ndarray]:
        """Look up units, too: `unit_rows` of this process's positives in the representation, (b, U); `valid` (B, U)
        and `labels` (B,) of the whole micro-batch's."""
        positives = batch.documents[:, 0]
        sizes = self.table.first.sizes_of(positives)
        most, indices = max(1, int(sizes.max())), len(texts.documents) + texts.documents[:, 0]
        rows = np.zeros((len(indices), most), np.int64)
        for line, index in enumerate(indices):
            count = len(texts.unit_tokens[index])
            rows[line, :count] = texts.unit_rows[index] + np.arange(count)
        valid, labels = np.arange(most) < sizes[:, None], self.table.labels_of(self.examples, batch.rows, positives)
        return super().numbers(batch, texts) | {"unit_rows": rows, "valid": valid, "labels": labels}

    def view(self, share: Share, leaf: Tensor, group: Group) -> EncodedUnits:
        """Vectors for the objective, units included."""
        rows, valid, labels = (on_device(share.numbers[name], leaf.device) for name in ("unit_rows", "valid", "labels"))
        units, whole = Units(group.gather(leaf[rows]), valid, labels), super().view(share, leaf, group)
        return EncodedUnits(**{entry.name: getattr(whole, entry.name) for entry in fields(whole)}, units=units)


class UnitLosses(Addition):
    """R1 and R2 over units (inputs `units`, `labels`)."""

    @classmethod
    def asked(cls, stage: Stage, params: FinetuneParams) -> bool:
        """Apply where the settings have `berm`."""
        return together(stage, "berm", _berm(params) is not None, "units", "labels")

    @property
    def settings(self) -> BermSettings:
        """Forms and weights of the losses."""
        settings = _berm(self.params)
        assert settings is not None, "it was asked for"
        return settings

    def forward(self, forward: Forward) -> UnitForward:
        """Units are pooled from the pass of their passages."""
        model, examples = forward.model, forward.examples
        check_space(model, self.settings.unit_space)
        folders = self.stage.path("units"), self.stage.path("labels")
        table = load_units(*folders, examples, model, self.params.title_join)
        head = self.settings.unit_space == "head"
        return UnitForward(model, examples, forward.device, forward.chunk, table=table, head=head)

    def objective(self, objective: Objective, prepared: Prepared) -> Stack:
        """The stage's own loss, and the two over units."""
        terms = BermTerms(self.settings, self.params.schedule.first_step)
        return Stack({"main": (1.0, objective), "berm": (1.0, terms)})


def _berm(params: FinetuneParams) -> BermSettings | None:
    keys = UnitKeys.of(params.settings)
    return None if keys is None else keys.berm


TRAINING = PaperTraining((UnitLosses,), objectives={"spans": lambda settings: Objective()}, kinds={"reader": READER})
