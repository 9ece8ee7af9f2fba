"""Train additions of low rank to the linear layers of a network (LoRA, Hu et al. 2022), not its weights, by peft.

A weight that is trained takes 16 bytes with its gradient and moments, one that is not takes 4.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

POOLER, BASE = "pooler", ".base_layer."
ALPHA = 2  # times the rank


def add_low_rank(transformer: Any, rank: int, seed: int) -> None:
    """Freeze a transformers module and add fresh matrices to its linear layers; they change nothing at first.

    Args:
        transformer: its pooler, which no pooling of ours reads, gets none.
        rank: of the additions.
        seed: of fresh matrices; the caller's random state is left alone.
    """
    from peft import LoraConfig, inject_adapter_in_model

    layers = [name for name, module in transformer.named_modules() if isinstance(module, nn.Linear)]
    targets = [name for name in layers if name.partition(".")[0] != POOLER]
    transformer.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = LoraConfig(r=rank, lora_alpha=ALPHA * rank, lora_dropout=0.0, bias="none", target_modules=targets)
        inject_adapter_in_model(config, transformer)


def weights_to_save(transformer: Any) -> dict[str, Tensor]:
    """Return a module's weights by their original names, each with what was added to it."""
    added = {name: layer for name, layer in transformer.named_modules() if hasattr(layer, "get_delta_weight")}
    state = {
        name.replace(BASE, "."): weight for name, weight in transformer.state_dict().items() if ".lora_" not in name
    }
    for name, layer in added.items():
        (adapter,) = layer.active_adapters
        state[f"{name}.weight"] = state[f"{name}.weight"] + layer.get_delta_weight(adapter)
    return state
