"""Chains of trained methods: which stage makes which model, from what.

A stage that variants have in common, with all before it, is made once, under the name of the first: the recipe, or the
earliest variant in its file. A recipe that starts from another's stage (`init: dpr/ep0`) and changes nothing about the
encoder has no `init` itself.

A stage with `scope: target` makes a model for each target, and so do all stages after it; what comes before is shared.
A scope is a column of the table (a collection, or all collections that the column is the mean of).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zerodr.config.bench import Bench
from zerodr.config.methods import TrainedMethod
from zerodr.config.recipes import INIT
from zerodr.config.stages import FinetuneStage, PretrainStage
from zerodr.errors import ConfigError
from zerodr.papers.ddr.settings import AssembleStage
from zerodr.papers.moma.settings import MemoryStage
from zerodr.plan import paths
from zerodr.plan.lines import SCOPE, Lines, Link

PREVIOUS, NONE = "previous", "none"


class Chains(Lines):
    """The chains of a configuration; only names and settings.

    Args:
        bench: the configuration.
        targets: names of the collections that models are adapted to.
        missing: gated collections that would be targets, if they were to be had.
    """

    def __init__(self, bench: Bench, targets: Sequence[str] = (), missing: Sequence[str] = ()) -> None:
        super().__init__(bench)
        self.targets, self.missing = tuple(targets), tuple(missing)
        self._families: dict[str, list[str]] = {}
        self._makings: dict[Link, list[Any]] = {}

    # ---- looking things up -------------------------------------------------------------------------------------
    def corpora(self, link: Link) -> list[str]:
        """Collections that a pretraining stage reads, sorted; gated ones that are not to be had are left out."""
        return [name for name in self._asked(link) if self._to_be_had(name)]

    def left_out(self, link: Link) -> list[str]:
        """Gated collections that a pretraining stage would read, if they were to be had."""
        return [name for name in self._asked(link) if not self._to_be_had(name)]

    def _to_be_had(self, name: str) -> bool:
        return self.bench.collections[name].access == "public" or name in self.bench.config.gated

    def _asked(self, link: Link) -> list[str]:
        asked = set(self.pretraining(link).corpora)
        names = {self.source_of(link.method)} if "source" in asked else set()
        names |= {*self.targets, *self.missing} if "targets" in asked else set()
        names |= set(self.members(link.scope)) if "target" in asked else set()
        rows = self.bench.collections.values()
        names |= {row.name for row in rows if asked & {row.name, row.column, *row.groups}}
        return sorted(names)

    def assembled(self, link: Link) -> Link:
        """The domain module that an assembly takes."""
        dam = self.assembly(link).dam
        return self.parent_of(dam, link.scope) or self.link(f"{link.method}@{dam}", link.scope)

    def domain(self, link: Link) -> Link:
        """The model whose frozen weights a relevance module is trained in: the first before it without one."""
        while link.stage != INIT and isinstance(stage := self.any_stage(link), FinetuneStage) and stage.rem is not None:
            parent = self.before(link)
            if not stage.rem.go_on:
                return self.link(f"{link.method}@{parent}", link.scope)
            link = link._replace(stage=parent.partition(".")[0])
        return self.link(f"{link.method}@{link.stage}", link.scope)

    def parent_of(self, init: str, scope: str = SCOPE) -> Link | None:
        """The model that `init: <recipe>/<stage>` names; None where it names none of ours."""
        start = self.start(init)
        return None if start is None else self.link("@".join(start), scope)

    def augmenter_given(self, link: Link) -> Link | None:
        """The frozen model that augments for an episode and its training; None where the episode names none."""
        stage = self.memory_stage(link)
        init = None if stage is None else stage.augmenter.init
        return None if init is None else self.parent_of(init, link.scope)

    # ---- for whom a model is made ------------------------------------------------------------------------------
    def members(self, scope: str) -> list[str]:
        """Collections of a target: one, or those that its column is the mean of."""
        return [row.name for row in self.bench.collections.values() if row.column == scope]

    def per_target(self, method: str, stage: str) -> bool:
        """Whether a model is made for each target: its stage says so, or one that it comes from."""
        chain = self.trained(method).chain
        line = [chain[name] for name in self.line(method, stage)]
        if any(own.scope == "target" for own in line):
            return True
        starts = [self.trained(method).encoder.init, *(own.dam for own in line if isinstance(own, AssembleStage))]
        starts += [own.augmenter.init or "" for own in line if isinstance(own, MemoryStage)]
        return any(self.per_target(*start) for start in map(self.start, starts) if start is not None)

    def sees_queries(self, name: str) -> set[str]:
        """Which queries of a target its model learned from: values of adversary.queries."""
        method, stage = name.partition("@")[0], self._last(name).partition(".")[0]
        chain, start = self.trained(method).chain, self.start(self.trained(method).encoder.init)
        upto = [chain[one] for one in self.line(method, stage)]
        seen = {one.adversary.queries for one in upto if isinstance(one, FinetuneStage) and one.adversary}
        return seen | (self.sees_queries("@".join(start)) if start is not None else set())

    def is_adapted(self, name: str) -> bool:
        """Whether a trained method's model is made for each target."""
        return self.per_target(name.partition("@")[0], self._last(name))

    def made(self, link: Link) -> Link:
        """`link`, if there is such a model.

        Raises:
            ConfigError: a shared model is asked for a target or the other way round, or the source is its own target.
        """
        if not self.per_target(link.method, link.stage):
            if link.scope != SCOPE:
                raise ConfigError(
                    f"{link.name}, scope {link.scope}",
                    "the model is made once, for all targets",
                    f"ask for scope {SCOPE}",
                )
            return link
        if link.scope == SCOPE:
            raise ConfigError(
                f"{link.name}, scope {SCOPE}",
                "the model is made for each target, this names none",
                "ask for the scope of a collection",
            )
        if self.bench.collections[self.source_of(link.method)].column == link.scope:
            raise ConfigError(
                f"{link.name}, scope {link.scope}",
                "source and target are the same collection",
                "choose another source, or leave this target out",
            )
        return link

    def ranker(self, name: str, collection: str) -> Link:
        """The model that ranks a collection: the one made for it.

        No model is adapted to the source. It is ranked by the last model of the chain that all targets share.
        """
        method, stage = name.partition("@")[0], self._last(name)
        rows = self.bench.collections
        scope = rows[collection].column
        if scope != rows[self.source_of(method)].column:
            return self.link(name, scope)
        while self.per_target(method, stage):
            start = self.start(self.trained(method).encoder.init)
            if stage == INIT and start is not None:
                method, stage = start
            else:
                stage = self.before(Link(method, stage.partition(".")[0]))
        return self.link(f"{method}@{stage}")

    def _last(self, name: str) -> str:
        trained = self.bench.methods[name]
        assert isinstance(trained, TrainedMethod), f"{name} is not trained"
        return trained.last

    # ---- who makes what ----------------------------------------------------------------------------------------
    def link(self, name: str, scope: str = SCOPE) -> Link:
        """The one model that a row's name stands for: `dpr` -> (dpr, ep0), `ance@init` -> (dpr, ep0).

        Args:
            scope: the target, without effect on models that all targets share.

        Raises:
            ConfigError: the model is made for each target and the scope names none.
        """
        method, stage = name.partition("@")[0], self._last(name)
        if stage == INIT:
            encoder = self.encoder(method)
            start = self.start(encoder.init)
            if start is not None and self.encoder(start[0]).model_copy(update={"init": encoder.init}) == encoder:
                return self.link("@".join(start), scope)
        scope = scope if self.per_target(method, stage) else SCOPE
        return self.made(self.first_alike(Link(method, stage, scope), self.history))

    def parent(self, link: Link) -> Link:
        """The model that a stage starts from."""
        return self.link(f"{link.method}@{self.before(link)}", link.scope)

    def mined(self, link: Link) -> Link:
        """The stage whose mined queries a stage trains on: its own, or the recipe's equal one."""
        return self.first_alike(link._replace(scope=self._mining_scope(link)), self._mined_history)

    def scored(self, link: Link) -> Link:
        """The stage whose scored queries a distilling stage trains on."""
        return self.first_alike(
            link._replace(scope=self._mining_scope(link)), lambda at: (self._mined_history(at), self._teacher(at))
        )

    def clustered(self, link: Link) -> Link:
        """The stage whose query clusters a stage takes its groups from."""
        return self.first_alike(link._replace(scope=self.parent(link).scope), self._cluster_history)

    def cut(self, link: Link) -> Link:
        """The stage whose spans a pretraining stage reads."""
        return self.first_alike(link._replace(scope=self.parent(link).scope), self._span_history)

    def negatives_from(self, link: Link) -> tuple[str, str] | None:
        """Name and scope of the method whose ranking a stage takes negatives from; None: in-batch only."""
        source = self.stage(link).negatives.source
        if source == NONE:
            return None
        if source == PREVIOUS:
            parent = self.parent(link)
            return parent.name, parent.scope
        trained = isinstance(self.bench.methods[source], TrainedMethod)
        return source, self.link(source, link.scope).scope if trained else SCOPE

    def mined_before(self, link: Link) -> Link | None:
        """The stage before, where it was mined too: overlaps are told against it."""
        before = self.before(link).partition(".")[0]
        return self.mined(link._replace(stage=before)) if self._follows_mining(link) else None

    def _follows_mining(self, link: Link) -> bool:
        before = self.before(link).partition(".")[0]
        return before != INIT and isinstance(self.trained(link.method).chain[before], FinetuneStage)

    def _mining_scope(self, link: Link) -> str:
        """The target, if negatives of the stage, or of one that overlaps are told against, are of a target's model."""
        while not self._ranked_per_target(link):
            if not self._follows_mining(link):
                return SCOPE
            link = link._replace(stage=self.before(link).partition(".")[0])
        return link.scope

    def _ranked_per_target(self, link: Link) -> bool:
        source = self.stage(link).negatives.source
        if source == PREVIOUS:
            return self.per_target(link.method, self.before(link))
        named = None if source == NONE else self.bench.methods[source]
        return isinstance(named, TrainedMethod) and self.per_target(source.partition("@")[0], named.last)

    def first_alike(self, link: Link, history: Callable[[Link], Any]) -> Link:
        """The link of the first of the recipe and its variants that has the same history as `link`."""
        own = history(link)
        family = (link._replace(method=name) for name in self._family(link.method))
        return next(other for other in family if other == link or history(other) == own)

    def _family(self, method: str) -> list[str]:
        """A recipe and its variants, in the order of its file."""
        recipe = method.partition("+")[0]
        if recipe not in self._families:
            self._families[recipe] = [name for name in self.names() if name.partition("+")[0] == recipe]
        return self._families[recipe]

    def _teacher(self, link: Link) -> str | None:
        stage = self.trained(link.method).chain.get(link.stage)
        return stage.teacher if isinstance(stage, FinetuneStage) else None

    # ---- what a model is made from -----------------------------------------------------------------------------
    def history(self, link: Link) -> list[Any] | None:
        """Settings of every stage up to a link's; None where its method has no such stage."""
        method, settings, (stage, _, step) = link.method, self.trained(link.method), link.stage.partition(".")
        names = list(settings.chain)
        if stage != INIT and stage not in names:
            return None
        if step and int(step) not in self._trained_stage(method, stage).training.save_steps:
            return None
        upto = self.line(method, stage)
        shared = settings.model_dump(mode="json", include={"source_split", "protocol", "precision", "batch_tokens"})
        return [
            self.encoder(method),
            self.source_of(method),
            shared if upto else None,
            step,
            *(self._made_by(link._replace(stage=name)) for name in upto),
        ]

    def _trained_stage(self, method: str, stage: str) -> FinetuneStage | PretrainStage:
        settings = self.trained(method).chain[stage]
        assert not isinstance(settings, AssembleStage), f"{stage} is an assembly"
        return settings

    def _made_by(self, link: Link) -> list[Any]:
        if link not in self._makings:  # long chains are compared for every job
            self._makings[link] = self._making(link)
        return self._makings[link]

    def _making(self, link: Link) -> list[Any]:
        stage = self.any_stage(link)
        if isinstance(stage, AssembleStage):
            return [
                link.stage,
                stage,
                *(
                    self.history(link._replace(stage=name))
                    for name in (stage.dam, stage.rem)
                    if self.start(name) is None
                ),
            ]
        corpora = self.corpora(link) if isinstance(stage, PretrainStage) else None
        return [link.stage, stage, self.schedule(link), self.keeps_moments(link), corpora]

    def _history_before(self, link: Link) -> list[Any] | None:
        return self.history(link._replace(stage=self.before(link)))

    def _mined_history(self, link: Link) -> Any:
        settings = self.trained(link.method)
        own = settings.chain.get(link.stage)
        if not isinstance(own, FinetuneStage):
            return None
        models = own.negatives.source == PREVIOUS or self._follows_mining(link)
        return [
            self._history_before(link) if models else None,
            own.negatives,
            own.training.dev_queries,
            self.source_of(link.method),
            settings.source_split,
            list(settings.chain).index(link.stage),
        ]

    def _cluster_history(self, link: Link) -> Any:
        settings = self.trained(link.method)
        own = settings.chain.get(link.stage)
        if not isinstance(own, FinetuneStage):
            return None
        return [self._history_before(link), own.clusters, self.source_of(link.method), settings.source_split]

    def _span_history(self, link: Link) -> Any:
        own = self.trained(link.method).chain.get(link.stage)
        return [self._history_before(link), own.cut] if isinstance(own, PretrainStage) else None

    def schedule(self, link: Link) -> dict[str, Any]:
        """Where a stage stands: what the schedule needs to know.

        Fine-tuning stages in a row have one schedule, and so have pretraining stages; `restart_schedule` begins anew.
        """
        chain = self.trained(link.method).chain
        names = [name for name, stage in chain.items() if not isinstance(stage, AssembleStage)]
        trained = {name: self._trained_stage(link.method, name).training for name in names}
        at, training = names.index(link.stage), trained[link.stage]
        kinds = [chain[name].kind for name in names]
        breaks = [n for n in range(1, len(names)) if kinds[n] != kinds[n - 1] or trained[names[n]].restart_schedule]
        start = max((n for n in breaks if n <= at), default=0)
        end = min((n for n in breaks if n > at), default=len(names))
        first = sum(trained[name].steps for name in names[start:at])
        ends = training.schedule == "linear" and training.schedule_steps is None
        total = sum(trained[name].steps for name in names[start:end]) if ends else first + training.steps
        return {"stage": link.stage, "stage_index": at, "first_step": first, "total_steps": total}

    def continues_classifier(self, link: Link) -> bool:
        """Whether the stage before has a domain classifier that this one goes on with."""
        chain, before = self.trained(link.method).chain, self.before(link)
        stage = chain.get(before.partition(".")[0])
        return isinstance(stage, FinetuneStage) and stage.adversary is not None

    def keeps_moments(self, link: Link) -> bool:
        """Whether a stage's optimiser moments are kept: the stage after continues with them, or could.

        A stage that continues with moments itself keeps them, so that one more episode leaves it as it is.
        """
        chain = self.trained(link.method).chain
        keeping = [
            name
            for name, stage in chain.items()
            if not isinstance(stage, AssembleStage) and stage.training.keep_optimizer
        ]
        return link.stage in keeping or any(self.before(link._replace(stage=name)) == link.stage for name in keeping)

    # ---- paths -------------------------------------------------------------------------------------------------
    def model(self, link: Link) -> str:
        """Manifest of the model."""
        return paths.model(link.method, link.scope, link.stage)
