"""Checks of chains: stage names, where models and negatives come from, what needs a stage before it."""

from __future__ import annotations

import re

from zerodr.config.bench import Bench
from zerodr.config.families import check_family
from zerodr.config.files import known
from zerodr.config.methods import LexicalMethod, Method, TeacherMethod, TrainedMethod
from zerodr.config.starts import check_starts, start_of
from zerodr.config.trained import AssembleStage, ChainStage, FinetuneStage, MemoryStage, PretrainStage
from zerodr.config.training import NegativesSettings
from zerodr.errors import ConfigError, nearest
from zerodr.papers.moma.mixtures import check_named
from zerodr.papers.moma.settings import SOURCE, TARGET, InferenceSettings

STAGE = re.compile(r"[a-z][a-z0-9_-]*")
TAKEN = {"init", "imported", "teacher", "reader"}
PLACES = ("previous", "none")


def check_chains(bench: Bench) -> None:
    """Raise ConfigError for the first chain that can't be meant."""
    check_starts(bench.methods)
    for name, method in bench.methods.items():
        if isinstance(method, TrainedMethod) and not method.stage:
            check_family(name, method, bench.methods)
            _check_stages(name, method, bench.methods)
            _check_corpora(bench, name, method.settings.chain)
            _check_memories(bench, name, method)
            check_named(bench, name, method)
            _check_augmenters(name, method, bench.methods)
        elif isinstance(method, TeacherMethod):
            _check_negatives(f"teacher {name}", method.settings.negatives, bench.methods)
    _check_kinds(bench)


def check_supervision(bench: Bench, chosen: dict[str, Method]) -> None:
    """The sources of chosen trained methods have the split that they learn from."""
    for name, method in chosen.items():
        if isinstance(method, TrainedMethod):
            settings = method.settings
            source = settings.source or bench.config.source or bench.scale.source
            row = known(f"method {name}: source", source, bench.collections)
            known(f"method {name}: protocol", settings.protocol, bench.protocols)
            if settings.source_split not in row.splits:
                raise ConfigError(
                    f"method {name}: source {source}",
                    f"has no judgements for split {settings.source_split!r}, there is nothing to learn from",
                    nearest(settings.source_split, row.splits),
                )


def _check_stages(name: str, method: TrainedMethod, methods: dict[str, Method]) -> None:
    for number, (stage, settings) in enumerate(method.settings.chain.items()):
        where = f"method {name}: stage {stage}"
        if not STAGE.fullmatch(stage) or stage in TAKEN:
            raise ConfigError(
                where,
                "can't be a stage's name: expected small letters, digits, _ - after a letter, and "
                f"none of {', '.join(sorted(TAKEN))}",
                "rename it",
            )
        _check_parents(where, method.settings.chain, stage, methods)
        if isinstance(settings, AssembleStage):
            continue
        if isinstance(settings, FinetuneStage):
            _check_negatives(where, settings.negatives, methods)
            _check_helper(where, "teacher", settings.teacher, methods)
            _check_helper(where, "reader", settings.units.reader if settings.units else None, methods)
        if settings.training.keep_optimizer and not number:
            raise ConfigError(where, "can't keep_optimizer: the initial model has no moments", "leave it out")
        late = [step for step in settings.training.save_steps if not 0 < step < settings.training.steps]
        if late:
            raise ConfigError(
                f"{where}: training.save_steps",
                f"holds {late[0]}, expected steps between 1 and {settings.training.steps - 1}",
                "the last step is kept anyway",
            )


def _check_parents(where: str, chain: dict[str, ChainStage], stage: str, methods: dict[str, Method]) -> None:
    """The stages that a stage names as its parents stand before it, and are of the kind that it needs."""
    settings, names = chain[stage], list(chain)
    earlier = {name: chain[name] for name in names[: names.index(stage)]}
    steps = {
        f"{name}.{step}": own
        for name, own in earlier.items()
        if not isinstance(own, AssembleStage)
        for step in own.training.save_steps
    }
    possible: dict[str, ChainStage | None] = {"init": None, **earlier, **steps}
    keys = ("dam", "rem") if isinstance(settings, AssembleStage) else ("after",)
    for key in keys:
        named = getattr(settings, key)
        if named is not None and not (key == "dam" and start_of(named, methods)):
            known(f"{where}: {key}", named, possible)
    if isinstance(settings, AssembleStage) and not _has_rem(possible[settings.rem]):
        raise ConfigError(
            f"{where}: rem {settings.rem!r}",
            "was not trained with `rem`, there is no module to take",
            "name a finetune stage with rem, of a shape other than full",
        )
    if isinstance(settings, FinetuneStage) and settings.rem is not None and settings.rem.go_on:
        before = settings.after or ["init", *names][names.index(stage)]
        if not _has_rem(possible[before]):
            raise ConfigError(f"{where}: rem.go_on", f"stage {before} was not trained with `rem`", "leave go_on out")


def _has_rem(stage: ChainStage | None) -> bool:
    return isinstance(stage, FinetuneStage) and stage.rem is not None and stage.rem.shape != "full"


def _check_helper(where: str, role: str, name: str | None, methods: dict[str, Method]) -> None:
    """A teacher is a recipe of kind teacher, a reader one of kind reader."""
    kind = known(f"{where}: {role}", name, methods).kind if name is not None else role
    if kind != role:
        raise ConfigError(
            f"{where}: {role} {name!r}", f"is of kind {kind}, expected {role}", f"name a recipe of kind {role}"
        )


def _check_corpora(bench: Bench, name: str, stages: dict[str, ChainStage]) -> None:
    groups = {part for row in bench.collections.values() for part in (row.column, *row.groups)}
    for stage, settings in stages.items():
        for corpus in settings.corpora if isinstance(settings, PretrainStage) else ():
            known(
                f"method {name}: stage {stage}: corpora",
                corpus,
                {"source", "targets", "target", *groups, *bench.collections},
            )


def _check_memories(bench: Bench, name: str, method: TrainedMethod) -> None:
    """Memories exist; what follows augmented queries is augmented too; inference is for chains that end so."""
    chain, inference = method.settings.chain, method.settings.inference
    augmented = [isinstance(stage, MemoryStage) for stage in chain.values()]
    if augmented != sorted(augmented):
        first = list(chain)[augmented.index(True)]
        raise ConfigError(
            f"method {name}",
            f"goes on after stage {first} with a stage without memories",
            "put stages of kind moma last",
        )
    if inference != InferenceSettings() and not augmented[-1]:
        raise ConfigError(
            f"method {name}: inference", "is for chains that end with a stage of kind moma", "leave it out"
        )
    for stage, settings in chain.items():
        for memory in settings.memory.memories if isinstance(settings, MemoryStage) else ():
            known(f"method {name}: stage {stage}: memories", memory, {SOURCE, *bench.collections})
    for memory in inference.memories or ():
        known(f"method {name}: inference.memories", memory, {SOURCE, TARGET, *bench.collections})


def _check_augmenters(name: str, method: TrainedMethod, methods: dict[str, Method]) -> None:
    """Frozen augmenters are models of recipes that do not come from this one."""
    for stage, init in given_augmenters(method).items():
        where = f"method {name}: stage {stage}: augmenter.init"
        known(where, init, [other.replace("@", "/") for other in methods if "@" in other])
        seen, waiting = {name}, [init]
        while waiting:
            recipe = waiting.pop().rpartition("/")[0]
            if recipe == name:
                raise ConfigError(where, f"{init} comes from {name} itself", "name a recipe that does not")
            other = methods.get(recipe)
            if recipe not in seen and isinstance(other, TrainedMethod):
                seen.add(recipe)
                waiting += [other.settings.encoder.init, *given_augmenters(other).values()]


def given_augmenters(method: TrainedMethod) -> dict[str, str]:
    """By stage the `<recipe>/<stage>` that its augmenter is."""
    stages = method.settings.chain.items()
    return {
        name: stage.augmenter.init
        for name, stage in stages
        if isinstance(stage, MemoryStage) and stage.augmenter.init is not None
    }


def _check_kinds(bench: Bench) -> None:
    """A stage's name means one kind of stage in all recipes: rules tell them apart by it."""
    seen: dict[str, tuple[str, str]] = {}
    for name, method in bench.methods.items():
        for stage, settings in method.settings.chain.items() if isinstance(method, TrainedMethod) else ():
            kind, other = seen.setdefault(stage, (settings.kind, name))
            if kind != settings.kind:
                raise ConfigError(
                    f"method {name}: stage {stage}",
                    f"is of kind {settings.kind}, in {other} a stage of that name is of kind {kind}",
                    "rename one",
                )


def _check_negatives(where: str, negatives: NegativesSettings, methods: dict[str, Method]) -> None:
    if negatives.source in PLACES:
        return
    method = known(f"{where}: negatives.source", negatives.source, methods | dict.fromkeys(PLACES))
    if isinstance(method, LexicalMethod) and (method.settings.backend, method.settings.fields) != ("bm25s", "flat"):
        raise ConfigError(
            f"{where}: negatives.source {negatives.source!r}",
            "searches Lucene, which mining does not",
            "name a lexical method with backend: bm25s, such as bm25-flat+bm25s",
        )
    if method.kind not in ("lexical", "encoder", "trained"):
        raise ConfigError(
            f"{where}: negatives.source {negatives.source!r}",
            f"is of kind {method.kind}",
            "name a lexical method or a bi-encoder",
        )
