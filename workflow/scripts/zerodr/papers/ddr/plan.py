"""Plan DDR: relevance modules in frozen domain modules, assemblies of both, and the items that show them."""

from typing import Any

from zerodr.config.recipes import INIT
from zerodr.errors import ConfigError
from zerodr.papers.ddr.items import AdaptationItem, ModuleLossesItem, ParametersItem
from zerodr.papers.ddr.settings import AssembleStage, ModuleKeys, RemSettings
from zerodr.plan.items import Reads, counterparts, reads, target_steps
from zerodr.plan.lines import Link, link_of
from zerodr.plan.plan import Files, Params, Plan, adds_inputs, inputs, params
from zerodr.plan.rules import ADDITIONS, RULES, Need, Rule

ADDITIONS |= {"rem": 1}
RULES["assemble"] = Rule("papers.ddr.modular:assemble", "assemble", Need(8000, 0, 30), writes="model")


# ---- relevance modules -----------------------------------------------------------------------------------------
def rem_of(plan: Plan, link: Link) -> RemSettings | None:
    """Settings of the relevance module that a stage trains; None: it trains all weights, or nothing."""
    keys = ModuleKeys.of(plan.chains.find_stage(link))
    return None if keys is None else keys.rem


def domain_module(plan: Plan, link: Link) -> Link:
    """Return the model in whose frozen weights a relevance module is trained: the one before; else the model itself."""
    if link.stage == INIT or rem_of(plan, link) is None:
        return plan.chains.link(link.name, link.scope)
    return plan.chains.link(f"{link.method}@{plan.chains.before(link)}", link.scope)


@adds_inputs("finetune", "rem")
def _modules(plan: Plan, link: Link) -> Files:
    return {"model": plan.chains.model(domain_module(plan, link))}


# ---- assemblies ------------------------------------------------------------------------------------------------
def _assembly(plan: Plan, link: Link) -> AssembleStage:
    stage = plan.chains.find_stage(link)
    assert isinstance(stage, AssembleStage), f"{link.name} is trained"
    return stage


@inputs("assemble")
def _assemble_inputs(plan: Plan, wc: Any) -> Files:
    """Domain and relevance module."""
    link, chains = plan.link(wc), plan.chains
    dam = _assembly(plan, link).dam
    _refuse_stacked(plan, link, _assembly(plan, link))
    _refuse_twice(plan, link, _assembly(plan, link))
    domain = chains.parent_of(dam, link.scope) or chains.link(f"{link.method}@{dam}", link.scope)
    return {"dam": chains.model(domain), "rem": chains.model(chains.parent(link))}


def _refuse_stacked(plan: Plan, link: Link, stage: AssembleStage) -> None:
    """Refuse a relevance module that was trained next to another one, which the domain module lacks.

    Raises:
        ConfigError: it was.
    """
    chains, (rem, dam) = plan.chains, (name.partition(".")[0] for name in (stage.rem, stage.dam))
    below = chains.before(link._replace(stage=rem)).partition(".")[0]
    another = None if below == INIT else rem_of(plan, link._replace(stage=below))
    inside = dam in chains.trained(link.method).chain and below in chains.line(link.method, dam)
    if another is not None and another.shape != "full" and not inside:
        problem = f"was trained next to the relevance module of {below}, which {stage.dam} lacks"
        step = f"set `after` of {rem} to its domain module, or name a dam that comes from {below}"
        raise ConfigError(f"{link.name}: rem {stage.rem}", problem, step)


def _refuse_twice(plan: Plan, link: Link, stage: AssembleStage) -> None:
    """Refuse a domain module that comes from the model that the relevance module was merged into.

    Raises:
        ConfigError: it does.
    """
    chains, rem = plan.chains, stage.rem.partition(".")[0]
    merged = chains.link(f"{link.method}@{rem}", link.scope)
    waiting = [chains.start(stage.dam) or (link.method, stage.dam)]
    while waiting:
        method, last = waiting.pop()
        line = chains.line(method, last)
        if any(chains.link(f"{method}@{name}", link.scope) == merged for name in line):
            problem = f"is in {stage.dam} already, which comes from it, so that it would count twice"
            step = f"let {stage.dam} start (`after`) from {chains.before(merged)}, in which {rem} is trained"
            raise ConfigError(f"{link.name}: rem {stage.rem}", problem, step)
        named = [name for one in line for name in chains.trained(method).chain[one].parents.values() if name]
        starts = [chains.start_of_chain(method), *map(chains.start, named)]
        waiting += [start for start in starts if start is not None]


@params("assemble")
def _assemble_params(plan: Plan, wc: Any) -> Params:
    stage = _assembly(plan, link_of(wc))
    return {"fold": stage.fold} | stage.retired


# ---- items -----------------------------------------------------------------------------------------------------
@reads(AdaptationItem)
def _adaptation(plan: Plan, item: AdaptationItem, targets: list[str]) -> Reads:
    lines = item.lines | {name: (name,) for name in item.references}
    steps = {name: {target_steps(plan, name, at) for at in targets} for names in lines.values() for name in names}
    if unequal := [name for name, numbers in steps.items() if len(numbers) > 1]:
        problem = f"{unequal[0]} has {' and '.join(map(str, sorted(steps[unequal[0]])))} steps, depending on the target"
        raise ConfigError("item", problem, "make an item for each kind of target")
    points = {label: {name: min(steps[name]) for name in names} for label, names in lines.items()}
    return Reads(list(dict.fromkeys(name for line in points.values() for name in line)), points=points)


@reads(ParametersItem)
def _parameters(plan: Plan, item: ParametersItem, targets: list[str]) -> Reads:
    models = [plan.chains.model(plan.chains.ranker(name, targets[0])) for name in item.methods]
    return Reads(named=list(item.methods), files={"models": models})


@reads(ModuleLossesItem)
def _module_losses(plan: Plan, item: ModuleLossesItem, targets: list[str]) -> Reads:
    """Read a stage's models, of each target where it has such, and those of the run's further seeds."""
    files, values = list[str](), list[dict[str, Any]]()
    for one in counterparts(plan, list(item.models)):
        for name in item.models:
            scopes = [plan.bench.collections[target].target for target in targets]
            links = dict.fromkeys(plan.chains.link(one["names"][name], scope) for scope in scopes)
            files += [plan.chains.model(link) for link in links]
            values += [{"seed": one["seed"], "model": name}] * len(links)
    return Reads(named=list(item.models), files={"models": files}, values=values)
