"""Add MoDIR to a fine-tuning stage: texts of a target in every step, and an adversary next to its loss."""

from pathlib import Path

from zerodr.artifacts.stage import Stage
from zerodr.config.params import FinetuneParams
from zerodr.errors import ConfigError
from zerodr.papers.modir.domain_batches import DomainForward, DomainStream
from zerodr.papers.modir.objective import Adversary
from zerodr.papers.modir.settings import AdversarySettings, TargetParams, adversary_of
from zerodr.papers.modir.target_texts import DrawnTexts, TargetStream, check_size, draw_texts, read_target
from zerodr.training.additions import Addition, PaperTraining, Prepared
from zerodr.training.loop.engine import Batches
from zerodr.training.loop.gradcache import Forward
from zerodr.training.objectives.base import Objective, Stack

RANKING, ADVERSARY = "ranking", "adversary"


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
        named = params.targets if isinstance(params, TargetParams) else {}
        folders = _folders(stage)
        if set(folders) != set(named):
            raise ConfigError(
                stage.spec.name(),
                f"input `targets` has {sorted(folders)}, params.targets names {sorted(named)}",
                "give the same collections",
            )
        if folders and stage.path("source").name in folders:
            raise ConfigError(stage.spec.name(), "source and target are the same collection", "choose another target")
        return adversary_of(params.settings) is not None

    def _texts(self) -> tuple[TargetStream, DrawnTexts]:
        """The order of the target's texts, and those that this stage takes; read once."""
        if self.target is None:
            assert isinstance(self.params, TargetParams), "params of fine-tuning have targets"
            training, folders = self.params.settings.training, _folders(self.stage)
            corpus = read_target(folders, self.params.targets, self.settings.queries)
            check_size(", ".join(folders), corpus.sizes, training.batch_queries)
            stream = TargetStream(
                corpus.sizes,
                training.batch_queries,
                self.seed,
                self.settings.in_file_order,
                self.settings.restart,
                training.accumulation,
            )
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
        texts = self._texts()[1]
        return DomainForward(forward.model, forward.examples, forward.device, forward.chunk, target=texts)

    def batches(self, batches: Batches) -> DomainStream:
        """Extend the source's batches by as many texts of the target."""
        return DomainStream(batches, self._texts()[0])

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
        )
        if isinstance(self.params, TargetParams) and self.params.continue_classifier:
            adversary.go_on_from(self.stage.path("model"))
        rows = adversary.queue.rows
        self.facts["queue_mib"] = round(rows.numel() * rows.element_size() / 2**20)
        return Stack({RANKING: (1.0, objective), ADVERSARY: (1.0, adversary)})


def _folders(stage: Stage) -> dict[str, Path]:
    """Folders of the target's collections by name."""
    given = stage.paths("targets") if "targets" in stage.spec.inputs else []
    return {path.parent.name: path.parent for path in given}


TRAINING = PaperTraining((Adapting,))
