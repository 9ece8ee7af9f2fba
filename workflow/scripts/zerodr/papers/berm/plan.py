"""Plan BERM: units of passages, their labels, readers, the losses over units, and the items that show them."""

from collections.abc import Callable
from typing import Any

from zerodr.config.recipes import INIT
from zerodr.errors import ConfigError
from zerodr.papers.berm.items import UnitsItem
from zerodr.papers.berm.settings import UnitKeys, UnitSettings
from zerodr.plan import paths
from zerodr.plan.items import Reads, counterparts, reads
from zerodr.plan.lines import SCOPE, Link, link_of
from zerodr.plan.mining import INDEX
from zerodr.plan.patterns import alternatives
from zerodr.plan.plan import Files, Params, Plan, adds_inputs, inputs, params
from zerodr.plan.rules import ADDITIONS, RULES, VERSIONS, Need, Rule, encoding
from zerodr.plan.targets import Placeholder, Target, add_targets

MEASURED_PAIRS = 10000
MEASURING = Need(8000, 0, 120, threads=8, gpu=True)

VERSIONS |= {
    "papers.berm.segment_units:segment_units": 2,
}
ADDITIONS |= {"berm": 1, "balance": 1, "objective.spans": 1}
RULES |= {
    "segment_units": Rule("papers.berm.segment_units:segment_units", "annotate", Need(4000, 0, 60)),
    "label_units": Rule("papers.berm.label_units:label_units", "annotate", Need(8000, 0, 60)),
    "measure_units": Rule("papers.berm.measure_units:measure_units", "measure", MEASURING, seeded=True),
    "read_units": Rule("papers.berm.reader:read_units", "annotate", encoding(8000, 0, 720)),
}


# ---- which stage makes which units -----------------------------------------------------------------------------
def find_units(plan: Plan, link: Link) -> UnitSettings | None:
    """Settings of the units of a stage's positives; None where it has none."""
    keys = UnitKeys.of(plan.chains.find_stage(link))
    return None if keys is None else keys.units


def _units(plan: Plan, link: Link) -> UnitSettings:
    units = find_units(plan, link)
    assert units is not None, f"{link.name} has no units"
    return units


def cut_units(plan: Plan, link: Link) -> Link:
    """The stage with whose name the units of a stage's positives are stored: all of the source's."""
    return _first(plan, link, lambda units: units.cut, sampled=False)


def units_read(plan: Plan, link: Link) -> Link:
    """The stage with whose name a reader's scores of the units are stored."""
    return _first(plan, link, lambda units: [units.cut, units.reader, units.label.aggregation])


def labelled_units(plan: Plan, link: Link) -> Link:
    """The stage with whose name the labels of the units are stored."""
    return _first(plan, link, lambda units: units)


def mined_sample(plan: Plan, link: Link) -> Link | None:
    """The stage whose mined queries are labelled, where they are a sample; None: all of the source."""
    sampled = plan.chains.stage(link).negatives.queries is not None
    return plan.chains.mined(link) if sampled else None


def _first(plan: Plan, link: Link, select: Callable[[UnitSettings], Any], sampled: bool = True) -> Link:
    """The first stage of the chain, of the first of its family, with the same units of the same queries."""
    chains = plan.chains

    def history(at: Link) -> Any:
        settings, units = chains.trained(at.method), find_units(plan, at)
        if units is None:
            return None
        return [
            chains.encoder(at.method),
            select(units),
            chains.source_of(at.method),
            settings.source_split,
            settings.protocol,
            mined_sample(plan, at) if sampled else None,
        ]

    wanted, mined = history(link), mined_sample(plan, link) if sampled else None
    scope = SCOPE if mined is None else mined.scope
    chain = chains.trained(link.method).chain
    alike = next(name for name in chain if history(link._replace(stage=name)) == wanted)
    return chains.first_alike(Link(link.method, alike, scope), history)


def _cut_file(plan: Plan, link: Link) -> str:
    return paths.units(*cut_units(plan, link).path_keys, "cut")


# ---- what a stage adds -----------------------------------------------------------------------------------------
@adds_inputs("finetune", "units")
def _unit_files(plan: Plan, link: Link) -> Files:
    return {"units": _cut_file(plan, link), "labels": paths.units(*labelled_units(plan, link).path_keys, "labels")}


# ---- units and labels ------------------------------------------------------------------------------------------
def _pairs(plan: Plan, method: str) -> Params:
    settings, source = plan.chains.trained(method), plan.chains.source_of(method)
    return {"split": settings.source_split, "title_join": plan.collection(source).title_join}


@inputs("segment_units")
def _segment_inputs(plan: Plan, wc: Any) -> Files:
    """The source, and the initial model, whose tokens count."""
    initial = plan.chains.link(f"{wc.model}@{INIT}")
    return {"source": paths.collection(plan.chains.source_of(wc.model)), "model": plan.chains.model(initial)}


@params("segment_units")
def _segment_params(plan: Plan, wc: Any) -> Params:
    return {"cut": _units(plan, link_of(wc)).cut.model_dump(mode="json")} | _pairs(plan, wc.model)


@inputs("label_units")
def _label_inputs(plan: Plan, wc: Any) -> Files:
    """Units, the source with its inverted index, a reader's scores where there is one."""
    link, source = link_of(wc), plan.chains.source_of(wc.model)
    files = {
        "source": paths.collection(source),
        "units": _cut_file(plan, link),
        "index": paths.bm25_index(INDEX, source),
    } | _sample(plan, link)
    if _units(plan, link).reader is not None:
        files["read"] = paths.units(*units_read(plan, link).path_keys, "read")
    return files


def _sample(plan: Plan, link: Link) -> Files:
    """The mined queries, where they are a sample: others need no label."""
    mined = mined_sample(plan, link)
    return {} if mined is None else {"mined": paths.mined(*mined.path_keys)}


@params("label_units")
def _label_params(plan: Plan, wc: Any) -> Params:
    return {"label": _units(plan, link_of(wc)).label.model_dump(mode="json")} | _pairs(plan, wc.model)


@inputs("read_units")
def _read_inputs(plan: Plan, wc: Any) -> Files:
    link = link_of(wc)
    return {
        "reader": plan.chains.model(_reader(plan, link)),
        "units": _cut_file(plan, link),
        "source": paths.collection(plan.chains.source_of(wc.model)),
        **_sample(plan, link),
    }


@params("read_units")
def _read_params(plan: Plan, wc: Any) -> Params:
    link = link_of(wc)
    aggregation = _units(plan, link).label.aggregation
    return plan.chains.scoring(_reader(plan, link)) | {"aggregation": aggregation} | _pairs(plan, wc.model)


def _reader(plan: Plan, link: Link) -> Link:
    reader = _units(plan, link).reader
    assert reader is not None, "only units with a reader are read"
    return plan.chains.server(reader)


# ---- measures --------------------------------------------------------------------------------------------------
def methods_with_units(plan: Plan) -> list[str]:
    """Trained methods, not adapted to targets, whose last stage has units."""
    shared = [name for name in plan.chains.names() if not plan.chains.is_adapted(name)]
    return [name for name in shared if find_units(plan, plan.chains.link(name)) is not None]


def pattern_of_units(plan: Plan) -> str:
    """A wildcard constraint that matches methods whose last stage has units."""
    return alternatives(methods_with_units(plan))


add_targets(
    Target(paths.unit_measures("{annotated}", "{trained}"), "a model measured over a method's units (BERM)"),
    annotated=Placeholder(methods_with_units),
)


@inputs("measure_units")
def _measure_inputs(plan: Plan, wc: Any) -> Files:
    """Any trained model, and the units and labels of the last stage of `units_of`.

    Raises:
        ConfigError: the model reads documents of another length, so the units are not of its tokens.
    """
    link, model = plan.chains.link(wc.units_of), plan.chains.link(wc.model)
    cut, length = (plan.chains.bi_encoder(at.method).document_tokens for at in (link, model))
    if cut != length:
        raise ConfigError(
            f"units of {wc.units_of}",
            f"are cut for documents of {cut} tokens, {wc.model} reads {length}",
            "measure it over the units of a method of its own length",
        )
    source = paths.collection(plan.chains.source_of(wc.units_of))
    return {"model": plan.chains.model(model), "source": source} | _unit_files(plan, link)


@params("measure_units")
def _measure_params(plan: Plan, wc: Any) -> Params:
    stage = plan.chains.find_stage(plan.chains.link(wc.model))
    losses = None if stage is None else stage.find("berm")
    # Told where it is not the default: other measurements stay as they are.
    form = {} if losses is None else losses.model_dump(include={"matching", "unit_space"}, exclude_defaults=True)
    return {"pairs": MEASURED_PAIRS, "title_join": _pairs(plan, wc.units_of)["title_join"], **form}


@reads(UnitsItem)
def _units_item(plan: Plan, item: UnitsItem, collections: list[str]) -> Reads:
    """Read a model's measures; where the run has further seeds, those of its counterparts too.

    Where the pairs are a sample, which the seed draws, each seed is measured over its own.
    """
    cut = item.units_of in methods_with_units(plan)
    sampled = cut and mined_sample(plan, plan.chains.link(item.units_of)) is not None
    seeds = counterparts(plan, [*dict.fromkeys([*item.methods, *([item.units_of] if sampled else [])])])
    measures = [
        paths.unit_measures(one["names"][item.units_of] if sampled else item.units_of, one["names"][name])
        for one in seeds
        for name in item.methods
    ]
    return Reads(named=list(item.methods), files={"measures": measures}, values=seeds if plan.config.seeds else [])
