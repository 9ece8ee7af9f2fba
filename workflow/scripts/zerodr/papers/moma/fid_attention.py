"""FidAtt: how much a decoder's first position attends to each segment of a fused input (MoMA eq. 9).

A fused input of one query is a row of T token states: the query's, then those of its documents. `segments` (B, T) says
where a token belongs: 0 the query, k the k-th document. `mask` (B, T) is 1 for real tokens.
"""

from typing import Literal, NamedTuple

from torch import Tensor

from zerodr.errors import ModelError

Aggregation = Literal["prob_sum", "prob_valuenorm_sum"]
VALUE_SCALE = 256.0  # Atlas divides its value norms by it
NEAR, ROUNDED = 1e-3, 2e-2  # how far from 1 probabilities may sum, in fp32 and in bf16


class CrossAttention(NamedTuple):
    """Attention of the decoder's first position, in all L layers and H heads.

    Attributes:
        probabilities: (L, B, H, T) after the softmax over all T tokens; 0 on padding.
        value_norms: (L, B, H, T) Euclidean length of each token's value vector; None where nobody asked.
    """

    probabilities: Tensor
    value_norms: Tensor | None = None


def fid_attention(
    attention: CrossAttention,
    segments: Tensor,
    mask: Tensor,
    count: int,
    aggregation: Aggregation = "prob_sum",
) -> Tensor:
    """Score of the query and of each of its `count` documents, (B, 1 + count) float32.

    Args:
        aggregation: `prob_sum` probabilities summed (MoMA eq. 9); `prob_valuenorm_sum` probabilities times lengths of
            value vectors, mean over heads, over 256 L (Atlas, with one decoded token).

    Raises:
        ModelError: the aggregation needs value norms that were not taken.
    """
    probabilities = attention.probabilities.float()
    if aggregation == "prob_sum":
        return _by_segment(probabilities.sum((0, 2)), segments, mask, count)
    if attention.value_norms is None:
        problem = f"aggregation {aggregation} needs more than probabilities, found none"
        raise ModelError("attention", problem, "ask for value norms when attention is taken")
    weighted = probabilities * attention.value_norms.float()
    return _by_segment(weighted.mean(2).sum(0), segments, mask, count) / (VALUE_SCALE * len(probabilities))


def _by_segment(values: Tensor, segments: Tensor, mask: Tensor, count: int) -> Tensor:
    """Sums of (B, T) values over the real tokens of each segment, (B, 1 + count)."""
    sums = values.new_zeros(len(values), 1 + count)
    return sums.scatter_add_(1, segments, values.masked_fill(mask == 0, 0.0))


def check_mass(attention: CrossAttention, mask: Tensor, where: object, near: float = NEAR) -> None:
    """Check that attention to real tokens sums to one in every head of every layer.

    Raises:
        ModelError: it does not: dropout was on, or the mask was not heeded.
    """
    real = (attention.probabilities.float() * mask[None, :, None]).sum(-1)
    worst = float((real - 1.0).abs().max())
    if not worst < near:
        problem = f"attention of a head sums to 1 {worst:+.4f} off over real tokens, expected 1"
        raise ModelError(where, problem, "put the model in evaluation mode")
