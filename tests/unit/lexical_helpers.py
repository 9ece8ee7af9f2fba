"""Small collections for the lexical tests."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import CORPUS_SCHEMA, QUERY_SCHEMA

FOX = [
    ("d1", "Foxes", "The quick brown fox jumps over the lazy dog."),
    ("d2", "", "Dense retrieval without relevance labels"),
    ("d3", "Sparse retrieval", "BM25 is a sparse retrieval function; foxes run"),
    ("d4", "Sparse retrieval", "BM25 is a sparse retrieval function; foxes run"),
    ("d5", "", ""),
    ("d6", "Only a title about lakes", ""),
]
ASKED = [
    ("q1", "sparse retrieval foxes"),
    ("q2", "the of and"),
    ("q3", "???"),
    ("d3", "sparse retrieval"),
    ("q4", "zebra"),
]


def write_collection(folder: Path, documents: list, queries: list, qrels: str = "") -> Path:
    """A normalised collection with the split `test`, in which every query is judged unless `qrels` says otherwise."""
    folder.mkdir(parents=True)
    columns = list(zip(*documents, strict=True))
    pq.write_table(
        pa.table([pa.array(c, pa.string()) for c in columns], schema=CORPUS_SCHEMA), folder / "corpus.parquet"
    )
    asked = list(zip(*queries, strict=True))
    pq.write_table(pa.table([pa.array(c, pa.string()) for c in asked], schema=QUERY_SCHEMA), folder / "queries.parquet")
    lines = qrels or "".join(f"{query}\t{documents[0][0]}\t1\n" for query, _ in queries)
    (folder / "qrels.test.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    (folder / "manifest.json").write_text('{"files": []}\n')
    return folder


def from_mirror(mirror: Path, name: str, folder: Path) -> Path:
    """The test split of a BEIR zip as a normalised collection."""
    with zipfile.ZipFile(mirror / f"{name}.zip") as archive:
        names = archive.namelist()

        def lines(ending: str) -> list[dict]:
            with archive.open(next(n for n in names if n.endswith(ending))) as stream:
                return [json.loads(line) for line in io.TextIOWrapper(stream, "utf-8") if line.strip()]

        documents = [(row["_id"], row.get("title") or "", row.get("text") or "") for row in lines("corpus.jsonl")]
        queries = [(row["_id"], row["text"]) for row in lines("queries.jsonl")]
        qrels = archive.read(next(n for n in names if n.endswith("qrels/test.tsv"))).decode()
    return write_collection(folder, documents, queries, qrels.split("\n", 1)[1].replace("\r", ""))


def run_index(backend: str, fields: str = "flat", language: str = "en", name: str = "fox") -> str:
    """Run the stage `index_bm25` in the current folder; returns the declared output."""
    output = f"results/bm25/{backend}-{fields}/{name}/manifest.json"
    run_spec(
        StageSpec(
            "index_bm25",
            1,
            {"collection": name},
            {"collection": f"results/collections/{name}/manifest.json"},
            {"index": output},
            {"backend": backend, "fields": fields, "language": language},
        )
    )
    return output


def run_search(backend: str, fields: str = "flat", language: str = "en", name: str = "fox", **settings: object) -> Path:
    """Run `index_bm25` and `search_bm25` in the current folder; returns the run file."""
    index = run_index(backend, fields, language, name)
    output = f"results/runs/{backend}-{fields}/{name}/standard.trec.gz"
    params = {
        "backend": backend,
        "fields": fields,
        "language": language,
        "collection": name,
        "split": "test",
        "depth": 1000,
        "exclude_self": False,
    } | settings
    run_spec(
        StageSpec(
            "search_bm25",
            1,
            {"model": f"{backend}-{fields}"},
            {"index": index, "collection": f"results/collections/{name}/manifest.json"},
            {"run": output},
            params,
            threads=2,
        )
    )
    return Path(output)
