"""Malformed folders of users: contents by file, what an error must name, and the line where there is one."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.unit.collection_helpers import CORPUS, QRELS, QUERIES, json_lines

Files = dict[str, str | bytes]
Fault = tuple[str, Files, str, int | None]

ROWS = "d1\tfirst\nd2\tsecond\n"
ASKED = "q1\twhat is first\n"
HEADERS = {  # which no reader can use: a column is missing, or named twice
    "corpus": [
        "docid\ttitle",
        "text\ttitle",
        "title\ttext",
        "url\tcontents",
        "name\ttext",
        "key\tvalue",
        "_id\turl",
        "text\tpassage",
    ],
    "queries": ["qid\ttopic", "query\ttext", "title\tquery", "name\tquestion", "key\tquery", "qid\turl"],
}
TWICE = {"corpus": "docid\ttext\ttext", "queries": "qid\tQuery\tquery"}
QREL_HEADERS = [
    "query-id\tcorpus-id",
    "query-id\tscore\trank",
    "corpus-id\tscore\trank",
    "qid\tdocid\trank",
    "topic\titer\tdocno",
]
QREL_LINES = {
    "grade with an underscore": "q1\td1\t1_0",
    "grade in Arabic digits": "q1\td1\t\u0661",
    "grade as a word": "q1\td1\thigh",
    "grade as a power": "q1\td1\t1e1",
    "grade as a fraction": "q1\td1\t0.5",
    "grade in base 16": "q1\td1\t0x1",
    "grade that is a count": "q1\td1\t5000000000",
    "grade that is a time": "q1\td1\t1700000000",
    "grade of no number": "q1\td1\tnan",
    "grade that is infinite": "q1\td1\tinf",
    "grade with a comma": "q1\td1\t1,0",
    "grade that is empty": "q1\td1\t",
    "two cells": "q1\td1",
    "five cells": "q1\t0\td1\t1\tx",
    "four cells after three": "q1\t0\td1\t1",
}
JSON_LINES: dict[str, str] = {
    "key twice": '{"_id": "x", "text": "t", "text": ""}',
    "id twice in a line": '{"_id": "x", "_id": "y", "text": "t"}',
    "key twice inside": '{"_id": "x", "text": "t", "metadata": {"a": 1, "a": 2}}',
    "brackets inside each other": '{"_id": "x", "text": "t", "more": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "a number with 5,000 digits": '{"_id": "x", "text": "t", "more": ' + "9" * 5000 + "}",
    "an id with 5,000 digits": '{"_id": ' + "9" * 5000 + ', "text": "t"}',
    "a lone surrogate in the id": '{"_id": "a\\ud800", "text": "t"}',
    "a low surrogate in the id": '{"_id": "\\udc00", "text": "t"}',
    "a tab in the id": '{"_id": "a\\tb", "text": "t"}',
    "a line's end in the id": '{"_id": "a\\nb", "text": "t"}',
    "a return in the id": '{"_id": "a\\rb", "text": "t"}',
    "a next line in the id": '{"_id": "a\\u0085b", "text": "t"}',
    "an escape in the id": '{"_id": "a\\u001bb", "text": "t"}',
    "NUL in the id": '{"_id": "a\\u0000b", "text": "t"}',
    "an id of true": '{"_id": true, "text": "t"}',
    "an id with a fraction": '{"_id": 1.5, "text": "t"}',
    "an id of null": '{"_id": null, "text": "t"}',
    "a list as id": '{"_id": ["x"], "text": "t"}',
    "an object as text": '{"_id": "x", "text": {"en": "t"}}',
}
JSON_QRELS = {
    "no grade": '{"query-id": "q1", "corpus-id": "d1"}',
    "no document": '{"query-id": "q1", "score": 1}',
    "no query": '{"corpus-id": "d1", "score": 1}',
    "true as grade": '{"query-id": "q1", "corpus-id": "d1", "score": true}',
    "null as grade": '{"query-id": "q1", "corpus-id": "d1", "score": null}',
    "a list as grade": '{"query-id": "q1", "corpus-id": "d1", "score": [1]}',
    "a fraction as grade": '{"query-id": "q1", "corpus-id": "d1", "score": 0.5}',
    "a large grade": '{"query-id": "q1", "corpus-id": "d1", "score": 5000000000}',
    "a dictionary by query": '{"q1": {"d1": 1}}',
    "grade twice": '{"query-id": "q1", "corpus-id": "d1", "score": 1, "score": 0}',
    "a fraction as query": '{"query-id": 1.5, "corpus-id": "d1", "score": 1}',
}


def parquet(**columns: list[Any]) -> bytes:
    """Return a parquet file, its pages small."""
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, row_group_size=50, compression="none")
    return stream.getvalue()


def damaged(content: bytes, start: int, count: int = 40) -> bytes:
    """Return a file with a stretch of other bytes."""
    return content[:start] + b"\xff" * count + content[start + count :]


def plain_faults() -> Iterator[Fault]:
    """Tables of documents, and files that are absent, empty or there twice."""
    corpus: Files = {"corpus.tsv": ROWS}
    yield "TSV with one cell", {"corpus.tsv": "d1\tfirst\nd2\n"}, "corpus.tsv", 2
    yield "TSV with five cells", {"corpus.tsv": "a\tb\tc\td\te\n"}, "corpus.tsv", 1
    yield "TSV with changing cells", {"corpus.tsv": "d1\tfirst\nd2\tt\tsecond\n"}, "corpus.tsv", 2
    yield "TSV not in UTF-8", {"corpus.tsv": b"d1\tfirst\nd2\t\xff\n"}, "corpus.tsv", 2
    yield "TSV with commas", {"corpus.tsv": "id,text\nd1,first\n"}, "corpus.tsv", 1
    yield "TSV with texts before ids", {"corpus.tsv": "a text about pies\td1\na text of cars\td2\n"}, "corpus.tsv", 1
    yield "TSV with its header twice", {"corpus.tsv": f"id\ttext\n{ROWS}id\ttext\n"}, "corpus.tsv", 4
    yield "CSV with an open quotation mark", {"corpus.csv": 'id,text\nd1,"first\nd2,second\n'}, "corpus.csv", 2
    yield "CSV with a letter after a cell", {"corpus.csv": 'id,text\nd1,"first" x\n'}, "corpus.csv", 2
    yield "CSV with changing cells", {"corpus.csv": "id,text\nd1,first\nd2,t,second\n"}, "corpus.csv", 3
    yield "CSV after a cell of two lines", {"corpus.csv": 'id,text\nd1,"a\nb"\nd2\n'}, "corpus.csv", 4
    yield "CSV with four cells", {"corpus.csv": "d1,u,t,first\n"}, "corpus.csv", 1
    yield "id twice", {"corpus.tsv": "d1\tfirst\nd1\tsecond\n"}, "corpus.tsv", 2
    yield "two corpora", {"corpus.tsv": ROWS, "corpus.jsonl": json_lines(CORPUS)}, "corpus", None
    yield "a corpus and its archive", {"corpus.tsv": ROWS, "corpus.tsv.gz": gzip.compress(b"d1\tx\n")}, "corpus", None
    yield "empty corpus", {"corpus.tsv": ""}, "notes", None
    yield "empty archive", {"corpus.tsv.gz": gzip.compress(b"")}, "notes", None
    yield "no corpus", {"queries.tsv": ASKED}, "notes", None
    yield "half an archive", {"corpus.jsonl.gz": gzip.compress(json_lines(CORPUS).encode() * 99)[:60]}, "notes", None
    yield "an archive that is none", {"corpus.jsonl.gz": json_lines(CORPUS)}, "notes", None
    for name in (
        "corpus.json",
        "corpus.jsonl.zst",
        "corpus.ndjson",
        "documents.xlsx",
        "topics.tsv",
        "notes.doc",
    ):
        yield f"{name} alone", {name: json_lines(CORPUS)}, name, None
    yield "judgements without queries", corpus | {"qrels/test.tsv": QRELS}, "notes", None
    both: Files = {"corpus.jsonl": json_lines(CORPUS), "queries.jsonl": json_lines(QUERIES), "qrels/test.tsv": QRELS}
    yield "two files of a split", both | {"qrels/test.csv": QRELS.replace("\t", ",")}, "qrels/test.csv", None
    yield "a split at two places", both | {"qrels.tsv": QRELS}, "qrels.tsv", None


def parquet_faults() -> Iterator[Fault]:
    """Parquet files."""
    ids, texts = [f"d{n}" for n in range(500)], ["a text " * 20] * 500
    good = parquet(_id=ids, text=texts)
    yield "parquet that is none", {"corpus.parquet": b"PAR1 and more"}, "corpus.parquet", None
    for name, start in {"first": 4, "middle": len(good) // 2, "last": len(good) - 60}.items():
        yield f"parquet, {name} page damaged", {"corpus.parquet": damaged(good, start)}, "corpus.parquet", None
    yield "half a parquet file", {"corpus.parquet": good[: len(good) // 2]}, "corpus.parquet", None
    yield "parquet with fractions as ids", {"corpus.parquet": parquet(_id=[1.5], text=["x"])}, "corpus.parquet", 1
    yield "parquet without ids", {"corpus.parquet": parquet(text=["x"])}, "corpus.parquet", 1
    yield "parquet without texts", {"corpus.parquet": parquet(_id=["x"])}, "corpus.parquet", 1
    yield "parquet with null as text", {"corpus.parquet": parquet(_id=["x"], text=[None])}, "corpus.parquet", 1
    yield (
        "parquet with an object as text",
        {"corpus.parquet": parquet(_id=["x"], text=[{"a": "b"}])},
        "corpus.parquet",
        1,
    )


def row_faults() -> Iterator[Fault]:
    """Headers, lines of JSON and lines of judgements."""
    for stem, headers in HEADERS.items():
        other: Files = {} if stem == "corpus" else {"corpus.tsv": ROWS}
        rows = ROWS if stem == "corpus" else ASKED
        for header in (*headers, TWICE[stem]):
            yield f"{stem}.tsv: header {header!r}", other | {f"{stem}.tsv": f"{header}\n{rows}"}, f"{stem}.tsv", 1
            comma = {f"{stem}.csv": f"{header}\n{rows}".replace("\t", ",")}
            yield f"{stem}.csv: header {header!r}", other | comma, f"{stem}.csv", 1
        for name, line in JSON_LINES.items():
            text = json_lines(CORPUS if stem == "corpus" else QUERIES) + line + "\n"
            yield f"{stem}.jsonl: {name}", other | {f"{stem}.jsonl": text}, f"{stem}.jsonl", 3
    both: Files = {"corpus.jsonl": json_lines(CORPUS), "queries.jsonl": json_lines(QUERIES)}
    for header in QREL_HEADERS:
        yield f"judgements with header {header!r}", both | {"qrels/test.tsv": f"{header}\n{QRELS}"}, "test.tsv", 1
    for name, line in QREL_LINES.items():
        yield f"test.tsv: {name}", both | {"qrels/test.tsv": f"{QRELS}{line}\n"}, "test.tsv", 4
        comma = line.replace(",", ";").replace("\t", ",")
        yield f"test.csv: {name}", both | {"qrels/test.csv": f"{QRELS.replace(chr(9), ',')}{comma}\n"}, "test.csv", 4
        spaced = f"q2 d2 1\n{line.replace(chr(9), ' ')}\n"
        yield f"test.txt: {name}", both | {"qrels/test.txt": spaced}, "test.txt", 2
    for name, line in JSON_QRELS.items():
        first = '{"query-id": "q2", "corpus-id": "d2", "score": 1}\n'
        yield f"test.jsonl: {name}", both | {"qrels/test.jsonl": first + line + "\n"}, "test.jsonl", 2
    for name, ids in {"an unknown document": "q1\tnone", "an unknown query": "none\td1", "lost zeros": "1\td1"}.items():
        known = both | {"queries.jsonl": '{"_id": "0001", "text": "x"}\n' + json_lines(QUERIES)}
        yield f"judgements of {name}", known | {"qrels/test.tsv": f"{QRELS}{ids}\t1\n"}, "test.tsv", 4


def folder_faults() -> Iterator[Fault]:
    """All malformed folders: name, contents by file, what an error names, and its line."""
    yield from plain_faults()
    yield from parquet_faults()
    yield from row_faults()
