"""The row of search: exact search bit by bit."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from gpu_check.check import SEED, Check
from gpu_check.report import Facts

FEW, THREADS = 20, 8
QUERY_WORDS = 8


def vectors(check: Check, rows: int) -> np.ndarray:
    """Make vectors of the model's width, [rows, d] float32."""
    return np.random.default_rng([SEED, rows, 0]).standard_normal((rows, check.hidden), np.float32)


def exact(check: Check) -> Facts:
    """Search exactly: ranks and scores are the CPU's; queries a second, from vectors and from texts."""
    from zerodr.encoders.inference.encoder import encode_batches, load_encoder
    from zerodr.retrieval.batching import plan_batches
    from zerodr.retrieval.exact import search_exact
    from zerodr.retrieval.gpu import search_gpu
    from zerodr.retrieval.vectors import Vectors

    count, asked, depth = (2000, 20, 10) if check.tiny else (1_000_000, 1000, 1000)
    corpus, queries = Vectors(vectors(check, count)), vectors(check, asked)
    ranks, few = np.arange(count, dtype=np.int32), Vectors(queries[:FEW])
    ours = list(search_gpu(few, corpus, ranks, depth, None, THREADS, check.device))
    plain = list(search_exact(few, corpus, ranks, depth, None, THREADS))
    same = all(
        np.array_equal(a.rows, b.rows) and np.array_equal(a.scores, b.scores) for a, b in zip(ours, plain, strict=True)
    )
    encoder = load_encoder(check.model_folder("bert"), "fp32", check.device)
    questions = [" ".join(text.split()[:QUERY_WORDS]) for text in check.texts[:asked]]
    tokens = encoder.tokenize(questions)
    batches = plan_batches(tokens.lengths, 4096)
    seconds: dict[str, float] = {}

    def search(given: np.ndarray) -> None:
        list(search_gpu(Vectors(given), corpus, ranks, depth, None, THREADS, check.device))

    def answer() -> None:
        found = np.empty((len(questions), check.hidden), np.float32)
        for rows, encoded in encode_batches(encoder, encoder.tokenize(questions), batches, 2):
            found[rows] = encoded
        search(found)

    def measure() -> None:
        seconds["search"], seconds["answer"] = check.clock(lambda: search(queries)), check.clock(answer)

    memory = check.peak_gib(measure)
    facts: Facts = {"right": same, "queries_per_second": asked / seconds["search"]}
    facts |= {"documents": count, "depth": depth, "questions_per_second": len(questions) / seconds["answer"]}
    facts |= {"tokens_per_second": float(tokens.lengths.sum()) / seconds["answer"], "peak_gib": memory}
    if find_spec("faiss"):
        import faiss

        index = faiss.IndexFlatIP(check.hidden)
        index.add(corpus.array)
        facts["times_faiss_cpu"] = check.clock(lambda: index.search(queries, depth)) / seconds["search"]
    return facts
