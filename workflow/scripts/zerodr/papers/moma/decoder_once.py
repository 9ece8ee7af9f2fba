"""T5's decoder for its first position alone, without keys and values of the T tokens that it looks at.

With one position, q_h (W_k,h s_t) = (W_k,h^T q_h) s_t and sum_t p_t W_v,h s_t = W_v,h (sum_t p_t s_t). So a layer's
cross-attention costs 2 H d multiplications a token instead of 2 d^2 (T5-base: 64 times fewer), and the vector differs
by rounding only. For inference: no dropout, no gradient.
"""

from typing import Any

import torch
from torch import Tensor


def decode_once(transformer: Any, states: Tensor, mask: Tensor) -> Tensor:
    """The decoder's last hidden state at its start token, after the final norm.

    Args:
        transformer: T5 encoder-decoder of transformers, in evaluation mode.
        states: (B, T, d) encoder states.
        mask: (B, T), 1 for real tokens; every row has one.

    Returns:
        (B, 1, d) in the dtype of the weights.
    """
    decoder = transformer.decoder
    start = mask.new_full((len(mask),), transformer.config.decoder_start_token_id)
    hidden = decoder.embed_tokens(start)
    bias = torch.zeros(mask.shape, dtype=states.dtype, device=states.device)
    bias.masked_fill_(mask == 0, torch.finfo(states.dtype).min)
    for block in decoder.block:
        itself, cross, forward = block.layer
        attention = itself.SelfAttention  # a softmax over one position is 1
        hidden = hidden + attention.o(attention.v(itself.layer_norm(hidden)))
        hidden = hidden + _look(cross.EncDecAttention, cross.layer_norm(hidden), states, bias)
        hidden = forward(hidden)
    return decoder.final_layer_norm(hidden)[:, None]


def _look(attention: Any, hidden: Tensor, states: Tensor, bias: Tensor) -> Tensor:
    """Cross-attention of one position. hidden (B, d), states (B, T, d), bias (B, T) -> (B, d)."""
    heads, size = attention.n_heads, attention.key_value_proj_dim
    keys, values = (w.weight.view(heads, size, -1) for w in (attention.k, attention.v))  # (H, dk, d)
    query = attention.q(hidden).view(-1, heads, size)
    folded = torch.einsum("bhk,hkd->bhd", query, keys)
    scores = torch.bmm(folded, states.transpose(1, 2)) + bias[:, None]
    seen = torch.bmm(torch.softmax(scores.float(), -1).to(states.dtype), states)  # (B, H, d)
    return attention.o(torch.einsum("bhd,hkd->bhk", seen, values).flatten(1))
