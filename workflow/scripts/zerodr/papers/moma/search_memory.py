"""Stages `search_memory` and `merge_memories`: one ranking over several memories, each searched alone.

Scores of a (query, document) pair do not depend on what else is searched and the order is total, so the merged shards
of all memories equal one flat index over them (MoMA eq. 4), unless a recipe asks for an approximate one.
Plugging a memory in or out chooses other shards to merge and changes no file of any memory.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import Field

from zerodr.artifacts.manifest import digest_of
from zerodr.artifacts.parquet import AGAIN
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.rankings import Rankings, RankingsWriter
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import strings
from zerodr.collections.access import (
    RankingSettings,
    SplitSettings,
    corpus_ids,
    corpus_size,
    equal_rows,
    folded,
    namespaced,
    shard_rows,
    split_queries,
)
from zerodr.config.base import validate
from zerodr.config.index import IndexSettings
from zerodr.errors import ArtifactError, CollectionError, ConfigError
from zerodr.retrieval.candidates import Ranking
from zerodr.retrieval.hits import HitsReader, Searched, write_hits
from zerodr.retrieval.merge import ROWS, check_shards, first_entries
from zerodr.retrieval.search import rankings_of, self_rows
from zerodr.retrieval.vectors import Vectors


class MemorySearchSettings(IndexSettings, SplitSettings):
    """Settings of `search_memory`.

    With `exclude_self`, the query itself is left out: the document of its id, where queries and memory are one
    collection, and documents with its text, up to case and blanks.
    """

    memory: str
    """The memory that is searched; part of the ids of its documents."""
    title_join: str | None
    """Text that joins title and text of the memory. None: text alone."""
    shard: int = Field(ge=0)
    """Number of this shard."""
    shards: int = Field(ge=1)
    """Number of shards of the memory."""


class MixtureMergeSettings(RankingSettings):
    """Settings of `merge_memories`."""

    memories: tuple[str, ...] = Field(min_length=1)
    """Memories of the mixture."""
    needed: int = Field(ge=1)
    """Documents that a query is augmented with: the mixture has to hold as many."""


def search_memory(stage: Stage) -> None:
    """Search one shard of a memory. Inputs `queries`, `corpus` (embeddings), `collection`, `memory`; output `hits`.

    Raises:
        ArtifactError: embeddings don't fit their collection or one another.
        CollectionError: the memory is empty.
    """
    settings = validate(MemorySearchSettings, stage.params, stage.spec.name())
    folder, memory = stage.path("collection"), stage.path("memory")
    if not corpus_size(memory):
        raise CollectionError(settings.memory, "is an empty memory, expected documents", "leave it out of memories")
    start, stop = shard_rows(corpus_size(memory), settings.shard, settings.shards)
    asked = split_queries(folder, settings.split)
    queries, corpus = Vectors.open(stage.path("queries")), Vectors.open(stage.path("corpus"))
    ids = corpus_ids(memory, start, stop)
    for vectors, expected, name in ((queries, len(asked), "queries"), (corpus, len(ids), "corpus")):
        if vectors.rows != expected:
            raise ArtifactError(stage.path(name), f"expected {expected} rows, found {vectors.rows}", AGAIN)
    banned = _banned(settings, asked, memory, ids, (start, stop))
    most = int(np.bincount(banned[0], minlength=1).max())
    names = namespaced(settings.memory, ids)
    rankings = rankings_of(stage, settings, queries, corpus, names, settings.depth + most, settings.memory)
    numbers = settings.model_dump(include={"shard", "shards", "depth", "memory"})
    about = Searched(**numbers, queries=queries.rows, documents=corpus.rows)
    stage.metric("left_out", len(banned[0]))
    write_hits(stage.output("hits"), without(rankings, banned, corpus.rows, settings.depth), names, about)


def _banned(
    settings: MemorySearchSettings, asked: pd.DataFrame, memory: Path, ids: pa.Array, shard: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of query and row that are no augmentation: the query itself. Both (n,) int64, without repetition."""
    pairs: set[tuple[int, int]] = set()
    if settings.exclude_self and settings.collection == settings.memory:
        self_row = self_rows(strings(asked["id"]), ids)
        pairs |= {(query, int(self_row[query])) for query in np.flatnonzero(self_row >= 0).tolist()}
    if settings.exclude_self:
        queries_by_text: dict[str, list[int]] = defaultdict(list)
        for number, text in enumerate(asked["text"]):
            queries_by_text[folded(text)].append(number)
        pairs |= set(equal_rows(memory, *shard, settings.title_join, queries_by_text))
    array = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def without(
    rankings: Iterator[Ranking], banned: tuple[np.ndarray, np.ndarray], rows: int, depth: int
) -> Iterator[Ranking]:
    """Rankings of consecutive queries without the banned pairs (query, row), cut at `depth`.

    Exact where the rankings are as much deeper than `depth` as the most pairs of a query.
    """
    keys, first = banned[0] * max(rows, 1) + banned[1], 0
    for ranking in rankings:
        query = first + np.repeat(np.arange(len(ranking.counts)), ranking.counts)
        remaining = np.flatnonzero(~np.isin(query * max(rows, 1) + ranking.rows, keys))
        owner = query[remaining]
        remaining = remaining[np.arange(len(remaining)) - np.searchsorted(owner, owner) < depth]
        counts = np.bincount(query[remaining] - first, minlength=len(ranking.counts))
        yield Ranking(counts, ranking.rows[remaining], ranking.scores[remaining])
        first += len(ranking.counts)


def merge_memories(stage: Stage) -> None:
    """Merge the shards of all memories. Inputs `hits`, `collection`, `memories`; output `rankings`, a candidates file.

    Raises:
        ArtifactError: shards are missing, there twice, of other memories, or searched otherwise.
        CollectionError: the mixture has fewer documents than a query is augmented with.
        ConfigError: two memories hold the same corpus.
    """
    settings = validate(MixtureMergeSettings, stage.params, stage.spec.name())
    refuse_equal({path.parent.name: digest_of(path, "corpus.parquet") for path in stage.paths("memories")})
    queries = strings(split_queries(stage.path("collection"), settings.split)["id"])
    progress = Progress(f"merge memories of {settings.collection}/{settings.split}", len(queries), "queries")
    short = 0
    with RankingsWriter(stage.output("rankings"), settings.depth) as writer:
        for rankings in merged_memories(stage.paths("hits"), queries, settings):
            writer.write(rankings)
            short += int((rankings.sizes < settings.needed).sum())
            progress.add(len(rankings.queries))
    progress.finish()
    stage.note(memories=list(settings.memories), queries_with_fewer_documents=short)


def merged_memories(hits: list[Path], queries: pa.Array, settings: MixtureMergeSettings) -> Iterator[Rankings]:
    """The first `depth` documents of each query over all shards of all memories, some queries at a time."""
    with ExitStack() as stack:
        by_memory: dict[str, list[HitsReader]] = defaultdict(list)
        for path in hits:
            reader = stack.enter_context(HitsReader(path))
            by_memory[reader.searched.memory or "none"].append(reader)
        if sorted(by_memory) != sorted(settings.memories):
            problem = f"the hits are of memories {sorted(by_memory)}, expected {sorted(settings.memories)}"
            raise ArtifactError(hits[0] if hits else settings.collection, problem, AGAIN)
        for readers in by_memory.values():
            check_shards(readers, len(queries), settings.depth)
        documents = {name: sum(r.searched.documents for r in shards) for name, shards in by_memory.items()}
        check_size(documents, settings.needed)
        readers = [reader for shards in by_memory.values() for reader in shards]
        step = max(1, ROWS // (settings.depth * len(readers)))
        for start in range(0, len(queries), step):
            stop = min(start + step, len(queries))
            rows = first_entries(pa.concat_tables([reader.read_until(stop) for reader in readers]), settings.depth)
            sizes = np.bincount(rows["query"].to_numpy() - start, minlength=stop - start)
            yield Rankings(queries[start:stop], sizes, rows["document"].combine_chunks(), rows["score"].to_numpy())


def check_size(documents: Mapping[str, int], needed: int) -> None:
    """Refuse a mixture with fewer documents than augment a query.

    Args:
        documents: of each memory.

    Raises:
        CollectionError: it does not.
    """
    held = sum(documents.values())
    if held < needed:
        listed = ", ".join(f"{name}: {count}" for name, count in documents.items())
        raise CollectionError(
            f"mixture of {', '.join(documents)}",
            f"holds {held} documents ({listed}), expected at least {needed} to augment a query with",
            "plug in another memory, or augment with fewer documents (memory.documents)",
        )


def refuse_equal(digests: Mapping[str, str]) -> None:
    """Check that no two digests are equal; `digests` are of the corpora, by memory."""
    seen: dict[str, str] = {}
    for name, digest in digests.items():
        if digest in seen:
            problem = "hold the same corpus, so every document would be retrieved twice"
            raise ConfigError(f"memories {seen[digest]} and {name}", problem, "leave one of them out")
        seen[digest] = name
