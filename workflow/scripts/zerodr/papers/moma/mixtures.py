"""Mixtures of memories: which collections they are, that each is there once, and that they are large enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zerodr.config.bench import Bench
from zerodr.config.methods import TrainedMethod
from zerodr.config.registry import Collection
from zerodr.config.trained import MemoryStage
from zerodr.errors import ConfigError
from zerodr.papers.moma.settings import SOURCE, TARGET, InferenceSettings


def plugged_in(own: InferenceSettings, stage: MemoryStage) -> tuple[Sequence[str], int]:
    """Memories as they are named, and K, when a stage's model ranks a target as a recipe's `inference` says."""
    usual = [TARGET if name == SOURCE else name for name in stage.memory.memories]
    return own.memories or usual, own.documents or stage.memory.documents


def mixture(
    where: str, asked: Sequence[str], places: Mapping[str, str], rows: Mapping[str, Collection], documents: int
) -> list[str]:
    """Collections of a mixture.

    Args:
        where: whose mixture it is, for errors.
        asked: memories as they are named.
        places: the collections that `source` and `target` stand for.
        rows: the registry.
        documents: K, documents that a query is augmented with.

    Raises:
        ConfigError: two of them are made from the same archive, such as a memory that is the target's corpus; or they
            hold fewer documents than K, where the registry knows how many.
    """
    names = list(dict.fromkeys(places.get(name, name) for name in asked))
    seen: dict[tuple[str, str], str] = {}
    for name in names:
        row = rows[name]
        other = seen.setdefault((row.archive, row.member), name) if row.archive else name
        if other != name:
            raise ConfigError(
                where,
                f"{other} and {name} are the same corpus, so every document would be retrieved twice",
                "leave the memory out (memory.memories, inference.memories)",
            )
    sizes = [rows[name].documents for name in names]
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes) and sum(known) < documents:
        told = ", ".join(f"{name}: {size}" for name, size in zip(names, known, strict=True))
        raise ConfigError(
            where,
            f"hold {sum(known)} documents ({told}), a query is augmented with {documents}",
            f"plug in another memory, or set documents to at most {sum(known)}",
        )
    return names


def check_named(bench: Bench, name: str, method: TrainedMethod) -> None:
    """Mixtures of a recipe that are the same whatever source and targets are chosen.

    Raises:
        ConfigError: as `mixture`.
    """
    for stage, settings in _episodes(method).items():
        uses = {
            "memories": (settings.memory.memories, settings.memory.documents),
            "inference.memories": plugged_in(method.settings.inference, settings),
        }
        for key, (asked, documents) in uses.items():
            if not {SOURCE, TARGET} & set(asked):
                mixture(f"method {name}: stage {stage}: {key}", asked, {}, bench.collections, documents)


def check_chosen(bench: Bench, name: str, method: TrainedMethod) -> None:
    """Mixtures of a row of the table, with its source and each of its targets.

    Raises:
        ConfigError: as `mixture`.
    """
    source = method.settings.source or bench.config.source or bench.scale.source
    episodes = _episodes(method)
    for stage, settings in episodes.items():
        mixture(
            f"method {name}: stage {stage}: memories",
            settings.memory.memories,
            {SOURCE: source},
            bench.collections,
            settings.memory.documents,
        )
    if method.last not in episodes:
        return
    asked, documents = plugged_in(method.settings.inference, episodes[method.last])
    for row in bench.columns:
        if (row.name, row.evaluation_split) != (source, method.settings.source_split):
            mixture(
                f"method {name}: memories of {row.name}",
                asked,
                {SOURCE: source, TARGET: row.name},
                bench.collections,
                documents,
            )


def _episodes(method: TrainedMethod) -> dict[str, MemoryStage]:
    return {name: stage for name, stage in method.settings.chain.items() if isinstance(stage, MemoryStage)}
