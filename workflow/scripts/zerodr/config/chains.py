"""Checks of chains: stage names, where models and negatives come from, what needs a stage before it."""

import re

from zerodr.config.bench import Bench
from zerodr.config.files import known
from zerodr.config.methods import EncoderMethod, FusionMethod, LexicalMethod, Method, TrainedMethod
from zerodr.config.recipes import INIT
from zerodr.config.stages import ChainStage, FinetuneStage, LearningStage
from zerodr.config.starts import check_precision, check_starts, start_of
from zerodr.config.trained import TrainedSettings
from zerodr.config.training import FILE, InitSettings, NegativesSettings
from zerodr.errors import ConfigError, nearest
from zerodr.papers import modules

STAGE = re.compile(r"[a-z][a-z0-9_-]*")
TAKEN = {"init", "imported"}
RESERVED_SOURCES = ("previous", "none", "file")


def check_chains(bench: Bench) -> None:
    """Raise ConfigError for the first chain that can't be meant."""
    check_starts(bench.methods)
    for name, method in bench.methods.items():
        if isinstance(method, TrainedMethod) and not method.stage:
            check_precision(name, method, bench.methods)
            _check_stages(name, method, bench.methods)
            _check_corpora(bench, name, method.settings.chain)
            for paper in modules("checks"):
                paper.check_recipe(bench, name, method)
    _check_kinds(bench)


def check_supervision(bench: Bench, chosen: dict[str, Method]) -> None:
    """Refuse a source without the split that a chosen method learns from."""
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
        if isinstance(settings, FinetuneStage):
            _check_negatives(where, settings.negatives, methods)
            _check_teacher(where, settings, methods)
            if settings.keep_index is not None:
                check_frozen_index(where, settings.keep_index, method.settings, methods)
        training = settings.optimisation
        if training is None:
            continue
        before = getattr(settings, "after", None) or [INIT, *method.settings.chain][number]
        if training.keep_optimizer and (reason := _no_moments(settings, method.settings.chain.get(before), before)):
            raise ConfigError(where, f"can't keep_optimizer: {reason}", "leave it out")
        changes = getattr(settings, "by_target", None) or {}
        steps = {"training": training.steps} | {f"by_target.{one}": of.steps for one, of in changes.items() if of.steps}
        shortest = min(steps, key=lambda key: steps[key])
        late = [step for step in settings.save_steps if not 0 < step < steps[shortest]]
        if late:
            raise ConfigError(
                f"{where}: training.save_steps",
                f"holds {late[0]}, expected steps between 1 and {steps[shortest] - 1} ({shortest}.steps less 1)",
                "name earlier ones, or none where they are inherited (save_steps: []): the last step is kept anyway",
            )


def _no_moments(settings: ChainStage, parent: ChainStage | None, name: str) -> str:
    """Say why a stage can't go on with its parent's moments, or nothing: they fit the same weights and optimiser."""
    if not isinstance(parent, LearningStage):
        return f"{'the initial model' if name == INIT else name} has no moments"
    now, then = settings.optimisation, parent.training
    assert now is not None, "a stage that keeps an optimiser has one"
    if settings.kind != parent.kind:
        return f"{name} is of kind {parent.kind}, and has other weights"
    if now.optimizer != then.optimizer:
        return f"{name} is trained with {then.optimizer}, this stage with {now.optimizer}"
    if now.lora_rank is not None or then.lora_rank is not None:
        return "weights of training.lora_rank begin anew with each stage"
    return ""


def _check_teacher(where: str, stage: FinetuneStage, methods: dict[str, Method]) -> None:
    """A fusion or a file teaches by the ranking that negatives come from; any other teacher is a cross-encoder."""
    if stage.teacher == FILE:
        if stage.negatives.source != FILE or stage.generate is not None:
            raise ConfigError(
                f"{where}: teacher",
                "is `file`: the scores of negatives.file, for the source's own queries",
                "set negatives.source: file and leave out generate, or name a cross-encoder",
            )
        return
    fused = isinstance(methods.get(stage.teacher or ""), FusionMethod)
    ranked = stage.generate is not None and stage.generate.positives == "ranked"
    if not fused and not ranked:
        check_model_of_type(f"{where}: teacher", stage.teacher, "cross_encoder", methods)
    elif not (fused and ranked and stage.teacher == stage.negatives.source):
        raise ConfigError(
            where,
            "a fusion teaches where it ranks generated queries without their origin, and only such queries have it",
            "name one fusion as teacher and negatives.source, and set generate.positives: ranked; or none of these",
        )


def check_frozen_index(where: str, name: str, settings: TrainedSettings, methods: dict[str, Method]) -> None:
    """Refuse `keep_index` unless its embeddings are the starting checkpoint's and documents have a tower that stays.

    Raises:
        ConfigError: another encoder, one tower, or a stage of the chain that does not keep them.
    """
    method, encoder, where = (
        known(f"{where}: keep_index", name, methods),
        settings.encoder,
        f"{where}: keep_index {name!r}",
    )
    if not isinstance(method, EncoderMethod) or method.settings.model != encoder.init:
        what = f"is a {method.kind}" if not isinstance(method, EncoderMethod) else f"is {method.settings.model}"
        raise ConfigError(where, f"{what}, training starts from {encoder.init}", "name a recipe of kind encoder of it")
    if not isinstance(encoder, InitSettings) or encoder.towers != "separate":
        raise ConfigError(where, "needs a network for documents that stays as it is", "set encoder.towers: separate")
    others = [key for key, stage in settings.chain.items() if getattr(stage, "keep_index", None) != name]
    if others:
        raise ConfigError(where, f"stage {others[0]} changes the network of documents", "keep the index in every stage")


def _check_parents(where: str, chain: dict[str, ChainStage], stage: str, methods: dict[str, Method]) -> None:
    """Refuse a stage that names a later stage as its parent."""
    settings, possible = chain[stage], stages_before(chain, stage)
    for key, named in settings.parents.items():
        if named is not None and not (key in settings.foreign and start_of(named, methods)):
            known(f"{where}: {key}", named, possible)


def stages_before(chain: dict[str, ChainStage], stage: str) -> dict[str, ChainStage | None]:
    """Possible parents of a stage by name: `init`, the stages before it and their kept steps."""
    earlier = dict(list(chain.items())[: list(chain).index(stage)])
    steps = {f"{name}.{step}": settings for name, settings in earlier.items() for step in settings.save_steps}
    return {"init": None, **earlier, **steps}


def check_model_of_type(where: str, name: str | None, encoder: str, methods: dict[str, Method]) -> None:
    """Refuse a teacher (a recipe, or `<recipe>/<stage>`) whose model is not of the type that the stage needs."""
    if name is None:
        return
    method = known(where, name, {other.replace("@", "/"): method for other, method in methods.items()})
    actual = method.settings.encoder.type if isinstance(method, TrainedMethod) else f"method of kind {method.kind}"
    if actual != encoder:
        raise ConfigError(
            f"{where} {name!r}", f"is a {actual}, expected a {encoder}", f"name a recipe with encoder.type: {encoder}"
        )


def _check_corpora(bench: Bench, name: str, stages: dict[str, ChainStage]) -> None:
    groups = {group for row in bench.collections.values() for group in (row.column, *row.groups)}
    for stage, settings in stages.items():
        for corpus in (*settings.unlabelled, *getattr(settings, "without", ())):
            known(
                f"method {name}: stage {stage}: corpora",
                corpus,
                {"source", "targets", "target", *groups, *bench.collections},
            )
        for target in getattr(settings, "by_target", None) or ():
            known(f"method {name}: stage {stage}: by_target", target, {*groups, *bench.collections})


def _check_kinds(bench: Bench) -> None:
    """Refuse two kinds of stage under one name: wildcards of rules hold the name alone."""
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
    if negatives.source in RESERVED_SOURCES:
        return
    method = known(f"{where}: negatives.source", negatives.source, methods | dict.fromkeys(RESERVED_SOURCES))
    if isinstance(method, FusionMethod):
        for run in method.settings.runs:
            if isinstance(methods[run], TrainedMethod):
                problem = f"fuses {run}, which is trained here"
                raise ConfigError(f"{where}: negatives.source {negatives.source!r}", problem, "fuse untrained methods")
            _check_negatives(where, negatives.model_copy(update={"source": run}), methods)
        return
    if isinstance(method, LexicalMethod) and (method.settings.backend, method.settings.fields) != ("bm25s", "flat"):
        raise ConfigError(
            f"{where}: negatives.source {negatives.source!r}",
            "searches Lucene, which mining does not",
            "name a lexical method with backend: bm25s, such as bm25-flat+bm25s",
        )
    if method.kind not in ("lexical", "encoder", "trained") or not method.ranks:
        raise ConfigError(
            f"{where}: negatives.source {negatives.source!r}",
            f"is of kind {method.kind}"
            if method.ranks
            else f"is a {method.settings.encoder.type}, which ranks nothing",
            "name a lexical method or a bi-encoder",
        )
