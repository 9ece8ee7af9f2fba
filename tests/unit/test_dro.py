"""Group weights against numbers worked out apart from the code, and their properties."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from zerodr.papers.coco_dr import losses as dro


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


LOSSES, GRADIENTS = vector(0.16, 0.81, 0.0625), torch.tensor([[2, 0], [0.6, 0.8], [0, -0.5]], dtype=torch.float64)
BEFORE, ALL = vector(0.5, 0.3, 0.2), torch.tensor([True] * 3)
TWO = torch.tensor([True, True, False])
GRAM = GRADIENTS @ GRADIENTS.T
BETA = 0.25


def alpha(beta: float = BETA, present: Tensor = ALL) -> Tensor:
    return dro.loss_powers(LOSSES, present, beta)


def sums(beta: float = BETA, present: Tensor = ALL, gram: Tensor = GRAM) -> Tensor:
    return dro.row_sums(dro.similarities(gram, alpha(beta, present)))


def near(made: Tensor, *expected: float) -> None:
    torch.testing.assert_close(made, vector(*expected), atol=5e-8, rtol=0)


def test_similarities():
    near(alpha(), 0.63245553, 0.94868330, 0.5)
    expected = torch.stack([vector(1.6, 0.72, 0), vector(0.72, 0.9, -0.18973666), vector(0, -0.18973666, 0.0625)])
    torch.testing.assert_close(dro.similarities(GRAM, alpha()), expected, atol=1e-8, rtol=0)
    near(sums(), 2.32, 1.43026334, -0.12723666)


@pytest.mark.parametrize(
    "temperature, expected",
    [(1.0, (0.78059668, 0.19238457, 0.02701875)), (0.1, (0.99991796, 0.00008204, 0.0)), (1e9, (0.5, 0.3, 0.2))],
)
def test_temperatures(temperature, expected):
    near(dro.update_weights(BEFORE, sums(), ALL, temperature=temperature), *expected)


def test_powers_of_losses():
    near(sums(0.0), 5.2, 1.8, -0.15)
    near(dro.update_weights(BEFORE, sums(0.0), ALL), 0.97854709, 0.01959439, 0.00185852)
    near(sums(1.0), 0.25792, 0.79137, -0.01927344)
    near(dro.update_weights(BEFORE, sums(1.0), ALL), 0.42991422, 0.43975163, 0.13033415)


def test_row_sums_need_one_vector():
    together = alpha() @ GRADIENTS
    near(together, 1.83412104, 0.50894664)
    torch.testing.assert_close(alpha() * (GRADIENTS @ together), sums())


def test_cosines():
    found = sums(gram=dro.cosines(GRAM))
    near(found, 0.76, 0.88052668, -0.12947332)
    near(dro.update_weights(BEFORE, found, ALL), 0.54312306, 0.36761529, 0.08926164)


def test_two_kl_form():
    near(dro.update_weights(BEFORE, sums(), ALL, 0.1, 1.0), 0.68061294, 0.26564865, 0.05373841)
    near(dro.update_weights(BEFORE, sums(), ALL, 0.1, 1000.0), 0.34970311, 0.33199246, 0.31830443)


def test_weighted_loss():
    new = dro.update_weights(BEFORE, sums(), ALL)
    for omega, expected in ((new, 0.22766991), (BEFORE, 0.28737648)):
        weights = dro.loss_weights(omega, alpha(), ALL, normalise=False)
        assert (weights * LOSSES).sum().item() == pytest.approx(expected, abs=5e-9)
        scaled = dro.loss_weights(omega, alpha(), ALL)
        torch.testing.assert_close(scaled, weights / weights.sum())


def test_an_absent_group():
    found = sums(present=TWO)
    near(found, 2.32, 1.62, 0.0)
    torch.testing.assert_close(
        dro.update_weights(BEFORE, found, TWO), vector(0.616356, 0.183644, 0.2), atol=5e-7, rtol=0
    )


def official(before: Tensor, present: Tensor = ALL) -> tuple[float, Tensor]:
    gram = dro.cosines(GRAM * present[:, None] * present[None, :])
    loss = (before * LOSSES * present).sum().item()
    return loss, dro.official_update(before, sums(present=present, gram=gram), present, 0.05, 0.1, 0.01)


def test_the_released_step():
    loss, made = official(vector(1, 1, 1))
    assert loss == pytest.approx(1.0325)
    near(made, 0.33475094, 0.33542405, 0.32982501)
    loss, made = official(BEFORE)
    assert loss == pytest.approx(0.3355)
    near(made, 0.35073842, 0.33394187, 0.31531971)
    loss, made = official(BEFORE, TWO)
    assert loss == pytest.approx(0.323)
    near(made, 0.51068568, 0.48931432, 0.01)
    loss, made = official(made)
    assert loss == pytest.approx(0.47867931, abs=5e-9)
    near(made, 0.37556975, 0.37471962, 0.24971062)


def test_group_dro():
    made = dro.group_dro_update(BEFORE, LOSSES, ALL, 0.5)
    near(made, 0.45220507, 0.37551941, 0.17227552)
    assert (made * LOSSES).sum().item() == pytest.approx(0.38729075, abs=5e-9)


def test_balanced_is_the_mean_of_group_means():
    near(dro.balanced_weights(TWO), 0.5, 0.5, 0)


def test_options_of_row_sums():
    r = dro.similarities(GRAM, alpha())
    near(dro.row_sums(r, exclude_self=True), 0.72, 0.53026334, -0.18973666)


def test_a_group_without_loss_has_no_pull():
    none = dro.loss_powers(vector(0.0, 0.5), torch.tensor([True, True]), 0.25)
    assert none[0].item() == pytest.approx(1e-2) and bool(torch.isfinite(none).all())
    assert dro.cosines(torch.zeros(2, 2, dtype=torch.float64)).abs().max() == 0


@st.composite
def problems(draw) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """omega, losses, present, gradients of up to 6 groups."""
    count, generator = draw(st.integers(2, 6)), torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    omega = torch.rand(count, generator=generator, dtype=torch.float64) + 0.01
    present = torch.rand(count, generator=generator) < 0.7
    present[0] = True
    losses = torch.rand(count, generator=generator, dtype=torch.float64) * present
    gradients = torch.randn(count, 4, generator=generator, dtype=torch.float64) * present[:, None]
    return omega / omega.sum(), losses, present, gradients


def step(omega: Tensor, losses: Tensor, present: Tensor, gradients: Tensor, shift: float = 0.0, **more) -> Tensor:
    powers = dro.loss_powers(losses, present, BETA)
    found = dro.row_sums(dro.similarities(gradients @ gradients.T, powers))
    return dro.update_weights(omega, found + shift, present, **more)


@settings(max_examples=60, deadline=None)
@given(problem=problems(), kappa=st.sampled_from([0.1, 1.0]))
def test_weights_are_a_distribution(problem, kappa):
    made = step(*problem, kappa=kappa)
    assert bool((made >= 0).all()) and made.sum().item() == pytest.approx(1.0)
    torch.testing.assert_close(made[~problem[2]], problem[0][~problem[2]])


@settings(max_examples=40, deadline=None)
@given(problem=problems(), seed=st.integers(0, 99))
def test_permuted_groups_have_permuted_weights(problem, seed):
    order = torch.randperm(len(problem[0]), generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(step(*(x[order] for x in problem)), step(*problem)[order])


@settings(max_examples=40, deadline=None)
@given(problem=problems(), shift=st.floats(-5, 5))
def test_a_constant_changes_nothing(problem, shift):
    torch.testing.assert_close(step(*problem, shift=shift), step(*problem))


@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_equal_groups_keep_their_weights(problem):
    omega, losses, _, gradients = problem
    made = step(
        omega,
        losses[:1].expand(len(omega)),
        torch.ones(len(omega), dtype=torch.bool),
        gradients[:1].expand_as(gradients),
    )
    torch.testing.assert_close(made, omega)


def test_an_opposed_group_loses_weight():
    gradients = torch.tensor([[1.0, 0.2], [1.0, -0.1], [-0.8, 0.1]], dtype=torch.float64)
    made = step(torch.full((3,), 1 / 3, dtype=torch.float64), vector(0.5, 0.5, 0.5), ALL, gradients)
    assert made[2] < 1 / 3 < made[1]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("length", [1e-6, 1.0, 1e9])
def test_a_temperature_leaves_the_share_whatever_the_length_of_gradients(share, length):
    sums = length * torch.linspace(-1, 2, 50, dtype=torch.float64) ** 3
    weights = torch.softmax(sums / dro.acting_temperature(sums, share), 0)
    assert dro.effective_share(weights) == pytest.approx(share, abs=1e-6)


def test_equal_sums_have_no_temperature():
    assert dro.acting_temperature(torch.ones(5).double(), 0.7) == math.inf


@pytest.mark.parametrize("kappa", [0.1, 1.0])
def test_steered_weights_are_those_of_eq_11_at_their_temperature(kappa):
    """Where similarities stay as they are, the temperature does too, and each step is eq. 11's at it."""
    omega = torch.full((6,), 1 / 6, dtype=torch.float64)
    added, sums, present = torch.zeros_like(omega), torch.arange(6).double(), torch.ones(6, dtype=torch.bool)
    plain, found = omega, []
    for step in range(1, 41):
        omega, added, temperature = dro.steered_update(omega, added, sums, present, kappa, 0.7, step / 40, 40)
        plain = dro.update_weights(plain, sums, present, kappa, temperature)
        found.append(temperature)
        torch.testing.assert_close(omega, plain, rtol=1e-6, atol=1e-9)
    assert max(found) == pytest.approx(min(found))
    assert dro.effective_share(omega) == pytest.approx(0.7)


def test_a_steered_cluster_that_a_batch_lacks_has_nothing_added():
    added, sums = torch.tensor([3.0, -1.0, 2.0]).double(), torch.tensor([1.0, 2.0, 9.0]).double()
    present = torch.tensor([True, True, False])
    omega = torch.full((3,), 1 / 3, dtype=torch.float64)
    after = dro.steered_update(omega, added, sums, present, 1.0, 0.7, 0.5, 10)[1]
    assert after.tolist() == [2.5, -0.5, 2.0]


def test_clusters_without_weight_or_loss_are_no_zero_divided_by_zero():
    present, alpha = torch.tensor([True, True, False]), torch.tensor([1.0, 3.0, 5.0], dtype=torch.float64)
    nothing = torch.zeros(3, dtype=torch.float64)
    assert dro.loss_weights(nothing, alpha, present).tolist() == [0.25, 0.75, 0.0]
    assert dro.loss_weights(nothing, nothing, present).tolist() == [0.5, 0.5, 0.0]
    assert dro.loss_weights(nothing, alpha, present, normalise=False).tolist() == [0.0, 0.0, 0.0]


def test_steered_clusters_without_weight_are_no_zero_divided_by_zero():
    """A share of one cluster leaves all weight to one, which the next batch may lack."""
    omega, added = torch.full((3,), 1 / 3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for sums, present in ((vector(1, 0, 0), ALL), (vector(0, 3, 1), torch.tensor([False, True, True]))):
        omega, added, _ = dro.steered_update(omega, added, sums, present, 1.0, 1 / 3, 0.5, 2)
    near(added, 2 / 3, 1 - 1 / 3, -1 - 1 / 3)
    assert omega.isfinite().all() and omega.sum() == 1
