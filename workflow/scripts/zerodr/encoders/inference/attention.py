"""Compute attention on the CPU in one of two ways: torch's fused operator, or plain products and a softmax.

The fused operator keeps a row's scores in the cache; plain products take oneDNN's kernels in bf16. Which one is faster
depends on arithmetic and processor (encoders/inference/probing.py).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from zerodr.encoders.inference.probing import choose

Way = Literal["fused", "plain"]
USUAL: dict[torch.dtype, tuple[str, Way, Way]] = {  # name of the arithmetic, usual way, other way
    torch.float32: ("fp32", "fused", "plain"),
    torch.bfloat16: ("bf16", "plain", "fused"),
}
PROBED = (16, 128)  # texts and tokens that are compared
LEAST_WIDTH = 256  # models that are narrower are not compared: they take no time
SLICE_SCORES = 1 << 20  # plain attention's scores of one slice of the batch, which stays in the cache


def choose_way(heads: int, width: int, dtype: torch.dtype) -> Way:
    """Choose the way for `heads` heads of `width` components each."""
    arithmetic, usual, other = USUAL[dtype]
    if heads * width < LEAST_WIDTH:
        return usual

    def ways() -> tuple[Callable[[], Any], Callable[[], Any]]:
        batch, length = PROBED
        count = batch * length * 3 * heads * width
        joint = torch.linspace(-1, 1, count).to(dtype).view(batch, length, 3, heads, width)
        context = torch.empty(batch, length, heads, width, dtype=dtype)
        bias = torch.zeros(batch, 1, 1, length, dtype=dtype)
        run = torch.inference_mode()(attend)
        return partial(run, usual, joint, bias, context), partial(run, other, joint, bias, context)

    choice = choose("attention", f"{arithmetic} {heads}x{width}", (usual, other), ways)
    return other if choice.other else usual


def attend(way: Way, joint: Tensor, bias: Tensor | None, context: Tensor) -> None:
    """Write softmax(q k^T + bias) v to `context`.

    Args:
        way: how it is computed; results differ in the last bits.
        joint: (B, L, 3, heads, width): scaled queries, keys and values.
        bias: (B, 1, 1, L), added to the scores of each key; None: nothing.
        context: (B, L, heads, width), written.
    """
    if way == "fused":
        query, key, value = joint.permute(2, 0, 3, 1, 4)
        fused = functional.scaled_dot_product_attention(query, key, value, bias, scale=1.0)
        context.copy_(fused.transpose(1, 2))
        return
    batch, length, heads, _ = context.shape
    step = max(1, SLICE_SCORES // (heads * length * length))
    for start in range(0, batch, step):
        rows = slice(start, start + step)
        query, key, value = (x.reshape(-1, length, x.shape[-1]) for x in joint[rows].permute(2, 0, 3, 1, 4))
        scores = _scores(query, key, None if bias is None else bias[rows], heads)
        mixed = torch.bmm(torch.softmax(scores, -1), value)
        context[rows] = mixed.view(-1, heads, length, mixed.shape[-1]).transpose(1, 2)


def _scores(query: Tensor, key: Tensor, bias: Tensor | None, heads: int) -> Tensor:
    """Compute q k^T + bias: query, key (b heads, L, width), bias (b, 1, 1, L) -> (b heads, L, L)."""
    if bias is None:
        return torch.bmm(query, key.transpose(1, 2))
    return torch.baddbmm(bias[:, 0].repeat_interleave(heads, 0), query, key.transpose(1, 2))
