"""Check stages with memories: what they start from, their augmenters, the collections of a mixture."""

from collections.abc import Mapping, Sequence

from zerodr.config.bench import Bench
from zerodr.config.files import known
from zerodr.config.methods import Method, TrainedMethod
from zerodr.config.registry import Collection
from zerodr.config.starts import OF_T5, line_of
from zerodr.config.training import InitSettings
from zerodr.errors import ConfigError
from zerodr.papers.moma.settings import SOURCE, TARGET, InferenceSettings, MemoryStage, inference_of


def check_recipe(bench: Bench, name: str, method: TrainedMethod) -> None:
    """Raise ConfigError for the first stage with memories that can't be meant."""
    for stage, settings in _episodes(method).items():
        _check_family(f"method {name}: stage {stage}", name, bench.methods, settings.augmenter.mode == "learned")
    _check_memories(bench, name, method)
    _check_named(bench, name, method)
    _check_augmenters(name, method, bench.methods)


def _check_family(where: str, name: str, methods: dict[str, Method], learned: bool) -> None:
    """Refuse a learned augmenter without a T5's decoder, whose attention it learns from, and separate towers.

    A T5 is known by `pooling: decoder_first`, without which a stage keeps no decoder. Whether a checkpoint is
    one is looked at by `init_model`.
    """
    line = [encoder for encoder in line_of(name, methods) if isinstance(encoder, InitSettings)]
    others = [encoder for encoder in line if encoder.pooling != OF_T5]
    if others and learned:
        problem = (
            f"learns its augmenter from attention in a T5's decoder, which init {line[0].init!r} has "
            f"not (pooling: {others[0].pooling}, expected {OF_T5})"
        )
        step = "start from such a model, as t5-ance/ep0 is, or set augmenter.mode to frozen or own"
        raise ConfigError(where, problem, step)
    if line[0].towers != "tied":
        problem = "fuses queries with documents in one network, towers are separate"
        raise ConfigError(where, problem, "start from a model with towers: tied")


def _check_memories(bench: Bench, name: str, method: TrainedMethod) -> None:
    """Memories exist; what follows augmented queries is augmented too; inference is for chains that end so."""
    chain, inference = method.settings.chain, inference_of(method.settings)
    augmented = [isinstance(stage, MemoryStage) for stage in chain.values()]
    if augmented != sorted(augmented):
        first = list(chain)[augmented.index(True)]
        problem = f"goes on after stage {first} with a stage without memories"
        raise ConfigError(f"method {name}", problem, "put stages of kind moma last")
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


def _check_named(bench: Bench, name: str, method: TrainedMethod) -> None:
    """Mixtures of a recipe that are the same whatever source and targets are chosen.

    Raises:
        ConfigError: as `mixture`.
    """
    for stage, settings in _episodes(method).items():
        uses = {
            "memories": (settings.memory.memories, settings.memory.documents),
            "inference.memories": plugged_in(inference_of(method.settings), settings),
        }
        for key, (asked, documents) in uses.items():
            if not {SOURCE, TARGET} & set(asked):
                mixture(f"method {name}: stage {stage}: {key}", asked, {}, bench.collections, documents)


def check_row(bench: Bench, name: str, method: TrainedMethod) -> None:
    """Mixtures of a row of the table, with its source and each of its targets.

    Raises:
        ConfigError: as `mixture`.
    """
    source = method.settings.source or bench.config.source or bench.scale.source
    episodes = _episodes(method)
    for stage, settings in episodes.items():
        where, memory = f"method {name}: stage {stage}: memories", settings.memory
        mixture(where, memory.memories, {SOURCE: source}, bench.collections, memory.documents)
    if method.last not in episodes:
        return
    asked, documents = plugged_in(inference_of(method.settings), episodes[method.last])
    for row in bench.columns:
        if (row.name, row.evaluation_split) != (source, method.settings.source_split):
            where, roles = f"method {name}: memories of {row.name}", {SOURCE: source, TARGET: row.name}
            mixture(where, asked, roles, bench.collections, documents)


def _episodes(method: TrainedMethod) -> dict[str, MemoryStage]:
    return {name: stage for name, stage in method.settings.chain.items() if isinstance(stage, MemoryStage)}


def plugged_in(inference: InferenceSettings, stage: MemoryStage) -> tuple[Sequence[str], int]:
    """Memories as they are named, and K, when a stage's model ranks a target as a recipe's `inference` says."""
    usual = [TARGET if name == SOURCE else name for name in stage.memory.memories]
    count = stage.memory.documents if inference.documents is None else inference.documents
    return inference.memories or usual, count


def mixture(
    where: str, asked: Sequence[str], roles: Mapping[str, str], rows: Mapping[str, Collection], documents: int
) -> list[str]:
    """Collections of a mixture.

    Args:
        where: whose mixture it is, for errors.
        asked: memories as they are named.
        roles: the collections that `source` and `target` name.
        rows: the registry.
        documents: K, documents that a query is augmented with.

    Raises:
        ConfigError: two of them are made from the same archive, such as a memory that is the target's corpus; or they
            hold fewer documents than K, where the registry knows how many.
    """
    names = list(dict.fromkeys(roles.get(name, name) for name in asked))
    seen: dict[tuple[str, str], str] = {}
    for name in names:
        row = rows[name]
        other = seen.setdefault((row.archive, row.member), name) if row.archive else name
        if other != name:
            problem = f"{other} and {name} are the same corpus, so every document would be retrieved twice"
            raise ConfigError(where, problem, "leave the memory out (memory.memories, inference.memories)")
    sizes = [rows[name].documents for name in names]
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes) and sum(known) < documents:
        listed = ", ".join(f"{name}: {size}" for name, size in zip(names, known, strict=True))
        problem = f"hold {sum(known)} documents ({listed}), a query is augmented with {documents}"
        raise ConfigError(where, problem, f"plug in another memory, or set documents to at most {sum(known)}")
    return names
