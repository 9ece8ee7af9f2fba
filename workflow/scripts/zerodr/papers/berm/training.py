"""Training with units: their vectors from the forward pass of the passages, and the two losses of BERM as an objective.

A unit's vector is the mean of its tokens' last hidden states. It is one more row of the representation, so gradient
caching, accumulation and several processes treat units as they treat texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor
from torch.nn import functional

from zerodr.artifacts.parquet import open_parquet
from zerodr.errors import ArtifactError, ConfigError, ModelError
from zerodr.papers.berm.label_units import LABELS
from zerodr.papers.berm.label_units import SCHEMA as LABEL_SCHEMA
from zerodr.papers.berm.losses import balanced, labelled, matching_vector, pool_units, r1, r2, unit_scores
from zerodr.papers.berm.segment_units import SCHEMA as UNIT_SCHEMA
from zerodr.papers.berm.segment_units import UNITS, made_for, read_statistics
from zerodr.papers.berm.settings import BalanceSettings, BermSettings
from zerodr.training.data.examples import Examples, Ragged
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import Forward, Share, Texts, set_random
from zerodr.training.objectives.base import Encoded, Objective, Units


@dataclass(frozen=True)
class UnitTable:
    """Units of the examples' positives.

    Attributes:
        first, stop: tokens [first, stop) of each document's units, by document number; empty lists for documents that
            are nobody's positive.
        labels: the essential unit of each positive, in the order of `Examples.positives`.
    """

    first: Ragged
    stop: Ragged
    labels: np.ndarray

    def label(self, examples: Examples, row: int, document: int) -> int:
        """The essential unit of a query's positive."""
        start = int(examples.positives.offsets[row])
        return int(self.labels[start + int(np.flatnonzero(examples.positives[row] == document)[0])])


def load_units(units: Path, labels: Path, examples: Examples, model: Any, title_join: str | None) -> UnitTable:
    """Units and labels of the examples' positives, by id.

    Args:
        units: folder of segment_units.
        labels: folder of label_units, made from these units.
        model: the bi-encoder that is trained.
        title_join: of this training.

    Raises:
        ArtifactError: made for other tokens than this training reads, or without one of its pairs.
        ModelError: a decoder's vectors, which have no tokens of the passage.
    """
    check_tokens(units, labels, model, title_join)
    with open_parquet(units / UNITS, UNIT_SCHEMA) as file:
        table = file.read(columns=["document", "token_start", "token_end"])
    wanted = np.unique(examples.positives.values)
    rows = _found(units / UNITS, examples.documents.take(pa.array(wanted)), table["document"], "positive")
    first, stop = (
        _spread(table[name].take(rows), wanted, len(examples.documents)) for name in ("token_start", "token_end")
    )
    return UnitTable(first, stop, _labels(labels / LABELS, examples))


def check_tokens(units: Path, labels: Path, model: Any, title_join: str | None) -> None:
    """Units, labels and training read the same tokens.

    Raises:
        ArtifactError, ModelError: see `load_units`.
    """
    if model.contract.pooling == "decoder_first":
        raise ModelError(
            model.contract.source,
            "gives the decoder's state, from which no unit can be pooled",
            "take a model with pooling cls or mean, or leave berm out",
        )
    expected = made_for(model.contract, model.tokenizer, title_join)
    for folder in (units, labels):
        found = read_statistics(folder)["made_for"]
        differs = [key for key, value in expected.items() if found.get(key) != value]
        if differs:
            key = differs[0]
            raise ArtifactError(
                folder,
                f"was made for {key} {found.get(key)!r}, this training has {expected[key]!r}: "
                "units would cover other tokens",
                "cut and label the units for this model",
            )


def _spread(lists: pa.ChunkedArray, wanted: np.ndarray, documents: int) -> Ragged:
    """Lists of the documents `wanted` (ascending numbers) as lists of all documents."""
    column = lists.combine_chunks()
    column = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    sizes = np.zeros(documents, np.int64)
    sizes[wanted] = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    return Ragged(column.flatten().to_numpy().astype(np.int64), np.r_[0, np.cumsum(sizes)])


def _found(path: Path, wanted: pa.Array, known: pa.ChunkedArray, kind: str) -> pa.Array:
    rows = pc.index_in(wanted, value_set=known)
    if rows.null_count:
        first = wanted.filter(pc.is_null(rows))[0]
        raise ArtifactError(
            path,
            f"lacks {rows.null_count} of the {len(wanted)} {kind}s of this training, the first is {first}",
            "make it from this source and split",
        )
    return rows


def _labels(path: Path, examples: Examples) -> np.ndarray:
    """Label of each positive, in the examples' order."""
    with open_parquet(path, LABEL_SCHEMA) as file:
        table = file.read(columns=["query", "document", "label"])
    queries = examples.queries.take(pa.array(np.repeat(np.arange(len(examples)), examples.positives.sizes)))
    documents = examples.documents.take(pa.array(examples.positives.values))
    known = pc.binary_join_element_wise(table["query"], table["document"], "\x1f")
    wanted = pc.binary_join_element_wise(queries.cast(pa.string()), documents.cast(pa.string()), "\x1f")
    return table["label"].to_numpy()[_found(path, wanted, known, "pair").to_numpy()]


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
    """How a bi-encoder is trained whose objective sees units."""

    table: UnitTable = field(kw_only=True)
    head: bool = field(kw_only=True)

    def texts(self, batch: Any) -> UnitTexts:
        """Texts of a batch; those that are some query's positive have units."""
        made, nothing = super().texts(batch), np.zeros((0, 2), np.int64)
        tokens = [nothing] * len(made.tokens)
        for place, document in zip(len(batch) + made.documents[:, 0], batch.documents[:, 0].tolist(), strict=True):
            own = np.stack([self.table.first[document], self.table.stop[document]], 1)
            tokens[place] = own
            if len(own) and own[-1, 1] > len(made.tokens[place]):
                name = self.examples.document_ids(np.array([document]))[0]
                raise ArtifactError(
                    "units",
                    f"document {name} has a unit up to token {own[-1, 1]} of {len(made.tokens[place])}",
                    "cut the units again",
                )
        counts = np.array([len(own) for own in tokens], np.int64)
        ends = len(tokens) + np.cumsum(counts)
        return UnitTexts(made.tokens, made.documents, made.groups, ends - counts, tokens, int(ends[-1]))

    def rows(self, texts: UnitTexts, number: int) -> list[int]:
        """Places of a group's texts, then the rows of their units."""
        places = texts.groups[number][1]
        units = [texts.unit_rows[place] + at for place in places for at in range(len(texts.unit_tokens[place]))]
        return [*places, *map(int, units)]

    def count(self, texts: UnitTexts) -> int:
        """Texts and units."""
        return texts.size

    def encode(self, texts: UnitTexts, number: int, seed: Sequence[int]) -> Tensor:
        """Vectors of one group's texts, then of their units, float32."""
        side, places = texts.groups[number]
        set_random(seed, number)
        features = self.model.pad([texts.tokens[place] for place in places])
        features = {key: value.to(self.device) for key, value in features.items()}
        vectors, states = self.model.encode_tokens(features, side)
        having = [line for line, place in enumerate(places) if len(texts.unit_tokens[place])]
        if not having:
            return vectors.float()
        spans = [texts.unit_tokens[places[line]] for line in having]
        units = self._pool(states[torch.tensor(having, device=states.device)], spans, side)
        return torch.cat([vectors.float(), units])

    def _pool(self, states: Tensor, spans: list[np.ndarray], side: Any) -> Tensor:
        """Vectors of the units of n passages, one below the other. states (n, L, d)."""
        numbers = np.full(states.shape[:2], -1, np.int64)
        for line, own in enumerate(spans):
            for number, (first, stop) in enumerate(own):
                numbers[line, first:stop] = number
        most = max(len(own) for own in spans)
        pooled, valid = pool_units(states, torch.from_numpy(numbers).to(states.device), most)
        units = pooled[valid]
        for project in self.model.tower(side).projections if self.head else ():
            units = project(units)
        return units

    def view(self, share: Share, leaf: Tensor, group: Group) -> Encoded:
        """What the objective is shown, units included."""
        batch, texts, table = share.batch, share.texts, self.table
        sizes = table.first.sizes[batch.documents[:, 0]]
        most, own = max(1, int(sizes.max())), len(texts.documents)
        places = own + texts.documents[:, 0]
        rows = np.zeros((own, most), np.int64)
        for line, place in enumerate(places):
            count = len(texts.unit_tokens[place])
            rows[line, :count] = texts.unit_rows[place] + np.arange(count)
        valid = np.arange(most) < sizes[:, None]
        labels = [
            table.label(self.examples, int(row), int(document))
            for row, document in zip(batch.rows, batch.documents[:, 0], strict=True)
        ]
        vectors = group.gather(leaf[torch.from_numpy(rows).to(leaf.device)])
        units = Units(vectors, torch.from_numpy(valid).to(leaf.device), torch.tensor(labels, device=leaf.device))
        return replace(super().view(share, leaf, group), units=units)


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
        self._seen: dict[str, float] = {}

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """`{"r1": scalar, "r2": scalar}` with weights applied, those of weight 0 left out."""
        if batch.units is None:
            raise ConfigError("berm", "the batch has no units of its positives", "give the stage units and labels")
        own, units = self.settings, batch.units
        w_r1, w_r2 = own.weights(self.first_step + batch.step)
        passages, how = batch.documents[:, 0], (own.similarity, own.temperature)
        terms = {}
        if w_r1:
            terms["r1"] = w_r1 * r1(passages, units.vectors, units.valid, own.how.over_units, *how)
        if w_r2:
            terms["r2"] = w_r2 * r2(
                batch.queries, passages, units.vectors, units.valid, units.labels, own.how.softmaxes, *how
            )
        with torch.no_grad():
            self._seen = watch(batch.queries, passages, units) | {"w_r1": w_r1, "w_r2": w_r2}
        return terms

    def on_step(self, finished: int) -> dict[str, float]:
        """Measures that tell a solution from a trivial one: R1 is 0, too, where all units are one vector."""
        return self._seen


def watch(queries: Tensor, passages: Tensor, units: Units) -> dict[str, float]:
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
            between[many].sum() / pairs,
        ]
    )
    names = ("balanced_share", "labelled_share", "unit_accuracy", "passage_norm", "unit_norm", "unit_cosine")
    return dict(zip(names, values.tolist(), strict=True))
