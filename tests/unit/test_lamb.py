"""LAMB and schedules as in ANCE's released code, against numbers worked out apart from ours."""

from __future__ import annotations

import pytest
import torch

from zerodr.training.optimizers import Lamb, schedule


def step(weight: list[float], grad: list[float], dtype: torch.dtype = torch.float32, **settings: float) -> torch.Tensor:
    parameter = torch.nn.Parameter(torch.tensor(weight, dtype=dtype))
    parameter.grad = torch.tensor(grad, dtype=dtype)
    Lamb([parameter], **settings).step()
    return parameter.data


def test_first_step_oracle():
    moved = step([3.0, 4.0], [0.1, -0.2], lr=0.01)
    assert moved.tolist() == pytest.approx([2.96464469, 4.03535537], abs=1e-6)
    assert (moved - torch.tensor([3.0, 4.0])).norm().item() / 5 == pytest.approx(0.01, rel=1e-5)


def test_first_update_and_trust_oracle():
    """Weights of zero move by -lr u, so u can be seen; what (3, 4) moves by is -lr trust u."""
    grad, start = [0.1, -0.2], torch.tensor([3.0, 4.0], dtype=torch.float64)
    update = -step([0.0, 0.0], grad, torch.float64, lr=0.01) / 0.01
    assert update.tolist() == pytest.approx([3.16226766, -3.16227266], abs=1e-8)
    trust = (start - step([3.0, 4.0], grad, torch.float64, lr=0.01)) / (0.01 * update)
    assert trust.tolist() == pytest.approx([1.11803664] * 2, abs=1e-8)


def test_the_step_is_lr_times_the_cut_norm_whatever_the_gradient():
    for scale in (1e-3, 1.0, 1e3):
        weight = torch.full((4, 25), 5.0)  # norm 50, cut at 10
        grad = torch.randn(4, 25, generator=torch.Generator().manual_seed(1)) * scale
        moved = step(weight.tolist(), grad.tolist(), lr=0.01)
        assert (moved - weight).norm().item() == pytest.approx(0.1, rel=1e-4)


def test_zero_weights_move_with_trust_one():
    moved = step([0.0, 0.0], [1.0, -1.0], lr=0.1)
    assert moved.tolist() == pytest.approx([-0.316227, 0.316227], abs=1e-5)


def test_second_step_against_the_formula():
    parameter = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = Lamb([parameter], lr=0.01, weight_decay=0.1)
    w, m, v = torch.tensor([3.0, 4.0]), torch.zeros(2), torch.zeros(2)
    for grad in ([0.1, -0.2], [-0.3, 0.4]):
        g = torch.tensor(grad)
        parameter.grad = g.clone()
        optimizer.step()
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        u = m / (v.sqrt() + 1e-8) + 0.1 * w
        w = w - 0.01 * min(w.norm(), torch.tensor(10.0)) / u.norm() * u
    assert parameter.data.tolist() == pytest.approx(w.tolist(), abs=1e-6)


def test_schedules():
    linear = schedule("linear", 5000, 1_000_000)
    assert linear(0) == 0 and linear(2500) == 0.5 and linear(5000) == 1.0
    assert [1e-6 * linear(k) for k in (1, 10_000, 50_000)] == pytest.approx(
        [2e-10, 9.9497487e-7, 9.5477387e-7], rel=1e-7
    )
    assert linear(502_500) == pytest.approx(0.5) and linear(1_000_000) == linear(2_000_000) == 0
    assert [schedule("constant", 2, 10)(k) for k in range(4)] == [0, 0.5, 1, 1]
    assert schedule("linear", 0, 10)(0) == 1
