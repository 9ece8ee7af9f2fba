"""Inputs and settings of the tables and figures of papers. Part of `Plan`."""

from __future__ import annotations

from typing import Any

from zerodr.config.bench import Bench
from zerodr.config.files import known
from zerodr.config.item import Item
from zerodr.config.model_items import (
    AdaptationItem,
    ComponentsItem,
    DomainsItem,
    NearestQueriesItem,
    ParametersItem,
    ProjectionsItem,
    SharesItem,
    TargetItem,
    UnitsItem,
)
from zerodr.config.papers import (
    EpisodesItem,
    MethodsItem,
    NearestClustersItem,
    NeighboursItem,
    PretrainingGainItem,
    SimilarityItem,
    SpacesItem,
)
from zerodr.config.registry import Collection
from zerodr.config.settings import Config
from zerodr.config.stages import PretrainStage
from zerodr.errors import ConfigError
from zerodr.plan import paths
from zerodr.plan.chains import SCOPE, Chains, Link
from zerodr.plan.model_items import ModelItems

Files = list[str]


class PaperItems(ModelItems):
    """What the rules of workflow/rules/papers.smk ask for."""

    bench: Bench
    config: Config
    chains: Chains

    @property
    def source(self) -> str:
        """The collection with supervision."""
        raise NotImplementedError

    @property
    def columns(self) -> list[Collection]:
        """Collections of the main table."""
        raise NotImplementedError

    def item(self, paper: str, name: str) -> Item:
        """The item called `name`."""
        return known(f"{paper}: item", name, known("paper", paper, self.bench.papers).items)

    def items_of(self, paper: str) -> list[str]:
        """Names of the items on a paper's page."""
        return [name for name, item in known("paper", paper, self.bench.papers).items.items() if not item.apart]

    def figures_of(self, paper: str) -> Files:
        """The figures of a paper's items."""
        items = self.bench.papers[paper].items
        return [paths.item(paper, name, "svg") for name in self.items_of(paper) if items[name].is_drawn]

    def item_inputs(self, wc: Any) -> dict[str, Files]:
        """Inputs of `build_item`."""
        item, rows = self.item(wc.paper, wc.item), self.item_collections(wc.paper, wc.item)
        for name in [*self.named(item), *self._spaces(item)]:
            known(f"{wc.paper}: {wc.item}: method", name, self.bench.methods)
        if isinstance(item, SpacesItem):
            return {"spaces": [self._space(model, name) for model in item.models.values() for name in rows]}
        if isinstance(item, UnitsItem | ParametersItem | ProjectionsItem | SharesItem | ComponentsItem):
            return self.looked_into(item, rows)
        inputs = {
            "per_query": [
                paths.per_query(method, name, self.config.protocol) for method in self.ranked(item) for name in rows
            ]
        }
        if isinstance(item, SimilarityItem):
            inputs["statistics"] = [paths.statistics(name) for name in rows]
        if isinstance(item, PretrainingGainItem):
            inputs["spaces"] = [self._space(model, name) for model in item.models for name in rows]
        if isinstance(item, NearestClustersItem | NeighboursItem):
            inputs |= self._query_inputs(item, rows)
        return inputs | self.looked_into(item, rows)

    def ranked(self, item: Item) -> list[str]:
        """Methods whose rankings an item reads."""
        if isinstance(item, MethodsItem | SimilarityItem):
            return list(dict.fromkeys([*item.methods, item.baseline]))
        if isinstance(item, EpisodesItem):
            stages = item.stages or self.chains.fine_tuning(item.methods[0])
            return [f"{method}@{stage}" for method in item.methods for stage in stages]
        if isinstance(item, PretrainingGainItem):
            return list(item.methods)
        if isinstance(item, NearestClustersItem | NeighboursItem):
            return [item.method, item.baseline]
        if isinstance(item, DomainsItem | NearestQueriesItem | AdaptationItem):
            return list(dict.fromkeys(name for line in self.points(item).values() for name in line))
        return []

    def named(self, item: Item) -> list[str]:
        """Methods that an item names: ranked ones, and those whose models it looks into."""
        if isinstance(item, UnitsItem | ParametersItem | ComponentsItem):
            return list(item.methods)
        if isinstance(item, SharesItem):
            return [item.method]
        if isinstance(item, ProjectionsItem):
            return list(dict.fromkeys(name for line in self.points(item).values() for name in line))
        return self.ranked(item)

    @staticmethod
    def _spaces(item: Item) -> list[str]:
        """Models whose spaces an item reads."""
        if isinstance(item, SpacesItem):
            return list(item.models.values())
        return list(item.models) if isinstance(item, PretrainingGainItem) else []

    def item_collections(self, paper: str, name: str) -> list[str]:
        """Collections of an item: its own, or the main table's columns; the source is no target."""
        item, rows = self.item(paper, name), self.bench.collections.values()
        wanted = [row for row in self.columns if row.name != self.source]
        if item.collections is not None:
            asked = set(item.collections)
            wanted = [row for row in rows if asked & {row.name, row.column, *row.groups} and row.evaluation_split]
        if isinstance(item, TargetItem):
            wanted = [row for row in wanted if row.column == row.name]
        if not wanted:
            raise ConfigError(f"{paper}: {name}", "has no collection: the source is no target", "choose collections")
        return [row.name for row in wanted]

    def _space(self, model: str, collection: str) -> str:
        return paths.space(model, SCOPE, collection)

    def space_inputs(self, wc: Any) -> dict[str, str]:
        """Inputs of `measure_space`: the model, and spans as the recipe's first pretraining stage cuts them."""
        cut = self.chains.cut(self._first_pretraining(wc.model))
        return {
            "model": self.chains.model(self.chains.link(wc.model)),
            "spans": paths.spans(cut.method, SCOPE, cut.stage, wc.collection),
        }

    def _first_pretraining(self, model: str) -> Link:
        recipe = model.partition("@")[0].partition("+")[0]
        for stage, settings in self.chains.trained(recipe).chain.items():
            if isinstance(settings, PretrainStage) and settings.cut is not None:
                return Link(recipe, stage)
        raise ConfigError(
            f"{model}: space", f"{recipe} has no stage that learns from spans", "measure a recipe with such a stage"
        )

    def _query_inputs(self, item: NearestClustersItem | NeighboursItem, rows: list[str]) -> dict[str, Files]:
        protocol, every = self.config.protocol, [*rows, self.source]
        if isinstance(item, NearestClustersItem):
            link = self.chains.clustered(Link(item.method, item.stage))
            model = self.chains.parent(link).name
            more = {"clusters": [paths.clusters(link.method, SCOPE, link.stage)]}
        else:
            model, more = self.chains.link(item.method).name, {}
        return more | {
            "queries": [
                paths.embeddings(model, SCOPE, name, protocol, f"queries.{self._split(name)}") for name in every
            ],
            "collections": [paths.collection(name) for name in every],
            "source_per_query": [paths.per_query(method, self.source, protocol) for method in self.ranked(item)],
        }

    def _split(self, collection: str) -> str:
        split = self.bench.collections[collection].evaluation_split
        if not split:
            raise ConfigError(
                f"collection {collection}",
                "has no judged split, so there are no gains on its queries",
                "take another source",
            )
        return split

    # ---- settings ----------------------------------------------------------------------------------------------
    def _measure_space(self, wc: Any) -> dict:
        cut = self.chains.pretraining(self._first_pretraining(wc.model))
        held_out = cut.training.dev_queries
        for name, stage in self.chains.trained(wc.model.partition("@")[0]).chain.items():
            own = stage.training.dev_queries if isinstance(stage, PretrainStage) else held_out
            if own != held_out:
                raise ConfigError(
                    f"{wc.model}: space",
                    f"stage {name} holds out {own} documents, its "
                    f"recipe's first one {held_out}: it may have learned from those that are measured",
                    "give both the same training.dev_queries",
                )
        compared = cut.objective.model_dump(mode="json", include={"max_tokens", "similarity", "inverse_temperature"})
        return {"model": wc.model, "documents": held_out} | compared

    def _build_item(self, wc: Any) -> dict:
        item, rows = self.item(wc.paper, wc.item), self.item_collections(wc.paper, wc.item)
        methods = self.bench.methods
        told = [*self.named(item), *(item.methods if isinstance(item, DomainsItem) else ())]
        return {
            "paper": self.bench.papers[wc.paper].label,
            "name": wc.item,
            "item": item.model_dump(mode="json"),
            "collections": [(name, self.bench.collections[name].label) for name in rows],
            "splits": {name: self.bench.collections[name].evaluation_split for name in [*rows, self.source]},
            "methods": [(name, methods[name].label) for name in dict.fromkeys(told)],
            "remarks": self.remarks(told),
            "points": [(line, list(models.items())) for line, models in self.points(item).items()],
            "stages": list(self.stages(item).items()),
            "source": self.source,
            "scale": self.config.scale,
            "protocol": self.config.protocol,
            "bootstrap_samples": self.config.bootstrap_samples,
        }

    _plot_item = _build_item

    def remarks(self, names: list[str]) -> list[str]:
        """Footnotes of methods; what is not said of all of them, with the labels that it is said of."""
        said: dict[str, list[str]] = {}
        methods = list(dict.fromkeys(name.partition("@")[0] for name in names))
        for name in methods:
            for remark in self.remarks_of(name):
                said.setdefault(remark, []).append(self.bench.methods[name].label)
        return sorted(
            remark if len(labels) == len(methods) else f"{'; '.join(labels)}: {remark}"
            for remark, labels in said.items()
        )

    def remarks_of(self, name: str) -> list[str]:
        """Footnotes of a method."""
        raise NotImplementedError

    def _build_paper(self, wc: Any) -> dict:
        paper = self.bench.papers[wc.paper]
        return {"label": paper.label, "items": {name: paper.items[name].is_drawn for name in self.items_of(wc.paper)}}
