"""Predict masked tokens by a layer tied to the backbone's embeddings; load it from a checkpoint that has one.

Texts are tokenised with the word of each token, for masking: fast tokenizers of BERT-like models.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from zerodr.encoders.network.tokenizing import BARE, TOKENIZING
from zerodr.errors import ModelError

BERT = "cls.predictions.transform"
PORTION = 1 << 22  # logits whose gradients are computed at once
NAMES = {  # our name -> names in checkpoints of BERT (new and old), RoBERTa, DistilBERT
    "dense.weight": {f"{BERT}.dense.weight", "lm_head.dense.weight", "vocab_transform.weight"},
    "dense.bias": {f"{BERT}.dense.bias", "lm_head.dense.bias", "vocab_transform.bias"},
    "norm.weight": {f"{BERT}.LayerNorm.{name}" for name in ("weight", "gamma")}
    | {"lm_head.layer_norm.weight", "vocab_layer_norm.weight"},
    "norm.bias": {f"{BERT}.LayerNorm.{name}" for name in ("bias", "beta")}
    | {"lm_head.layer_norm.bias", "vocab_layer_norm.bias"},
    "bias": {"cls.predictions.bias", "lm_head.bias", "vocab_projector.bias"},
}


class Prediction(nn.Module):
    """Compute W_embedding LayerNorm(act(x W^T + b)) + bias, as in BERT, RoBERTa and DistilBERT.

    Args:
        config: of the backbone: size, activation.
        table: (rows, width) of the embedding table; its width differs from the tokens' in ALBERT and small ELECTRA.
    """

    def __init__(self, config: Any, table: torch.Size) -> None:
        from transformers.activations import ACT2FN

        super().__init__()
        rows, width = table
        self.dense = nn.Linear(config.hidden_size, width)
        self.norm = nn.LayerNorm(width, eps=getattr(config, "layer_norm_eps", 1e-12))
        self.bias = nn.Parameter(torch.zeros(rows))
        named = [getattr(config, name, None) for name in ("hidden_act", "activation", "hidden_activation")]
        self.activation = ACT2FN[next((name for name in named if name), "gelu")]

    def loss(self, states: Tensor, targets: Tensor, embeddings: Tensor) -> Tensor:
        """Sum the cross entropies of tokens, in nats.

        Args:
            states: (m, d) hidden states; targets: (m,) token ids; embeddings: (V, d) of the backbone.

        Returns:
            float32 scalar; 0 for m = 0.
        """
        hidden = self.norm(self.activation(self.dense(states)))
        return cross_entropies(functional.linear(hidden, embeddings, self.bias.to(hidden.dtype)), targets)


class _CrossEntropies(torch.autograd.Function):
    """logits (m, V) float32 on the CPU, targets (m,) -> scalar, by the operators of torch's cross entropy: same bits.

    The logits are the largest tensor of a pretraining step. Log-likelihoods, then gradients are written over them.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        torch.log_softmax(logits, -1, out=logits)
        ctx.save_for_backward(logits, targets)
        return functional.nll_loss(logits, targets, reduction="sum")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        likelihoods, targets = (tensor.detach() for tensor in ctx.saved_tensors)
        count = max(1, PORTION // likelihoods.shape[1])
        slopes, slope = likelihoods.new_zeros(min(count, len(likelihoods)), likelihoods.shape[1]), -gradients[0].item()
        for rows, right in zip(likelihoods.split(count), targets[:, None].split(count), strict=True):
            upstream = slopes[: len(rows)].scatter_(1, right, slope)
            torch._log_softmax_backward_data(upstream, rows, 1, torch.float32, out=rows)
            upstream.scatter_(1, right, 0.0)
        return likelihoods, None


def cross_entropies(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum the cross entropies of tokens, in nats.

    Args:
        logits: (m, V), which nothing else may read: on the CPU they are overwritten.
        targets: (m,) token ids.

    Returns:
        float32 scalar; 0 for m = 0.

    >>> round(cross_entropies(torch.zeros(3, 8), torch.tensor([0, 1, 7])).item() / 3, 4)  # ln 8
    2.0794
    """
    if logits.device.type == "cpu":
        return _CrossEntropies.apply(logits.float(), targets)
    return functional.cross_entropy(logits.float(), targets, reduction="sum")


def fresh(module: nn.Module, spread: float) -> None:
    """Draw weights by torch's global random numbers: N(0, spread) matrices, zero biases, neutral layer norms."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.data.normal_(0.0, spread)
            if layer.bias is not None:
                layer.bias.data.zero_()
        elif isinstance(layer, nn.LayerNorm):
            layer.weight.data.fill_(1.0)
            layer.bias.data.zero_()


def checkpoint_prediction(folder: Path) -> dict[str, Tensor] | None:
    """Load the weights of a checkpoint's prediction layer by our names, float32; None where it is not complete.

    Raises:
        ModelError: a weights file is damaged.
    """
    from safetensors import SafetensorError, safe_open

    weights: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                for name, aliases in NAMES.items():
                    for alias in aliases.intersection(file.keys()):
                        weights[name] = file.get_tensor(alias).float()
        except SafetensorError as error:
            raise ModelError(path, f"is no whole safetensors file ({error})", "fetch the model again") from None
    return weights if set(weights) == set(NAMES) else None


def check_masking(where: object, tokenizer: Any) -> None:
    """Check that the tokenizer can mask: it has a mask token, both ends, and maps tokens to words.

    Raises:
        ModelError: names what it lacks.
    """
    missing = [name for name in ("mask_token", "cls_token", "sep_token") if getattr(tokenizer, name, None) is None]
    if missing or not getattr(tokenizer, "is_fast", False):
        reason = f"no {missing[0]}" if missing else "no word boundaries (it is no fast tokenizer)"
        problem = f"its tokenizer has {reason}, which masked language modelling needs"
        raise ModelError(where, problem, "start from BERT, RoBERTa or DistilBERT")


def token_words(
    tokenizer: Any, texts: Sequence[str], lowercase: bool = False, characters: bool = False
) -> list[tuple[np.ndarray, ...]]:
    """Tokenize texts without special tokens, uncut: ids and the number of each token's word, both (L,) int64.

    A token without a word gets a number that no other token has.
    With `characters` also each token's range [start, end) in the text as the tokenizer reads it, (L, 2) int64.
    """
    if not len(texts):
        return []
    texts = [text.lower() for text in texts] if lowercase else list(texts)
    rows: list[tuple[np.ndarray, ...]] = []
    with TOKENIZING:
        encodings = tokenizer(texts, **BARE).encodings
    for encoding in encodings:
        words = np.array(encoding.word_ids, np.float64)  # None is NaN
        words = np.where(np.isnan(words), -1 - np.arange(len(words)), words).astype(np.int64)
        row = (np.asarray(encoding.ids, np.int64), words)
        rows.append((*row, np.array(encoding.offsets, np.int64).reshape(-1, 2)) if characters else row)
    return rows


def ordinary_ids(tokenizer: Any) -> np.ndarray:
    """List ids of all tokens but special ones, ascending int64."""
    return np.array(sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids)), np.int64)
