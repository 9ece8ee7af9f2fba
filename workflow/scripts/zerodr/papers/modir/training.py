"""What a fine-tuning stage needs to adapt to a target: its texts, batches of both domains, the adversary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from zerodr.config.training import TrainingSettings
from zerodr.papers.modir.domain_batches import DomainForward, DomainStream
from zerodr.papers.modir.objective import Adversary
from zerodr.papers.modir.settings import AdversarySettings, TargetTexts
from zerodr.papers.modir.target_texts import DrawnTexts, TargetStream, check_size, draw_texts, read_target
from zerodr.training.data.batches import Stream
from zerodr.training.loop.gradcache import Forward
from zerodr.training.objectives.base import Objective, Stack
from zerodr.training.optimization.schedules import Schedule

RANKING, ADVERSARY = "ranking", "adversary"


@dataclass
class Adapting:
    """Makes the parts of an adversarial stage.

    Attributes:
        name: of the stage, for messages.
        settings: of the adversary; training: of the stage.
        first_step: steps of the chain before this stage.
        seed: words that random numbers come from.
        facts: counts of the target's texts, for lineage.
    """

    name: str
    settings: AdversarySettings
    training: TrainingSettings
    first_step: int
    seed: list[int]
    facts: dict[str, int] = field(default_factory=dict)

    def read(self, folders: Mapping[str, Path], how: Mapping[str, TargetTexts]) -> tuple[TargetStream, DrawnTexts]:
        """The order of the target's texts, and those that this stage takes.

        Raises:
            CollectionError: the target has no such queries, or fewer documents than a batch.
        """
        corpus = read_target(folders, how, self.settings.queries)
        batch = self.training.batch_queries
        check_size(", ".join(folders), corpus.sizes, batch)
        stream = TargetStream(
            corpus.sizes,
            batch,
            self.seed,
            self.settings.in_file_order,
            self.settings.restart,
            self.training.accumulation,
        )
        drawn = draw_texts(corpus, stream, self.training.steps)
        self.facts |= {
            "target_documents": corpus.sizes.documents,
            "target_queries": corpus.sizes.queries,
            "target_documents_empty": corpus.empty,
            "target_documents_used": len(drawn.numbers),
        }
        return stream, drawn

    def data(
        self, forward: Forward, source: Stream, target: tuple[TargetStream, DrawnTexts]
    ) -> tuple[DomainForward, DomainStream]:
        """How training encodes, and its batches."""
        stream, drawn = target
        made = DomainForward(forward.model, forward.examples, forward.device, forward.chunk, target=drawn)
        return made, DomainStream(source, stream)

    def objective(self, ranking: Objective, dimension: int, schedule: Schedule, parent: Path | None) -> Stack:
        """The ranking loss and the adversary side by side.

        Args:
            ranking: the stage's own objective.
            dimension: D of embeddings.
            schedule: of the learning rates.
            parent: model folder whose classifier this one goes on from.
        """
        adversary = Adversary(
            self.name,
            self.settings,
            self.training.batch_queries,
            dimension,
            self.seed,
            schedule,
            self.first_step,
            self.training.accumulation,
        )
        if parent is not None:
            adversary.go_on_from(parent)
        self.facts["queue_mib"] = round(adversary.queue.rows.numel() * adversary.queue.rows.element_size() / 2**20)
        return Stack({RANKING: (1.0, ranking), ADVERSARY: (1.0, adversary)})
