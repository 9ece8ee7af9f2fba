"""Queries per second of the mining backend (zerodr.lexical.light) against Lucene, same analysis, interleaved rounds.

Run from the project's root: python benchmarks/bm25_mining.py [--collection squad-v1.1] [--questions squad-v1.1]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import bm25s
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from train import records

from zerodr.lexical.jvm import java_class
from zerodr.lexical.light import LightIndex
from zerodr.lexical.lucene import LuceneSearcher, LuceneWriter


def as_bm25s(light: LightIndex) -> bm25s.BM25:
    """Return the same scores as an index of bm25s."""
    index = bm25s.BM25(k1=light.k1, b=light.b, method="lucene", backend="numba")
    matrix = {"data": light.scores, "indices": light.postings.documents, "indptr": light.postings.ends}
    index.scores, index.nonoccurrence_array = matrix | {"num_docs": len(light)}, None
    index.vocab_dict = light.postings.vocabulary
    index.unique_token_ids_set = set(light.postings.vocabulary.values())
    return index


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall time and processor time (all threads, Java's too) of one call."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def anserini(folder: Path, questions: list[str], depth: int, threads: int) -> Callable[[], object]:
    """Anserini's own batch search, results left in Java."""
    searcher = java_class("io.anserini.search.SimpleSearcher")(str(folder))
    searcher.set_bm25(0.9, 0.4)
    texts, names = java_class("java.util.ArrayList")(), java_class("java.util.ArrayList")()
    for number, question in enumerate(questions):
        texts.add(question)
        names.add(str(number))
    return lambda: searcher.batch_search(texts, names, depth, threads)


def compare(corpus: list[str], questions: list[str], depth: int, threads: int, rounds: int) -> Iterator[str]:
    """Lines of the report."""
    start = time.perf_counter()
    light = LightIndex.build(corpus)
    yield f"light index of {len(corpus)} documents: {time.perf_counter() - start:.1f} s"
    with tempfile.TemporaryDirectory() as scratch:
        start, folder = time.perf_counter(), Path(scratch)
        writer = LuceneWriter(folder, "en", vectors=False)
        for first in range(0, len(corpus), 1000):
            block = enumerate(corpus[first : first + 1000], start=first)
            writer.add({"id": f"{number:08d}", "contents": text} for number, text in block)
        writer.close()
        yield f"Lucene index: {time.perf_counter() - start:.1f} s"
        lucene = LuceneSearcher(folder, "en")
        both = lucene.search(questions, depth, threads), light.search_texts(questions, depth, threads)
        same = [np.array_equal(a.documents, b.documents) for a, b in zip(*both, strict=True)]
        yield f"identical rankings: {np.mean(same):.3%}; hits a query: {np.mean([len(a.scores) for a in both[0]]):.0f}"
        sparse, terms = as_bm25s(light), [light.analyze(question) for question in questions]
        rivals = {
            "Lucene (zerodr, arrays)": lambda: lucene.search(questions, depth, threads),
            "Lucene (Anserini batch_search)": anserini(folder, questions, depth, threads),
            "bm25s retrieve (numba), analysis excluded": lambda: sparse.retrieve(
                terms, k=depth, n_threads=threads, show_progress=False
            ),
            "zerodr light": lambda: light.search(questions, depth, threads),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in rivals}
        for _ in range(rounds + 1):
            for name, work in rivals.items():
                times[name].append(seconds(work))
        ours = times["zerodr light"][1:]
        for name, measured in times.items():
            rate = len(questions) / statistics.median(wall for wall, _ in measured[1:])
            wall, processor = (
                statistics.median(theirs[of] / mine[of] for theirs, mine in zip(measured[1:], ours, strict=True))
                for of in (0, 1)
            )
            yield f"{name}: {rate:.0f} queries/s; zerodr light is {wall:.1f} x (processor time {processor:.1f} x)"
        lucene.close()


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collection", default="squad-v1.1")
    parser.add_argument("--questions", default="squad-v1.1")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    rows = records(chosen.collection, "corpus.jsonl")
    corpus = [text for row in rows if (text := f"{row.get('title') or ''} {row.get('text') or ''}").strip()]
    asked = [row["text"] for row in records(chosen.questions, "queries.jsonl")]
    questions = asked[:: max(1, len(asked) // chosen.count)][: chosen.count]
    title = f"{chosen.collection}, {len(questions)} questions of {chosen.questions}, k = {chosen.depth}"
    sys.stdout.write(f"{title}, {chosen.threads} threads, medians of {chosen.rounds} interleaved rounds\n")
    for line in compare(corpus, questions, chosen.depth, chosen.threads, chosen.rounds):
        sys.stdout.write(f"  {line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
