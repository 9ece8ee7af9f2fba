"""Pool the vectors of tokens to the vector of a text. Pure functions of tensors."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Pooling = Literal["mean", "cls", "max", "last", "decoder_first"]


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Average real tokens, in float32. hidden (B, L, d), mask (B, L) of 0 and 1 -> (B, d)."""
    weight = mask.unsqueeze(-1).to(torch.float32)
    return (hidden.float() * weight).sum(1) / weight.sum(1).clamp(min=1e-9)


def cls_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Select the first real token. hidden (B, L, d), mask (B, L), padded on either side -> (B, d) float32."""
    return _pick(hidden, mask.to(torch.int32).argmax(1))


def last_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Select the last real token. hidden (B, L, d), mask (B, L), padded on either side -> (B, d) float32."""
    return _pick(hidden, mask.shape[1] - 1 - mask.to(torch.int32).flip(1).argmax(1))


def max_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """Maximize each component over real tokens. hidden (B, L, d), mask (B, L) -> (B, d) float32."""
    return hidden.float().masked_fill(mask.unsqueeze(-1) == 0, float("-inf")).amax(1)


def first_state(hidden: Tensor, mask: Tensor) -> Tensor:
    """Select a decoder's first position; `mask` is the encoder's. hidden (B, L', d), mask (B, L) -> (B, d) float32."""
    return hidden[:, 0].float()


def _pick(hidden: Tensor, position: Tensor) -> Tensor:
    return hidden[torch.arange(hidden.shape[0], device=hidden.device), position].float()


POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": mean_pool,
    "cls": cls_pool,
    "max": max_pool,
    "last": last_pool,
    "decoder_first": first_state,
}


def unit_length(vectors: Tensor) -> Tensor:
    """Scale rows to length 1; a zero row stays zero. (B, d) -> (B, d)."""
    return torch.nn.functional.normalize(vectors, dim=-1)
