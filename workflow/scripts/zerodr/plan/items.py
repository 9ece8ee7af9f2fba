"""Plan workflow/rules/items.smk: tables and figures of papers (config/papers), and what each kind of item reads."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from zerodr.config.counterparts import drawing, seeded
from zerodr.config.files import known
from zerodr.config.item import Item
from zerodr.config.measures import FIRST, added, is_measure, require_depth
from zerodr.config.methods import TrainedMethod
from zerodr.config.papers import (
    ClaimItem,
    EpisodesItem,
    MethodsItem,
    SettingsItem,
    SimilarityItem,
    SizesItem,
    StatisticsItem,
)
from zerodr.config.recipes import INIT
from zerodr.config.stages import PretrainStage
from zerodr.errors import ConfigError
from zerodr.plan import paths
from zerodr.plan.lines import Link
from zerodr.plan.plan import READS_TARGET, Files, Params, Plan, inputs, params
from zerodr.plan.published import (
    NOTE,
    find_item,
    item_collections,
    items_of,
    modes_of_item,
    named_collections,
    published_cells,
    written_settings,
)
from zerodr.plan.reporting import remarks_of

PRINTED = ("published", "rows", "cells", "repeats", "protocol")  # fields that say which printed values are shown
NAMING = ("methods", "method", "baseline", "controls", "models", "units_of", "lines", "references")
"""Fields that name methods."""


@dataclass(frozen=True)
class Reads:
    """Inputs of an item.

    Attributes:
        ranked: methods whose metrics by query it reads.
        named: methods that it shows; None: those of `ranked`.
        points: by line its models, with the steps that these learned from the target.
        stages: by method the stages whose trainings it shows.
        files: further inputs by name.
        values: facts of the configuration itself that it shows.
    """

    ranked: list[str] = field(default_factory=list)
    named: list[str] | None = None
    points: dict[str, dict[str, int]] = field(default_factory=dict)
    stages: dict[str, list[str]] = field(default_factory=dict)
    files: Files = field(default_factory=dict)
    values: list[dict[str, Any]] = field(default_factory=list)


READERS: dict[type[Item], Callable[[Plan, Any, list[str]], Reads]] = {}
Reader = Callable[[Plan, Any, list[str]], Reads]


def reads(*kinds: type[Item]) -> Callable[[Reader], Reader]:
    """Register `(plan, item, collections) -> Reads` of kinds of items."""

    def keep(function: Reader) -> Reader:
        READERS.update(dict.fromkeys(kinds, function))
        return function

    return keep


# ---- items -----------------------------------------------------------------------------------------------------
def read_item(plan: Plan, item: Item, collections: list[str], where: str = "item") -> Reads:
    """Find what an item reads.

    Raises:
        ConfigError: it names a method that is not configured or that it can't show, or a measure that is not computed.
    """
    for key in NAMING:
        for name in _leaves(getattr(item, key, None)):
            known(f"{where}: method", name, plan.bench.methods)
    protocol = item.protocol or plan.config.protocol
    for name in filter(is_measure, (*_leaves(getattr(item, "measure", None)), *getattr(item, "beside", ()))):
        if name not in (*FIRST, *added(plan.config.measures)):
            chosen = ",".join([*(plan.config.measures or ["ndcg_cut_10"]), name])
            problem = "is computed only where measures= names it"
            raise ConfigError(f"{where}: measure {name}", problem, f"add --config measures=[{chosen}]")
        require_depth(f"{where}: measure {name}", name, protocol, plan.protocol(protocol).depth)
    needed = READERS[type(item)](plan, item, collections)
    for name in needed.ranked:
        plan.method(name).check_ranks(f"{where}: method {name!r}")
    return needed


def judged_split(plan: Plan, collection: str) -> str:
    """Return the split whose queries are measured.

    Raises:
        ConfigError: the collection has none.
    """
    split = plan.collection(collection).evaluation_split
    if not split:
        problem = "has no judged queries, so no ranking of it is measured"
        raise ConfigError(f"collection {collection}", problem, "take another source or target")
    return split


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ():
        yield from _leaves(member)


def per_query(methods: list[str], collections: list[str], protocol: str | None) -> list[str]:
    """Metrics by query of methods on collections."""
    return [paths.per_query(method, name, protocol) for method in methods for name in collections]


@reads(MethodsItem, SimilarityItem)
def _methods(plan: Plan, item: MethodsItem | SimilarityItem, collections: list[str]) -> Reads:
    ranked = list(dict.fromkeys([*item.methods, item.baseline]))
    if isinstance(item, SimilarityItem):
        return Reads(ranked, files={"statistics": [paths.statistics(name) for name in collections]})
    return Reads(ranked)


@reads(ClaimItem)
def _claim(plan: Plan, item: ClaimItem, collections: list[str]) -> Reads:
    """Read the methods and their counterparts with other seeds."""
    named = list(dict.fromkeys([item.baseline, *item.methods, *item.controls.values()]))
    seeds = counterparts(plan, named)
    ranked = dict.fromkeys(name for one in seeds for name in one["names"].values())
    return Reads(list(ranked), named=named, values=seeds)


def counterparts(plan: Plan, named: list[str]) -> list[dict[str, Any]]:
    """Name methods' counterparts by seed; what draws no random number has none.

    Raises:
        ConfigError: a method has a seed of its own, so it would not be the run's seed that a page tells.
    """
    drawn = drawing(plan.bench.recipes)
    drawing_ones = [name for name in named if name.partition("@")[0] in drawn]
    for name in drawing_ones:
        if (seed := plan.bench.methods[name].seed) is not None:
            step = "compare the recipe without it, and repeat it by --config seeds=14,15"
            what = f"has a seed of its own, {seed}; pages over several seeds count the run's"
            raise ConfigError(f"method {name}", what, step)
    seeds: list[dict[str, Any]] = []
    for seed in (plan.config.seed, *(plan.config.seeds if drawing_ones else ())):
        names = {name: seeded(name, seed) if seeds and name in drawing_ones else name for name in named}
        seeds.append({"seed": seed, "names": names, "drawing": drawing_ones})
    return seeds


@reads(EpisodesItem)
def _episodes(plan: Plan, item: EpisodesItem, collections: list[str]) -> Reads:
    stages = item.stages or plan.chains.fine_tuning(item.methods[0])
    return Reads([f"{method}@{stage}" for method in item.methods for stage in stages])


@reads(StatisticsItem)
def _statistics(plan: Plan, item: StatisticsItem, collections: list[str]) -> Reads:
    files = {"statistics": [paths.statistics(name) for name in collections]}
    return Reads(files=files | {"collections": [paths.collection(name) for name in collections]})


@reads(SizesItem)
def _sizes(plan: Plan, item: SizesItem, collections: list[str]) -> Reads:
    models = [plan.chains.model(plan.chains.ranker(name, collections[0])) for name in item.methods]
    return Reads(list(item.methods), files={"models": models})


@reads(SettingsItem)
def _settings(plan: Plan, item: SettingsItem, collections: list[str]) -> Reads:
    """The settings themselves: they are no files.

    Raises:
        ConfigError: the recipe has no setting of that path.
    """
    written, values = written_settings(plan, item.method), []
    for row, paths_of in item.values.items():
        for metric, path in ({"hyperparameter": paths_of} if isinstance(paths_of, str) else paths_of).items():
            value: Any = written
            for key in path.split("."):
                value = known(f"method {item.method}: {path}", key, value if isinstance(value, dict) else {})
            values.append({"row": row, "metric": metric, "path": path, "value": value})
    return Reads(named=[item.method], values=values)


def target_steps(plan: Plan, name: str, target: str) -> int:
    """Steps that a method's model learned from texts of a target."""
    if not isinstance(plan.method(name), TrainedMethod):
        return 0
    chains, method, steps = plan.chains, name.partition("@")[0], 0
    starts = [chains.start_of_chain(method)]
    target_chain = chains.chain(Link(method, INIT, plan.collection(target).column))
    for stage in (target_chain[at] for at in chains.line(method, chains.last(name))):
        starts += chains.other_parents(stage)
        reads_target = isinstance(stage, PretrainStage) or any(stage.find(key) for key in READS_TARGET)
        if stage.scope == "target" and reads_target and stage.optimisation is not None:
            steps += stage.optimisation.steps
    return steps + sum(target_steps(plan, "@".join(start), target) for start in starts if start is not None)


# ---- rules -----------------------------------------------------------------------------------------------------
def _read(plan: Plan, wc: Any) -> tuple[Item, list[str], Reads]:
    item, collections = find_item(plan, wc.paper, wc.item), item_collections(plan, wc.paper, wc.item)
    if isinstance(item, MethodsItem) and (chosen := plan.config.measures):
        more = dict.fromkeys(name for name in (*item.beside, *chosen) if name != item.measure)
        item = item.model_copy(update={"beside": tuple(more)})
    return item, collections, read_item(plan, item, collections, f"{wc.paper}: {wc.item}")


@inputs("build_item")
def _item_inputs(plan: Plan, wc: Any) -> Files:
    item, collections, needed = _read(plan, wc)
    ranked = {"per_query": per_query(needed.ranked, collections, item.protocol)} if needed.ranked else {}
    paper = plan.bench.papers[wc.paper]
    return ranked | needed.files | ({"reference": paper.reference} if item.published and paper.reference else {})


@params("build_item", "plot_item")
def _item_params(plan: Plan, wc: Any) -> Params:
    item, collections, needed = _read(plan, wc)
    methods, rows = plan.bench.methods, plan.bench.collections
    named = needed.ranked if needed.named is None else needed.named
    source, columns = _source(plan, named), [rows[name].column for name in collections]
    aggregates = {name: rows[name].column for name in collections if columns.count(rows[name].column) > 1}
    return {
        **({"aggregates": aggregates} if aggregates else {}),
        "paper": plan.bench.papers[wc.paper].label,
        "name": wc.item,
        "item": item.model_dump(mode="json", exclude=set(PRINTED)),
        "collections": [(name, rows[name].label) for name in collections],
        "splits": {name: rows[name].evaluation_split for name in [*collections, source]},
        "methods": [(name, methods[name].label) for name in dict.fromkeys(named)],
        "remarks": [
            *other_collections(plan, item, collections),
            *modes_of_item(plan, wc.paper, wc.item),
            *join_remarks(plan, named, item.protocol),
        ],
        "points": [(line, list(models.items())) for line, models in needed.points.items()],
        "stages": list(needed.stages.items()),
        "source": source,
        "scale": plan.config.scale,
        "protocol": item.protocol,
        "values": needed.values,
        "published": published_cells(plan, wc.paper, wc.item, collections),
        "bootstrap_samples": plan.config.bootstrap_samples,
    }


def _source(plan: Plan, named: Iterable[str]) -> str:
    """Find the one collection that an item's trained methods learn from; the configuration's, if there are several."""
    methods = {name.partition("@")[0] for name in named}
    sources = {plan.chains.source_of(name) for name in methods if isinstance(plan.method(name), TrainedMethod)}
    return sources.pop() if len(sources) == 1 else plan.source


def other_collections(plan: Plan, item: Item, collections: list[str]) -> list[str]:
    """A footnote where an item has other collections than its paper's."""
    if item.collections is None:
        return []
    rows = plan.bench.collections
    of_paper = {row.column for row in named_collections(plan, item)}
    here = {rows[name].column for name in collections}
    if not of_paper & here:
        return [
            f"{', '.join(rows[name].label for name in collections)}: in place of the collections of the paper's item"
        ]
    lacking = len(of_paper - here)
    others = [rows[name].label for name in collections if rows[name].column not in of_paper]
    notes = [f"without {lacking} of the {len(of_paper)} collections of the paper's item"] if lacking else []
    return notes + ([f"{', '.join(others)}: not in the paper's item"] if others else [])


def join_remarks(plan: Plan, names: list[str], protocol: str | None = None) -> list[str]:
    """Footnotes of methods; one that does not hold for all of them begins with the labels that it holds for."""
    labels: dict[str, list[str]] = {}
    methods = list(dict.fromkeys(name.partition("@")[0] for name in names))
    for name in methods:
        for remark in remarks_of(plan, name, protocol):
            labels.setdefault(remark, []).append(plan.method(name).label)
    return sorted(
        remark if len(about) == len(methods) else f"{'; '.join(about)}: {remark}" for remark, about in labels.items()
    )


@inputs("plot_item")
def _plot_inputs(plan: Plan, wc: Any) -> Files:
    return {"table": paths.item(wc.paper, wc.item, "tsv")}


@inputs("build_published")
def _published_inputs(plan: Plan, wc: Any) -> Files:
    """The reference file, and the main table's rows that it has values of.

    Raises:
        ConfigError: the paper has no reference file.
    """
    paper = plan.bench.papers[wc.paper]
    if paper.reference is None:
        raise ConfigError(f"{wc.paper}: published", "the paper has no reference file", "add the key `reference`")
    others = [method for item in paper.items.values() for method in item.rows.values() if method]
    printed = {method.partition(",")[0] for method in (*paper.rows.values(), *others)}
    rows = [name for name in plan.ranked if name in printed]
    return {"reference": paper.reference, "summaries": [p for name in rows for p in plan.evaluations("summary", name)]}


@params("build_published")
def _published_params(plan: Plan, wc: Any) -> Params:
    paper, columns = plan.bench.papers[wc.paper], [row.name for row in plan.columns]
    items = []
    for name, item in paper.items.items():
        cells = published_cells(plan, wc.paper, name, columns)
        if cells is not None and item.cells is None:
            values = read_item(plan, item, columns).values if isinstance(item, SettingsItem) else []
            named = [method for key in NAMING for method in _leaves(getattr(item, key, None))]
            remarks = [*modes_of_item(plan, wc.paper, name), *(r for r in join_remarks(plan, named) if NOTE in r)]
            shown = {"name": name, "title": item.title, "published": cells, "values": values}
            items.append(shown | ({"remarks": remarks} if remarks else {}))
    return {"label": paper.label, "name": wc.paper, "items": items, "protocol": plan.config.protocol}


@inputs("build_paper")
def _paper_inputs(plan: Plan, wc: Any) -> Files:
    items, names = plan.bench.papers[wc.paper].items, items_of(plan, wc.paper)
    return {
        "tables": [paths.item(wc.paper, name, "md") for name in names],
        "figures": [paths.item(wc.paper, name, "svg") for name in names if items[name].is_drawn],
    }


@params("build_paper")
def _paper_params(plan: Plan, wc: Any) -> Params:
    paper, names = plan.bench.papers[wc.paper], items_of(plan, wc.paper)
    left_out = [
        (paths.item(wc.paper, name, "html"), item.title) for name, item in paper.items.items() if name not in names
    ]
    drawn = {name: paper.items[name].is_drawn for name in names}
    return {"label": paper.label, "items": drawn, "left_out": left_out, "scale": plan.config.scale}
