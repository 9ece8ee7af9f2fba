"""Rows of search and clustering: exact search bit by bit, faiss's IVF-PQ and K-means within the stated tolerance."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from gpu_check.check import SEED, Check
from gpu_check.report import Facts

RECALL = 0.01  # the most by which recall of a GPU's IVF-PQ may lie below that of the CPU's
AGREEMENT, INERTIA = 0.999, 0.01  # K-means: points with the same nearest of equal centroids; mean squared distance
FEW, THREADS, CENTERS = 20, 8, 500
QUERY_WORDS = 8


def vectors(check: Check, rows: int, centers: int = 0) -> np.ndarray:
    """Make vectors of the model's width, around centers where there are some, [rows, d] float32."""
    random = np.random.default_rng([SEED, rows, centers])
    made = random.standard_normal((rows, check.hidden), np.float32)
    if not centers:
        return made
    around = np.random.default_rng(SEED).standard_normal((centers, check.hidden)).astype(np.float32)
    made += around[random.integers(0, centers, rows)]
    return made / np.linalg.norm(made, axis=1, keepdims=True)


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

        index, where = faiss.IndexFlatIP(check.hidden), "cpu"
        if check.on_gpu and faiss.get_num_gpus():
            index, where = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index), "gpu"
        index.add(corpus.array)
        facts[f"times_faiss_{where}"] = check.clock(lambda: index.search(queries, depth)) / seconds["search"]
    return facts


def approximate(check: Check) -> Facts:
    """Search an IVF-PQ index that faiss makes and searches where it sees a GPU, against one of the CPU."""
    import faiss

    from zerodr.config.index import IndexSettings
    from zerodr.retrieval.approximate import ApproximateIndex, measure_recall
    from zerodr.retrieval.candidates import join
    from zerodr.retrieval.vectors import Vectors

    count, asked, depth, lists = (12_000, 20, 20, 16) if check.tiny else (200_000, 1000, 1000, 256)
    settings = IndexSettings(index="ivfpq", ivf_lists=lists, ivf_probes=lists // 4, pq_bytes=check.hidden // 16)
    corpus, queries = Vectors(vectors(check, count, CENTERS)), Vectors(vectors(check, asked, CENTERS))
    ranks, recalls, rankings, seconds, facts = np.arange(count, dtype=np.int32), [], [], [], []
    for gpu in (bool(faiss.get_num_gpus()), False):
        searcher = ApproximateIndex(settings, corpus, SEED, THREADS, str, gpu)
        recalls.append(measure_recall(searcher, queries, ranks, depth, None, 100))
        rankings.append(join(list(searcher.search(queries, ranks, depth, None))))
        seconds.append(check.clock(lambda s=searcher: list(s.search(queries, ranks, depth, None))))
        facts.append(searcher.facts)
    pairs = zip(*(np.split(found.rows, np.cumsum(found.counts)[:-1]) for found in rankings), strict=True)
    shared = float(np.mean([len(np.intersect1d(a, b)) / max(1, len(b)) for a, b in pairs]))
    below = max(recalls[1][name] - recalls[0][name] for name in recalls[0])
    return {
        "right": below <= RECALL,
        "searched_on": facts[0].get("searched_on", "cpu"),
        "not_on_gpu": facts[0].get("not_on_gpu"),
        **recalls[0],
        "recall_below_cpu": below,
        "results_shared_with_cpu": shared,
        "queries_per_second": asked / seconds[0],
        "times_cpu": seconds[1] / seconds[0],
    }


def kmeans(check: Check) -> Facts:
    """Cluster queries by faiss where it sees a GPU, and on the CPU."""
    import faiss

    from zerodr.papers.coco_dr.cluster_queries import cluster
    from zerodr.papers.coco_dr.settings import ClusterSettings

    count, clusters = (2000, 8) if check.tiny else (100_000, 50)
    points, settings = vectors(check, count, clusters), ClusterSettings(count=clusters, iterations=20, restarts=1)
    gpu = bool(faiss.get_num_gpus())
    ours, plain = (cluster(points, settings, SEED, THREADS, gpu=where) for where in (gpu, False))
    index = faiss.IndexFlatL2(check.hidden)
    if gpu:
        index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
    index.add(plain.centroids)
    nearest = index.search(points, 1)[1][:, 0]
    same = float((nearest == plain.assigned).mean())
    inertia = ours.facts()["inertia"] / plain.facts()["inertia"]
    seconds = [check.clock(lambda g=where: cluster(points, settings, SEED, THREADS, gpu=g)) for where in (gpu, False)]
    return {
        "right": same >= AGREEMENT and inertia <= 1 + INERTIA,
        "clustered_on": "cuda" if gpu else "cpu",
        "same_nearest_of_equal_centroids": same,
        "same_cluster": float((ours.assigned == plain.assigned).mean()),
        "inertia_over_cpu": inertia,
        "times_cpu": seconds[1] / seconds[0],
    }
