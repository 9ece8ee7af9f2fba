"""Tests and intervals against exact values, scipy and their own properties."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from zerodr.evaluation.significance import (
    BLOCK,
    bootstrap_interval,
    bootstrap_means,
    effect_size,
    holm,
    paired_tests,
    randomization_test,
    t_test,
)


def test_t_test_equals_scipy():
    generator = np.random.default_rng(0)
    a, b = generator.random((40, 3)), generator.random(40)
    expected = [stats.ttest_rel(a[:, m], b).pvalue for m in range(3)]
    np.testing.assert_allclose(t_test(a - b[:, None]), expected, rtol=1e-10)


def test_t_test_of_degenerate_differences():
    differences = np.column_stack([np.zeros(4), np.full(4, 0.3), np.full(4, -0.3)])
    assert t_test(differences).tolist() == [1.0, 0.0, 0.0]
    assert t_test(np.array([[0.5]])).tolist() == [1.0]


def test_randomization_approaches_the_exact_permutation_test():
    differences = np.array([0.3, 0.1, -0.05, 0.2, 0.4, 0.15, -0.1, 0.25])
    signs = np.array(list(itertools.product([-1, 1], repeat=8)))
    exact = (np.abs(signs @ differences) >= abs(differences.sum()) - 1e-12).mean()
    assert randomization_test(differences[:, None], 20000, 7)[0] == pytest.approx(exact, abs=0.006)


def test_randomization_of_equal_methods_is_one_and_never_zero():
    assert randomization_test(np.zeros((5, 1)), 99, 0)[0] == 1.0
    assert randomization_test(np.ones((60, 1)), 99, 0)[0] == pytest.approx(1 / 100)


def test_randomization_depends_on_the_seed_and_on_no_other_column():
    differences = np.random.default_rng(1).normal(0.1, 1, (50, 4))
    together = randomization_test(differences, BLOCK + 10, 5)
    alone = [randomization_test(differences[:, [m]], BLOCK + 10, 5)[0] for m in range(4)]
    assert together.tolist() == alone
    assert together.tolist() != randomization_test(differences, BLOCK + 10, 6).tolist()


def test_a_longer_permutation_test_begins_with_the_shorter_one():
    differences = np.random.default_rng(2).normal(0.2, 1, (30, 1))
    counts = [round(randomization_test(differences, n, 3)[0] * (n + 1)) - 1 for n in (100, 300, 600)]
    assert counts[0] <= counts[1] <= counts[2]


def test_randomization_is_symmetric():
    differences = np.random.default_rng(4).normal(0.2, 1, (30, 1))
    assert randomization_test(differences, 500, 1) == randomization_test(-differences, 500, 1)


def test_bootstrap_interval_has_the_normal_width_for_many_queries():
    values = np.random.default_rng(3).normal(0.5, 0.2, (2000, 1))
    low, high = bootstrap_interval(values, 2000, 11)
    width = 2 * 1.96 * values.std() / np.sqrt(2000)
    assert high[0] - low[0] == pytest.approx(width, rel=0.08)
    assert low[0] < values.mean() < high[0]


def test_bootstrap_is_seeded_and_pairs_its_columns():
    values = np.random.default_rng(5).random((30, 1))
    both = np.hstack([values, values + 1.0])
    means = bootstrap_means(both, 300, 9)
    np.testing.assert_allclose(means[:, 1] - means[:, 0], 1.0)
    np.testing.assert_array_equal(means, bootstrap_means(both, 300, 9))


def test_bootstrap_of_one_query_is_its_value():
    low, high = bootstrap_interval(np.array([[0.25, 1.0]]), 10, 0)
    assert low.tolist() == high.tolist() == [0.25, 1.0]


def test_holm_by_hand():
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([])).tolist() == []


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_holm_is_between_the_raw_and_bonferroni_values_and_ignores_order(values, random):
    raw = np.array(values)
    adjusted = holm(raw)
    assert (adjusted >= raw).all()
    assert (adjusted <= np.minimum(raw * len(raw), 1.0) + 1e-12).all()
    order = list(range(len(raw)))
    random.shuffle(order)
    np.testing.assert_allclose(holm(raw[order]), adjusted[order])


def test_effect_sizes():
    assert effect_size(np.array([1.0, 2.0, 3.0])) == pytest.approx(2.0)
    assert effect_size(np.zeros(3)) == 0.0
    assert effect_size(np.full(3, 0.5)) is None


def test_a_paired_test_tells_wins_ties_losses_and_direction():
    base = np.array([0.2, 0.4, 0.6, 0.8])
    (test,) = paired_tests(np.array([[0.3], [0.5], [0.6], [0.7]]), base, 200, 0)
    assert (test.queries, test.wins, test.ties, test.losses) == (4, 2, 1, 1)
    assert test.difference == pytest.approx(0.025)
    assert test.low <= test.difference <= test.high
