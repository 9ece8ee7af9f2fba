"""Search of a shard: order, exactness whatever the sharding, refusals, embedding files, the stage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_helpers import INDEX, as_lists, clustered, exact_scores, make_collection, oracle, run_search, search

from zerodr.artifacts.processor import kinds
from zerodr.errors import ArtifactError, NonFiniteEmbedding
from zerodr.retrieval import candidates, gpu, kernels, single
from zerodr.retrieval import gpu as on_gpu
from zerodr.retrieval.candidates import SingleProducts, id_ranks
from zerodr.retrieval.gpu import search_gpu
from zerodr.retrieval.half import HalfProducts
from zerodr.retrieval.search import pays_half, self_rows
from zerodr.retrieval.vectors import Vectors

SCALES = st.sampled_from([1.0, 1e-18, 1e-39, 1e15])


@st.composite
def problems(draw):
    """Few distinct small vectors, so that copies, ties and zero or negative scores are common."""
    dimension = draw(st.sampled_from([1, 3, 8, 17]))
    rows = draw(st.integers(0, 60))
    distinct = draw(st.integers(1, 6))
    seed = draw(st.integers(0, 10**6))
    random = np.random.default_rng(seed)
    pool = random.standard_normal((distinct, dimension)).astype(np.float32)
    if draw(st.booleans()):  # neighbours that differ in the last bit: estimates can't tell them apart
        pool = np.concatenate([pool, np.nextafter(pool, np.float32(9))])
    corpus = pool[random.integers(0, len(pool), rows)]
    queries = random.standard_normal((draw(st.integers(0, 4)), dimension)).astype(np.float32)
    ids = [f"d{n}é"[: 1 + n % 4] + str(n) for n in random.permutation(rows)]
    return queries, corpus, ids, draw(st.integers(1, 70))


@settings(max_examples=150, deadline=None)
@given(problems(), st.integers(1, 3), st.sampled_from([1, 7, 1024]), st.sampled_from([5, 16, 32768]), st.booleans())
def test_equals_sorting_all_pairs(problem, threads, tile, slab, half):
    queries, corpus, ids, depth = problem
    found = search(queries, corpus, ids, depth, threads=threads, tile=tile, slab=slab, half=half)
    assert found == oracle(queries, corpus, ids, depth)


@settings(max_examples=100, deadline=None)
@given(
    problems().filter(lambda problem: len(problem[2])),
    st.integers(1, 3),
    st.sampled_from([5, 16384]),
    st.sampled_from([None, 0.2, 1.0]),
    st.data(),
)
def test_one_query_at_a_time_has_the_same_bits(problem, threads, piece, crowded, data):
    queries, corpus, ids, depth = problem
    cut = data.draw(st.integers(1, len(ids)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(single, "PIECE", piece)
        shards = [Vectors(part) for part in (corpus[:cut], corpus[cut:]) if len(part)]
        patch.setattr(single, "CROWDED", crowded)  # 1: codes always choose
        searcher = single.SingleSearch(shards, pa.array(ids), threads, coded=crowded is not None)
        for query, expected in zip(queries, oracle(queries, corpus, ids, depth), strict=True):
            rows, scores = searcher.best(query, depth)
            assert [(ids[row], score) for row, score in zip(rows, scores.tolist(), strict=True)] == expected


@pytest.mark.parametrize("scale", [1e-40, 1e-3, 1.0, 1e17])
def test_codes_choose_few_candidates_and_keep_the_bits(monkeypatch, scale):
    """Documents of unequal lengths, a large component that they share, copies, and near copies."""
    random = np.random.default_rng(3)
    corpus = random.standard_normal((3000, 96)).astype(np.float32) * random.uniform(0.5, 2, (3000, 1))
    corpus[:, 7] += 3
    corpus[100:140], corpus[140:180] = corpus[0], corpus[0] * (1 + 1e-6)
    corpus = (corpus * scale).astype(np.float32)
    ids = [f"d{n}" for n in random.permutation(3000)]
    scored, score_rows = [], single.kernels.score_rows
    monkeypatch.setattr(single.kernels, "score_rows", lambda *a: scored.append(len(a[1])) or score_rows(*a))
    plain, coded = (single.SingleSearch([Vectors(corpus)], pa.array(ids), coded=coded) for coded in (False, True))
    queries = random.standard_normal((20, 96)).astype(np.float32)
    for query in [*queries, corpus[0] / np.float32(scale), queries[0] * np.float32(1e36 if scale < 1 else 1)]:
        (rows, scores), (expected_rows, expected) = coded.best(query, 10), plain.best(query, 10)
        assert rows.tolist() == expected_rows.tolist() and scores.tobytes() == expected.tobytes()
    if scale > 1e-30:
        assert np.median(scored[::2]) < 300  # of 3000: codes were used


def test_what_codes_round_off_decides_no_ranking(monkeypatch):
    """Near copies whose codes are almost equal, and queries that have the direction of what is rounded off."""
    monkeypatch.setattr(single, "CROWDED", 1.0)
    random = np.random.default_rng(4)
    corpus = random.standard_normal(96) + 0.003 * random.standard_normal((500, 96))
    corpus = corpus.astype(np.float32)
    ids, codes = pa.array([f"d{n}" for n in range(500)]), single.Codes(corpus)
    plain, coded = (single.SingleSearch([Vectors(corpus)], ids, coded=coded) for coded in (False, True))
    for query in corpus[:50] - codes.numbers[:50] * codes.scales[:50, None]:
        assert coded.best(query, 1)[0] == plain.best(query, 1)[0]


def test_one_query_refuses_what_is_not_finite_and_other_dimensions():
    corpus = np.eye(3, dtype=np.float32)
    with pytest.raises(NonFiniteEmbedding, match="^NonFiniteEmbedding: b: "):
        single.SingleSearch([Vectors(corpus[:1]), Vectors(corpus[1:] * np.nan)], pa.array(["a", "b", "c"]))
    searcher = single.SingleSearch([Vectors(corpus)], pa.array(["a", "b", "c"]))
    with pytest.raises(NonFiniteEmbedding):
        searcher.best(np.full(3, np.nan, np.float32), 1)
    with pytest.raises(ArtifactError, match="dimension"):
        searcher.best(np.ones(2, np.float32), 1)
    with pytest.raises(ArtifactError, match="leave float32"):
        searcher.best(np.full(3, 1e38, np.float32), 1)


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 10**6))
def test_leaves_out_the_query_itself(problem, seed):
    queries, corpus, ids, depth = problem
    names = list(np.random.default_rng(seed).choice([*ids, "unknown"], len(queries)))
    skip = self_rows(pa.array(names, pa.string()), pa.array(ids, pa.string()))
    found = search(queries, corpus, ids, depth, skip)
    assert found == [
        [hit for hit in row if hit[0] != name][:depth]
        for name, row in zip(names, oracle(queries, corpus, ids, depth + 1), strict=True)
    ]


@pytest.mark.parametrize(("copies", "half"), [(900, False), (5000, False), (5000, True)])
def test_massive_ties_keep_the_last_ids(copies, half):
    """All documents alike: the lists overflow many times, and ids alone decide."""
    random = np.random.default_rng(copies)
    queries = random.standard_normal((3, 16)).astype(np.float32)
    corpus = np.tile(random.standard_normal(16).astype(np.float32), (copies, 1))
    ids = [f"doc-{n}" for n in random.permutation(copies)]
    expected = sorted(ids, key=str.encode, reverse=True)[:20]
    for row in search(queries, corpus, ids, 20, threads=2, tile=64, slab=512, half=half):
        assert [name for name, _ in row] == expected
        assert len({score for _, score in row}) == 1


def test_near_ties_beyond_the_estimates(monkeypatch):
    """Scores that differ by less than the rounding error of a float32 product are ordered by their final scores."""
    random = np.random.default_rng(1)
    query = random.standard_normal((2, 384)).astype(np.float32)
    base = random.standard_normal(384).astype(np.float32)
    corpus = base + random.integers(-2, 3, (4000, 384)).astype(np.float32) * np.spacing(base)
    ids = [str(n) for n in range(4000)]
    assert search(query, corpus, ids, 50, threads=2) == oracle(query, corpus, ids, 50)


@pytest.mark.parametrize("half", [False, True])
def test_norms_of_very_different_size(half):
    random = np.random.default_rng(2)
    corpus = random.standard_normal((3000, 32)).astype(np.float32)
    corpus[1500] *= 1e6
    corpus[:10] *= 1e-30
    queries = random.standard_normal((5, 32)).astype(np.float32)
    ids = [str(n) for n in range(3000)]
    assert search(queries, corpus, ids, 100, tile=100, slab=1000, half=half) == oracle(queries, corpus, ids, 100)


@pytest.mark.parametrize(("shift", "said"), [(0, []), (50, ["bf16 estimates don't separate these vectors"])])
def test_half_products_give_way_where_they_are_too_loose(shift, said, caplog):
    """All documents nearly alike: bf16 can't tell them apart."""
    random = np.random.default_rng(4)
    queries, corpus = (random.standard_normal((n, 48)).astype(np.float32) + shift for n in (7, 4000))
    ids = [str(n) for n in range(4000)]
    with caplog.at_level("INFO", "zerodr"):
        found = search(queries, corpus, ids, 20, slab=1000, half=True, threads=2)
    assert found == oracle(queries, corpus, ids, 20)
    assert [message.partition(":")[0] for message in caplog.messages] == said


@pytest.mark.parametrize("kind", kinds().values(), ids=str)
def test_half_products_wait_for_large_searches(monkeypatch, kind):
    monkeypatch.setattr("zerodr.retrieval.search.kind_of_job", lambda: kind)
    assert not pays_half(300, 100_000, 384)
    assert pays_half(7000, 1_000_000, 384) == (kind.bf16 == "faster")


def test_chunks_of_queries_change_nothing(monkeypatch):
    random = np.random.default_rng(3)
    corpus, queries = (random.standard_normal((n, 24)).astype(np.float32) for n in (2000, 57))
    ids = [str(n) for n in range(2000)]
    whole = search(queries, corpus, ids, 30)
    monkeypatch.setattr(candidates, "CHUNK", 10)
    monkeypatch.setattr(candidates, "BLOCK", 4)
    assert search(queries, corpus, ids, 30, threads=3) == whole == oracle(queries, corpus, ids, 30)


@settings(max_examples=40, deadline=None)
@given(problems(), st.sampled_from([5, 16, 65536]), st.sampled_from([0, 1000, 10**9]))
def test_torch_products_give_the_same_bits(problem, slab, room):
    """The path of GPUs, with torch on the CPU: another matrix product, the same result."""
    queries, corpus, ids, depth = problem
    ranks = id_ranks(pa.array(ids, pa.string()))
    skip = np.where(np.arange(len(queries)) % 2, np.arange(len(queries)), -1)
    skip = np.where(skip < len(ids), skip, -1)
    ours = search_gpu(Vectors(queries), Vectors(corpus), ranks, depth, skip, 2, "cpu", slab=slab, room=room)
    assert as_lists(ours, ids) == search(queries, corpus, ids, depth, skip)


@pytest.mark.parametrize(("room", "resident", "copied"), [(0, 0, 12), (2 * 16 * 24 * 4, 2, 8), (10**9, 4, 4)])
def test_slabs_that_fit_are_copied_once(monkeypatch, room, resident, copied):
    """50 documents in 4 slabs, searched for three chunks of queries."""
    monkeypatch.setattr(candidates, "CHUNK", 3)
    random = np.random.default_rng(5)
    corpus, queries = (random.standard_normal((n, 24)).astype(np.float32) for n in (50, 9))
    ids, made = [f"{n:02}" for n in range(50)], list[on_gpu.Slabs]()
    slabs = on_gpu.Slabs

    def make(*given) -> on_gpu.Slabs:
        made.append(slabs(*given))
        return made[-1]

    monkeypatch.setattr(gpu, "Slabs", make)
    ranks = id_ranks(pa.array(ids))
    found = search_gpu(Vectors(queries), Vectors(corpus), ranks, 7, None, 2, "cpu", slab=16, room=room)
    assert as_lists(found, ids) == oracle(queries, corpus, ids, 7)
    assert (made[0].resident, made[0].copied, len(made[0])) == (resident, copied, 4)


class FreeMemory:
    """A GPU with some free memory."""

    name = "card"

    def __init__(self, gib: float) -> None:
        self.gib = gib

    def free(self) -> int:
        return int(self.gib * 2**30)

    def peak(self, work) -> int:
        raise NotImplementedError


@pytest.mark.parametrize(("gib", "resident"), [(0.5, 0), (3, 9), (80, 16)])
def test_documents_stay_on_a_gpu_where_they_fit_beside_the_estimates(gib, resident):
    corpus = Vectors(np.broadcast_to(np.zeros(384, np.float32), (1_000_000, 384)))
    room, facts = on_gpu.choose_room(corpus, lambda: FreeMemory(gib))
    assert facts == {
        "device": "card",
        "free_bytes": int(gib * 2**30),
        "room_bytes": room,
        "slabs": 16,
        "resident": resident,
    }
    assert resident * 65536 * 384 * 4 <= room <= 0.8 * gib * 2**30


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.01, 0.3, 3.0]), st.integers(1, 40), st.sampled_from([0, 5, 300]))
def test_any_estimates_within_the_bound_give_the_same_result(seed, error, depth, room):
    """The candidate lists alone, with estimates as wrong as the bound allows."""
    random = np.random.default_rng(seed)
    queries, corpus = (random.integers(-2, 3, (n, 6)).astype(np.float32) for n in (2, 400))
    ids = [str(n) for n in range(400)]
    ranks = id_ranks(pa.array(ids))
    estimates = exact_scores(queries, corpus) + random.choice([-error, 0, error], (2, 400))
    group = candidates.QueryBlock(queries, np.full(2, -1), 0, depth, depth + 1 + room)
    group.lists.errors[:] = error + 1e-4  # room for the estimates' own rounding
    for start in range(0, 400, 90):
        group.collect(estimates[:, start : start + 90].astype(np.float32), start, corpus, ranks)
    with candidates.workers(1) as run:
        found = candidates.finish([group], Vectors(corpus), ranks, run, 100)
    assert as_lists([found], ids) == oracle(queries, corpus, ids, depth)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([SingleProducts, HalfProducts]), st.integers(1, 2000), st.integers(0, 10**6), SCALES)
def test_error_bounds_cover_the_products(kind, dimension, seed, scale):
    random = np.random.default_rng(seed)
    left, right = (random.standard_normal((n, dimension)).astype(np.float32) for n in (4, 50))
    left *= np.float32(scale)
    products = kind(left)
    estimates = np.empty((4, 50), np.float32)
    products.multiply(right, estimates)
    lengths, largest = (np.linalg.norm(both.astype(float), axis=1) for both in (left, right))
    bound = products.errors(lengths, largest.max())[:, None] + products.relative * np.abs(estimates)
    assert (np.abs(estimates.astype(float) - exact_scores(left, right)) <= bound).all()


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_keys_have_the_order_of_the_scores(values):
    scores = np.array(values, np.float32) + np.float32(0)
    rows = np.arange(len(scores), dtype=np.int32)
    keys = kernels.order_keys(scores, rows, rows)
    assert np.argsort(keys).tolist() == np.lexsort((rows, scores)).tolist()


def test_final_score_is_the_rounded_exact_product():
    from fractions import Fraction

    random = np.random.default_rng(5)
    for dimension in (1, 7, 8, 100, 384):
        query, document = random.standard_normal((2, dimension)).astype(np.float32)
        exact = sum(Fraction(float(q)) * Fraction(float(d)) for q, d in zip(query, document, strict=True))
        assert kernels.dot(query.astype(np.float64), document, np.empty(kernels.LANES)) == np.float32(float(exact))
    assert not np.signbit(kernels.dot(np.array([-1e-40]), np.array([1e-20], np.float32), np.empty(64)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_refuses_what_is_not_finite(bad):
    corpus, queries = np.ones((40, 4), np.float32), np.ones((3, 4), np.float32)
    corpus[33, 2] = bad
    names = [f"d{n}" for n in range(40)]
    with pytest.raises(NonFiniteEmbedding, match="d33: its embedding holds NaN or infinity"):
        search(queries, corpus, names, 5, name_row=names.__getitem__, slab=16)
    with pytest.raises(NonFiniteEmbedding, match="d33"):
        search(queries, corpus, names, 5, name_row=names.__getitem__, half=True)
    queries[1, 0] = bad
    with pytest.raises(NonFiniteEmbedding, match="query 1"):
        search(queries, np.ones((40, 4), np.float32), names, 5)


def test_refuses_scores_beyond_float32_and_other_dimensions():
    with pytest.raises(ArtifactError, match="leave float32"):
        search(np.full((1, 4), 1e20, np.float32), np.full((2, 4), 1e20, np.float32), ["a", "b"], 1)
    with pytest.raises(ArtifactError, match="expected vectors of dimension 4 as the queries have, found 3"):
        search(np.ones((1, 4), np.float32), np.ones((2, 3), np.float32), ["a", "b"], 1)


# ---- embedding files -----------------------------------------------------------------------------------------------
def test_mapped_files_survive_release(tmp_path: Path):
    array = np.random.default_rng(6).standard_normal((5000, 33)).astype(np.float32)
    np.save(tmp_path / "a.npy", array)
    vectors = Vectors.open(tmp_path / "a.npy")
    vectors.release(0, 5000)
    vectors.release(17, 18)
    assert np.array_equal(vectors.array, array)
    np.save(tmp_path / "none.npy", array[:0])
    assert Vectors.open(tmp_path / "none.npy").rows == 0


def test_refuses_files_that_are_no_embeddings(tmp_path: Path):
    path = tmp_path / "a.npy"
    for array in (np.ones((3, 4)), np.ones(3, np.float32), np.asfortranarray(np.ones((3, 4), np.float32))):
        np.save(path, array)
        with pytest.raises(ArtifactError, match="expected a float32 matrix in C order, found float"):
            Vectors.open(path)
    np.save(path, np.ones((300, 4), np.float32))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ArtifactError, match=r"expected 4928 bytes for shape \(300, 4\), found 4920"):
        Vectors.open(path)
    path.write_bytes(b"nothing")
    with pytest.raises(ArtifactError, match=r"is no \.npy file"):
        Vectors.open(path)


# ---- the stage -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("index", ["flat", "hnsw", "ivfpq"])
def test_stage_writes_hits_and_record(tmp_path, monkeypatch, index):
    monkeypatch.chdir(tmp_path)
    corpus, queries = clustered(300, 6)
    collection = make_collection(Path("c"), [f"d{n}" for n in range(300)], [f"d{n}" for n in range(6)])
    hits = run_search(collection, queries, corpus, shards=2, index=index, depth=20, exclude_self=True, **INDEX[index])
    record = json.loads(hits[0].with_name(hits[0].name + ".lineage.json").read_text())
    assert record["notes"]["index"] == index
    assert [m["name"] for m in record["metrics"]] == ([] if index == "flat" else ["recall_10", "recall_20"])


def test_stage_refuses_embeddings_of_other_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus, queries = clustered(30, 6)
    collection = make_collection(Path("c"), [f"d{n}" for n in range(30)], [f"q{n}" for n in range(6)])
    with pytest.raises(ArtifactError, match="expected a row for each query, 6 in all, found 5"):
        run_search(collection, queries[:5], corpus, shards=1, depth=5)
    with pytest.raises(ArtifactError, match="expected a row for each document, 30 in all, found 29"):
        run_search(collection, queries, corpus[:29], shards=1, depth=5)
    with pytest.raises(ArtifactError, match=r"corpus-00000-of-00001\.npy: expected vectors of dimension 16"):
        run_search(collection, queries, corpus[:, :8], shards=1, depth=5)
