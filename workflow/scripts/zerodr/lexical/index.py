"""Run stage `index_bm25`: index a collection by Lucene or for bm25s. Equal inputs have an equal digest."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zerodr.artifacts.progress import Progress
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_size
from zerodr.config.base import validate
from zerodr.errors import CollectionError
from zerodr.lexical.folder import ABOUT, LUCENE, IndexedDocument, TermIndexSettings, ordered_documents, write_ids
from zerodr.lexical.light import fill_light
from zerodr.lexical.lucene import fill_lucene

log = logging.getLogger("zerodr")
VOLATILE = (f"{LUCENE}/*.si",)
"""Lucene writes the time into these files."""
CONTROLS = "".join(map(chr, range(33)))
"""Blanks to Java, and so to Lucene, which refuses a document of them alone."""


def index_bm25(stage: Stage) -> None:
    """Read input `collection`, write output `index`, a folder: documents.parquet, index.json, and lucene/ or bm25s/."""
    settings = validate(TermIndexSettings, stage.params, stage.spec.rule)
    about = build_index(stage.path("collection"), stage.output("index"), stage.state, settings)
    if settings.backend == "lucene":
        stage.volatile = VOLATILE
    stage.metric("documents", about["documents"])
    stage.metric("blank_documents", about["blank_documents"])
    stage.note(**about)


def build_index(collection: Path, folder: Path, scratch: Path, settings: TermIndexSettings) -> dict[str, Any]:
    """Index a normalised collection into the empty folder `folder`; return the content of index.json.

    A document whose main field is blank is left out. In `multifield` that field is the text, so a document with a title
    alone is left out, as in Anserini's multifield indexes (TREC-COVID: 129,192 of 171,331 documents are indexed).

    Raises:
        CollectionError: no document has a text.
    """
    total = corpus_size(collection)
    ids: list[str] = []
    progress = Progress(f"index {collection.name} ({settings.backend}, {settings.fields})", total, "documents")

    def indexed() -> Iterator[list[IndexedDocument]]:
        for block in ordered_documents(collection, scratch):
            rows = [document for document in block if has_text(document, settings.fields)]
            ids.extend(document.id for document in rows)
            yield rows
            progress.add(len(block))

    versions = (fill_lucene if settings.backend == "lucene" else fill_light)(indexed(), folder, settings)
    progress.finish()
    if not ids:
        raise CollectionError(collection.name, f"none of its {total} documents has a text", "check the collection")
    if len(ids) < total:
        log.warning("%d of %d documents have no text and are not indexed", total - len(ids), total)
    about = settings.model_dump() | versions | {"documents": len(ids), "blank_documents": total - len(ids)}
    write_ids(folder, ids)
    (folder / ABOUT).write_text(json.dumps(about, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return about


def has_text(document: IndexedDocument, fields: str) -> bool:
    """Test whether the field that is searched as `contents` holds more than blanks and control characters."""
    return bool((document.flat() if fields == "flat" else document.text).strip().strip(CONTROLS))
