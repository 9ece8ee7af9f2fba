"""Convert an archive to `corpus.parquet`, `queries.parquet`, `qrels.<split>.tsv` and `audit.json`.

Texts, ids, grades and their order stay as the source has them. Lone surrogates, which UTF-8 can't carry, become
U+FFFD and are counted. `queries_unlabelled.parquet` and `answers.parquet` are added where the source has them.
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from zerodr.artifacts.progress import Progress
from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import CORPUS_SCHEMA, QUERY_SCHEMA, ROW_GROUP, UNLABELLED, write_qrels
from zerodr.collections.archives import find, open_archive
from zerodr.collections.audit import USER_FOLDER, IdIndex, Listing, TextScan, audit_split, check_count, fold
from zerodr.collections.first_part import FirstPart
from zerodr.collections.readers import Reader, open_reader
from zerodr.collections.readers.base import Document, Query, bad_line
from zerodr.config.base import validate
from zerodr.config.files import known
from zerodr.config.registry import Content
from zerodr.errors import CollectionError, nearest

log = logging.getLogger("zerodr")
SPAN = pa.struct([("text", pa.string()), ("start", pa.int64()), ("occurrences", pa.int64())])
ANSWER_SCHEMA = pa.schema(
    [("query_id", pa.string()), ("corpus_id", pa.string()), ("split", pa.string()), ("answers", pa.list_(SPAN))]
)


class NormalizeSettings(Content):
    """Settings of `normalize_collection`: the values of a registry row that decide its content."""

    kind: Literal["complete", "subset", "pool", "memory"]
    """A memory is a corpus alone, whatever else its archive holds."""
    original: str = ""
    """Format of the publisher's files, where the archive may have been packed from them."""
    pinned: bool = True
    """True if checksums fix the content of the archive or, where there are originals, of these."""


def normalize_collection(stage: Stage) -> None:
    """Read input `archive`, write output `collection` (a folder artifact).

    Raises:
        CollectionError, DownloadError: bad content, with file and line.
    """
    settings = validate(NormalizeSettings, stage.params, stage.spec.rule)
    archive = open_archive(stage.path("archive"), settings.archive)
    if settings.original:
        # The archive holds the publisher's files, or (from a mirror) the same collection in BEIR's layout.
        corpus = find(archive, "corpus.jsonl", required=False)
        inner = corpus is not None and settings.format == USER_FOLDER and "/" in corpus
        update = {"format": settings.original} if corpus is None else {"pinned": True}
        settings = settings.model_copy(update=update | ({"format": "beir"} if inner else {}))
    reader = open_reader(settings.format, archive, settings.member)
    if stage.cut is not None:
        reader = FirstPart(reader, list(settings.splits), stage.cut, stage.cut.questions)
        counts = {"documents": None, "queries": None, "splits": dict.fromkeys(settings.splits)}
        settings = settings.model_copy(update=counts)
    facts = write_collection(reader, settings, stage.output("collection"))
    stage.note(audit=facts)
    stage.metric("documents", facts["documents"])
    stage.metric("queries", facts["queries"])


def write_collection(reader: Reader, settings: NormalizeSettings, folder: Path) -> dict[str, Any]:
    """Write all files of a normalised collection into `folder` and return the content of its `audit.json`."""
    corpus_only = settings.kind == "memory"
    queries = iter(()) if corpus_only else reader.queries()
    texts, query_facts = write_queries(queries, folder / "queries.parquet", settings)
    scan = None if corpus_only else TextScan(texts)
    documents, facts = write_corpus(
        _chosen_documents(reader, settings), texts, folder / "corpus.parquet", settings, scan
    )
    facts |= query_facts | {"collection": settings.name, "kind": settings.kind, "format": settings.format, "splits": {}}
    for split in [] if corpus_only else _splits(reader, settings):
        facts["splits"][split] = write_split(reader, split, folder, documents, texts, settings, scan)
    if not corpus_only:
        facts |= _write_extras(reader, folder)
    if not settings.pinned:
        facts["unpinned"] = True
    write_json(folder / "audit.json", facts)
    splits = {split: value["queries_with_positive"] for split, value in facts["splits"].items()} or "none"
    counts = facts["documents"], facts["queries"]
    log.info("%s: %d documents, %d queries, splits %s", settings.name, *counts, splits)
    return facts


def write_split(
    reader: Reader,
    split: str,
    folder: Path,
    documents: IdIndex,
    texts: dict[str, str],
    expected: Content,
    scan: TextScan | None = None,
) -> dict[str, Any]:
    """Write the judgements of a split to `qrels.<split>.tsv`; return their counts."""
    audit = audit_split(split, reader.judgements(split), documents, texts, expected, scan)
    write_qrels(folder, split, ((row.query, row.document, row.grade) for row in audit.judgements))
    return audit.facts


def _chosen_documents(reader: Reader, settings: NormalizeSettings) -> Iterator[Document]:
    """Read the corpus, or the part of it that a memory keeps."""
    judged = None
    if settings.judged_split:
        known(f"{settings.name}: judged_split", settings.judged_split, reader.splits())
        judged = {row.document for row in reader.judgements(settings.judged_split) if row.grade > 0}

    def chosen() -> Iterator[Document]:
        return (row for row in reader.documents() if judged is None or row.id in judged)

    if settings.cut is None:
        return chosen()
    total, size = sum(1 for _ in chosen()), settings.cut
    return (row for n, row in enumerate(chosen()) if total <= size or (n + 1) * size // total > n * size // total)


def _splits(reader: Reader, settings: NormalizeSettings) -> list[str]:
    available = reader.splits()
    for split in settings.splits:
        if split not in available:
            raise CollectionError(settings.name, f"has no judgements for split {split!r}", nearest(split, available))
    return list(settings.splits) or available


def write_queries(rows: Iterable[Query], path: Path, expected: Content) -> tuple[dict[str, str], dict[str, Any]]:
    """Write the queries; return their texts by id, and counts."""
    ids, texts, empty = IdIndex(), {}, Listing()

    def checked() -> Iterator[Query]:
        for row in rows:
            ids.add(row.id, row.file, row.line)
            if row.id in texts:
                raise bad_line(row.file, row.line, f"query id {row.id!r} appears twice", "remove one of the lines")
            texts[row.id] = row.text
            if not row.text.strip():
                empty.add(row.id)
            yield row

    repaired = _write_parquet(path, QUERY_SCHEMA, checked())
    check_count(expected.name, "queries", expected.queries, len(texts))
    return texts, {"queries": len(texts), "empty_queries": empty.plain(), "repaired_queries": repaired}


def write_corpus(
    rows: Iterable[Document], texts: dict[str, str], path: Path, expected: Content, scan: TextScan | None = None
) -> tuple[IdIndex, dict[str, Any]]:
    """Write the corpus; return its ids, and counts. The rows are added to `scan`."""
    ids, empty, untitled = IdIndex(), Listing(), 0
    query_texts = set(map(fold, texts.values())) - {""}
    query_ids, copied = 0, set()
    progress = Progress(f"normalize {expected.name}", expected.documents or 0, "documents")

    def checked() -> Iterator[Document]:
        nonlocal untitled, query_ids
        for row in rows:
            ids.add(row.id, row.file, row.line)
            untitled += not row.title
            if not (row.text.strip() or row.title.strip()):
                empty.add(row.id)
            if scan:
                scan.add(row.id, row.title, row.text)
            if texts:
                query_ids += row.id in texts
                folded = fold(row.text)
                if folded in query_texts:
                    copied.add(folded)
            yield row
            if len(ids) % ROW_GROUP == 0:
                progress.add(ROW_GROUP)

    repaired = _write_parquet(path, CORPUS_SCHEMA, checked())
    if not ids:
        raise CollectionError(expected.name, "has an empty corpus, expected at least one document", "add documents")
    if empty.count == len(ids):
        problem = f"none of its {len(ids)} documents has a text"
        raise CollectionError(expected.name, problem, "name the field of the texts `text`, or remove an empty one")
    _refuse_duplicates(ids, path)
    check_count(expected.name, "documents", expected.documents, len(ids))
    copies = sum(fold(text) in copied for text in texts.values())
    return ids, {
        "documents": len(ids),
        "empty_documents": empty.plain(),
        "untitled_documents": untitled,
        "repaired_documents": repaired,
        "overlap": {"query_ids_in_corpus": query_ids, "query_texts_in_corpus": copies},
    }


def _refuse_duplicates(ids: IdIndex, path: Path) -> None:
    groups = ids.duplicates()
    column = pq.read_table(path, columns=["id"])["id"] if groups else []
    for rows in groups:
        first: dict[str, int] = {}
        for row in rows:
            key = column[row].as_py()
            if key in first:
                here, earlier = ids.position(row), ids.position(first[key])
                step = "remove one of the lines"
                if here.rpartition(":")[0] != earlier.rpartition(":")[0]:
                    step = "change the ids of one file, or leave its id column out: rows are ids then (file.csv#1)"
                raise CollectionError(here, f"document id {key!r} appears twice, first at {earlier}", step)
            first[key] = row


def _write_extras(reader: Reader, folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    unlabelled = reader.unlabelled()
    if unlabelled is not None:
        texts, _ = write_queries(unlabelled, folder / UNLABELLED, Content(name="queries_unlabelled"))
        facts["unlabelled_queries"] = len(texts)
    answers = reader.answers()
    if answers is not None:
        count = 0
        with pq.ParquetWriter(folder / "answers.parquet", ANSWER_SCHEMA, compression="zstd") as writer:
            while block := list(islice(answers, ROW_GROUP)):
                writer.write_table(pa.Table.from_pylist(block, ANSWER_SCHEMA))
                count += len(block)
        facts["answers"] = count
    return facts


def _write_parquet(path: Path, schema: pa.Schema, rows: Iterator[Any]) -> int:
    """Write the schema's fields of `rows` in groups of 4,096 rows; return the number of texts with a lone surrogate."""
    repaired = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while block := list(islice(rows, ROW_GROUP)):
            columns = [[getattr(row, name) for row in block] for name in schema.names]
            try:
                arrays = [pa.array(column, pa.string()) for column in columns]
            except UnicodeEncodeError:
                encodable = [[_without_surrogates(value) for value in column] for column in columns]
                repaired += sum(a != b for a, b in zip(sum(columns, []), sum(encodable, []), strict=True))
                arrays = [pa.array(column, pa.string()) for column in encodable]
            writer.write_table(pa.table(arrays, schema=schema), row_group_size=ROW_GROUP)
    return repaired


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
