"""The choice of negatives: which ranks may be chosen, and what must never matter."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerodr.mining.negatives import PairSet, choose, draws, entries, sampled_rows, words_of

IDS = st.lists(st.text("abcé01", min_size=1, max_size=4), unique=True, max_size=8)


def kept(sizes: list[int], allowed: np.ndarray, words: np.ndarray, count: int, sampling: str) -> list[list[int]]:
    """Kept ranks of each query."""
    query, rank = entries(np.array(sizes, np.int64))
    chosen = choose(query, rank, allowed, words, count, sampling)
    assert (np.diff(chosen) > 0).all()
    return [rank[chosen][query[chosen] == number].tolist() for number in range(len(sizes))]


def test_negatives_are_of_the_first_ranks_without_the_positive():
    """Scores 5, 4, 3, 2, 1; the positive has rank 2; depth 4; 2 negatives."""
    found = set()
    for seed in range(60):
        _, rank = entries(np.array([5]))
        allowed = (rank <= 4) & (rank != 2)
        (ranks,) = kept([5], allowed, words_of(["q"], "negatives", seed, 0), 2, "uniform")
        assert ([ranks]) == kept([5], allowed, words_of(["q"], "negatives", seed, 0), 2, "uniform")
        found.add(tuple(ranks))
    assert found == {(1, 3), (1, 4), (3, 4)}
    assert kept([5], allowed, words_of(["q"], "negatives", 0, 0), 2, "top") == [[1, 3]]


def test_draws_are_splitmix64():
    """The first outputs for the seed 1234567, as the reference implementation gives them."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert draws(np.full(4, 1234567, np.uint64), np.arange(1, 5)).tolist() == expected


def test_ranks_begin_at_one_for_each_query():
    query, rank = entries(np.array([2, 0, 3]))
    assert query.tolist() == [0, 0, 2, 2, 2] and rank.tolist() == [1, 2, 1, 2, 3]


@given(st.data(), IDS, st.integers(1, 5), st.sampled_from(["uniform", "top"]), st.integers(0, 3))
def test_order_and_company_of_queries_do_not_matter(data, ids, count, sampling, seed):
    """Each query alone gets what it gets among the others, in any order, and the rules hold."""
    sizes = [data.draw(st.integers(0, 9)) for _ in ids]
    allowed = [np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool) for n in sizes]
    order = data.draw(st.permutations(range(len(ids))))
    none = np.zeros(0, bool)
    words = words_of(ids, "negatives", seed, 1)
    together = kept(sizes, np.concatenate([none, *allowed]), words, count, sampling)
    shuffled = kept(
        [sizes[i] for i in order],
        np.concatenate([none, *(allowed[i] for i in order)]),
        words[list(order)],
        count,
        sampling,
    )
    for place, number in enumerate(order):
        may = np.flatnonzero(allowed[number]) + 1
        alone = kept([sizes[number]], allowed[number], words_of([ids[number]], "negatives", seed, 1), count, sampling)
        assert together[number] == shuffled[place] == alone[0]
        assert len(together[number]) == min(count, len(may)) and set(together[number]) <= set(may.tolist())
        if sampling == "top":
            assert together[number] == may[:count].tolist()


def test_each_pair_of_ranks_is_equally_likely():
    queries, ranks = 9000, 6
    words = words_of((f"q{n}" for n in range(queries)), "negatives", 13, 0)
    pairs = kept([ranks] * queries, np.ones(queries * ranks, bool), words, 2, "uniform")
    counts = np.bincount([low * 10 + high for low, high in pairs])
    counts = counts[counts > 0]
    expected = queries / math.comb(ranks, 2)
    assert len(counts) == math.comb(ranks, 2)
    assert ((counts - expected) ** 2 / expected).sum() < 36.1  # chi square, 14 degrees of freedom, p = .001


@pytest.mark.parametrize("other", [("negatives", 14, 0), ("negatives", 13, 1), ("query", 13, 0)])
def test_seed_stage_and_purpose_change_the_choice(other):
    ids = [f"q{n}" for n in range(50)]
    mine, theirs = words_of(ids, "negatives", 13, 0), words_of(ids, *other)
    everything = np.ones(50 * 20, bool)
    assert len(set(mine.tolist()) | set(theirs.tolist())) == 100
    assert kept([20] * 50, everything, mine, 5, "uniform") != kept([20] * 50, everything, theirs, 5, "uniform")


@given(IDS, st.integers(1, 10), st.data())
def test_sampled_queries_do_not_depend_on_their_order(ids, count, data):
    order = data.draw(st.permutations(ids))
    one, two = (
        {queries[row] for row in sampled_rows(words_of(queries, "query", 1, 0), count)} for queries in (ids, order)
    )
    assert one == two and len(one) == min(count, len(ids))


def test_sample_is_in_file_order_and_spreads():
    rows = sampled_rows(words_of((str(n) for n in range(10000)), "query", 7, 0), 1000)
    assert (np.diff(rows) > 0).all() and len(rows) == 1000
    assert abs(rows.mean() - 5000) < 4 * 10000 / math.sqrt(12 * 1000)
    assert sampled_rows(np.zeros(3, np.uint64), None).tolist() == [0, 1, 2]


PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=20)


@given(PAIRS, PAIRS)
def test_pair_sets(inside, asked):
    columns = [np.array(column, np.int64).reshape(-1, 2).T for column in (inside, asked)]
    found = PairSet(*columns[0], 7).contains(*columns[1])
    assert found.tolist() == [pair in set(inside) for pair in asked]


def test_pairs_of_large_corpora_do_not_collide():
    rows, numbers = np.array([500_000], np.int32), np.array([30_000_000], np.int32)
    pairs = PairSet(rows, numbers, 33_000_000)
    assert pairs.contains(rows, numbers).tolist() == [True]
    assert pairs.contains(rows - 1, numbers).tolist() == [False]
