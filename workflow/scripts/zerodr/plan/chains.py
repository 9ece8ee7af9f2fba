"""Chains of trained methods: which stage makes which model, from what.

A stage that a variant has in common with its recipe, with all before it, is made once, under the recipe's name. A
recipe that starts from another's stage (`init: dpr/ep0`) and changes nothing about the encoder has no `init` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zerodr.config.bench import Bench
from zerodr.config.methods import TrainedMethod
from zerodr.config.recipes import INIT
from zerodr.config.trained import ChainStage, TrainedSettings
from zerodr.config.training import InitSettings
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
    """The chains of a configuration; only names and settings."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

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

    def stage(self, link: Link) -> ChainStage:
        """Settings of a stage."""
        return self.trained(link.method).chain[link.stage]

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

    def negatives_from(self, link: Link) -> str | None:
        """Name of the method whose ranking a stage takes negatives from; None: in-batch only."""
        source = self.stage(link).negatives.source
        if source == NONE:
            return None
        return self.parent(link).name if source == PREVIOUS else source

    def mined_before(self, link: Link) -> Link | None:
        """The stage before, where it was mined too: overlaps are told against it."""
        stage = self.before(link)
        return None if stage == INIT else self.mined(Link(link.method, stage))

    def _maker(self, method: str, history: Callable[[str], Any]) -> str:
        """The recipe, where its variant `method` has the same history; else `method`."""
        recipe = method.partition("+")[0]
        if recipe == method:
            return method
        return recipe if history(recipe) == history(method) else method

    def _teacher(self, method: str, link: Link) -> str | None:
        stage = self.trained(method).chain.get(link.stage)
        return stage.teacher if stage else None

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
                *((name, settings.chain[name], self.schedule(Link(method, name))) for name in upto)]  # fmt: skip

    def _mined_history(self, method: str, stage: str) -> Any:
        settings = self.trained(method)
        if stage not in settings.chain:
            return None
        before, negatives = self.before(Link(method, stage)), settings.chain[stage].negatives
        models = self.history(method, before) if negatives.source == PREVIOUS or before != INIT else None
        dev = settings.chain[stage].training.dev_queries
        return [
            models,
            negatives,
            dev,
            self.source_of(method),
            settings.source_split,
            list(settings.chain).index(stage),
        ]

    def _cluster_history(self, method: str, stage: str) -> Any:
        settings = self.trained(method)
        if stage not in settings.chain:
            return None
        before = self.history(method, self.before(Link(method, stage)))
        return [before, settings.chain[stage].clusters, self.source_of(method), settings.source_split]

    def schedule(self, link: Link) -> dict[str, Any]:
        """Where a stage stands in its chain: what the schedule and the optimiser's moments need to know."""
        chain = self.trained(link.method).chain
        names = list(chain)
        at, training = names.index(link.stage), chain[link.stage].training
        first = sum(chain[name].training.steps for name in names[:at])
        ends = training.schedule == "linear" and training.schedule_steps is None
        total = sum(stage.training.steps for stage in chain.values()) if ends else first + training.steps
        after = names[at + 1 : at + 2]
        return {"stage": link.stage, "stage_index": at, "first_step": first, "total_steps": total,
                "save_optimizer": any(chain[name].training.keep_optimizer for name in after)}  # fmt: skip

    # ---- paths -------------------------------------------------------------------------------------------------
    def model(self, link: Link) -> str:
        """Manifest of the model."""
        return paths.model(link.method, SCOPE, link.stage)
