"""Pooling against plain loops; padding on either side changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zerodr.encoders.network.heads import POOLINGS, unit_length

ORACLES = {"mean": lambda x: x.mean(0), "cls": lambda x: x[0], "last": lambda x: x[-1], "max": lambda x: x.max(0)}


@pytest.mark.parametrize("name", sorted(ORACLES))
@pytest.mark.parametrize("side", ["left", "right"])
@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_each_row_is_pooled_over_its_real_tokens(name: str, side: str, lengths: list[int], seed: int) -> None:
    rng, width = np.random.default_rng(seed), max(lengths)
    hidden = rng.normal(size=(len(lengths), width, 3)).astype(np.float32)
    mask = np.zeros((len(lengths), width), np.int64)
    expected = []
    for row, length in enumerate(lengths):
        part = slice(0, length) if side == "right" else slice(width - length, width)
        mask[row, part] = 1
        expected.append(ORACLES[name](hidden[row, part]))
    made = POOLINGS[name](torch.from_numpy(hidden), torch.from_numpy(mask))
    np.testing.assert_allclose(made.numpy(), np.stack(expected), atol=1e-6)


@pytest.mark.parametrize("name", sorted(ORACLES))
def test_pooling_of_bfloat16_is_float32(name: str) -> None:
    hidden, mask = torch.randn(2, 3, 4).bfloat16(), torch.ones(2, 3, dtype=torch.long)
    assert POOLINGS[name](hidden, mask).dtype == torch.float32


def test_unit_length_leaves_a_zero_row() -> None:
    made = unit_length(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    assert torch.equal(made, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
