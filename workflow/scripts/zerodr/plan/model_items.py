"""What items of papers read that look into models: domains, units, modules, adaptation, memories. Part of `Plan`."""

from __future__ import annotations

from zerodr.config.bench import Bench
from zerodr.config.item import Item
from zerodr.config.methods import TrainedMethod
from zerodr.config.model_items import (
    AdaptationItem,
    ComponentsItem,
    DomainsItem,
    NearestQueriesItem,
    ParametersItem,
    ProjectionsItem,
    SharesItem,
    UnitsItem,
)
from zerodr.config.registry import Collection
from zerodr.config.stages import FinetuneStage, PretrainStage
from zerodr.errors import ConfigError
from zerodr.papers.ddr.settings import AssembleStage
from zerodr.papers.moma.settings import MemoryStage
from zerodr.plan import paths
from zerodr.plan.chains import SCOPE, Chains, Link
from zerodr.plan.memories import LEARNING, SEARCH

Files = list[str]
Points = dict[str, dict[str, int]]


class ModelItems:
    """Inputs and settings of these items."""

    bench: Bench
    chains: Chains

    @property
    def source(self) -> str:
        """The collection with supervision."""
        raise NotImplementedError

    @property
    def columns(self) -> list[Collection]:
        """Collections of the main table."""
        raise NotImplementedError

    def points(self, item: Item) -> Points:
        """Line of an item -> its models -> steps that these were trained on the target; empty for other kinds."""
        if isinstance(item, DomainsItem):
            return {name: self._adversarial(name) for name in item.methods}
        if isinstance(item, NearestQueriesItem):
            names = list(self._adversarial(item.method).items())
            return {item.method: dict([names[0], names[-1]])}
        if isinstance(item, ProjectionsItem):
            return {name: self._shown(name, item.steps) for name in item.methods}
        if isinstance(item, AdaptationItem):
            lines = item.lines | {name: (name,) for name in item.references}
            return {label: {name: self._target_steps(name) for name in names} for label, names in lines.items()}
        return {}

    def stages(self, item: Item) -> dict[str, list[str]]:
        """Method -> the stages whose training is told of: adversarial ones, or episodes with memories."""
        if isinstance(item, DomainsItem):
            return {name: self._adversarial_stages(name) for name in item.methods}
        if isinstance(item, SharesItem):
            return {item.method: self._episodes(item.method)}
        return {name: self._episodes(name) for name in item.methods} if isinstance(item, ComponentsItem) else {}

    def looked_into(self, item: Item, targets: list[str]) -> dict[str, Files]:
        """What these items read besides rankings: measures, projections, models."""
        names = list(dict.fromkeys(name for line in self.points(item).values() for name in line))
        if isinstance(item, DomainsItem):
            models = [
                self.chains.model(self.chains.link(f"{method}@{stage}", target))
                for method, stages in self.stages(item).items()
                for target in targets
                for stage in stages
            ]
            return {"measures": _each(names, targets, "measures.tsv"), "models": models}
        if isinstance(item, NearestQueriesItem):
            return {
                "nearest": _each(names, targets, "nearest.parquet"),
                "collections": [paths.collection(name) for name in targets],
            }
        if isinstance(item, ProjectionsItem):
            return {"projections": _each(names, targets, "tsne.parquet")}
        if isinstance(item, UnitsItem):
            return {"measures": [paths.unit_measures(item.units_of, name) for name in item.methods]}
        if isinstance(item, SharesItem):
            return {
                "learning": self._shares(item.method, LEARNING, [self.source]),
                "search": self._shares(item.method, SEARCH, targets),
            }
        if isinstance(item, ComponentsItem):
            every = [
                self.chains.link(f"{name}@{stage}") for name, stages in self.stages(item).items() for stage in stages
            ]
            return {
                "main": [paths.component(link.method, link.scope, link.stage, "main") for link in every],
                "augmenter": [
                    paths.component(link.method, link.scope, link.stage, "augmenter")
                    for link in every
                    if self.learns_to_augment(link)
                ],
            }
        if isinstance(item, ParametersItem):
            return {"models": [self.chains.model(self.chains.ranker(name, targets[0])) for name in item.methods]}
        return {}

    # ---- memories ----------------------------------------------------------------------------------------------
    def learns_to_augment(self, link: Link) -> bool:
        """Whether an episode trains an augmenter."""
        stage = self.chains.memory_stage(link)
        return stage is not None and stage.augmenter.mode == "learned"

    def _episodes(self, method: str) -> list[str]:
        """Stages of a method's line with memories.

        Raises:
            ConfigError: the method has none.
        """
        chain = self.chains.trained(method).chain
        stages = [name for name in self.chains.line(method, self._last(method)) if isinstance(chain[name], MemoryStage)]
        if not stages:
            raise ConfigError(
                f"method {method}",
                "has no stage of kind moma, so no memories to look at",
                "name a method with one, such as moma-t5ance",
            )
        return stages

    def _shares(self, method: str, use: str, collections: list[str]) -> Files:
        """Shares of memories, by episode and collection; a variant that only searches otherwise shares the training."""
        train = self.chains.trained(method).source_split
        splits = {
            name: train if use == LEARNING else self.bench.collections[name].evaluation_split or ""
            for name in collections
        }
        links = [Link(method, stage) for stage in self._episodes(method)]
        if use == LEARNING:
            links = [self.chains.link(link.name) for link in links]
        return [
            paths.shares(link.method, link.scope, link.stage, use, name, split, "shares.tsv")
            for link in links
            for name, split in splits.items()
        ]

    # ---- steps -------------------------------------------------------------------------------------------------
    def _adversarial_stages(self, method: str) -> list[str]:
        chain = self.chains.trained(method).chain
        line = self.chains.line(method, self._last(method))
        return [name for name in line if isinstance(own := chain[name], FinetuneStage) and own.adversary is not None]

    def _adversarial(self, method: str) -> dict[str, int]:
        """The model before the first adversarial stage, kept steps, and the last model, with steps of the chain.

        Raises:
            ConfigError: the method has no such stage.
        """
        stages = self._adversarial_stages(method)
        if not stages:
            raise ConfigError(
                f"method {method}",
                "has no stage with an adversary, so no steps to look at",
                "name a method with one, such as modir-dpr",
            )
        links = [Link(method, stage, self._some_target()) for stage in stages]
        start = self.chains.link(f"{method}@{self.chains.before(links[0])}", links[0].scope)
        found = {start.name: self.chains.schedule(links[0])["first_step"]}
        for link in links:
            first, training = self.chains.schedule(link)["first_step"], self.chains.stage(link).training
            found |= {f"{link.name}.{step}": first + step for step in training.save_steps}
            name = method if link.stage == self._last(method) else link.name
            found[name] = first + training.steps
        return found

    def _shown(self, method: str, steps: bool) -> dict[str, int]:
        adversarial = self._adversarial_stages(method) if steps else []
        return self._adversarial(method) if adversarial else {method: self._target_steps(method)}

    def _some_target(self) -> str:
        return next((row.column for row in self.columns if row.name != self.source), SCOPE)

    def _target_steps(self, name: str) -> int:
        """Steps that a method's model learned from texts of its target."""
        if not isinstance(self.bench.methods[name], TrainedMethod):
            return 0
        method, steps = name.partition("@")[0], 0
        settings = self.chains.trained(method)
        starts = [self.chains.start(settings.encoder.init)]
        for stage in self.chains.line(method, self._last(name)):
            own = settings.chain[stage]
            if isinstance(own, AssembleStage):
                starts.append(self.chains.start(own.dam))
            elif own.scope == "target" and (isinstance(own, PretrainStage) or own.adversary is not None):
                steps += own.training.steps
        return steps + sum(self._target_steps("@".join(start)) for start in starts if start is not None)

    def _last(self, name: str) -> str:
        method = self.bench.methods[name]
        if not isinstance(method, TrainedMethod):
            raise ConfigError(
                f"method {name}",
                "is not trained, so there is no model to look into",
                "name a recipe with kind: trained",
            )
        return method.last.partition(".")[0]


def _each(names: list[str], targets: list[str], file: str) -> Files:
    return [paths.domains(name, target, file) for name in names for target in targets]
