"""Write a Lucene index whose bytes depend on the documents only."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from zerodr.errors import MachineError
from zerodr.lexical.analyzers import analyzer
from zerodr.lexical.documents import Document
from zerodr.lexical.folder import LUCENE, IndexSettings
from zerodr.lexical.jvm import java_class, java_errors, versions

FLUSH_DOCUMENTS = 50_000


def fill_lucene(blocks: Iterator[list[Document]], folder: Path, settings: IndexSettings) -> dict[str, str]:
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
            if name != self.analyzer:
                problem = f"Anserini indexes {language!r} with {name}, searches with {self.analyzer}"
                raise MachineError(folder, problem, "use backend: bm25s for this language")
            policy = java_class("org.apache.lucene.index.LogDocMergePolicy")()
            policy.setMergeFactor(1_000_000)
            policy.setNoCFSRatio(1.0)
            config = self._indexer.writer.getConfig()
            config.setMergePolicy(policy)
            config.setUseCompoundFile(True)
            config.setMaxBufferedDocs(FLUSH_DOCUMENTS)
            config.setRAMBufferSizeMB(-1.0)

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
        (self.folder / "write.lock").unlink(missing_ok=True)


def _count_segment_ids_from_one() -> None:
    helper = java_class("java.lang.Class").forName("org.apache.lucene.util.StringHelper")
    first = java_class("java.math.BigInteger").valueOf(1)
    java_class("org.apache.commons.lang3.reflect.FieldUtils").writeDeclaredStaticField(helper, "nextId", first, True)
