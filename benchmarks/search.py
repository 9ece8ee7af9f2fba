"""Exact search against faiss: 1,000 queries, 1 million documents of 384 dimensions, the first 1,000 of each.

Every run is a process of its own, and the variants take turns, so that load from elsewhere meets all alike:

    python benchmarks/search.py                     # exact search, several environments
    python benchmarks/search.py --approximate       # HNSW and IVF-PQ on a smaller collection

`ours` reads a mapped file, checks it, scans, gives final scores and sorts by document id, with bf16 estimates where
the processor has them; `ours-float32` goes without. `faiss` is its flat index with the vectors in memory already.
`peak` is the bare float32 matrix product of numpy on blocks of the same size.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow/scripts"))
DIMENSION = 384
KINDS = ("ours", "ours-float32", "faiss", "peak")
ENVIRONMENTS = {  # what a process finds: the variable of OpenBLAS unset, or set for both
    "unset": None,
    "Haswell": "Haswell",
    "SkylakeX": "SkylakeX",
}


def say(line: str) -> None:
    """A line of output."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def make_data(folder: Path, documents: int, queries: int, clusters: int) -> None:
    """Unit vectors, written once: random directions, or around `clusters` centers."""
    random = np.random.default_rng(0)
    centers = random.standard_normal((max(clusters, 1), DIMENSION), dtype=np.float32) * bool(clusters)

    def some(count: int) -> np.ndarray:
        rows = random.standard_normal((count, DIMENSION), dtype=np.float32)
        rows += centers[random.integers(0, len(centers), count)]
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "queries.npy").exists():
        made = np.lib.format.open_memmap(folder / "corpus.npy", "w+", np.float32, (documents, DIMENSION))
        for start in range(0, documents, 50000):
            made[start : start + 50000] = some(min(50000, documents - start))
        del made
        np.save(folder / "queries.npy", some(queries))


def measured(work: Callable[[], object]) -> tuple[object, dict]:
    """The result of the second call, with its seconds and processor seconds."""
    work()
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    result = work()
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result, {"seconds": seconds, "processor_seconds": used}


def run_ours(folder: Path, depth: int, threads: int, single: bool = False) -> dict:
    """One timed exact search; writes what it found."""
    from zerodr.retrieval.candidates import join
    from zerodr.retrieval.exact import search_exact
    from zerodr.retrieval.search import pays_half
    from zerodr.retrieval.vectors import Vectors

    queries, corpus = Vectors.open(folder / "queries.npy"), Vectors.open(folder / "corpus.npy")
    ranks = np.arange(corpus.rows, dtype=np.int32)
    half = not single and pays_half(queries.rows, corpus.rows, corpus.dimension)
    found, facts = measured(lambda: join(list(search_exact(queries, corpus, ranks, depth, threads=threads, half=half))))
    np.savez(folder / "ours.npz", rows=found.rows.reshape(-1, depth), scores=found.scores.reshape(-1, depth))
    return facts | {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def run_faiss(folder: Path, depth: int, threads: int) -> dict:
    """One timed search of faiss's flat index; writes what it found."""
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatIP(DIMENSION)
    corpus, queries = np.load(folder / "corpus.npy", mmap_mode="r"), np.load(folder / "queries.npy")
    for start in range(0, len(corpus), 50000):
        index.add(np.ascontiguousarray(corpus[start : start + 50000]))
    (scores, rows), facts = measured(lambda: index.search(queries, depth))
    np.savez(folder / "faiss.npz", rows=rows, scores=scores)
    return facts | {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def run_peak(folder: Path, depth: int, threads: int) -> dict:
    """Matrix products alone, on blocks in cache: GFLOP/s."""
    from threadpoolctl import threadpool_limits

    random = np.random.default_rng(0)
    left, right = (random.standard_normal((n, DIMENSION), dtype=np.float32) for n in (512, 1024))
    rounds = 200

    def multiply(_: int) -> None:
        out = np.empty((512, 1024), np.float32)
        for _ in range(rounds):
            np.matmul(left, right.T, out=out)

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
        _, facts = measured(lambda: list(pool.map(multiply, range(threads))))
    flop = 2 * 512 * 1024 * DIMENSION * rounds * threads
    return facts | {"gflops": flop / facts["seconds"] / 1e9}


def child(kind: str, arguments: argparse.Namespace, coretype: str | None) -> dict:
    """Run one measurement in a fresh process."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    if coretype:
        environment["OPENBLAS_CORETYPE"] = coretype
    words = [
        sys.executable,
        __file__,
        "--folder",
        arguments.folder,
        "--depth",
        str(arguments.depth),
        "--threads",
        str(arguments.threads),
        "--child",
        kind,
    ]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, encoding="utf-8")
    return json.loads(done.stdout.splitlines()[-1])


def compare(folder: Path) -> None:
    """How the two results differ, as counts."""
    ours, other = np.load(folder / "ours.npz"), np.load(folder / "faiss.npz")
    pairs = ours["rows"].size
    common = sum(len(np.intersect1d(a, b)) for a, b in zip(ours["rows"], other["rows"], strict=True))
    moved = ours["rows"] != other["rows"]
    gap = np.abs(ours["scores"].astype(np.float64) - other["scores"])
    widest = gap[moved].max() if moved.any() else 0
    say(
        f"same result: {common} of {pairs} documents in both; {int(moved.sum())} places differ in order, with scores "
        f"that differ by at most {widest:.1e}; of all scores by at most {gap.max():.1e}"
    )


def exact(arguments: argparse.Namespace) -> None:
    """The table of exact search."""
    folder = Path(arguments.folder)
    make_data(folder, arguments.documents, arguments.queries, 0)
    flop = 2 * arguments.queries * arguments.documents * DIMENSION / 1e9
    times: dict[tuple[str, str], list[dict]] = {}
    for number in range(arguments.rounds):
        for name in arguments.environments:
            for kind in KINDS if number % 2 else reversed(KINDS):
                times.setdefault((name, kind), []).append(child(kind, arguments, ENVIRONMENTS[name]))
            last = ", ".join(f"{kind} {times[name, kind][-1]['seconds']:.2f} s" for kind in KINDS[:3])
            say(f"round {number + 1} {name}: {last}, peak {times[name, 'peak'][-1]['gflops']:.0f} GFLOP/s")
    compare(folder)
    say(
        "| OPENBLAS_CORETYPE | search | s | processor s | MiB | faiss / it | in processor s | GFLOP/s | of sgemm peak |"
    )
    say("|---" * 9 + "|")
    for name in arguments.environments:
        for kind in KINDS[:3]:
            row, other = times[name, kind], times[name, "faiss"]
            ratio, work = (
                statistics.median(b[key] / a[key] for a, b in zip(row, other, strict=True))
                for key in ("seconds", "processor_seconds")
            )
            speed = flop / middle(row, "seconds")
            say(
                f"| {name} | {kind} | {middle(row, 'seconds'):.2f} | {middle(row, 'processor_seconds'):.2f} | "
                f"{middle(row, 'peak_mib'):.0f} | {ratio:.2f} | {work:.2f} | {speed:.0f} | "
                f"{speed / middle(times[name, 'peak'], 'gflops'):.0%} |"
            )


def middle(runs: list[dict], key: str) -> float:
    """Median of a measurement."""
    return statistics.median(run[key] for run in runs)


def approximate(arguments: argparse.Namespace) -> None:
    """The table of approximate indexes: recall and speed."""
    from zerodr.config.index import IndexSettings
    from zerodr.retrieval.approximate import ApproximateIndex, measure_recall
    from zerodr.retrieval.exact import search_exact
    from zerodr.retrieval.vectors import Vectors

    folder = Path(arguments.folder)
    make_data(folder, arguments.documents, arguments.queries, 500)
    queries, corpus = Vectors.open(folder / "queries.npy"), Vectors.open(folder / "corpus.npy")
    ranks, threads = np.arange(corpus.rows, dtype=np.int32), arguments.threads
    say("| index | build s | queries/s | recall |\n|---|---|---|---|")
    _, facts = measured(lambda: list(search_exact(queries, corpus, ranks, 100, threads=threads)))
    say(f"| flat | 0 | {queries.rows / facts['seconds']:.0f} | exact |")
    base = {"hnsw_links": 32, "hnsw_search": 512, "ivf_lists": 1024, "ivf_probes": 64, "pq_bytes": 48}
    for kind, name, values in (("hnsw", "hnsw_search", (128, 512)), ("ivfpq", "ivf_probes", (16, 64))):
        start = time.perf_counter()
        searcher = ApproximateIndex(IndexSettings(index=kind, **base), corpus, 13, threads, str)
        build = time.perf_counter() - start
        for value in values:
            searcher.tune(**{name: value})
            _, facts = measured(lambda: list(searcher.search(queries, ranks, 100, None)))  # noqa: B023
            recall = measure_recall(searcher, queries, ranks, 100, None, 200)
            shares = ", ".join(f"{cut.removeprefix('recall_')}: {share:.3f}" for cut, share in recall.items())
            say(f"| {kind} {name}={value} | {build:.0f} | {queries.rows / facts['seconds']:.0f} | {shares} |")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="results/benchmarks/search", help="where the made-up vectors are kept")
    parser.add_argument("--documents", type=int, help="default: 1 million, or 50,000 with --approximate")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--environments", nargs="+", choices=ENVIRONMENTS, default=list(ENVIRONMENTS))
    parser.add_argument("--approximate", action="store_true")
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        single = functools.partial(run_ours, single=True)
        run = {"ours": run_ours, "ours-float32": single, "faiss": run_faiss, "peak": run_peak}[arguments.child]
        say(json.dumps(run(Path(arguments.folder), arguments.depth, arguments.threads)))
        return
    arguments.documents = arguments.documents or (50_000 if arguments.approximate else 1_000_000)
    arguments.folder = str(Path(arguments.folder) / str(arguments.documents))
    (approximate if arguments.approximate else exact)(arguments)


if __name__ == "__main__":
    main()
