"""A fast CPU forward pass of BERT: the same numbers as transformers' `BertModel`, in less time.

Weights are reordered once into oneDNN's blocked layout; query, key and value are one multiplication; GELU and the
residual sum are fused into the multiplications; attention runs in slices of a batch that fit the cache. The operators
are private to torch, so `why_not` looks for them, tries them, and gives the reason when the plain module must do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

ACTIVATIONS = {
    "gelu": ("gelu", "none"),
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "relu": ("relu", ""),
}
OWN = ("torch.", "transformers.")  # packages of a plain module's parts
MASKED = -3e4  # in bfloat16's range, and exp() of it is exactly 0
ROWS_BLOCK = 512  # rows of a multiplication: oneDNN chooses the layout for it, and intermediates stay in the cache
ROWS_STEP = 128  # the last block is a multiple of it: oneDNN keeps megabytes for each number of rows that it ever saw
SLICE_SCORES = 1 << 20  # attention scores of one slice


Pair = tuple[Tensor, Tensor]


def why_not(model: Any, dtype: torch.dtype) -> str | None:
    """None when `PackedBert(model, dtype)` works here, else the reason in a few words."""
    kind = type(model).__name__
    if kind != "BertModel":
        return f"architecture {kind} has no packed forward pass"
    config = model.config
    if any(not type(module).__module__.startswith(OWN) for module in model.modules()):
        return "it has inserted modules"
    if config.hidden_act not in ACTIVATIONS:
        return f"activation {config.hidden_act} is not fused"
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        return "a decoder has no packed forward pass"
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        return "relative positions have no packed forward pass"
    if dtype not in (torch.float32, torch.bfloat16):
        return f"{dtype} is not packed"
    return _missing_operator(dtype)


def _missing_operator(dtype: torch.dtype) -> str | None:
    """Try the private operators on a small multiplication and compare with the public one."""
    if not torch.backends.mkldnn.is_available():
        return "torch has no oneDNN"
    x, weight, bias = (
        torch.linspace(-1, 1, 8 * 32).view(8, 32),
        torch.linspace(-1, 1, 16 * 32).view(16, 32),
        torch.ones(16),
    )
    x, weight, bias = x.to(dtype), weight.to(dtype), bias.to(dtype)
    try:
        packed = pack(weight)
        made = linear(x, packed, bias), linear_add(x, made_residual := torch.ones(8, 16, dtype=dtype), packed, bias)
    except (AttributeError, RuntimeError, NotImplementedError) as error:
        return f"torch's packed multiplication is not to be had ({str(error).splitlines()[0]})"
    expected = functional.linear(x, weight, bias)
    near = 1e-5 if dtype == torch.float32 else 5e-2
    if not (
        torch.allclose(made[0], expected, atol=near, rtol=near)
        and torch.allclose(made[1], expected + made_residual, atol=near, rtol=near)
    ):
        return "torch's packed multiplication gives other numbers than the plain one"
    return None


def pack(weight: Tensor) -> Tensor:
    """`weight` (out, in) in oneDNN's blocked layout."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS_BLOCK)


def linear(x: Tensor, packed: Tensor, bias: Tensor, activation: str = "none", algorithm: str = "") -> Tensor:
    """activation(x W^T + bias). x (n, in), packed (out, in), bias (out) -> (n, out)."""
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, activation, [], algorithm)


def linear_add(x: Tensor, residual: Tensor, packed: Tensor, bias: Tensor) -> Tensor:
    """x W^T + bias + residual. x (n, in), residual (n, out) -> (n, out)."""
    return torch.ops.mkldnn._linear_pointwise.binary(x, residual, packed, bias, "add")


class PackedBert:
    """`PackedBert(model, dtype)(ids, mask, types)`: last hidden states of a `BertModel`, on the CPU, without gradients.

    Args:
        model: a `BertModel` in float32; it may be freed afterwards.
        dtype: float32 (equal to the plain module up to rounding) or bfloat16.
    """

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        config, embeddings = model.config, model.embeddings
        self.dtype, self.epsilon = dtype, config.layer_norm_eps
        self.heads, self.width = config.num_attention_heads, config.hidden_size
        self.activation = ACTIVATIONS[config.hidden_act]
        self.words = self._plain(embeddings.word_embeddings.weight)
        types = embeddings.token_type_embeddings.weight
        self.positions = self._plain(embeddings.position_embeddings.weight + types[0])
        self.other_types = self._plain(types - types[0])  # what a token of another type than 0 has more
        self.first_norm = self._norm(embeddings.LayerNorm)
        self.layers = [self._layer(layer) for layer in model.encoder.layer]

    def _plain(self, weight: Tensor) -> Tensor:
        return weight.detach().to(self.dtype)

    def _packed(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return pack(self._plain(weight)), self._plain(bias)

    def _norm(self, module: Any) -> tuple[Tensor, Tensor]:
        return self._plain(module.weight), self._plain(module.bias)

    def _layer(self, layer: Any) -> tuple:
        attention, out = layer.attention, layer.attention.output
        query, key, value = attention.self.query, attention.self.key, attention.self.value
        scale = (self.width // self.heads) ** -0.5
        joint = self._packed(
            torch.cat([query.weight * scale, key.weight, value.weight]),
            torch.cat([query.bias * scale, key.bias, value.bias]),
        )
        return (
            joint,
            self._packed(out.dense.weight, out.dense.bias),
            self._norm(out.LayerNorm),
            self._packed(layer.intermediate.dense.weight, layer.intermediate.dense.bias),
            self._packed(layer.output.dense.weight, layer.output.dense.bias),
            self._norm(layer.output.LayerNorm),
        )

    def __call__(self, ids: Tensor, mask: Tensor, types: Tensor | None = None) -> Tensor:
        """ids (B, L) int, mask (B, L) of 0 and 1, types (B, L) int or None for 0 -> hidden (B, L, d) in its dtype."""
        batch, length = ids.shape
        tokens = batch * length
        rows = -(-tokens // ROWS_STEP) * ROWS_STEP  # those after the last token are zero and never read
        blocks = [slice(start, min(start + ROWS_BLOCK, rows)) for start in range(0, rows, ROWS_BLOCK)]
        x = torch.zeros(rows, self.width, dtype=self.dtype)
        words = self.words[ids] + self.positions[:length]
        if types is not None:
            words += self.other_types[types]
        x[:tokens] = self._normed(words.view(tokens, self.width), self.first_norm)
        joint = torch.empty(rows, 3 * self.width, dtype=self.dtype)
        context = torch.zeros(rows, self.width, dtype=self.dtype)
        bias = None
        if not bool(mask.all()):
            bias = torch.zeros(batch, 1, 1, length, dtype=self.dtype).masked_fill_(mask[:, None, None] == 0, MASKED)
        for weights in self.layers:
            for block in blocks:
                joint[block] = linear(x[block], *weights[0])
            self._attend(joint[:tokens], bias, batch, length, context[:tokens])
            for block in blocks:
                x[block] = self._rest(context[block], x[block], *weights[1:])
        return x[:tokens].view(batch, length, self.width)

    def _rest(
        self, context: Tensor, x: Tensor, out: Pair, out_norm: Pair, up: Pair, down: Pair, down_norm: Pair
    ) -> Tensor:
        """All of a layer after attention. context, x (n, d) -> (n, d)."""
        x = self._normed(linear_add(context, x, *out), out_norm)
        return self._normed(linear_add(linear(x, up[0], up[1], *self.activation), x, *down), down_norm)

    def _normed(self, x: Tensor, norm: Pair) -> Tensor:
        return functional.layer_norm(x, (self.width,), *norm, self.epsilon)

    def _attend(self, joint: Tensor, bias: Tensor | None, batch: int, length: int, context: Tensor) -> None:
        """softmax(q k^T + bias) v by slices of the batch. joint (B*L, 3d), queries scaled; into context (B*L, d)."""
        joint = joint.view(batch, length, 3, self.heads, self.width // self.heads)
        context = context.view(batch, length, self.heads, self.width // self.heads)
        step = max(1, SLICE_SCORES // (self.heads * length * length))
        for start in range(0, batch, step):
            part = joint[start : start + step]
            query, value = part[:, :, 0].transpose(1, 2), part[:, :, 2].transpose(1, 2)
            scores = torch.matmul(query, part[:, :, 1].permute(0, 2, 3, 1))
            if bias is not None:
                scores += bias[start : start + step]
            context[start : start + step] = torch.matmul(torch.softmax(scores, -1), value).transpose(1, 2)
