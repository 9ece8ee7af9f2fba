"""Mixtures of memories: which collections they are, that each is there once, and that they are large enough."""

from collections.abc import Mapping, Sequence

from zerodr.config.registry import Collection
from zerodr.errors import ConfigError
from zerodr.papers.moma.settings import SOURCE, TARGET, InferenceSettings, MemoryStage


def plugged_in(inference: InferenceSettings, stage: MemoryStage) -> tuple[Sequence[str], int]:
    """Memories as they are named, and K, when a stage's model ranks a target as a recipe's `inference` says."""
    usual = [TARGET if name == SOURCE else name for name in stage.memory.memories]
    return inference.memories or usual, inference.documents or stage.memory.documents


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
            raise ConfigError(
                where,
                f"{other} and {name} are the same corpus, so every document would be retrieved twice",
                "leave the memory out (memory.memories, inference.memories)",
            )
    sizes = [rows[name].documents for name in names]
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes) and sum(known) < documents:
        listed = ", ".join(f"{name}: {size}" for name, size in zip(names, known, strict=True))
        raise ConfigError(
            where,
            f"hold {sum(known)} documents ({listed}), a query is augmented with {documents}",
            f"plug in another memory, or set documents to at most {sum(known)}",
        )
    return names
