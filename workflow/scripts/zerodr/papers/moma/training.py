"""Extend a fine-tuning stage for MoMA: queries with the documents that augment them, encoded and evaluated so."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from zerodr.artifacts.stage import Stage
from zerodr.config.params import FinetuneParams
from zerodr.errors import ConfigError
from zerodr.papers.moma.augmented_encoder import AugmentedEncoder, FusionContract, Grounded
from zerodr.papers.moma.grounding import Grounding, ground
from zerodr.papers.moma.joined_encoder import load_augmented
from zerodr.papers.moma.losses import attention_distillation
from zerodr.papers.moma.settings import AugmenterObjective, MemoryKeys, MemorySettings, MemoryStage
from zerodr.training.additions import Addition, PaperTraining, together
from zerodr.training.data.batches import WASTE, length_groups
from zerodr.training.data.examples import Examples
from zerodr.training.distributed.processes import Group
from zerodr.training.kinds import ModelKind
from zerodr.training.loop.dev import evaluate_tokens
from zerodr.training.loop.gradcache import Forward, Texts
from zerodr.training.objectives.base import Encoded, Objective
from zerodr.training.objectives.ranking import InfoNCE, teacher_scores


@dataclass(frozen=True)
class GroundedExamples(Examples):
    """Mined queries with their augmentation documents."""

    grounding: Grounding | None = None

    @property
    def given(self) -> Grounding:
        """The augmentation, which these examples always have."""
        assert self.grounding is not None, "made by `ground`"
        return self.grounding


class FusedQueries(Addition):
    """Queries augmented with the first documents of their rankings (inputs `rankings`, `memories`)."""

    @classmethod
    def asked(cls, stage: Stage, params: FinetuneParams) -> bool:
        """Whether the stage trains a main model with memories."""
        given = together(stage, "memory", isinstance(params.settings, MemoryStage), "rankings", "memories")
        folders, joins = sorted(stage.folders("memories")), sorted(_joins(params))
        if given and folders != joins:
            problem = f"input `memories` has {folders}, params.joins names {joins}"
            raise ConfigError(stage.spec.name(), problem, "give the same memories")
        return given

    @property
    def memory(self) -> MemorySettings:
        """Number and length of a query's documents."""
        assert isinstance(self.params.settings, MemoryStage), "it was asked for"
        return self.params.settings.memory

    def kind(self, kind: ModelKind) -> ModelKind:
        """Return the kind of a model that reads documents with a query."""
        return replace(kind, load=load_augmented, forward=FusedForward, evaluate=evaluate_fused)

    def examples(self, examples: Examples, model: AugmentedEncoder) -> GroundedExamples:
        """With the first K documents of each query's ranking; the model's `fusion` records how many.

        Raises:
            ArtifactError: a query has no ranking, or a document is in no memory.
        """
        memory, source = self.memory, self.stage.path("source")
        limits = {"documents": memory.documents, "document_tokens": memory.document_tokens}
        model.augment_with(FusionContract(**limits, exclude_self=memory.exclude_self))
        judged = (source, self.params.source_split, source.name) if memory.exclude_positives else None
        queries = pa.array(examples.queries.to_pylist(), pa.string())
        grounding = ground(self.stage, queries, memory.documents, _joins(self.params), judged)
        values = {field.name: getattr(examples, field.name) for field in fields(examples)}
        return GroundedExamples(**values, grounding=grounding)


def _joins(params: FinetuneParams) -> dict[str, str | None]:
    keys = MemoryKeys.of(params)
    return {} if keys is None else keys.joins


@dataclass
class FusedForward(Forward):
    """Forward pass over fused queries and plain documents. `chunk` counts texts, with augmentation documents."""

    def grounded(self, examples: GroundedExamples, rows: np.ndarray) -> list[Grounded]:
        """Tokenise queries and their augmentation documents."""
        queries = self.tokens(examples.texts_of_queries(rows), "query")
        lists = [examples.given.of(int(row)) for row in rows]
        distinct = np.unique(np.concatenate([*lists, np.zeros(0, np.int32)]))
        texts = examples.given.texts.take(pa.array(distinct)).to_pylist()
        ids = self.shared.of(self.model.tokenizer, self.model.augmentation_call(), texts)
        tokens = dict(zip(distinct.tolist(), ids, strict=True))
        pairs = zip(queries, lists, strict=True)
        return [Grounded(query, [tokens[number] for number in numbers.tolist()]) for query, numbers in pairs]

    def texts(self, batch: Any) -> Texts:
        """Tokenise the distinct texts of (a process's part of) a batch."""
        distinct, inverse = np.unique(batch.documents, return_inverse=True)
        queries = self.grounded(self.examples, batch.rows)
        documents = self.tokens(self.examples.texts_of_documents(distinct), "document")
        tokens, first = [*queries, *documents], len(queries)
        groups = self.passes(tokens, range(first), range(first, len(tokens)))
        return Texts(tokens, inverse.reshape(batch.documents.shape), groups)

    def passes(
        self, tokens: Sequence[Any], queries: Sequence[int], documents: Sequence[int]
    ) -> list[tuple[str, list[int]]]:
        """Queries and documents never share a pass: only queries are fused."""
        waste = WASTE[torch.device(self.device).type]
        most = max([1, *(1 + len(tokens[position].documents) for position in queries)])
        few = None if self.chunk is None else max(1, self.chunk // most)
        return [
            (side, [positions[index] for index in group])
            for side, positions, chunk in (("query", queries, few), ("document", documents, self.chunk))
            if positions
            for group in length_groups([len(tokens[position]) for position in positions], waste, chunk)
        ]


def evaluate_fused(
    forward: FusedForward, examples: GroundedExamples, rows: np.ndarray, negatives: int, group: Group
) -> dict[str, float]:
    """Evaluate like `evaluate_dev`, with augmented queries."""
    return evaluate_tokens(forward, forward.grounded(examples, rows), examples, rows, negatives, group)


@dataclass
class AttentionDistillation(Objective):
    """ADist: the main model's attention over the K documents that were retrieved (MoMA section 5.3).

    A query's documents are a judged positive, then the K; the teacher's scores of the K are attention.
    """

    settings: AugmenterObjective

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """`{"adist": scalar}`, with `labels` also `{"info_nce": scalar}`."""
        scores, how = batch.document_scores(), self.settings
        distillation = attention_distillation(
            scores[:, 1:], teacher_scores(batch)[:, 1:], how.teacher_temperature, how.student_temperature, how.reduction
        )
        if not how.labels:
            return {"adist": distillation}
        return {"adist": distillation} | InfoNCE(False, True, how.inverse_temperature)(batch)


TRAINING = PaperTraining((FusedQueries,), {"adist": AttentionDistillation})
