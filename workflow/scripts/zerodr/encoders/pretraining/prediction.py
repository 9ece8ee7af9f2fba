"""The layer that predicts masked tokens, tied to the backbone's embeddings; taken from a checkpoint that has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from zerodr.encoders.network.towers import hidden_size
from zerodr.errors import ModelError

NAMES = {  # own name -> names in checkpoints of BERT (new and old), RoBERTa, DistilBERT
    "dense.weight": ("cls.predictions.transform.dense.weight", "lm_head.dense.weight", "vocab_transform.weight"),
    "dense.bias": ("cls.predictions.transform.dense.bias", "lm_head.dense.bias", "vocab_transform.bias"),
    "norm.weight": (
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.gamma",
        "lm_head.layer_norm.weight",
        "vocab_layer_norm.weight",
    ),
    "norm.bias": (
        "cls.predictions.transform.LayerNorm.bias",
        "cls.predictions.transform.LayerNorm.beta",
        "lm_head.layer_norm.bias",
        "vocab_layer_norm.bias",
    ),
    "bias": ("cls.predictions.bias", "lm_head.bias", "vocab_projector.bias"),
}


class Prediction(nn.Module):
    """W_embedding LayerNorm(act(x W^T + b)) + bias, as BERT, RoBERTa and DistilBERT have it; other encoders get one.

    Args:
        config: of the backbone: size, activation.
        table: (rows, width) of the embedding table; its width is another than the tokens' in ALBERT and small ELECTRA.
    """

    def __init__(self, config: Any, table: torch.Size) -> None:
        from transformers.activations import ACT2FN

        super().__init__()
        rows, width = table
        self.dense = nn.Linear(hidden_size(config), width)
        self.norm = nn.LayerNorm(width, eps=getattr(config, "layer_norm_eps", 1e-12))
        self.bias = nn.Parameter(torch.zeros(rows))
        named = [getattr(config, name, None) for name in ("hidden_act", "activation", "hidden_activation")]
        self.activation = ACT2FN[next((name for name in named if name), "gelu")]

    def loss(self, states: Tensor, targets: Tensor, embeddings: Tensor) -> Tensor:
        """Sum of the cross entropies of tokens, in nats.

        Args:
            states: (m, d) hidden states; targets: (m,) token ids; embeddings: (V, d) of the backbone.

        Returns:
            float32 scalar; 0 for m = 0.
        """
        made = self.norm(self.activation(self.dense(states)))
        logits = functional.linear(made, embeddings, self.bias.to(made.dtype))  # (m, V)
        return functional.cross_entropy(logits.float(), targets, reduction="sum")


def fresh(module: nn.Module, spread: float) -> None:
    """New weights by torch's global random numbers: N(0, spread) matrices, zero biases, layer norms that do nothing."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            part.weight.data.normal_(0.0, spread)
            if part.bias is not None:
                part.bias.data.zero_()
        elif isinstance(part, nn.LayerNorm):
            part.weight.data.fill_(1.0)
            part.bias.data.zero_()


def checkpoint_prediction(folder: Path) -> dict[str, Tensor] | None:
    """The weights of a checkpoint's prediction layer by our names, float32; None where it has none or a part of one.

    Raises:
        ModelError: a weights file is damaged.
    """
    from safetensors import SafetensorError, safe_open

    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                there = set(file.keys())
                for own, others in NAMES.items():
                    for name in there.intersection(others):
                        found[own] = file.get_tensor(name).float()
        except SafetensorError as error:
            raise ModelError(path, f"is no whole safetensors file ({error})", "fetch the model again") from None
    return found if set(found) == set(NAMES) else None
