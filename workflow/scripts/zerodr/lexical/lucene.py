"""Write and search Lucene indexes through Anserini's classes. All work per hit runs inside Java.

The bytes of an index depend on the documents only.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zerodr.config.registry import WITHOUT_LUCENE
from zerodr.errors import ConfigError, MachineError, nearest
from zerodr.lexical.folder import LUCENE, Hits, IndexedDocument, TermIndexSettings
from zerodr.lexical.jvm import java_cast, java_class, java_errors, versions

CONTENTS, TITLE = "contents", "title"
MAX_CLAUSES = 1 << 20  # Lucene refuses more than 1,024 terms, and queries of ArguAna are whole documents
_GENERATOR = "io.anserini.search.query.BagOfWordsQueryGenerator"
_QUERY = "org.apache.lucene.search.Query"
_ANALYZER = "org.apache.lucene.analysis.Analyzer"
FLUSH_DOCUMENTS = 50_000  # segments end by this count alone: memory use would depend on the machine


class LuceneSearcher:
    """BM25 over one Lucene index, many queries at a time on Java threads.

    A search is one Java method handle `query text -> JSON of the hits`, composed of Anserini's query generator and
    Lucene's search; JSON preserves every bit of a float32 score.

    Args:
        folder: of the index.
        language: of the texts.
        fields: searched with equal weight.
        k1, b: of BM25.
    """

    def __init__(
        self, folder: Path, language: str, fields: Sequence[str] = (CONTENTS,), k1: float = 0.9, b: float = 0.4
    ) -> None:
        self.folder, self.fields, self.k1, self.b = folder, tuple(fields), k1, b
        with java_errors(folder):
            self.analyzer = analyzer(language)
            path = java_class("java.nio.file.Paths").get(str(folder.resolve()))
            directory = java_class("org.apache.lucene.store.FSDirectory").open(path)
            self._reader = java_class("org.apache.lucene.index.DirectoryReader").open(directory)
            reader = java_cast("org.apache.lucene.index.IndexReader", self._reader)
            self._searcher = java_class("org.apache.lucene.search.IndexSearcher")(reader)
            self._searcher.setSimilarity(java_class("org.apache.lucene.search.similarities.BM25Similarity")(k1, b))
            java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MAX_CLAUSES)
            self._plain = self._plain_query()
            self._expanded: Any = None

    def expand(self, documents: int, terms: int, original_weight: float, ascii_terms: bool) -> None:
        """Search with RM3 from now on: Anserini's feedback terms, over the field `contents`.

        Args:
            documents: number of feedback documents.
            terms: number of feedback terms.
            original_weight: of the original query.
            ascii_terms: use only terms of ASCII letters and digits, as Anserini does for English.
        """
        with java_errors(self.folder):
            feedback = java_class("io.anserini.search.SimpleSearcher")(str(self.folder.resolve()))
            feedback.set_analyzer(self.analyzer)
            feedback.set_bm25(self.k1, self.b)
            feedback.set_rm3(None, terms, documents, original_weight, False, ascii_terms)
            searcher = "io.anserini.search.SimpleSearcher"
            find = _handle(searcher, "get_feedback_terms", "java.util.Map", "java.lang.String")
            build = _handle(_GENERATOR, "buildQuery", _QUERY, "java.lang.String", "java.util.Map")
            build = build.bindTo(java_class(_GENERATOR)()).bindTo(CONTENTS)
            self._expanded = _handles().filterReturnValue(find.bindTo(feedback), build)

    def search(self, texts: Sequence[str], depth: int, threads: int = 1) -> list[Hits]:
        """Find the best `depth` documents of each query. Equal scores are in order of internal number.

        A query without terms has no hits.
        """
        with java_errors(self.folder):
            find = self._to_json(depth)
            task = "java.util.concurrent.Callable"
            # A Python callback would take the GIL for each query; method handles stay in Java from text to JSON.
            interface = java_class("java.lang.Class").forName(task)
            proxies, tasks = java_class("java.lang.invoke.MethodHandleProxies"), java_class("java.util.ArrayList")()
            some = [number for number, text in enumerate(texts) if self._has_terms(text)]
            for number in some:
                tasks.add(proxies.asInterfaceInstance(interface, find.bindTo(texts[number])))
            pool = java_class("java.util.concurrent.Executors").newFixedThreadPool(threads)
            try:
                done = pool.invokeAll(tasks)
                answers = {number: done.get(task_number).get() for task_number, number in enumerate(some)}
            finally:
                pool.shutdown()
        return [_hits(answers.get(number)) for number in range(len(texts))]

    def close(self) -> None:
        """Close the index."""
        self._reader.close()

    def _has_terms(self, text: str) -> bool:
        return java_class("io.anserini.analysis.AnalyzerUtils").analyze(self.analyzer, text).size() > 0

    def _plain_query(self) -> Any:
        """Compose the handle `String -> Query` of one or several fields."""
        generator = java_class(_GENERATOR)()
        if len(self.fields) == 1:
            where, build = self.fields[0], ("java.lang.String", _ANALYZER, "java.lang.String")
        else:
            where, build = java_class("java.util.TreeMap")(), ("java.util.Map", _ANALYZER, "java.lang.String")
            for field in self.fields:
                where.put(field, java_class("java.lang.Float")(1.0))
        return _handle(_GENERATOR, "buildQuery", _QUERY, *build).bindTo(generator).bindTo(where).bindTo(self.analyzer)

    def _to_json(self, depth: int) -> Any:
        """Compose the handle `String -> String` that searches and writes the hits as JSON."""
        handles, integer = _handles(), java_class("java.lang.Integer").TYPE
        top = "org.apache.lucene.search.TopDocs"
        search = _lookup("org.apache.lucene.search.IndexSearcher", "search", top, [_class(_QUERY), integer])
        search = handles.collectArguments(search.bindTo(self._searcher), 1, handles.constant(integer, depth))
        mapper = "com.fasterxml.jackson.databind.ObjectMapper"
        write = _handle(mapper, "writeValueAsString", "java.lang.String", "java.lang.Object")
        shape = java_class("java.lang.invoke.MethodType").methodType(_class("java.lang.String"), _class(top))
        write = write.bindTo(java_class(mapper)()).asType(shape)
        return handles.filterReturnValue(self._expanded or self._plain, handles.filterReturnValue(search, write))


def _class(name: str) -> Any:
    return java_class("java.lang.Class").forName(name)


def _handles() -> Any:
    return java_class("java.lang.invoke.MethodHandles")


def _handle(owner: str, method: str, result: str, *arguments: str) -> Any:
    return _lookup(owner, method, result, [_class(name) for name in arguments])


def _lookup(owner: str, method: str, result: str, arguments: list[Any]) -> Any:
    listed = java_class("java.util.ArrayList")()
    for argument in arguments:
        listed.add(argument)
    shape = java_class("java.lang.invoke.MethodType")
    shape = shape.methodType(_class(result), java_cast("java.util.List", listed))
    return _handles().publicLookup().findVirtual(_class(owner), method, shape)


def _hits(answer: str | None) -> Hits:
    hits = json.loads(answer)["scoreDocs"] if answer else []
    documents = np.fromiter((hit["doc"] for hit in hits), np.int32, len(hits))
    return Hits(documents, np.fromiter((hit["score"] for hit in hits), np.float32, len(hits)))


def fill_lucene(blocks: Iterator[list[IndexedDocument]], folder: Path, settings: TermIndexSettings) -> dict[str, str]:
    """Index blocks of documents into `folder/lucene`; return versions and the analyzer.

    The flat index stores term vectors, which RM3 reads.
    """
    flat = settings.fields == "flat"
    (folder / LUCENE).mkdir()
    writer = LuceneWriter(folder / LUCENE, settings.language, fields=() if flat else ("title",), vectors=flat)
    for block in blocks:
        if flat:
            writer.add({"id": row.id, "contents": row.flat()} for row in block)
        else:
            writer.add({"id": row.id, "contents": row.text, "title": row.title} for row in block)
    writer.close()
    return versions() | {"analyzer": writer.analyzer}


class LuceneWriter:
    """Writes one Lucene index whose bytes depend on the documents only (except for the time stamp in `*.si`).

    Lucene's defaults give random ids to segments and let memory use and merge threads decide about segments. Here
    ids count from one, segments end every 50,000 documents, and one merge at the end unites them in the order of the
    documents.

    Args:
        folder: an empty folder.
        language: of the texts; decides the analyzer.
        fields: fields in addition to `contents`.
        vectors: store term vectors, which RM3 reads.
    """

    def __init__(self, folder: Path, language: str, fields: Sequence[str] = (), vectors: bool = True) -> None:
        self.folder = folder
        with java_errors(folder):
            self.analyzer = analyzer(language).getClass().getName()
            _count_segment_ids_from_one()
            words = "-collection JsonCollection -generator DefaultLuceneDocumentGenerator -input -".split()
            words += ["-index", str(folder.resolve()), "-threads", "1", "-quiet", "-language", language]
            words += ["-storeDocvectors"] if vectors else []
            words += ["-fields", *fields] if fields else []
            self._indexer = java_class("io.anserini.index.SimpleIndexer")(words)
            name = self._indexer.analyzer.getClass().getName()
            # Indexed with one analyzer and searched with another, terms would differ without any error.
            if name != self.analyzer:
                problem = f"Anserini indexes {language!r} with {name}, searches with {self.analyzer}"
                raise MachineError(folder, problem, "use backend: bm25s for this language")
            policy = java_class("org.apache.lucene.index.LogDocMergePolicy")()
            policy.setMergeFactor(1_000_000)  # no merge before `close`: merge threads finish in any order
            # Lucene leaves segments above a tenth of the index uncompounded by default: file names would depend on
            # sizes.
            policy.setNoCFSRatio(1.0)
            config = self._indexer.writer.getConfig()
            config.setMergePolicy(policy)
            config.setUseCompoundFile(True)
            config.setMaxBufferedDocs(FLUSH_DOCUMENTS)
            config.setRAMBufferSizeMB(-1.0)  # -1 disables flushing by memory

    def add(self, documents: Iterable[dict[str, str]]) -> None:
        """Add documents with keys `id`, `contents` (not blank) and the further fields, in this order."""
        lines = [json.dumps(document, ensure_ascii=False) for document in documents]
        with java_errors(self.folder):
            added = self._indexer.addRawDocuments(lines) if lines else 0
        if added != len(lines):
            problem = f"Lucene accepted {added} of {len(lines)} documents"
            raise MachineError(self.folder, problem, "see Java's message above; a full disk is the usual cause")

    def close(self) -> None:
        """Merge to one segment and close."""
        with java_errors(self.folder):
            self._indexer.writer.forceMerge(1)
            self._indexer.writer.commit()
            self._indexer.close()
        # Lucene leaves its lock file behind; it would enter the manifest of the index.
        (self.folder / "write.lock").unlink(missing_ok=True)


def _count_segment_ids_from_one() -> None:
    helper = java_class("java.lang.Class").forName("org.apache.lucene.util.StringHelper")
    # Lucene starts this private counter at a random number; no public interface sets it.
    first = java_class("java.math.BigInteger").valueOf(1)
    java_class("org.apache.commons.lang3.reflect.FieldUtils").writeDeclaredStaticField(helper, "nextId", first, True)


def analyzer(language: str) -> Any:
    """Return Anserini's analyzer of a language: English with Porter stems for `en`, Lucene's for the others.

    Raises:
        ConfigError: Lucene has no analyzer for the language.
    """
    if language == "en":
        return java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    table = java_class("io.anserini.analysis.AnalyzerMap")
    if not table.analyzerMap.containsKey(language) or language in WITHOUT_LUCENE:
        known = [str(key) for key in table.analyzerMap.keySet().toArray() if str(key) not in WITHOUT_LUCENE]
        raise ConfigError(f"language {language!r}", "Lucene has no analyzer for it", nearest(language, [*known, "en"]))
    return table.getLanguageSpecificAnalyzer(language)


def analyze(chosen: Any, text: str) -> list[str]:
    """Return the terms of a text, in order."""
    return list(java_class("io.anserini.analysis.AnalyzerUtils").analyze(chosen, text).toArray())
