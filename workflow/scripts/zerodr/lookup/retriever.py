"""Search with what `zerodr adapt` chose, from any Python program: `Retriever.load(folder).search(["..."], k=10)`.

The folder holds model, index and texts. Rankings are those of the bench.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zerodr.artifacts.manifest import LISTING, MANIFEST
from zerodr.artifacts.record import record_path, write_json
from zerodr.collections.access import CORPUS_SCHEMA, ROW_GROUP
from zerodr.collections.audit import CONTROL, SURROGATE
from zerodr.encoders.folder import retriever as folders
from zerodr.encoders.folder.retriever import DENSE, INDEX, LEXICAL, RetrieverFacts
from zerodr.encoders.inference.encoder import Encoder, encode_batches, load_encoder
from zerodr.errors import ArtifactError, CollectionError, ConfigError, MachineError
from zerodr.lexical.folder import ABOUT, IndexedDocument, read_about, read_ids, write_ids
from zerodr.lexical.index import has_text
from zerodr.lexical.light import LightIndex, count_terms, join_postings, write_postings
from zerodr.lexical.search import SearchSettings
from zerodr.lookup.documents import Documents
from zerodr.lookup.searchers import (
    THREADS,
    CorpusVectors,
    Held,
    LexicalSearcher,
    Opened,
    Queries,
    QuerySearcher,
    Ranked,
)
from zerodr.lookup.sources import Source, of_retriever
from zerodr.retrieval.batching import plan_batches
from zerodr.retrieval.vectors import Vectors

Document = Mapping[str, str | None]


class Hit(NamedTuple):
    """A document that was found."""

    id: str
    score: float
    title: str
    text: str


@dataclass(frozen=True)
class Words:
    """An inverted index with the ids of its documents."""

    ids: pa.Array
    index: LightIndex


@dataclass(frozen=True)
class Holdings:
    """All that is searched at one time; a change makes new ones, so that a search that has begun is not disturbed.

    Attributes:
        ids: of the documents, in the order of the vectors.
        held: vectors and indexes.
        words: the indexes that can be changed, by method.
        added: titles and texts of documents that came after the index, by id.
        searcher: of the chosen method.
    """

    ids: pa.Array
    held: Held
    words: dict[str, Words]
    searcher: QuerySearcher
    added: dict[str, tuple[str, str]] = field(default_factory=dict)


class Retriever:
    """A chosen retriever: BM25, a model, feedback or a fusion. Threads may share one."""

    def __init__(self, folder: Path, index: Path | None = None) -> None:
        self.folder, self.index = folder, index or folder / INDEX
        self.facts: RetrieverFacts = folders.read_retriever(folder)
        folders.read_index(self.index)
        self._sources = of_retriever(folder, self.index)
        self._models: dict[str, Queries] = {}
        self._encoders: dict[str, Encoder] = {}
        try:
            self._texts, self._changes = Documents(self.index), Lock()
            self._now = self._open()
        except (LookupError, ValueError, OSError) as error:
            problem = f"holds a file that is missing, cut off or damaged ({type(error).__name__}: {error})"
            raise ArtifactError(self.index, problem, folders.AGAIN) from error

    @classmethod
    def load(cls, folder: str | Path, index: str | Path | None = None) -> Retriever:
        """Load a folder that `zerodr adapt` or `save` wrote.

        Args:
            folder: such as `results/adapted/notes/model`.
            index: another index for the same model; None: the folder's.

        Raises:
            ArtifactError: it is no such folder, or damaged.
        """
        return cls(Path(folder).absolute(), None if index is None else Path(index).absolute())

    def __len__(self) -> int:
        """Count the documents."""
        return len(self._now.ids)

    def search(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """Find the best `k` documents of each query, best first.

        There are fewer where fewer are found: BM25 finds what shares a word with the query, and a fusion what is among
        the first of one of its two rankings (`entries` in retriever.json, 100). A query that is longer than the model
        reads is cut, with a warning of Python's `warnings`: once for a line that calls, as usual there.

        Raises:
            ConfigError: queries that are no list of texts, or a `k` that is no whole number from 1.
        """
        if isinstance(queries, str):
            raise ConfigError("queries", "is one text, expected a list of them", 'write search(["..."])')
        if isinstance(queries, Mapping):  # its keys, which are ids, would be searched
            raise ConfigError("queries", "is a dict, expected a list of them", "write search(list(queries.values()))")
        queries = list(queries)
        if strange := [query for query in queries if not isinstance(query, str) or SURROGATE.search(query)]:
            raise ConfigError("queries", f"holds {strange[0]!r:.80}, expected texts", 'write search(["..."])')
        if not isinstance(k, Integral) or k < 1:
            raise ConfigError(f"k={k}", "expected at least 1, a whole number", "ask for a document")
        now = self._now
        rankings = [now.searcher.search(normalize("NFC", query), k, {}) for query in queries]
        for notice in dict.fromkeys(found.notice for found in rankings if found.notice):
            warnings.warn(f"a query is cut: {notice}", stacklevel=2)
        return [self._hits(now, found, k) for found in rankings]

    def _hits(self, now: Holdings, found: Ranked, k: int) -> list[Hit]:
        names, scores = found.ids[:k], found.scores[:k]
        old = [name for name in names if name not in now.added]
        texts = dict(zip(old, self._texts.texts(old), strict=True)) | now.added
        return [Hit(name, score, *texts[name]) for name, score in zip(names, scores, strict=True)]

    # ---- changes -----------------------------------------------------------------------------------------------
    def add(self, documents: Iterable[Document]) -> int:
        """Add documents, each with `id` (or `_id`), `text` and, if it has one, `title`; return how many there are now.

        A document whose id is there replaces the old one. Files stay as they are until `save`.

        Raises:
            CollectionError: a document without an id or a text (an empty one will do), an id given twice, or what no
                file can hold.
        """
        new = _read(documents)
        with self._changes:
            return self._change(set(new), new)

    def delete(self, ids: Iterable[str]) -> int:
        """Remove documents; return how many are left.

        Raises:
            ConfigError: one text in place of a list of ids.
            CollectionError: an id that is not there.
        """
        if isinstance(ids, str):
            raise ConfigError("ids", "is one text, expected a list of them", 'write delete(["..."])')
        names = set(ids)
        with self._changes:
            missing = names - set(self._now.ids.to_pylist())
            if missing:
                raise CollectionError(self.facts.collection, f"holds no document {min(missing)!r}", "check the id")
            return self._change(names, {})

    def _change(self, gone: set[str], new: dict[str, tuple[str, str]]) -> int:
        now = self._now
        fixed = set(self.facts.named(LEXICAL)) - set(now.words)
        if fixed:
            step = "put the documents into the folder, and give zerodr adapt again"
            raise ArtifactError(self.index, f"its index {min(fixed)} is Lucene's, which is not changed here", step)
        stays = ~np.fromiter((name in gone for name in now.ids.to_pylist()), bool, len(now.ids))
        ids = pa.concat_arrays([now.ids.filter(pa.array(stays)), pa.array(list(new), pa.string())])
        if not len(ids):
            raise CollectionError(self.facts.collection, "would hold no document", "leave one")
        vectors = {name: self._vectors(name, ids, stays, new) for name in self.facts.named(DENSE)}
        words = {name: self._words(name, gone, new) for name in now.words}
        held = Held(vectors, {name: self._lexical(name, one) for name, one in words.items()})
        added = {name: text for name, text in now.added.items() if name not in gone} | new
        self._now = Holdings(ids, held, words, self._searcher(held), added)
        return len(ids)

    def _vectors(self, method: str, ids: pa.Array, stays: np.ndarray, new: dict[str, tuple[str, str]]) -> CorpusVectors:
        old = np.concatenate([shard.array for shard in self._now.held.vectors[method].shards])[stays]
        join = self._sources[method].params["title_join"]
        texts = [title + join + text if title and join is not None else text for title, text in new.values()]
        array = np.concatenate([old, self._encode(method, texts)]) if texts else old
        return CorpusVectors(ids, [Vectors(np.ascontiguousarray(array, np.float32))])

    def _encode(self, method: str, texts: list[str]) -> np.ndarray:
        source = self._sources[method]
        if method not in self._encoders:
            model = Path(source.inputs["model"][0]).parent
            self._encoders[method] = load_encoder(model, source.params["precision"], side="document")
        return encode_documents(self._encoders[method], texts, source.params)

    def _words(self, method: str, gone: set[str], new: dict[str, tuple[str, str]]) -> Words:
        old, settings = self._now.words[method], self._settings(method)
        documents = [IndexedDocument(name, *text) for name, text in new.items()]
        filled = [document for document in documents if has_text(document, settings.fields)]
        counted = count_terms(old.index.analyze(document.flat()) for document in filled)
        stays = [name not in gone for name in old.ids.to_pylist()] + [True] * len(filled)
        ids = pa.concat_arrays([old.ids, pa.array([document.id for document in filled], pa.string())])
        kept = np.flatnonzero(stays)
        order = kept[pc.array_sort_indices(ids.take(pa.array(kept))).to_numpy()]
        numbers = np.full(len(ids), -1, np.int64)
        numbers[order] = np.arange(len(order))
        postings = join_postings(old.index.postings, counted, numbers)
        return Words(ids.take(pa.array(order)), LightIndex(postings, settings.k1, settings.b, old.index.analyze))

    # ---- files -------------------------------------------------------------------------------------------------
    def save(self, folder: str | Path) -> None:
        """Write model, index and texts as they are now to a folder that is new, or that `save` wrote before.

        Raises:
            ArtifactError: something else is there, such as a folder of the DAG.
            MachineError: the folder can't be written.
        """
        target, now = Path(folder), self._now
        if target.exists() and (not folders.is_retriever(target) or (target / MANIFEST).exists()):
            raise ArtifactError(target, "is there, and `save` did not write it", "name a new folder")
        making = target.with_name(f".{target.name}.making")
        shutil.rmtree(making, ignore_errors=True)
        try:
            self._copy(making, now)
        except OSError as error:
            shutil.rmtree(making, ignore_errors=True)
            raise MachineError(target, f"can't be written: {error}", "name another folder, or make room") from error
        earlier = target.with_name(f".{target.name}.earlier")
        shutil.rmtree(earlier, ignore_errors=True)
        if target.exists():
            target.replace(earlier)  # whole until the new one is there
        making.replace(target)
        shutil.rmtree(earlier, ignore_errors=True)

    def _copy(self, making: Path, now: Holdings) -> None:
        left_out = (INDEX, MANIFEST, LISTING, record_path(self.folder / MANIFEST).name)
        shutil.copytree(self.folder, making, ignore=lambda home, _: left_out if home == str(self.folder) else ())
        models = self.folder / INDEX / folders.MODELS
        if models.exists():
            shutil.copytree(models, making / INDEX / folders.MODELS)
        self._write(making / INDEX, now)

    def _write(self, index: Path, now: Holdings) -> None:
        index.mkdir(exist_ok=True)
        names = now.ids.to_pylist()
        with pq.ParquetWriter(index / folders.CORPUS, CORPUS_SCHEMA, compression="zstd") as writer:
            for first in range(0, len(names), ROW_GROUP):
                block = names[first : first + ROW_GROUP]
                old = [name for name in block if name not in now.added]
                texts = dict(zip(old, self._texts.texts(old), strict=True)) | now.added
                rows = [block, [texts[name][0] for name in block], [texts[name][1] for name in block]]
                writer.write_table(pa.table(rows, schema=CORPUS_SCHEMA))
        for name, vectors in now.held.vectors.items():
            home = index / folders.VECTORS / name
            home.mkdir(parents=True)
            for number, shard in enumerate(vectors.shards):
                np.save(home / f"{number:05d}.npy", shard.array)
        for name in self.facts.named(LEXICAL):
            self._write_words(index / folders.BM25 / name, name, now.words.get(name))
        write_json(index / folders.ABOUT, {"documents": len(names), "folder": "", "files": {}})

    def _write_words(self, home: Path, method: str, words: Words | None) -> None:
        source = self.index / folders.BM25 / method
        if words is None:
            shutil.copytree(source, home)
            return
        home.mkdir(parents=True)
        write_ids(home, words.ids.to_pylist())
        write_postings(home, words.index.postings)
        blank = {"documents": len(words.ids), "blank_documents": len(self) - len(words.ids)}
        text = json.dumps(read_about(source) | blank, indent=1, sort_keys=True)
        (home / ABOUT).write_text(text + "\n", encoding="utf-8")

    # ---- loading -----------------------------------------------------------------------------------------------
    def _open(self) -> Holdings:
        ids, vectors, lexical = self._texts.ids, dict[str, CorpusVectors](), dict[str, LexicalSearcher]()
        words: dict[str, Words] = {}
        for name in self.facts.named(DENSE):
            vectors[name] = CorpusVectors.open(self._sources[name])
        for name in self.facts.named(LEXICAL):
            settings = self._settings(name)
            if settings.backend != "bm25s":
                lexical[name] = LexicalSearcher.open(self._sources[name])
                continue
            home = self.index / folders.BM25 / name
            words[name] = Words(read_ids(home), LightIndex.load(home, settings.k1, settings.b))
            lexical[name] = self._lexical(name, words[name])
        held = Held(vectors, lexical)
        return Holdings(ids, held, words, self._searcher(held))

    def _lexical(self, method: str, words: Words) -> LexicalSearcher:
        index, settings = words.index, self._settings(method)
        return LexicalSearcher(lambda texts, depth: index.search_texts(texts, depth, THREADS), words.ids, settings)

    def _settings(self, method: str) -> SearchSettings:
        return SearchSettings.model_validate(self._sources[method].params)

    def _searcher(self, held: Held) -> QuerySearcher:
        chosen: Source = self._sources[self.facts.method]
        return Opened(held, explains=False, models=self._models).searcher(chosen)


BATCH_TOKENS = 4096


def encode_documents(encoder: Encoder, texts: Sequence[str], params: Mapping[str, Any]) -> np.ndarray:
    """Embed texts of documents, float32 [texts, dimension], as the DAG does under the same params."""
    contract = encoder.contract
    longest = min(params.get("document_tokens") or contract.tokens("document"), contract.max_tokens)
    tokens = encoder.tokenize(texts, contract.prefix("document"), longest)
    vectors = np.empty((len(texts), encoder.dimension), np.float32)
    batches = plan_batches(tokens.lengths, params.get("batch_tokens") or BATCH_TOKENS)
    for rows, encoded in encode_batches(encoder, tokens, batches, THREADS):
        vectors[rows] = encoded
    return vectors


def _read(documents: Iterable[Document]) -> dict[str, tuple[str, str]]:
    """Read documents as title and text by id; a letter and its accent become one character, as in the folder's."""
    read: dict[str, tuple[str, str]] = {}
    if isinstance(documents, Mapping):
        raise CollectionError("documents", "is one document, expected a list of them", "write add([{...}])")
    for number, document in enumerate(documents, 1):
        if not isinstance(document, Mapping):
            raise CollectionError(f"document {number}", f"is {document!r:.80}, expected id and text", "give a dict")
        name, text, title = document.get("id", document.get("_id")), document.get("text"), document.get("title") or ""
        if not name or not isinstance(name, str) or not isinstance(text, str) or not isinstance(title, str):
            expected = "expected id and text, both texts, and title a text, too, where there is one"
            raise CollectionError(f"document {number}", f"{expected}, found {dict(document)!r:.80}", "give both")
        if CONTROL.search(name) or any(SURROGATE.search(one) for one in (name, title, text)):
            problem = f"{name!r:.80}: an id with a control character, or half a character (a lone surrogate) in a text"
            raise CollectionError(f"document {number}", problem, "replace it: files hold neither")
        if name in read:
            raise CollectionError(f"document {number}", f"has the id {name!r}, as another one", "give each once")
        read[name] = normalize("NFC", title), normalize("NFC", text)
    return read
