"""What chains say: their stages, and which of these a model comes from."""

from __future__ import annotations

from typing import NamedTuple

from zerodr.config.bench import Bench
from zerodr.config.families import encoder_of, line_of
from zerodr.config.methods import TrainedMethod
from zerodr.config.recipes import INIT
from zerodr.config.stages import ChainStage, FinetuneStage, PretrainStage, TrainedSettings
from zerodr.config.starts import start_of
from zerodr.config.training import InitSettings
from zerodr.papers.ddr.settings import AssembleStage
from zerodr.papers.moma.settings import MemoryStage

SCOPE = "shared"


class Link(NamedTuple):
    """A model that a chain makes.

    Attributes:
        method: recipe or `recipe+variant` under whose name it stands.
        stage: `init`, a stage of the chain, or `<stage>.<step>` for a kept step.
        scope: `shared`, or the target that it is made for.
    """

    method: str
    stage: str
    scope: str = SCOPE

    @property
    def name(self) -> str:
        """`<method>@<stage>`, as rows, embeddings and candidates are named."""
        return f"{self.method}@{self.stage}"


class Lines:
    """The stages of a configuration's chains; only names and settings.

    Args:
        bench: the configuration.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def trained(self, method: str) -> TrainedSettings:
        """Settings of a trained method."""
        return self.bench.settings(method, TrainedSettings)

    def names(self) -> list[str]:
        """Trained methods, `recipe` and `recipe+variant`."""
        return [n for n, m in self.bench.methods.items() if isinstance(m, TrainedMethod) and not m.stage]

    def fine_tuning(self, method: str) -> list[str]:
        """Stages of a chain that learn from judgements."""
        chain = self.trained(method).chain
        return [name for name, stage in chain.items() if isinstance(stage, FinetuneStage)]

    def source_of(self, method: str) -> str:
        """The collection with supervision of a trained method."""
        return self.trained(method).source or self.bench.config.source or self.bench.scale.source

    def any_stage(self, link: Link) -> ChainStage:
        """Settings of a stage of any kind."""
        return self.trained(link.method).chain[link.stage]

    def assembly(self, link: Link) -> AssembleStage:
        """Settings of a stage that joins two models."""
        stage = self.any_stage(link)
        assert isinstance(stage, AssembleStage), f"{link.name} is trained"
        return stage

    def stage(self, link: Link) -> FinetuneStage:
        """Settings of a stage that learns from judgements."""
        stage = self.any_stage(link)
        assert isinstance(stage, FinetuneStage), f"{link.name} is pretraining"
        return stage

    def memory_stage(self, link: Link) -> MemoryStage | None:
        """Settings of a stage whose queries are augmented; None for other models."""
        stage = self.trained(link.method).chain.get(link.stage)
        return stage if isinstance(stage, MemoryStage) else None

    def pretraining(self, link: Link) -> PretrainStage:
        """Settings of a stage that learns from texts."""
        stage = self.any_stage(link)
        assert isinstance(stage, PretrainStage), f"{link.name} is fine-tuning"
        return stage

    def before(self, link: Link) -> str:
        """The name of the model that a stage starts from: as it says, or the stage before, `init` before the first.

        Of an assembly, the stage of its relevance module.
        """
        names, stage = [INIT, *self.trained(link.method).chain], self.trained(link.method).chain[link.stage]
        if isinstance(stage, AssembleStage):
            return stage.rem
        return stage.after or names[names.index(link.stage) - 1]

    def line(self, method: str, stage: str) -> list[str]:
        """The stages that a model comes from, in the chain's order, its own last; nothing for `init`."""
        chain, stage = self.trained(method).chain, stage.partition(".")[0]
        found, waiting = set[str](), [stage]
        while waiting:
            name = waiting.pop().partition(".")[0]
            if name == INIT or name in found:
                continue
            found.add(name)
            own = chain[name]
            waiting.append(self.before(Link(method, name)))
            waiting += [own.dam] if isinstance(own, AssembleStage) and self.start(own.dam) is None else []
        return [name for name in chain if name in found]

    def encoder(self, method: str) -> InitSettings:
        """Settings of the initial model; what a recipe that starts from another leaves out is the other's."""
        return encoder_of(method, self.bench.methods)

    def start(self, init: str) -> tuple[str, str] | None:
        """Recipe and stage that `init: <recipe>/<stage>` names; None where it names none of ours."""
        return start_of(init, self.bench.methods)

    def origin(self, method: str) -> InitSettings:
        """Settings of the model from scratch or of the checkpoint that a chain of recipes begins with."""
        return line_of(method, self.bench.methods)[-1]
