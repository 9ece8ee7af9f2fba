"""Add MoDIR to a fine-tuning stage: texts of a target in every step, and an adversary next to its loss.

A step's batch holds as many texts of the target as of the source, which pass the network together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from torch import Tensor

from zerodr.artifacts.stage import Stage
from zerodr.config.params import FinetuneParams
from zerodr.errors import ConfigError
from zerodr.papers.modir.objective import Adversary, EncodedDomains
from zerodr.papers.modir.settings import AdversarySettings, TargetKeys, TargetTexts, adversary_of
from zerodr.papers.modir.target_texts import DrawnTexts, TargetStream, check_size, draw_texts, read_target
from zerodr.training.additions import Addition, PaperTraining, Prepared
from zerodr.training.data.batches import Batch
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.engine import Batches
from zerodr.training.loop.gradcache import Forward, Share, Texts
from zerodr.training.objectives.base import Objective, Stack

RANKING, ADVERSARY = "ranking", "adversary"


@dataclass(frozen=True)
class DomainBatch(Batch):
    """A batch of the source with as many texts of the target.

    Attributes:
        target_documents: (B,) document numbers.
        target_queries: (B,) query numbers, or None.
    """

    target_documents: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    target_queries: np.ndarray | None = None

    def shard(self, number: int, shards: int) -> DomainBatch:
        """Return the `number`-th of `shards` equal slices, in order."""
        size = len(self) // shards
        cut = slice(number * size, (number + 1) * size)
        queries = None if self.target_queries is None else self.target_queries[cut]
        return _extended(DomainBatch, super().shard(number, shards), self.target_documents[cut], queries)


class DomainStream:
    """Batches of the source, each with the target's texts of its step."""

    def __init__(self, source: Batches, target: TargetStream) -> None:
        self.source, self.target = source, target

    def batch(self, step: int) -> DomainBatch:
        """Return the batch of step `step`, a pure function of it."""
        return _extended(DomainBatch, self.source.batch(step), self.target.documents(step), self.target.queries(step))


def _extended(kind: Any, base: Any, documents: Any, queries: Any) -> Any:
    """`base` as a `kind`, with what the target adds."""
    values = {one.name: getattr(base, one.name) for one in fields(base)}
    return kind(**values | {"target_documents": documents, "target_queries": queries})


@dataclass
class DomainForward(Forward):
    """Encodes the target's texts in the same passes as the source's; their rows follow those."""

    target: DrawnTexts | None = None

    def texts(self, batch: Any) -> Texts:
        """Tokenise the distinct texts of (a process's shard of) a batch, and the target's, documents first."""
        assert self.target is not None, "the forward needs the target's texts"
        source = super().texts(batch)
        documents = self.tokens(self.target.texts_of_documents(batch.target_documents), "document")
        asked = [] if batch.target_queries is None else self.target.texts_of_queries(batch.target_queries)
        queries = self.tokens(asked, "query")
        tokens, first = [*source.tokens, *documents, *queries], len(source.tokens)
        count, end = len(batch), first + len(documents)
        query_positions = [*range(count), *range(end, len(tokens))]
        return Texts(tokens, source.documents, self.passes(tokens, query_positions, range(count, end)))

    def view(self, share: Share, leaf: Tensor, group: Group) -> Any:
        """Gather the vectors of all processes, of both domains."""
        batch = share.batch.shard(group.rank, group.world)
        asked = batch.target_queries is not None
        first = len(leaf) - len(batch) * (1 + asked)
        documents, queries = leaf[first : first + len(batch)], leaf[first + len(batch) :]
        return _extended(
            EncodedDomains,
            super().view(share, leaf, group),
            group.gather(documents),
            group.gather(queries) if asked else None,
        )


class Adapting(Addition):
    """Adaptation to the collections of input `targets`. The output holds `adversary/classifier.safetensors`.

    Raises:
        CollectionError: the target has no such queries, or fewer documents than a batch.
    """

    def __init__(self, stage: Stage, params: FinetuneParams) -> None:
        super().__init__(stage, params)
        settings = adversary_of(params.settings)
        assert settings is not None, "it was asked for"
        self.settings: AdversarySettings = settings
        self.target: tuple[TargetStream, DrawnTexts] | None = None

    @classmethod
    def asked(cls, stage: Stage, params: FinetuneParams) -> bool:
        """Return whether the settings have an adversary."""
        named, folders = _texts_of(params), stage.folders("targets")
        if (adversary_of(params.settings) is None) != (not named):
            raise ConfigError(stage.spec.name(), "adversary and targets go together, found one of them", "give both")
        if set(folders) != set(named):
            problem = f"input `targets` has {sorted(folders)}, params.targets names {sorted(named)}"
            raise ConfigError(stage.spec.name(), problem, "give the same collections")
        if folders and stage.path("source").name in folders:
            raise ConfigError(stage.spec.name(), "source and target are the same collection", "choose another target")
        return adversary_of(params.settings) is not None

    def _texts(self) -> tuple[TargetStream, DrawnTexts]:
        """The order of the target's texts, and those that this stage takes; read once."""
        if self.target is None:
            training, folders = self.params.settings.training, self.stage.folders("targets")
            corpus = read_target(folders, _texts_of(self.params), self.settings.queries)
            check_size(", ".join(folders), corpus.sizes, training.batch_queries)
            order = self.settings.official, self.settings.restart, training.accumulation
            stream = TargetStream(corpus.sizes, training.batch_queries, self.seed, *order)
            self.target = stream, draw_texts(corpus, stream, training.steps)
            self.facts |= {
                "target_documents": corpus.sizes.documents,
                "target_queries": corpus.sizes.queries,
                "target_documents_empty": corpus.empty,
                "target_documents_used": len(self.target[1].numbers),
            }
        return self.target

    def forward(self, forward: Forward) -> DomainForward:
        """Encode texts of both domains together."""
        _, texts = self._texts()
        return DomainForward(forward.model, forward.examples, forward.device, forward.chunk, target=texts)

    def batches(self, batches: Batches) -> DomainStream:
        """Extend the source's batches by as many texts of the target."""
        stream, _ = self._texts()
        return DomainStream(batches, stream)

    def objective(self, objective: Objective, prepared: Prepared) -> Stack:
        """Combine the ranking loss and the adversary."""
        training = self.params.settings.training
        adversary = Adversary(
            self.stage.spec.name(),
            self.settings,
            training.batch_queries,
            prepared.model.contract.dimension,
            self.seed,
            prepared.schedule,
            self.params.schedule.first_step,
            training.accumulation,
            self.params.save_optimizer,
        )
        keys = TargetKeys.of(self.params)
        if keys is not None and keys.continue_classifier:
            adversary.go_on_from(self.stage.path("model"))
        rows = adversary.queue.rows
        self.facts["queue_mib"] = round(rows.numel() * rows.element_size() / 2**20)
        return Stack({RANKING: (1.0, objective), ADVERSARY: (1.0, adversary)})


def _texts_of(params: FinetuneParams) -> dict[str, TargetTexts]:
    """How the target's collections are read, by name."""
    keys = TargetKeys.of(params)
    return {} if keys is None else keys.targets


TRAINING = PaperTraining((Adapting,))
