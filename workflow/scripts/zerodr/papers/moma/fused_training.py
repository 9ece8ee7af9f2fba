"""Training queries with the documents that augment them: how they are read, batched, encoded and evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from zerodr.collections.memories import MemoryTexts
from zerodr.config.base import Settings
from zerodr.papers.moma.attention_labels import banned_documents
from zerodr.papers.moma.fusion_encoder import FusionContract, FusionEncoder, Grounded
from zerodr.papers.moma.grounding import Grounding, read_grounding
from zerodr.papers.moma.settings import MemorySettings
from zerodr.training.data.examples import Examples
from zerodr.training.data.grouping import length_groups
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.dev import evaluate_tokens
from zerodr.training.loop.gradcache import WASTE, Forward, Texts


class FusedData(Settings):
    """Where the augmentation of a stage's training queries stands; JSON values, part of a job."""

    rankings: str
    """File with the ranking of the mixture for every training query."""
    memories: dict[str, str]
    """Folder of each memory."""
    joins: dict[str, str | None]
    """What stands between title and text, by memory."""
    source: str
    """Name of the source."""
    memory: MemorySettings
    """How many documents of which length."""


@dataclass(frozen=True)
class GroundedExamples(Examples):
    """Mined queries with their augmentation documents."""

    grounding: Grounding | None = None

    @property
    def given(self) -> Grounding:
        """The augmentation, which these examples always have."""
        assert self.grounding is not None, "made by `ground`"
        return self.grounding


def ground(examples: Examples, data: FusedData, source: Path, split: str) -> GroundedExamples:
    """The examples with the first K documents of each query's ranking.

    Raises:
        ArtifactError: a query has no ranking, or a document stands in no memory.
    """
    memory = data.memory
    texts = MemoryTexts({name: Path(folder) for name, folder in data.memories.items()}, data.joins)
    banned = banned_documents(source, split, data.source) if memory.exclude_positives else None
    queries = pa.array(examples.queries.to_pylist(), pa.string())
    grounding = read_grounding(Path(data.rankings), queries, memory.documents, texts, banned)
    own = {field.name: getattr(examples, field.name) for field in fields(examples)}
    return GroundedExamples(**own, grounding=grounding)


def prepare_model(model: FusionEncoder, memory: MemorySettings) -> None:
    """Tell a model how it is augmented."""
    model.fusion = FusionContract(documents=memory.documents, document_tokens=memory.document_tokens)
    model.stop_gradient = memory.stop_gradient


def grounded_tokens(model: FusionEncoder, examples: GroundedExamples, rows: np.ndarray) -> list[Any]:
    """Tokens of queries and of their augmentation documents; each distinct document is tokenised once."""
    queries = model.tokenize(examples.texts_of_queries(rows), "query")
    lists = [examples.given.of(int(row)) for row in rows]
    distinct = np.unique(np.concatenate([*lists, np.zeros(0, np.int32)]))
    texts = examples.given.texts.take(pa.array(distinct)).to_pylist()
    tokens = dict(zip(distinct.tolist(), model.tokenize_augmentations(texts), strict=True))
    return [
        Grounded(query, [tokens[number] for number in own.tolist()]) for query, own in zip(queries, lists, strict=True)
    ]


@dataclass
class FusedForward(Forward):
    """How training encodes fused queries and plain documents. `chunk` counts texts, augmentation documents included."""

    def texts(self, batch: Any) -> Texts:
        """Tokenise the distinct texts of (a process's part of) a batch."""
        distinct, inverse = np.unique(batch.documents, return_inverse=True)
        queries = grounded_tokens(self.model, self.examples, batch.rows)
        documents = self.model.tokenize(self.examples.texts_of_documents(distinct), "document")
        tokens, first = [*queries, *documents], len(queries)
        groups = self.passes(tokens, range(first), range(first, len(tokens)))
        return Texts(tokens, inverse.reshape(batch.documents.shape), groups)

    def passes(
        self, tokens: Sequence[Any], queries: Sequence[int], documents: Sequence[int]
    ) -> list[tuple[str, list[int]]]:
        """Queries and documents never share a pass: only queries are fused."""
        waste = WASTE[torch.device(self.device).type]
        most = max([1, *(1 + len(tokens[place].documents) for place in queries)])
        few = None if self.chunk is None else max(1, self.chunk // most)
        return [
            (side, [places[index] for index in group])
            for side, places, chunk in (("query", queries, few), ("document", documents, self.chunk))
            if places
            for group in length_groups([len(tokens[place]) for place in places], waste, chunk)
        ]


def evaluate_fused(
    model: FusionEncoder, examples: GroundedExamples, rows: np.ndarray, negatives: int, device: str, group: Group
) -> dict[str, float]:
    """As `evaluate_dev`, of queries with their augmentation."""
    return evaluate_tokens(model, grounded_tokens(model, examples, rows), examples, rows, negatives, device, group)
