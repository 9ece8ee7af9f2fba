"""Run a fast CPU forward pass of BERT: the same numbers as transformers' `BertModel`, in less time.

Weights are reordered once into oneDNN's blocked layout; query, key and value are one multiplication; GELU and the
residual sum are fused into the multiplications. The operators are private to torch, so `why_not` looks for them, tries
them, and gives the reason to use the plain module.

Attention is computed in one of two ways. The fused operator keeps a row's scores in the cache; plain products take
oneDNN's kernels in bf16. Which one is faster depends on arithmetic and processor.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from zerodr.artifacts.processor import kind_of_job

Way = Literal["fused", "plain"]
SLICE_SCORES = 1 << 20  # plain attention's scores of one slice of the batch, which stays in the cache
TANH = ("gelu", "tanh")
ACTIVATIONS = {"gelu": ("gelu", "none"), "gelu_new": TANH, "gelu_pytorch_tanh": TANH, "relu": ("relu", "")}
PACKAGES = ("torch.", "transformers.")  # of a plain module's parts
MASKED = -3e4  # in bfloat16's range, and exp() of it is exactly 0
ROWS_BLOCK = 512  # rows of a multiplication: oneDNN chooses the layout for it, and intermediates stay in the cache
ROWS_STEP = 128  # the last block is a multiple of it: oneDNN keeps megabytes for each number of rows that it ever saw
Pair = tuple[Tensor, Tensor]


def choose_way(dtype: torch.dtype) -> Way:
    """Choose the way of attention by the kind of processor."""
    return kind_of_job().attention_bf16 if dtype == torch.bfloat16 else "fused"


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


def why_not(model: Any, dtype: torch.dtype, device: str = "cpu", packed: bool = True) -> str | None:
    """Return None when `PackedBert(model, dtype)` works on `device`, else the reason in a few words."""
    if not packed:
        return "switched off"
    if device != "cpu":
        return f"it is for the CPU, not {device}"
    kind = type(model).__name__
    if kind != "BertModel":
        return f"architecture {kind} has no packed forward pass"
    if any(not type(module).__module__.startswith(PACKAGES) for module in model.modules()):
        return "it has inserted modules"
    return why_not_of(model.config, dtype)


def why_not_of(config: Any, dtype: torch.dtype) -> str | None:
    """Return None when a `BertModel` of this configuration can be packed, else the reason in a few words."""
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
    x, weight = (torch.linspace(-1, 1, n * 32).view(n, 32).to(dtype) for n in (8, 16))
    bias, residual = torch.ones(16, dtype=dtype), torch.ones(8, 16, dtype=dtype)
    try:
        packed = pack(weight)
        results = torch.stack([linear(x, packed, bias), linear_add(x, residual, packed, bias)])
    except (AttributeError, RuntimeError, NotImplementedError) as error:
        return f"torch's packed multiplication is not available ({str(error).splitlines()[0]})"
    expected = functional.linear(x, weight, bias)
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    if not torch.allclose(results, torch.stack([expected, expected + residual]), atol=tolerance, rtol=tolerance):
        return "torch's packed multiplication gives other numbers than the plain one"
    return None


def pack(weight: Tensor) -> Tensor:
    """Reorder `weight` (out, in) to oneDNN's blocked layout."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS_BLOCK)


def linear(x: Tensor, packed: Tensor, bias: Tensor, activation: str = "none", algorithm: str = "") -> Tensor:
    """Compute activation(x W^T + bias). x (n, in), packed (out, in), bias (out) -> (n, out)."""
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, activation, [], algorithm)


def linear_add(x: Tensor, residual: Tensor, packed: Tensor, bias: Tensor) -> Tensor:
    """Compute x W^T + bias + residual. x (n, in), residual (n, out) -> (n, out)."""
    return torch.ops.mkldnn._linear_pointwise.binary(x, residual, packed, bias, "add")


class PackedBert:
    """`PackedBert(model, dtype)(ids, mask, types)`: last hidden states of a `BertModel`, on the CPU, without gradients.

    Args:
        model: a `BertModel` in float32, or what `read_bert` gives; it may be freed afterwards.
        dtype: float32 (equal to the plain module up to rounding) or bfloat16.
        attention: `fused` or `plain`; None: by the kind of processor.
    """

    def __init__(self, model: Any, dtype: torch.dtype, attention: Way | None = None) -> None:
        config, embeddings = model.config, model.embeddings
        self.dtype, self.epsilon = dtype, config.layer_norm_eps
        self.heads, self.width = config.num_attention_heads, config.hidden_size
        self.attention = attention or choose_way(dtype)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.words = self._plain(embeddings.word_embeddings.weight)
        types = embeddings.token_type_embeddings.weight
        self.positions = self._plain(embeddings.position_embeddings.weight + types[0])
        self.other_types = self._plain(types - types[0])  # difference of each token type from type 0
        self.first_norm = self._norm(embeddings.LayerNorm)
        self.layers = [self._layer(layer) for layer in model.encoder.layer]

    @property
    def backend(self) -> str:
        """Name the forward pass, for lineage."""
        return f"packed, {self.attention} attention"

    def _plain(self, weight: Tensor) -> Tensor:
        return weight.detach().to(self.dtype)

    def _packed(self, weight: Tensor, bias: Tensor) -> Pair:
        return pack(self._plain(weight)), self._plain(bias)

    def _dense(self, module: Any) -> Pair:
        return self._packed(module.weight, module.bias)

    def _norm(self, module: Any) -> Pair:
        return self._plain(module.weight), self._plain(module.bias)

    def _layer(self, layer: Any) -> tuple:
        attention, out = layer.attention, layer.attention.output
        query, key, value = attention.self.query, attention.self.key, attention.self.value
        scale = (self.width // self.heads) ** -0.5
        weight = torch.cat([query.weight * scale, key.weight, value.weight])
        joint = self._packed(weight, torch.cat([query.bias * scale, key.bias, value.bias]))
        up, down = self._dense(layer.intermediate.dense), self._dense(layer.output.dense)
        return joint, self._dense(out.dense), self._norm(out.LayerNorm), up, down, self._norm(layer.output.LayerNorm)

    def __call__(self, ids: Tensor, mask: Tensor, types: Tensor | None = None) -> Tensor:
        """Map ids (B, L) int, mask (B, L) of 0 and 1, types (B, L) int or None for 0 -> hidden (B, L, d) in `dtype`."""
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
        heads = batch, length, self.heads, self.width // self.heads
        joined = batch, length, 3, *heads[2:]
        bias = None
        if not bool(mask.all()):
            bias = torch.zeros(batch, 1, 1, length, dtype=self.dtype).masked_fill_(mask[:, None, None] == 0, MASKED)
        for weights in self.layers:
            for block in blocks:
                joint[block] = linear(x[block], *weights[0])
            attend(self.attention, joint[:tokens].view(joined), bias, context[:tokens].view(heads))
            for block in blocks:
                x[block] = self._feed_forward(context[block], x[block], *weights[1:])
        return x[:tokens].view(batch, length, self.width)

    def _feed_forward(
        self, context: Tensor, x: Tensor, out: Pair, out_norm: Pair, up: Pair, down: Pair, down_norm: Pair
    ) -> Tensor:
        """Compute all of a layer after attention. context, x (n, d) -> (n, d)."""
        x = self._normed(linear_add(context, x, *out), out_norm)
        return self._normed(linear_add(linear(x, up[0], up[1], *self.activation), x, *down), down_norm)

    def _normed(self, x: Tensor, norm: Pair) -> Tensor:
        return functional.layer_norm(x, (self.width,), *norm, self.epsilon)
