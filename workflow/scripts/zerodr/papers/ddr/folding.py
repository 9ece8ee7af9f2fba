"""Fold inserted modules into a plain transformer: LoRA merged, parallel adapters in wider feed-forward blocks.

relu(x) = lim gelu(kx)/k, so with the adapter's units appended to those of the block:
W_i' = [W_i; k W_down], b_i' = [b_i; k b_down], W_o' = [W_o | (s/k) W_up], b_o' = b_o + s b_up.
Where the block has a relu, too, k = 1 is exact.
"""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from zerodr.errors import ModelError
from zerodr.papers.ddr.inserting import ADAPTER, Block, ParallelAdapter, blocks, join_output, join_residual, lora_layers
from zerodr.papers.ddr.settings import RemSettings

GATED = "its feed-forward blocks are gated, a plain model can't hold a parallel adapter next to them"
UNFOLDED = "for the modular form set rem.fold: false, and fold: false on the stage of kind assemble"
SMOOTH = ("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python", "silu", "swish")  # relu in the limit
WIDTHS = ("intermediate_size", "hidden_dim", "d_ff")  # of configurations, by family
ACTIVATIONS = ("hidden_act", "activation", "dense_act_fn")


def check_folding(where: object, transformer: Any, settings: RemSettings) -> None:
    """Check that the transformer with such modules can be made plain.

    Raises:
        ModelError: says why not, and which settings are possible.
    """
    if not settings.has_adapters:
        return
    if any(block.gated for block in blocks(transformer)):
        raise ModelError(where, GATED, f"{UNFOLDED}; or rem.shape: lora, which merges")
    sharpness_for(where, transformer, settings)


def sharpness_for(where: object, transformer: Any, settings: RemSettings) -> float:
    """k by which the adapter's units are scaled.

    Raises:
        ModelError: the block's activation can't replace the adapter's.
    """
    given = {name: getattr(transformer.config, name, None) for name in ACTIVATIONS}
    activation = next((name for name in given.values() if isinstance(name, str)), "")
    if activation == "relu":
        return 1.0
    if activation in SMOOTH:
        return settings.sharpness
    problem = (
        f"its feed-forward blocks have activation {activation or 'unknown'}, which can't stand for an adapter's relu"
    )
    raise ModelError(where, problem, UNFOLDED)


def folded(where: object, transformer: Any, settings: RemSettings) -> Any:
    """Make a plain copy of a transformers module with inserted modules, in the precision of its weights.

    Raises:
        ModelError: it can't be made plain.
    """
    check_folding(where, transformer, settings)
    k = sharpness_for(where, transformer, settings) if settings.has_adapters else 1.0
    plain = deepcopy(transformer)
    with torch.no_grad():
        merge_lora(plain)
        widened = [_widen(block, k) for block in blocks(plain) if hasattr(block.host, ADAPTER)]
    if widened:
        (name,) = [name for name in WIDTHS if hasattr(plain.config, name)]
        setattr(plain.config, name, widened[0])
    return plain.requires_grad_(True)


def merge_lora(transformer: Any) -> None:
    """W' = W + (alpha/r) B A in every layer that has LoRA, and the layer is a plain one again  # DDR section 3.1"""
    for name, layer in list(lora_layers(transformer)):
        layer.merge(safe_merge=True)
        parent, _, name_in_parent = name.rpartition(".")
        setattr(transformer.get_submodule(parent), name_in_parent, layer.get_base_layer())
    if hasattr(transformer, "peft_config"):
        del transformer.peft_config


def _widen(block: Block, k: float) -> int:
    """Fold a block's adapter into its two linear layers; returns the new width."""
    inward, outward, adapter = block.inward, block.outward, getattr(block.host, ADAPTER)
    assert inward is not None and outward is not None, "gated blocks were refused"
    scale = adapter.scale
    inward.weight = _parameter(torch.cat([inward.weight, k * adapter.down.weight]))
    outward.weight = _parameter(torch.cat([outward.weight, scale / k * adapter.up.weight], dim=1))
    if adapter.down.bias is not None:
        inward.bias = _parameter(torch.cat([inward.bias, k * adapter.down.bias]))
        outward.bias = _parameter(outward.bias + scale * adapter.up.bias)
    inward.out_features = outward.in_features = len(inward.weight)
    _take_away(block.host)
    return inward.out_features


def _parameter(value: Tensor) -> nn.Parameter:
    return nn.Parameter(value.contiguous())


def _take_away(host: nn.Module) -> None:
    assert isinstance(getattr(host, ADAPTER), ParallelAdapter)
    delattr(host, ADAPTER)
    for hooks in (host._forward_pre_hooks, host._forward_hooks):
        for key in [key for key, hook in hooks.items() if hook in (join_residual, join_output)]:
            del hooks[key]
