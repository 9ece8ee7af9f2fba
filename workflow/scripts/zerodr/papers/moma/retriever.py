"""Search with augmented queries from Python, and stage `export_memory`, which makes the memories for it.

    from zerodr.papers.moma.retriever import MoMA
    model = MoMA.load("results/exported/moma-t5ance/shared")
    model.plug("results/exported-memories/moma-t5ance/shared/memory-mesh")
    queries, documents = model.encode_queries(["..."]), model.encode_documents(["..."])
    scores = queries @ documents.T

A memory is a folder of documents with the augmenter's vectors. Plugging one in or out changes no file.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from pydantic import Field

from zerodr.artifacts.manifest import digest_of
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import order_rows
from zerodr.collections.access import corpus_ids, folded, joined_texts, memory_of, namespaced, read_corpus
from zerodr.collections.audit import SURROGATE
from zerodr.config.base import Settings, validate
from zerodr.encoders.folder.contract import CONTRACT, Side, read_json, write_model_json
from zerodr.encoders.inference.encoder import Encoder, load_encoder
from zerodr.encoders.network.moving import features_on
from zerodr.errors import ArtifactError, ConfigError, ModelError
from zerodr.papers.moma.augmented_encoder import AugmentedEncoder
from zerodr.papers.moma.folders import AUGMENTER
from zerodr.papers.moma.fused_vectors import StateCache, fingerprint
from zerodr.papers.moma.joined_encoder import load_augmented, query_vectors
from zerodr.papers.moma.search_memory import check_size, refuse_equal
from zerodr.retrieval.batching import plan_batches
from zerodr.retrieval.candidates import id_ranks
from zerodr.retrieval.exact import search_exact
from zerodr.retrieval.single import SingleSearch
from zerodr.retrieval.vectors import Vectors

log = logging.getLogger("zerodr")
MEMORY, DOCUMENTS, VECTORS = "memory.json", "documents.parquet", "vectors.npy"
SCHEMA = pa.schema([("id", pa.string()), ("text", pa.large_string()), ("bare", pa.large_string())])
CACHE_MIB, BATCH_TOKENS = 1024, 4096
EXPORT = "snakemake ... results/exported-memories/<model>/<scope>/<memory>/manifest.json"


class MemoryFacts(Settings):
    """Facts on a memory folder, as its `memory.json`."""

    name: str
    """Stands before the ids of its documents."""
    documents: int = Field(ge=1)
    """Number of documents."""
    dimension: int = Field(ge=1)
    """Components of a vector."""
    model: str
    """Fingerprint of the augmenter that made the vectors."""
    corpus: str
    """SHA-256 of the corpus that it was made from."""
    copies: int = Field(ge=1)
    """Documents that hold the most frequent text, with or without title, up to case and blanks; no text counts not."""


class ExportMemorySettings(Settings):
    """Params of rule export_memory."""

    memory: str
    """Name of the collection."""
    title_join: str | None
    """Text that joins title and text. None: text alone."""


def export_memory(stage: Stage) -> None:
    """Inputs `collection`, `embeddings` (of all shards, by the augmenter), `model`; output `memory`, a folder.

    Raises:
        ArtifactError: embeddings and collection have other numbers of documents.
    """
    settings, folder = validate(ExportMemorySettings, stage.params, stage.spec.name()), stage.output("memory")
    collection, shards = stage.path("collection"), [Vectors.open(path) for path in stage.paths("embeddings")]
    ids, rows = corpus_ids(collection), sum(shard.rows for shard in shards)
    if rows != len(ids):
        raise ArtifactError(stage.spec.name(), f"{len(ids)} documents and {rows} vectors", "embed the memory again")
    keys: list[np.ndarray] = []
    with pq.ParquetWriter(folder / DOCUMENTS, SCHEMA, compression="zstd") as writer:
        for block in read_corpus(collection):
            documents = _documents(block, settings.title_join)
            writer.write_table(documents)
            keys.append(_keys(documents))
    np.save(folder / VECTORS, np.concatenate([shard.array for shard in shards]))
    facts = MemoryFacts(
        name=settings.memory,
        documents=rows,
        dimension=shards[0].dimension,
        model=fingerprint(augmenter_folder(stage.path("model"))),
        corpus=digest_of(stage.paths("collection")[0], "corpus.parquet"),
        copies=int(np.unique(np.concatenate(keys), return_counts=True)[1].max(initial=1)),
    )
    write_model_json(folder / MEMORY, facts.model_dump(mode="json"))
    stage.note(**facts.model_dump(mode="json"))


def _documents(block: pa.RecordBatch, title_join: str | None) -> pa.Table:
    """Rows of `SCHEMA`; `bare` is the text without title, null where it has none or it is left out anyway."""
    whole, bare = joined_texts(block, title_join), joined_texts(block, None)
    return pa.table([block.column("id"), whole, pc.if_else(pc.equal(whole, bare), None, bare)], schema=SCHEMA)


def _keys(documents: pa.Table) -> np.ndarray:
    """Eight bytes of the digest of each folded text of each document, int64: equal texts have equal ones.

    A document of a title alone has no text: many have, and no query is one.
    """
    folded_texts = _folded_texts(documents["text"], documents["bare"])
    digests = [sha256(text.encode()).digest()[:8] for texts in folded_texts for text in texts if text]
    return np.frombuffer(b"".join(digests), np.int64)


def augmenter_folder(folder: Path) -> Path:
    """The augmenter of a model folder: its own, or the model itself."""
    augmenter = folder / AUGMENTER
    return augmenter if (augmenter / CONTRACT).exists() else folder


@dataclass(frozen=True)
class PluggedMemory:
    """A memory that is plugged in.

    Attributes:
        folder: where it was read.
        facts: of its folder.
        ids: namespaced ids of its documents.
        texts: their texts.
        bare: these without title; null where that is the same.
        vectors: of the documents, by the augmenter.
        ranks: of the ids, by which ties are broken.
        order: rows by rank.
    """

    folder: Path
    facts: MemoryFacts
    ids: pa.Array
    texts: pa.Array
    bare: pa.Array
    vectors: Vectors
    ranks: np.ndarray
    order: np.ndarray

    @cached_property
    def single(self) -> SingleSearch:
        """Search for one query at a time."""
        return SingleSearch([self.vectors], self.ids, torch.get_num_threads())

    def ranked(self, queries: Vectors, depth: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield rows and scores of the first documents of each query."""
        if queries.rows == 1:
            yield self.single.best(queries.array[0], depth)
            return
        for ranking in search_exact(queries, self.vectors, self.ranks, depth, threads=torch.get_num_threads()):
            ends = np.cumsum(ranking.counts)[:-1]
            yield from zip(np.split(ranking.rows, ends), np.split(ranking.scores, ends), strict=True)

    def row_of(self, key: str) -> int | None:
        """Find the row of an id by halves of their order; None for an unknown one."""
        ranks = range(len(self.order))
        rank = bisect_left(ranks, key, key=lambda rank: self.ids[int(self.order[rank])].as_py())
        row = int(self.order[rank]) if rank < len(self.order) else None
        return row if row is not None and self.ids[row].as_py() == key else None


class MoMA:
    """A main model, its augmenter, and the memories that are plugged in.

    Args:
        folder: of the main model.
        main: encodes fused queries and plain documents.
        augmenter: finds documents for queries.
        identity: fingerprint of the augmenter.
    """

    def __init__(self, folder: Path, main: AugmentedEncoder, augmenter: Encoder, identity: str) -> None:
        self.folder, self.main, self.augmenter, self.identity = folder, main, augmenter, identity
        self.memories: dict[str, PluggedMemory] = {}
        self.cache = StateCache(CACHE_MIB)
        self.fuser = query_vectors(main, self.cache, BATCH_TOKENS)

    @classmethod
    def load(cls, folder: Path | str, device: str = "cpu") -> MoMA:
        """The model of a folder: an exported one augments as targets are ranked, a stage's as in training.

        Raises:
            ModelError: it is no model of this bench.
        """
        folder = Path(folder)
        main, augmenter_path = load_augmented(folder), augmenter_folder(folder)
        main.to(device)
        return cls(folder, main, load_encoder(augmenter_path, device=device), fingerprint(augmenter_path))

    def plug(self, folder: Path | str) -> MoMA:
        """Plug in the memory of a folder.

        Raises:
            ModelError: it is no exported memory, or its vectors are of another augmenter.
            ArtifactError: files of the folder are missing, damaged, or not of one export.
            ConfigError: a memory of its name, or of its corpus, is plugged in.
        """
        folder = Path(folder)
        if not (folder / MEMORY).is_file():
            raise ModelError(folder, f"is no exported memory, which has a {MEMORY}", f"make one: {EXPORT}")
        facts = validate(MemoryFacts, read_json(folder / MEMORY), str(folder / MEMORY))
        if facts.model != self.identity:
            problem = (
                f"has vectors of a model with fingerprint {facts.model[:12]}, the augmenter has {self.identity[:12]}"
            )
            raise ModelError(folder, problem, "export the memory with this model")
        if facts.name in self.memories:
            raise ConfigError(f"memory {facts.name}", "is plugged in already", "unplug it first")
        refuse_equal({name: memory.facts.corpus for name, memory in self.memories.items()} | {facts.name: facts.corpus})
        table, vectors = _read_files(folder, facts)
        ids = namespaced(facts.name, table["id"].combine_chunks())
        texts = table["text"].combine_chunks()
        bare = table["bare"].combine_chunks()
        ranks = id_ranks(ids)
        self.memories[facts.name] = PluggedMemory(folder, facts, ids, texts, bare, vectors, ranks, np.argsort(ranks))
        return self

    def unplug(self, name: str) -> MoMA:
        """Take a memory out.

        Raises:
            ConfigError: it is not plugged in.
        """
        if name not in self.memories:
            raise ConfigError(f"memory {name}", f"is not plugged in, there are {sorted(self.memories)}", "name another")
        del self.memories[name]
        self.cache.forget([key for key, _ in self.cache.items() if memory_of(key) == name])
        return self

    def augment(
        self, queries: Sequence[str], documents: int | None = None, query_ids: Sequence[str] | None = None
    ) -> list[list[str]]:
        """Ids of the documents that augment each query, best first.

        Never a document that is the query itself, unless the model was trained with `exclude_self: false`: one that
        holds the query's text, with or without its title, up to case and blanks.

        Args:
            documents: K. None: the model's.
            query_ids: for each query the id `<memory>:<document>` that it has itself, where queries are documents of a
                memory; left out, whatever its text and the model.

        Raises:
            ConfigError: queries or ids are no lists of texts of one length, or K is below 0.
            CollectionError: the memories hold fewer than K documents.
        """
        queries = _list_of(queries, "queries")
        query_ids = [""] * len(queries) if query_ids is None else _list_of(query_ids, "query_ids")
        if len(query_ids) != len(queries):
            problem = f"are {len(query_ids)}, expected one for each of {len(queries)} queries"
            raise ConfigError("query_ids", problem, 'give "" where a query is no document')
        count = self.main.fusion.documents if documents is None else documents
        if count < 0:
            raise ConfigError(f"documents={count}", "expected a number from 0", "leave it out for the model's K")
        check_size({name: memory.facts.documents for name, memory in self.memories.items()}, count)
        vectors, alone = Vectors(self._plain(self.augmenter, queries, "query")), self.main.fusion.exclude_self
        candidates: list[list[tuple[str, float]]] = [[] for _ in queries]
        for memory in self.memories.values():
            depth = count + 1 + alone * memory.facts.copies
            for row, (numbers, scores) in enumerate(memory.ranked(vectors, depth)):
                rows, asked = pa.array(numbers), folded(queries[row])
                texts = _folded_texts(memory.texts.take(rows), memory.bare.take(rows))
                copy = [alone and asked != "" and asked in variants for variants in texts]
                candidates[row] += [
                    (key, score)
                    for key, score, itself in zip(memory.ids.take(rows).to_pylist(), scores.tolist(), copy, strict=True)
                    if not itself and key != query_ids[row]
                ]
        return [_first(ranked, count) for ranked in candidates]

    def encode_queries(
        self, queries: Sequence[str], documents: int | None = None, query_ids: Sequence[str] | None = None
    ) -> np.ndarray:
        """Vectors of queries, (Q, D) float32, fused with documents of the plugged memories; plain without.

        Args:
            documents: K. None: the model's.
            query_ids: ids of the documents that the queries are, as `augment` takes them.

        Raises:
            ConfigError: as `augment`.
            CollectionError: the memories hold fewer than K documents.
        """
        queries = _list_of(queries, "queries")
        if not self.memories:
            log.warning("no memory is plugged in: queries are not augmented")
            return self.fuser.vectors(queries, [[]] * len(queries), self.texts_of)
        return self.fuser.vectors(queries, self.augment(queries, documents, query_ids), self.texts_of)

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of documents, (N, D) float32, by the main model without augmentation.

        Raises:
            ConfigError: they are no list of texts.
        """
        tokens = self.main.tokenize(_list_of(texts, "texts"), "document")
        vectors = np.empty((len(tokens), self.main.contract.dimension), np.float32)
        for rows in plan_batches(np.array([len(ids) for ids in tokens]), BATCH_TOKENS):
            features = self.main.pad([tokens[row] for row in rows])
            with torch.inference_mode():
                features = features_on(features, self.fuser.device)
                vectors[rows] = self.main.encode(features, "document").float().cpu().numpy()
        return vectors

    def texts_of(self, keys: list[str]) -> list[str]:
        """Texts of documents of plugged memories by namespaced id; empty for an unknown one."""
        contents = [""] * len(keys)
        for number, key in enumerate(keys):
            memory = self.memories.get(memory_of(key))
            row = None if memory is None else memory.row_of(key)
            if memory is not None and row is not None:
                contents[number] = memory.texts[row].as_py()
        return contents

    @staticmethod
    def _plain(encoder: Encoder, texts: Sequence[str], side: Side) -> np.ndarray:
        contract = encoder.contract
        tokens = encoder.tokenize(list(texts), contract.prefix(side), contract.tokens(side))
        vectors = np.empty((len(texts), contract.dimension), np.float32)
        for rows in plan_batches(tokens.lengths, BATCH_TOKENS):
            vectors[rows] = encoder.encode_batch([tokens[row] for row in rows])
        return vectors


def _read_files(folder: Path, facts: MemoryFacts) -> tuple[pa.Table, Vectors]:
    """Read documents and vectors of a memory.

    Raises:
        ArtifactError: they are missing, damaged, or not those of `facts`.
    """
    try:
        table, vectors = pq.read_table(folder / DOCUMENTS), Vectors.open(folder / VECTORS)
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(folder, f"is no whole memory ({error})", f"copy it again, or make it: {EXPORT}") from None
    sizes = len(table), vectors.rows, vectors.dimension
    if sizes != (facts.documents, facts.documents, facts.dimension):
        problem = (
            f"holds {sizes[0]} documents and {sizes[1]} vectors of {sizes[2]} numbers, expected {facts.documents} "
            f"of both and {facts.dimension} numbers: its files are not of one export"
        )
        raise ArtifactError(folder, problem, f"copy all of them again, or make it: {EXPORT}")
    return table.combine_chunks(), vectors


def _list_of(texts: Sequence[str], name: str) -> list[str]:
    """Check that texts are a list of them: one text alone would be read letter by letter, of a dict its ids.

    Raises:
        ConfigError: they are not.
    """
    if isinstance(texts, str):
        raise ConfigError(name, "is one text, expected a list of them", 'write ["..."]')
    if isinstance(texts, Mapping):
        raise ConfigError(name, "is a dict, expected a list of them", f"give list({name}.values())")
    texts = list(texts)
    if strange := [text for text in texts if not isinstance(text, str) or SURROGATE.search(text)]:
        raise ConfigError(name, f"holds {strange[0]!r:.80}, expected texts", "leave it out")
    return texts


def _folded_texts(texts: pa.Array | pa.ChunkedArray, bare: pa.Array | pa.ChunkedArray) -> Iterator[set[str]]:
    """Of each document its text with and without title, folded."""
    for one, other in zip(texts.to_pylist(), bare.to_pylist(), strict=True):
        yield {folded(one)} if other is None else {folded(one), folded(other)}


def _first(candidates: list[tuple[str, float]], count: int) -> list[str]:
    """The first `count` ids in total order."""
    ids = pa.array([key for key, _ in candidates], pa.string())
    scores = np.array([score for _, score in candidates], np.float32)
    order = order_rows(np.zeros(len(candidates), np.int64), scores, ids)[:count]
    return ids.take(pa.array(order)).to_pylist()
