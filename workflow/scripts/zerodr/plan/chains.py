"""Chains of trained methods: which stage makes which model, from what.

A stage that a variant has in common with its recipe, with all before it, is made once, under the recipe's name. A
recipe that starts from another's stage (`init: dpr/ep0`) and changes nothing about the encoder has no `init` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from zerodr.config.bench import Bench
from zerodr.config.methods import TrainedMethod
from zerodr.config.recipes import INIT
from zerodr.config.trained import ChainStage, FinetuneStage, PretrainStage, TrainedSettings
from zerodr.config.training import InitSettings
from zerodr.config.units import UnitSettings
from zerodr.plan import paths

SCOPE = "shared"
PREVIOUS, NONE = "previous", "none"


class Link(NamedTuple):
    """A model that a chain makes.

    Attributes:
        method: recipe or `recipe+variant` under whose name it stands.
        stage: `init`, a stage of the chain, or `<stage>.<step>` for a kept step.
    """

    method: str
    stage: str

    @property
    def name(self) -> str:
        """`<method>@<stage>`, as rows, embeddings and candidates are named."""
        return f"{self.method}@{self.stage}"


class Chains:
    """The chains of a configuration; only names and settings.

    Args:
        bench: the configuration.
        targets: names of the collections that models are adapted to.
    """

    def __init__(self, bench: Bench, targets: Sequence[str] = ()) -> None:
        self.bench, self.targets = bench, tuple(targets)

    # ---- looking things up -------------------------------------------------------------------------------------
    def trained(self, method: str) -> TrainedSettings:
        """Settings of a trained method."""
        return self.bench.settings(method, TrainedSettings)

    def names(self) -> list[str]:
        """Trained methods, `recipe` and `recipe+variant`."""
        return [n for n, m in self.bench.methods.items() if isinstance(m, TrainedMethod) and not m.stage]

    def source_of(self, method: str) -> str:
        """The collection with supervision of a trained method."""
        return self.trained(method).source or self.bench.config.source or self.bench.scale.source

    def any_stage(self, link: Link) -> ChainStage:
        """Settings of a stage of either kind."""
        return self.trained(link.method).chain[link.stage]

    def stage(self, link: Link) -> FinetuneStage:
        """Settings of a stage that learns from judgements."""
        stage = self.any_stage(link)
        assert isinstance(stage, FinetuneStage), f"{link.name} is pretraining"
        return stage

    def pretraining(self, link: Link) -> PretrainStage:
        """Settings of a stage that learns from texts."""
        stage = self.any_stage(link)
        assert isinstance(stage, PretrainStage), f"{link.name} is fine-tuning"
        return stage

    def corpora(self, link: Link) -> list[str]:
        """Collections that a pretraining stage reads, sorted; gated ones that are not to be had are left out."""
        asked = set(self.pretraining(link).corpora)
        names = {self.source_of(link.method)} if "source" in asked else set()
        names |= set(self.targets) if "targets" in asked else set()
        rows = self.bench.collections.values()
        names |= {row.name for row in rows if asked & {row.name, row.column, *row.groups}}
        return sorted(n for n in names if self.bench.collections[n].access == "public" or n in self.bench.config.gated)

    def before(self, link: Link) -> str:
        """The name of the stage before, `init` before the first."""
        names = [INIT, *self.trained(link.method).chain]
        return names[names.index(link.stage) - 1]

    def encoder(self, method: str) -> InitSettings:
        """Settings of the initial model; what a recipe that starts from another leaves out is the other's."""
        own = self.trained(method).encoder
        parent = self.parent_of(own.init)
        if parent is None:
            return own
        changes = own.model_dump(include=own.model_fields_set)
        return self.encoder(parent.method).model_copy(update=changes)

    def parent_of(self, init: str) -> Link | None:
        """The model that `init: <recipe>/<stage>` names; None where `init` names none of ours."""
        method, _, stage = init.rpartition("/")
        return self.link(f"{method}@{stage}") if f"{method}@{stage}" in self.bench.methods else None

    def origin(self, method: str) -> InitSettings:
        """Settings of the model from scratch or of the checkpoint that a chain of recipes begins with."""
        encoder = self.encoder(method)
        parent = self.parent_of(encoder.init)
        return encoder if parent is None else self.origin(parent.method)

    # ---- who makes what ----------------------------------------------------------------------------------------
    def link(self, name: str) -> Link:
        """The one model that a row's name stands for: `dpr` -> (dpr, ep0), `ance@init` -> (dpr, ep0)."""
        trained = self.bench.methods[name]
        assert isinstance(trained, TrainedMethod), f"{name} is not trained"
        method, stage = name.partition("@")[0], trained.last
        if stage == INIT:
            encoder = self.encoder(method)
            parent = self.parent_of(encoder.init)
            if parent is not None and self.encoder(parent.method).model_copy(update={"init": encoder.init}) == encoder:
                return parent
        return Link(self._maker(method, lambda m: self.history(m, stage)), stage)

    def parent(self, link: Link) -> Link:
        """The model that a stage starts from."""
        return self.link(f"{link.method}@{self.before(link)}")

    def mined(self, link: Link) -> Link:
        """The stage whose mined queries a stage trains on: its own, or the recipe's equal one."""
        return Link(self._maker(link.method, lambda m: self._mined_history(m, link.stage)), link.stage)

    def scored(self, link: Link) -> Link:
        """The stage whose scored queries a distilling stage trains on."""
        return Link(self._maker(link.method, lambda m: (self._mined_history(m, link.stage), self._teacher(m, link))),
                    link.stage)  # fmt: skip

    def clustered(self, link: Link) -> Link:
        """The stage whose query clusters a stage takes its groups from."""
        return Link(self._maker(link.method, lambda m: self._cluster_history(m, link.stage)), link.stage)

    def cut(self, link: Link) -> Link:
        """The stage whose spans a pretraining stage reads."""
        return Link(self._maker(link.method, lambda m: self._span_history(m, link.stage)), link.stage)

    def segmented(self, link: Link) -> Link:
        """The stage under whose name the units of a stage's positives stand: the first one that cuts alike."""
        return self._unit_link(link, lambda units: units.cut, pairs=False)

    def labelled(self, link: Link) -> Link:
        """The stage under whose name the labels of a stage's units stand: the first one that labels alike."""
        return self._unit_link(link, lambda units: units)

    def read(self, link: Link) -> Link:
        """The stage under whose name a reader's scores of a stage's units stand."""
        return self._unit_link(link, lambda units: [units.cut, units.reader, units.label.aggregation])

    def negatives_from(self, link: Link) -> str | None:
        """Name of the method whose ranking a stage takes negatives from; None: in-batch only."""
        source = self.stage(link).negatives.source
        if source == NONE:
            return None
        return self.parent(link).name if source == PREVIOUS else source

    def mined_before(self, link: Link) -> Link | None:
        """The stage before, where it was mined too: overlaps are told against it."""
        before = Link(link.method, self.before(link))
        if before.stage == INIT or isinstance(self.any_stage(before), PretrainStage):
            return None
        return self.mined(before)

    def _maker(self, method: str, history: Callable[[str], Any]) -> str:
        """The recipe, where its variant `method` has the same history; else `method`."""
        recipe = method.partition("+")[0]
        if recipe == method:
            return method
        return recipe if history(recipe) == history(method) else method

    def _teacher(self, method: str, link: Link) -> str | None:
        stage = self.trained(method).chain.get(link.stage)
        return stage.teacher if isinstance(stage, FinetuneStage) else None

    # ---- what a model is made from -----------------------------------------------------------------------------
    def history(self, method: str, stage: str) -> list[Any] | None:
        """Settings of every stage up to `stage`; None where the method has no such stage."""
        settings, (stage, _, step) = self.trained(method), stage.partition(".")
        names = list(settings.chain)
        if stage != INIT and stage not in names:
            return None
        if step and int(step) not in settings.chain[stage].training.save_steps:
            return None
        upto = [] if stage == INIT else names[: names.index(stage) + 1]
        shared = settings.model_dump(mode="json", include={"source_split", "protocol", "precision", "batch_tokens"})
        return [self.encoder(method), self.source_of(method), shared if upto else None, step,
                *(self._made_by(Link(method, name)) for name in upto)]  # fmt: skip

    def _made_by(self, link: Link) -> list[Any]:
        stage = self.any_stage(link)
        corpora = self.corpora(link) if isinstance(stage, PretrainStage) else None
        return [link.stage, stage, self.schedule(link), self.keeps_moments(link), corpora]

    def _mined_history(self, method: str, stage: str) -> Any:
        settings = self.trained(method)
        own, link = settings.chain.get(stage), Link(method, stage)
        if not isinstance(own, FinetuneStage):
            return None
        models = own.negatives.source == PREVIOUS or self.mined_before(link) is not None
        return [self.history(method, self.before(link)) if models else None, own.negatives, own.training.dev_queries,
                self.source_of(method), settings.source_split, list(settings.chain).index(stage)]  # fmt: skip

    def _unit_link(self, link: Link, kept: Callable[[UnitSettings], Any], pairs: bool = True) -> Link:
        """The first stage of the chain, or of the recipe's, with the same units; with `pairs` of the same queries."""

        def history(method: str, stage: str) -> Any:
            settings = self.trained(method)
            own = settings.chain.get(stage)
            if not isinstance(own, FinetuneStage) or own.units is None:
                return None
            sampled = self._mined_history(method, stage) if pairs and own.negatives.queries is not None else None
            return [self.encoder(method), kept(own.units), self.source_of(method), settings.source_split,
                    settings.protocol, sampled]  # fmt: skip

        own = history(*link)
        alike = next(name for name in self.trained(link.method).chain if history(link.method, name) == own)
        return Link(self._maker(link.method, lambda m: history(m, alike)), alike)

    def _cluster_history(self, method: str, stage: str) -> Any:
        settings = self.trained(method)
        own = settings.chain.get(stage)
        if not isinstance(own, FinetuneStage):
            return None
        before = self.history(method, self.before(Link(method, stage)))
        return [before, own.clusters, self.source_of(method), settings.source_split]

    def _span_history(self, method: str, stage: str) -> Any:
        own = self.trained(method).chain.get(stage)
        if not isinstance(own, PretrainStage):
            return None
        return [self.history(method, self.before(Link(method, stage))), own.cut]

    def schedule(self, link: Link) -> dict[str, Any]:
        """Where a stage stands: what the schedule needs to know.

        Fine-tuning stages in a row have one schedule, and so have pretraining stages; `restart_schedule` begins anew.
        """
        chain = self.trained(link.method).chain
        names, training = list(chain), chain[link.stage].training
        at = names.index(link.stage)
        kinds = [chain[name].kind for name in names]
        breaks = [n for n in range(1, len(names)) if kinds[n] != kinds[n - 1] or
                  chain[names[n]].training.restart_schedule]  # fmt: skip
        start = max((n for n in breaks if n <= at), default=0)
        end = min((n for n in breaks if n > at), default=len(names))
        first = sum(chain[name].training.steps for name in names[start:at])
        ends = training.schedule == "linear" and training.schedule_steps is None
        total = sum(chain[name].training.steps for name in names[start:end]) if ends else first + training.steps
        return {"stage": link.stage, "stage_index": at, "first_step": first, "total_steps": total}

    def keeps_moments(self, link: Link) -> bool:
        """Whether the stage after continues with a stage's optimiser moments."""
        chain = self.trained(link.method).chain
        names = list(chain)
        after = names[names.index(link.stage) + 1 :][:1]
        return any(chain[name].training.keep_optimizer for name in after)

    # ---- paths -------------------------------------------------------------------------------------------------
    def model(self, link: Link) -> str:
        """Manifest of the model."""
        return paths.model(link.method, SCOPE, link.stage)
