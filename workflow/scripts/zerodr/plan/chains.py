"""Find which stage makes which model, from what, and for which targets.

A stage that variants have in common, with all before it, runs once, under the name of the first: the recipe, or the
earliest variant in its file. A recipe that starts from another's stage (`init: dpr/ep0`) and changes nothing about the
encoder has no `init` itself.

A stage with `scope: target` makes a model for each target, and so do all stages after it; what comes before is shared.
A scope is a column of the table (a collection, or all collections that the column is the mean of).
"""

from collections.abc import Callable, Sequence
from typing import Any

from zerodr.config.bench import Bench
from zerodr.config.generation import GenerateSettings
from zerodr.config.methods import TrainedMethod
from zerodr.config.recipes import INIT
from zerodr.config.stages import FinetuneStage, PretrainStage
from zerodr.errors import ConfigError
from zerodr.plan import paths
from zerodr.plan.lines import SCOPE, Lines, Link, remembered

PREVIOUS, NONE, FILE = "previous", "none", "file"


def generated_split(link: Link) -> str:
    """Name the generated queries of a stage, as if they were a further split of the target's."""
    return f"{link.method}.{link.stage}"


class Chains(Lines):
    """The chains of a configuration; only names and settings.

    Args:
        bench: the configuration.
        targets: names of the collections that models are adapted to.
        missing: gated collections that would be targets, if they were available.
    """

    def __init__(self, bench: Bench, targets: Sequence[str] = (), missing: Sequence[str] = ()) -> None:
        super().__init__(bench)
        self.targets, self.missing = tuple(targets), tuple(missing)

    # ---- corpora -----------------------------------------------------------------------------------------------
    def corpora(self, link: Link) -> list[str]:
        """Available collections that a stage reads without labels, sorted."""
        return [name for name in self._named_corpora(link) if self._is_available(name)]

    def left_out(self, link: Link) -> list[str]:
        """Gated collections that a stage would read without labels, if they were available."""
        return [name for name in self._named_corpora(link) if not self._is_available(name)]

    def _is_available(self, name: str) -> bool:
        return self.bench.collections[name].access == "public" or name in self.bench.config.gated

    def _named_corpora(self, link: Link) -> list[str]:
        stage = self.find_stage(link)
        words = set() if stage is None else set(stage.unlabelled)
        names = {self.source_of(link.method)} if "source" in words else set()
        names |= {*self.targets, *self.missing} if "targets" in words else set()
        names |= set(self.members(link.scope)) if "target" in words else set()
        rows = self.bench.collections.values()
        left_out = set(getattr(stage, "without", ()))
        return sorted((names | {row.name for row in rows if words & {row.name, row.column, *row.groups}}) - left_out)

    # ---- for whom a model is made ------------------------------------------------------------------------------
    def members(self, scope: str) -> list[str]:
        """Collections of a target: one, or those that its column is the mean of."""
        return [row.name for row in self.bench.collections.values() if row.column == scope]

    @remembered
    def per_target(self, method: str, stage: str) -> bool:
        """Whether a model is made for each target: its stage says so, or one that it comes from."""
        line = [self.trained(method).chain[name] for name in self.line(method, stage)]
        if any(stage.scope == "target" for stage in line):
            return True
        starts = [self.start_of_chain(method), *(start for stage in line for start in self.other_parents(stage))]
        return any(self.per_target(*start) for start in starts if start is not None)

    def is_adapted(self, name: str) -> bool:
        """Whether a trained method's model is made for each target."""
        return self.per_target(name.partition("@")[0], self.last(name))

    def check(self, link: Link) -> Link:
        """Return `link`, if there is such a model.

        Raises:
            ConfigError: a shared model is asked for a target or the other way round, or the source is its own target.
        """
        where, shared = f"{link.name}, scope {link.scope}", link.scope == SCOPE
        if not self.per_target(link.method, link.stage):
            if not shared:
                raise ConfigError(where, "the model is made once, for all targets", f"ask for scope {SCOPE}")
            return link
        if shared:
            what = "the model is made for each target, this names none"
            raise ConfigError(where, what, "ask for the scope of a collection")
        if self.bench.collections[self.source_of(link.method)].column == link.scope:
            what = "source and target are the same collection"
            raise ConfigError(where, what, "choose another source, or leave this target out")
        return link

    def ranker(self, name: str, collection: str) -> Link:
        """Find the model that ranks a collection: the one made for it.

        No model is adapted to the source. It is ranked by the last model of the chain that all targets share.
        """
        self.bench.methods[name].check_ranks(f"method {name!r}")
        method, stage = name.partition("@")[0], self.last(name)
        rows = self.bench.collections
        scope = rows[collection].target
        if scope != rows[self.source_of(method)].column:
            return self.link(name, scope)
        while self.per_target(method, stage):
            start = self.start_of_chain(method)
            if stage == INIT and start is not None:
                method, stage = start
            else:
                stage = self.before(Link(method, stage.partition(".")[0]))
        return self.link(f"{method}@{stage}")

    # ---- which stage makes what --------------------------------------------------------------------------------
    @remembered
    def link(self, name: str, scope: str = SCOPE) -> Link:
        """Find the one model that a row's name means: `dpr` -> (dpr, ep0), `ance@init` -> (dpr, ep0).

        Args:
            name: of a row, `<method>` or `<method>@<stage>`.
            scope: the target, without effect on models that all targets share.

        Raises:
            ConfigError: the model is made for each target and the scope names none.
        """
        method, stage = name.partition("@")[0], self.last(name)
        if stage == INIT:
            encoder, start = self.encoder(method), self.start_of_chain(method)
            if start is not None and self.encoder(start[0]).model_copy(update={"init": encoder.init}) == encoder:
                return self.link("@".join(start), scope)
        scope = scope if self.per_target(method, stage) else SCOPE
        return self.check(self.first_alike(Link(method, stage, scope), self.history))

    def model(self, link: Link) -> str:
        """Manifest of the model, or of the copy that takes its place."""
        original = paths.model(*link.path_keys)
        return self.bench.config.retained.get(original, original)

    def parent(self, link: Link) -> Link:
        """The model that a stage starts from."""
        return self.link(f"{link.method}@{self.before(link)}", link.scope)

    def parent_of(self, init: str, scope: str = SCOPE) -> Link | None:
        """The model that `init: <recipe>/<stage>` names; None where it names none of ours."""
        start = self.start(init)
        return None if start is None else self.link("@".join(start), scope)

    def server(self, name: str, scope: str = SCOPE) -> Link:
        """The model of a recipe, or of `<recipe>/<stage>`, that serves a stage, such as its teacher."""
        return self.parent_of(name, scope) or self.link(name, scope)

    @remembered
    def mined(self, link: Link) -> Link:
        """The stage whose mined queries a stage trains on: itself, or the recipe's equal one."""
        return self.first_alike(link._replace(scope=self._mining_scope(link)), self._mined_history)

    def scored(self, link: Link) -> Link:
        """The stage whose scored queries a distilling stage trains on."""

        def history(at: Link) -> Any:
            stage = self.find_stage(at)
            return self._mined_history(at), stage.teacher if isinstance(stage, FinetuneStage) else None

        return self.first_alike(link._replace(scope=self._mining_scope(link)), history)

    def cut(self, link: Link) -> Link:
        """The stage whose spans a pretraining stage reads."""

        def history(at: Link) -> Any:
            stage = self.find_stage(at)
            return [self.history_before(at), stage.cut] if isinstance(stage, PretrainStage) else None

        return self.first_alike(link._replace(scope=self.parent(link).scope), history)

    def negatives_from(self, link: Link) -> tuple[str, str] | None:
        """Name and scope of the method whose ranking a stage takes negatives from; None: it needs none."""
        source = self.stage(link).negatives.source
        if source in (NONE, FILE):
            return None
        if source == PREVIOUS:
            parent = self.parent(link)
            return parent.name, parent.scope
        trained = isinstance(self.bench.methods[source], TrainedMethod)
        return source, self.link(source, link.scope).scope if trained else SCOPE

    def mined_before(self, link: Link) -> Link | None:
        """The stage before, where it was mined too: overlaps are counted against it."""
        before = self.before(link).partition(".")[0]
        return self.mined(link._replace(stage=before)) if self._follows_mining(link) else None

    def _follows_mining(self, link: Link) -> bool:
        before = link._replace(stage=self.before(link).partition(".")[0])
        stage = self.find_stage(before)
        return isinstance(stage, FinetuneStage) and stage.generate == self._generation(link)

    def _mining_scope(self, link: Link) -> str:
        """The target, if a target's model ranks negatives of the stage, or of one that overlaps are counted against."""
        while not self._ranked_per_target(link):
            if not self._follows_mining(link):
                return SCOPE
            link = link._replace(stage=self.before(link).partition(".")[0])
        return link.scope

    def _ranked_per_target(self, link: Link) -> bool:
        if self._generation(link) is not None:
            return True
        source = self.stage(link).negatives.source
        if source == PREVIOUS:
            return self.per_target(link.method, self.before(link))
        named = None if source in (NONE, FILE) else self.bench.methods[source]
        return isinstance(named, TrainedMethod) and self.per_target(source.partition("@")[0], named.last)

    # ---- queries that a stage learns from ----------------------------------------------------------------------
    def taught(self, link: Link) -> tuple[str, str]:
        """Collection and split of the queries that a stage learns from: the source's, or generated for its target."""
        if self._generation(link) is None:
            return self.source_of(link.method), self.trained(link.method).source_split
        return self.only_member(link.scope), generated_split(self.generated(link))

    @remembered
    def generated(self, link: Link) -> Link:
        """The stage whose generated queries a stage learns from: itself, or the recipe's equal one."""
        return self.first_alike(link, self._written)

    @remembered
    def generated_splits(self) -> dict[str, Link]:
        """Splits of generated queries by name, each with the stage that they are made for."""
        links = [Link(name, stage) for name in self.names() for stage in self.trained(name).chain]
        return {generated_split(link): link for link in links if self._generation(link) is not None}

    def only_member(self, scope: str) -> str:
        """The collection of a target.

        Raises:
            ConfigError: the target is a column of several collections.
        """
        members = self.members(scope)
        if len(members) != 1:
            raise ConfigError(
                f"scope {scope}",
                f"is a column of {len(members)} collections; queries are generated for one collection",
                "leave this column out, or name one of its collections as a column of its own",
            )
        return members[0]

    def _generation(self, link: Link) -> GenerateSettings | None:
        stage = self.find_stage(link)
        return stage.generate if isinstance(stage, FinetuneStage) else None

    def _written(self, link: Link) -> GenerateSettings | None:
        """The settings that generated queries depend on: what a stage takes for positives is none of them."""
        generate = self._generation(link)
        # Set to one value, so that stages that differ in it alone share the questions.
        return generate and generate.model_copy(update={"positives": "origin"})

    # ---- what a model is made from -----------------------------------------------------------------------------
    def first_alike(self, link: Link, history: Callable[[Link], Any]) -> Link:
        """Find the first of the recipe and its variants that has the same history as `link`."""
        wanted = history(link)
        family = (link._replace(method=name) for name in self._family(link.method.partition("+")[0]))
        return next(other for other in family if other == link or history(other) == wanted)

    @remembered
    def _family(self, recipe: str) -> list[str]:
        """A recipe and its variants, in the order of its file."""
        return [name for name in self.names() if name.partition("+")[0] == recipe]

    @remembered
    def history(self, link: Link) -> list[Any] | None:
        """Settings of every stage up to a link's; None where its method has no such stage."""
        # Settings, no names of methods: variants with equal settings up to a stage share its model.
        method, settings, (stage, _, step) = link.method, self.trained(link.method), link.stage.partition(".")
        if stage != INIT and stage not in settings.chain:
            return None
        if step and int(step) not in settings.chain[stage].save_steps:
            return None
        line = self.line(method, stage)
        shared = settings.model_dump(mode="json", include={"source_split", "protocol", "precision", "batch_tokens"})
        return [
            self.encoder(method),
            self.source_of(method),
            shared if line else None,
            step,
            *(self._making(link._replace(stage=name)) for name in line),
        ]

    def history_before(self, link: Link) -> list[Any] | None:
        """The history of the model that a stage starts from."""
        return self.history(link._replace(stage=self.before(link)))

    @remembered
    def _making(self, link: Link) -> list[Any]:
        stage = self.chain(link)[link.stage]
        if stage.optimisation is None:
            parents = [self.history(link._replace(stage=name)) for name in self.named_parents(stage)]
            return [link.stage, stage, *parents]
        corpora = self.corpora(link) if stage.unlabelled else None
        return [link.stage, stage, self.schedule(link), self.keeps_moments(link), corpora]

    def _mined_history(self, link: Link) -> Any:
        settings, stage = self.trained(link.method), self.find_stage(link)
        if not isinstance(stage, FinetuneStage):
            return None
        models = stage.negatives.source == PREVIOUS or self._follows_mining(link)
        return [
            self.history_before(link) if models else None,
            stage.negatives,
            stage.teacher == FILE,
            stage.training.dev_queries,
            self.source_of(link.method),
            settings.source_split,
            list(settings.chain).index(link.stage),
            stage.generate,
        ]
