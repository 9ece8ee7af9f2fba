"""Plan MoDIR: what adapts a stage to a target, measures of domains, and the items that show them."""

from typing import Any

from zerodr.errors import ConfigError
from zerodr.papers.modir.items import DomainAccuracyItem, DomainsItem, NearestQueriesItem, ProjectionsItem
from zerodr.papers.modir.settings import AdversarySettings, adversary_of
from zerodr.plan import paths
from zerodr.plan.dense import corpus_embeddings, query_embeddings
from zerodr.plan.items import Reads, counterparts, judged_split, reads, target_steps
from zerodr.plan.lines import SCOPE, Link
from zerodr.plan.plan import (
    READS_TARGET,
    Files,
    Params,
    Plan,
    adds_inputs,
    adds_params,
    documents_alone,
    inputs,
    params,
    remarks,
)
from zerodr.plan.rules import ADDITIONS, RULES, Need, Rule
from zerodr.plan.targets import Placeholder, Target, add_targets

MEASURING = Need(6000, 0, 60, threads=8, gpu=True)
ADDITIONS |= {"adversary": 1}
RULES |= {
    "measure_domains": Rule("papers.modir.measure_domains:measure_domains", "measure", MEASURING, seeded=True),
    "project_domains": Rule("papers.modir.measure_domains:project_domains", "measure", MEASURING, seeded=True),
    "search_domains": Rule(
        "papers.modir.search_domains:search_domains", "measure", Need(20000, 0, 120, threads=8, gpu=True)
    ),
}
READS_TARGET.add("adversary")
add_targets(
    Target(paths.domains("{learned}", "{target}", "measures.tsv"), "how far a model's source and target lie apart"),
    Target(paths.domains("{learned}", "{target}", "nearest.parquet"), "nearest source queries of a target's queries"),
    Target(paths.domains("{learned}", "{target}", "tsne.parquet"), "both in the plane, by t-SNE"),
    Target(paths.domain_indexes("{learned}", "{target}", "{protocol}"), "the same of all documents; the source ranked"),
    learned=Placeholder(
        lambda plan: [name for name, method in plan.bench.methods.items() if method.kind == "trained" and method.ranks],
        "{trained} and {adapted}",
    ),
)


# ---- adversarial stages ----------------------------------------------------------------------------------------
def adversarial(plan: Plan, link: Link) -> AdversarySettings | None:
    """Return how a stage adapts to a target; None for other models."""
    return adversary_of(plan.chains.find_stage(link))


@adds_inputs("finetune", "adversary")
def _target_collections(plan: Plan, link: Link) -> Files:
    return {"targets": [paths.collection(name) for name in plan.chains.members(link.scope)]}


@documents_alone("finetune", "adversary")
def _alone(plan: Plan, link: Link) -> dict[str, bool]:
    adversary = adversarial(plan, link)
    return {"targets": adversary is not None and adversary.queries == "none"}


@adds_params("finetune", "adversary")
def _adaptation(plan: Plan, link: Link) -> Params:
    adversary = adversarial(plan, link)
    assert adversary is not None, f"{link.name} has no adversary"
    before = link._replace(stage=plan.chains.before(link))
    return {
        "targets": _texts(plan, link.scope, adversary.queries),
        "continue_classifier": adversarial(plan, before) is not None and plan.chains.keeps_moments(before),
    }


def _texts(plan: Plan, scope: str, queries: str) -> Params:
    """How the texts of a target's collections are read."""
    return {
        name: {"split": _split(plan, name, queries), "title_join": plan.collection(name).title_join}
        for name in plan.chains.members(scope)
    }


def _split(plan: Plan, name: str, queries: str) -> str | None:
    """The split of a target's collection whose queries are read."""
    row = plan.collection(name)
    split = {"test": row.evaluation_split, "train": "train"}.get(queries)
    if split is not None and split not in row.splits:
        raise ConfigError(
            f"target {name}",
            f"has no {queries} queries",
            "take the variant +inductive, which learns from documents alone, or set "
            "adversary.queries to another of test, train, unlabelled, none",
        )
    return split


def queries_seen(plan: Plan, name: str) -> set[str]:
    """List the queries of a target that its model learned from: values of adversary.queries, where it has a weight."""
    chains, method = plan.chains, name.partition("@")[0]
    stages = [adversarial(plan, Link(method, at)) for at in chains.line(method, chains.last(name))]
    seen = {adversary.queries for adversary in stages if adversary is not None and adversary.weight}
    start = chains.start_of_chain(method)
    return seen | (queries_seen(plan, "@".join(start)) if start is not None else set())


@remarks
def _transductive(plan: Plan, name: str) -> list[str]:
    if plan.chains.is_adapted(name) and "test" in queries_seen(plan, name):
        return ["transductive: learns from the queries that it is evaluated with, without their labels"]
    return []


# ---- measures of domains ---------------------------------------------------------------------------------------
@inputs("measure_domains", "project_domains")
def _domain_inputs(plan: Plan, wc: Any) -> Files:
    """The model that ranks the target, its source, the target's collections."""
    names = plan.chains.members(wc.target)
    return {
        "model": plan.chains.model(plan.chains.ranker(wc.model, names[0])),
        "source": paths.collection(plan.chains.source_of(wc.model.partition("@")[0])),
        "targets": [paths.collection(name) for name in names],
    }


@params("measure_domains")
def _measure_params(plan: Plan, wc: Any) -> Params:
    """As published, table 4's neighbours are among all training queries."""
    every = {"nearest_split": plan.chains.trained(wc.model.partition("@")[0]).source_split}
    return _domain_params(plan, wc) | (every if plan.bench.scale.as_published else {})


@params("project_domains")
def _domain_params(plan: Plan, wc: Any) -> Params:
    method = wc.model.partition("@")[0]
    settings, source = plan.chains.trained(method), plan.chains.source_of(method)
    split = plan.collection(source).evaluation_split or settings.source_split
    return {
        "source": {"split": split, "title_join": plan.collection(source).title_join},
        "targets": _texts(plan, wc.target, "test"),
    }


@inputs("search_domains")
def _index_inputs(plan: Plan, wc: Any) -> Files:
    """Vectors of all documents and evaluated queries of source and target, by the model that ranks the target."""
    names, source = plan.chains.members(wc.target), plan.chains.source_of(wc.model.partition("@")[0])
    link = plan.chains.ranker(wc.model, names[0])

    def queries(name: str) -> str:
        return query_embeddings(plan, wc.model, link, name, wc.protocol, judged_split(plan, name))

    def corpus(name: str) -> list[str]:
        shards = plan.shard_names("corpus", name)
        return [corpus_embeddings(plan, link, name, wc.protocol, shard) for shard in shards]

    return {
        "source": paths.collection(source),
        "source_queries": queries(source),
        "source_corpus": corpus(source),
        "targets": [paths.collection(name) for name in names],
        "target_queries": [queries(name) for name in names],
        "target_corpora": [file for name in names for file in corpus(name)],
    }


@params("search_domains")
def _index_params(plan: Plan, wc: Any) -> Params:
    source = plan.collection(plan.chains.source_of(wc.model.partition("@")[0]))
    names = [source.name, *plan.chains.members(wc.target)]
    itself = source.exclude_self and plan.protocol(wc.protocol).exclude_self == "registry"
    return {"splits": {name: judged_split(plan, name) for name in names}, "exclude_self": itself}


# ---- items -----------------------------------------------------------------------------------------------------
def _adversarial_stages(plan: Plan, method: str) -> list[str]:
    line = plan.chains.line(method, plan.chains.last(method))
    return [name for name in line if adversarial(plan, Link(method, name)) is not None]


def saved_models(plan: Plan, method: str) -> dict[str, int]:
    """List the model before the first adversarial stage, saved steps, and the last model, with steps of the chain.

    Raises:
        ConfigError: the method has no such stage.
    """
    stages, chains = _adversarial_stages(plan, method), plan.chains
    if not stages:
        raise ConfigError(
            f"method {method}",
            "has no stage with an adversary, so no steps to look at",
            "name a method with one, such as modir-dpr",
        )
    scope = next((row.column for row in plan.columns if row.name != plan.source), SCOPE)
    links = [Link(method, stage, scope) for stage in stages]
    start = chains.link(f"{method}@{chains.before(links[0])}", scope)
    steps = {start.name: chains.schedule(links[0])["first_step"]}
    for link in links:
        first, training = chains.schedule(link)["first_step"], chains.stage(link).training
        steps |= {f"{link.name}.{step}": first + step for step in training.save_steps}
        name = method if link.stage == chains.last(method).partition(".")[0] else link.name
        steps[name] = first + training.steps
    return steps


def _domain_files(points: dict[str, dict[str, int]], targets: list[str], file: str) -> list[str]:
    models = list(dict.fromkeys(name for line in points.values() for name in line))
    return [paths.domains(name, target, file) for name in models for target in targets]


@reads(DomainsItem)
def _domains(plan: Plan, item: DomainsItem, targets: list[str]) -> Reads:
    points = {name: saved_models(plan, name) for name in item.methods}
    stages = {name: _adversarial_stages(plan, name) for name in item.methods}
    models = [
        plan.chains.model(plan.chains.link(f"{method}@{stage}", target))
        for method in item.methods
        for target in targets
        for stage in stages[method]
    ]
    ranked = list(dict.fromkeys(name for line in points.values() for name in line))
    files = {"measures": _domain_files(points, targets, "measures.tsv"), "models": models}
    if plan.bench.scale.as_published and item.indexes:
        full = [
            name
            for line in points.values()
            for name, steps in line.items()
            if steps - min(line.values()) in item.indexes
        ]
        protocol = item.protocol or plan.config.protocol
        files["indexes"] = [
            paths.domain_indexes(name, target, protocol) for name in dict.fromkeys(full) for target in targets
        ]
    return Reads(ranked, [*ranked, *item.methods], points, stages, files)


@reads(DomainAccuracyItem)
def _domain_accuracy(plan: Plan, item: DomainAccuracyItem, targets: list[str]) -> Reads:
    """Read measures of the methods and of their counterparts with other seeds."""
    named = [item.baseline, *item.methods]
    for name in named:
        saved_models(plan, name)  # refuses one without an adversary
    seeds = counterparts(plan, named)
    files = [paths.domains(one["names"][name], t, "measures.tsv") for one in seeds for name in named for t in targets]
    return Reads(named=named, values=seeds, files={"measures": files})


@reads(NearestQueriesItem)
def _nearest_queries(plan: Plan, item: NearestQueriesItem, targets: list[str]) -> Reads:
    steps = list(saved_models(plan, item.method).items())
    points = {item.method: dict([steps[0], steps[-1]])}
    collections = [paths.collection(name) for name in targets]
    files = {"nearest": _domain_files(points, targets, "nearest.parquet"), "collections": collections}
    return Reads(list(points[item.method]), points=points, files=files)


@reads(ProjectionsItem)
def _projections(plan: Plan, item: ProjectionsItem, targets: list[str]) -> Reads:
    stepped = [name for name in item.methods if item.steps and _adversarial_stages(plan, name)]
    points = {
        n: saved_models(plan, n) if n in stepped else {n: target_steps(plan, n, targets[0])} for n in item.methods
    }
    named = list(dict.fromkeys(name for line in points.values() for name in line))
    return Reads(named=named, points=points, files={"projections": _domain_files(points, targets, "tsne.parquet")})
