"""Time of a query of `Retriever`: made-up vectors and words, the real MiniLM, one client.

    taskset -c 0,1 python benchmarks/retriever.py --documents 100000 --queries 100

Documents and queries are those of `benchmarks/lookup.py`. The time is that of `search([query], k=10)`, warm.
`--write FILE` keeps the processor times, and `--before FILE` compares with them (PYTHONPATH: other code).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from lookup import DIMENSION, WORDS, imported, say, texts

from zerodr import Retriever
from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import CORPUS_SCHEMA, ROW_GROUP
from zerodr.lexical.folder import TermIndexSettings
from zerodr.lexical.index import build_index

MODEL, WORDS_ALONE, DENSE = "results/models/minilm/shared/imported/manifest.json", "bm25", "minilm"
RANKED = {"collection": "random", "split": "every", "depth": 1000, "exclude_self": False}
FUSED = RANKED | {"fusion": "standard_score", "entries": 100, "tag": "x"}
WAYS = {
    WORDS_ALONE: (
        "lexical",
        [],
        RANKED | {"backend": "bm25s", "fields": "flat", "language": "en"},
    ),
    DENSE: ("dense", [], {"query_tokens": None, "document_tokens": None, "title_join": " ", "precision": "fp32"}),
    "hybrid": ("fusion", [WORDS_ALONE, DENSE], FUSED | {"runs": [WORDS_ALONE, DENSE]}),
    "zero": (
        "feedback",
        [DENSE, "hybrid"],
        {"collection": "random", "split": "every", "exclude_self": False, "memory": "hybrid"}
        | {"documents": 20, "inverse_temperature": 2.0, "weight": 0.2},
    ),
    "hybrid+zero": ("fusion", [WORDS_ALONE, "zero"], FUSED | {"runs": [WORDS_ALONE, "zero"]}),
}


def make(documents: int, random: np.random.Generator) -> Path:
    """Make a model's folder with an index in the working folder."""
    run_spec(StageSpec("import_model", 1, {"model": "minilm"}, {}, {"model": MODEL}, imported()))
    folder = Path(MODEL).parent
    index = folder / "index"
    (index / "vectors" / DENSE).mkdir(parents=True)
    columns = [[f"d{n}" for n in range(documents)], [""] * documents, texts(random, documents, WORDS, WORDS)]
    table = pa.table([pa.array(column, pa.string()) for column in columns], schema=CORPUS_SCHEMA)
    pq.write_table(table, index / "corpus.parquet", row_group_size=ROW_GROUP, compression="zstd")
    vectors = random.standard_normal((documents, DIMENSION), dtype=np.float32)
    np.save(index / "vectors" / DENSE / "00000.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    (index / "bm25" / WORDS_ALONE).mkdir(parents=True)
    settings = TermIndexSettings(backend="bm25s", fields="flat", language="en")
    build_index(index, index / "bm25" / WORDS_ALONE, Path(), settings)
    write_json(index / "index.json", {"documents": documents, "folder": "", "files": {}})
    return folder


def main() -> None:
    """Print the time to load, p50 and p95, and processor time of a query, by method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--write", type=Path, help="Write the processor times of a query here.")
    parser.add_argument("--before", type=Path, help="Compare with the processor times that were written here.")
    given = parser.parse_args()
    before = json.loads(given.before.read_text(encoding="utf-8")) if given.before else {}
    given.write, measured = given.write and given.write.resolve(), dict[str, float]()
    random = np.random.default_rng(0)
    with TemporaryDirectory() as home:
        os.chdir(home)
        folder, queries = make(given.documents, random), texts(random, given.queries + 10, 2, 12)
        ways = {name: dict(zip(("kind", "members", "params"), way, strict=True)) for name, way in WAYS.items()}
        say(f"{given.documents} documents, {given.queries} queries, load {os.getloadavg()[0]:.1f}")
        for method in WAYS:
            facts = {"method": method, "collection": "random", "language": "en", "title_join": " ", "encoder": DENSE}
            write_json(folder / "retriever.json", facts | {"ways": ways})
            started = time.perf_counter()
            retriever = Retriever.load(folder)
            loaded = time.perf_counter() - started
            retriever.search(queries[:10])
            times, spent = [], []
            for query in queries[10:]:
                wall, processor = time.perf_counter(), time.process_time()
                retriever.search([query])
                times.append(1000 * (time.perf_counter() - wall))
                spent.append(1000 * (time.process_time() - processor))
            p50, p95, processor = *np.percentile(times, [50, 95]), np.median(spent)
            facts = f"p50 {p50:6.1f} ms  p95 {p95:6.1f} ms  least {min(times):6.1f} ms  processor {processor:6.1f} ms"
            measured[method] = float(processor)
            ratio = f", before {before[method]:.1f}: {before[method] / processor:.1f} times" if method in before else ""
            say(f"{method:<12} load {loaded:5.1f} s  {facts}{ratio}")
        if given.write:
            given.write.write_text(json.dumps(measured), encoding="utf-8")
        os.chdir("/")


if __name__ == "__main__":
    main()
