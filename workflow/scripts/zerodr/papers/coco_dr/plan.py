"""Plan COCO-DR: query clusters, groups of queries, vector spaces of models, and the items that show them."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from zerodr.config.methods import TrainedMethod
from zerodr.config.stages import FinetuneStage, PretrainStage
from zerodr.errors import ConfigError
from zerodr.papers.coco_dr.items import (
    GroupLossesItem,
    NearestClustersItem,
    NeighboursItem,
    PretrainingGainItem,
    SpacesItem,
    WorstClusterItem,
)
from zerodr.papers.coco_dr.settings import ClusterSettings, GroupKeys
from zerodr.plan import paths
from zerodr.plan.items import Reads, counterparts, judged_split, per_query, reads
from zerodr.plan.lines import SCOPE, Link, link_of
from zerodr.plan.plan import Files, Params, Plan, adds_inputs, inputs, params
from zerodr.plan.rules import ADDITIONS, RULES, VERSIONS, Need, Rule

CLUSTERING, MEASURING = Need(6000, 0, 60, threads=8), Need(6000, 500, 60, threads=8, gpu=True)
VERSIONS |= {
    "papers.coco_dr.measures:measure_clusters": 2,
}
ADDITIONS |= {"groups": 1}
RULES |= {
    "cluster_queries": Rule("papers.coco_dr.cluster_queries:cluster_queries", "cluster", CLUSTERING, seeded=True),
    "measure_clusters": Rule("papers.coco_dr.measures:measure_clusters", "measure", MEASURING),
    "measure_training": Rule("papers.coco_dr.measures:measure_clusters", "measure", MEASURING),
    "measure_space": Rule("papers.coco_dr.measures:measure_space", "measure", MEASURING, seeded=True),
}


# ---- query clusters --------------------------------------------------------------------------------------------
def _clusters_of(plan: Plan, link: Link) -> ClusterSettings | None:
    keys = GroupKeys.of(plan.chains.find_stage(link))
    return None if keys is None else keys.clusters


def clustered(plan: Plan, link: Link) -> Link:
    """Return the stage whose query clusters a stage takes its groups from."""
    chains = plan.chains

    def history(at: Link) -> Any:
        if not isinstance(chains.find_stage(at), FinetuneStage):
            return None
        return [chains.history_before(at), _clusters_of(plan, at), *chains.taught(at)]

    generates = chains.stage(link).generate is not None
    return chains.first_alike(link if generates else link._replace(scope=chains.parent(link).scope), history)


@inputs("cluster_queries")
def _cluster_inputs(plan: Plan, wc: Any) -> Files:
    """The parent's embeddings of the training queries, the source, and the file of groups that are given."""
    link, clusters = link_of(wc), _clusters_of(plan, link_of(wc))
    parent, protocol = plan.chains.parent(link), plan.chains.trained(wc.model).protocol
    source, split = plan.chains.taught(link)
    queries = paths.embeddings(parent.name, parent.scope, source, protocol, f"queries.{split}")
    groups = {"groups": clusters.file} if clusters is not None and clusters.file is not None else {}
    return {"queries": queries, "collection": plan.labelled(source, split)} | groups


@params("cluster_queries")
def _cluster_params(plan: Plan, wc: Any) -> Params:
    clusters = _clusters_of(plan, link_of(wc))
    assert clusters is not None, "only stages with groups have clusters"
    return clusters.model_dump(mode="json") | {"split": plan.chains.taught(link_of(wc))[1]}


@adds_inputs("finetune", "clusters")
def _cluster_file(plan: Plan, link: Link) -> Files:
    return {"clusters": paths.clusters(*clustered(plan, link).path_keys)}


def _learned(plan: Plan, link: Link) -> Iterator[tuple[str, str]]:
    """Collections and splits whose queries a model learned from, in its recipe and in those it starts from."""
    chains, starts = plan.chains, [(link.method, link.stage)]
    while starts:
        method, stage = starts.pop()
        for name in chains.line(method, stage):
            at = link._replace(method=method, stage=name)
            if isinstance(chains.find_stage(at), FinetuneStage):
                yield chains.taught(at)
            starts += chains.other_parents(chains.trained(method).chain[name])
        start = chains.start_of_chain(method)
        starts += [] if start is None else [start]


def _measured(plan: Plan, link: Link) -> tuple[str, str]:
    """Return the collection and split on whose queries losses by cluster are measured.

    It is the source's evaluated split, or the first other one, that the model did not learn from.

    Raises:
        ConfigError: the stage has no query clusters, or there is no such split.
    """
    what = f"{link.name}: losses by cluster"
    if _clusters_of(plan, link) is None:
        raise ConfigError(what, "it has no query clusters", "measure a stage with clusters and groups")
    source, learned = plan.chains.taught(link)[0], set(_learned(plan, link))
    splits = dict.fromkeys([judged_split(plan, source), *plan.collection(source).splits])
    for split in splits:
        if (source, split) not in learned:
            return source, split
    learned_from = f"the model learned from queries of {source}/{', '.join(splits)}"
    raise ConfigError(what, learned_from, "set source_split so that a judged split is left")


@inputs("measure_clusters")
def _cluster_loss_inputs(plan: Plan, wc: Any) -> Files:
    """A stage's model, clusters, and the judged queries with their vectors by the model that was clustered."""
    link = link_of(wc)
    source, split = _measured(plan, link)
    grouping = clustered(plan, link)
    parent, protocol = plan.chains.parent(grouping), plan.chains.trained(wc.model).protocol
    return {
        "model": plan.chains.model(link),
        "source": paths.collection(source),
        "clusters": paths.clusters(*grouping.path_keys),
        "queries": paths.embeddings(parent.name, parent.scope, source, protocol, f"queries.{split}"),
    }


@params("measure_clusters")
def _cluster_loss_params(plan: Plan, wc: Any) -> Params:
    link = link_of(wc)
    source, split = _measured(plan, link)
    return {
        "split": split,
        "title_join": plan.collection(source).title_join,
        "inverse_temperature": plan.chains.stage(link).objective.inverse_temperature,
    }


@inputs("measure_training")
def _training_loss_inputs(plan: Plan, wc: Any) -> Files:
    """A model, the clusters of another's stage, and the training queries with their vectors by which it clustered."""
    of = clustered(plan, _stage_of(wc.clusters_of))
    files = _cluster_inputs(plan, SimpleNamespace(model=of.method, scope=of.scope, stage=of.stage))
    return {
        "model": plan.chains.model(plan.chains.link(wc.model)),
        "source": files["collection"],
        "clusters": paths.clusters(*of.path_keys),
        "queries": files["queries"],
    }


@params("measure_training")
def _training_loss_params(plan: Plan, wc: Any) -> Params:
    of = _stage_of(wc.clusters_of)
    source, split = plan.chains.taught(of)
    return {
        "split": split,
        "title_join": plan.collection(source).title_join,
        "inverse_temperature": plan.chains.stage(of).objective.inverse_temperature,
    }


def _stage_of(name: str) -> Link:
    return Link(*name.split("@"))


# ---- vector spaces ---------------------------------------------------------------------------------------------
def _first_pretraining(plan: Plan, model: str) -> Link:
    recipe = model.partition("@")[0].partition("+")[0]
    for stage, settings in plan.chains.trained(recipe).chain.items():
        if isinstance(settings, PretrainStage) and settings.cut is not None:
            return Link(recipe, stage)
    raise ConfigError(
        f"{model}: space", f"{recipe} has no stage that learns from spans", "measure a recipe with such a stage"
    )


@inputs("measure_space")
def _space_inputs(plan: Plan, wc: Any) -> Files:
    """The model, and spans as the recipe's first pretraining stage cuts them."""
    cut = plan.chains.cut(_first_pretraining(plan, wc.model))
    spans = paths.spans(cut.method, SCOPE, cut.stage, wc.collection)
    return {"model": plan.chains.model(plan.chains.link(wc.model)), "spans": spans}


@params("measure_space")
def _space_params(plan: Plan, wc: Any) -> Params:
    first = plan.chains.pretraining(_first_pretraining(plan, wc.model))
    held_out = first.training.dev_queries
    for name, stage in plan.chains.trained(wc.model.partition("@")[0]).chain.items():
        if isinstance(stage, PretrainStage) and stage.training.dev_queries != held_out:
            raise ConfigError(
                f"{wc.model}: space",
                f"stage {name} holds out {stage.training.dev_queries} documents, its "
                f"recipe's first one {held_out}: it may have learned from those that are measured",
                "give both the same training.dev_queries",
            )
    compared = first.objective.model_dump(mode="json", include={"max_tokens", "similarity", "inverse_temperature"})
    return {"model": wc.model, "documents": held_out} | compared


# ---- items -----------------------------------------------------------------------------------------------------
def _spaces(models: Any, collections: list[str]) -> list[str]:
    return [paths.space(model, SCOPE, name) for model in models for name in collections]


@reads(SpacesItem)
def _space_item(plan: Plan, item: SpacesItem, collections: list[str]) -> Reads:
    return Reads(files={"spaces": _spaces(item.models.values(), collections)})


@reads(PretrainingGainItem)
def _gain_item(plan: Plan, item: PretrainingGainItem, collections: list[str]) -> Reads:
    return Reads(list(item.methods), files={"spaces": _spaces(item.models, collections)})


@reads(NearestClustersItem)
def _clusters_item(plan: Plan, item: NearestClustersItem, collections: list[str]) -> Reads:
    """Read queries, clusters, losses and gains of the method, and of its counterparts where the run has more seeds."""
    named = [item.method, item.baseline]
    seeds = counterparts(plan, named) if plan.config.seeds else []
    read = [_clusters_of_seed(plan, item, collections, [one["names"][name] for name in named]) for one in seeds]
    read = read or [_clusters_of_seed(plan, item, collections, named)]
    files = {key: [file for one in read for file in one.files[key]] for key in read[0].files}
    files["collections"] = read[0].files["collections"]
    return Reads([name for one in read for name in one.ranked], named=named, values=seeds, files=files)


def _clusters_of_seed(plan: Plan, item: NearestClustersItem, collections: list[str], names: list[str]) -> Reads:
    link = clustered(plan, Link(names[0], item.stage))
    losses = [paths.training_losses(link.name, name) for name in names]
    clusters = {"clusters": [paths.clusters(link.method, SCOPE, link.stage)], "losses": losses}
    return _query_item(plan, names, item.protocol, collections, plan.chains.parent(link), clusters)


@reads(NeighboursItem)
def _neighbours_item(plan: Plan, item: NeighboursItem, collections: list[str]) -> Reads:
    ranked = [item.method, item.baseline]
    return _query_item(plan, ranked, item.protocol, collections, plan.chains.link(item.method), {})


@reads(WorstClusterItem)
def _worst_cluster_item(plan: Plan, item: WorstClusterItem, collections: list[str]) -> Reads:
    """Read losses of the methods and of their counterparts with other seeds."""
    seeds, links = _compared(plan, item)
    return Reads(named=[item.baseline, *item.methods], values=seeds, files=_losses(links))


@reads(GroupLossesItem)
def _group_losses_item(plan: Plan, item: GroupLossesItem, collections: list[str]) -> Reads:
    """Read losses, models with their weights, and the names of groups.

    Raises:
        ConfigError: a method's clusters are not given, so that other seeds have others.
    """
    named = [item.baseline, *item.methods]
    seeds, links = _compared(plan, item)
    clusters = _clusters_of(plan, links[0])
    if clusters is None or not clusters.given:
        what = "its clusters are found by k-means or a file, and have no names that a page could show"
        raise ConfigError(f"group_losses: {item.baseline}", what, "set clusters.given: true, or take worst_cluster")
    groups = {"clusters": [paths.clusters(*clustered(plan, links[0]).path_keys)]}
    models = {"models": [plan.chains.model(link) for link in links]}
    return Reads(named=named, values=seeds, files=_losses(links) | groups | models)


def _losses(links: list[Link]) -> Files:
    return {"losses": [paths.cluster_losses(*link.path_keys) for link in links]}


def _compared(plan: Plan, item: WorstClusterItem | GroupLossesItem) -> tuple[list[dict[str, Any]], list[Link]]:
    """Find the seeds, and the stages whose losses an item compares: of each seed the control's, then the methods'.

    Raises:
        ConfigError: a method is not trained in clusters, its queries or clusters are not its control's, or it learned
            from these queries.
    """
    named = [item.baseline, *item.methods]
    for name in named:
        if not isinstance(plan.method(name), TrainedMethod):
            raise ConfigError(f"worst_cluster: {name}", "it is not trained", "compare recipes with clusters and groups")
    seeds, every = counterparts(plan, named), list[Link]()
    for one in seeds:
        links = [plan.chains.link(one["names"][name]) for name in named]
        asked = [_asked(plan, link) for link in links]
        for name, compared in zip(named, asked, strict=True):
            if other := sorted(key for key in compared if compared[key] != asked[0][key]):
                what = f"its {', '.join(other)} are not those of {item.baseline}, so losses can't be compared"
                raise ConfigError(f"worst_cluster: {name}", what, "compare variants that differ in weights alone")
        every += links
    return seeds, every


def _asked(plan: Plan, link: Link) -> dict[str, Any]:
    """Return all that losses by cluster depend on but the model."""
    wc = SimpleNamespace(model=link.method, scope=link.scope, stage=link.stage)
    asked = _cluster_loss_inputs(plan, wc) | _cluster_loss_params(plan, wc)
    return {key: value for key, value in asked.items() if key != "model"}


def _query_item(
    plan: Plan, ranked: list[str], protocol: str | None, collections: list[str], model: Link, files: Files
) -> Reads:
    """What an item reads that compares queries of collections with the source's."""
    splits = {name: judged_split(plan, name) for name in [*collections, plan.source]}
    queries = [
        paths.embeddings(model.name, SCOPE, name, protocol, f"queries.{split}") for name, split in splits.items()
    ]
    files |= {"queries": queries, "collections": [paths.collection(name) for name in splits]}
    return Reads(ranked, files=files | {"source_per_query": per_query(ranked, [plan.source], protocol)})
