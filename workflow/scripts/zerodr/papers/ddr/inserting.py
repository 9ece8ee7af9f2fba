"""Insert networks into a transformer: LoRA (by peft) and parallel adapters (ours)  # DDR section 3.1

Both are zero at their start, so that a backbone with fresh ones gives the same vectors.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from zerodr.errors import ConfigError, ModelError
from zerodr.papers.ddr.settings import RemSettings

BERT_LIKE = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "mpnet")
T5_LIKE = ("t5", "mt5", "umt5")
BERT_NAMES = ["attention.self.query", "attention.self.value"]
NAMES = {
    "distilbert": ["q_lin", "v_lin"],
    "mpnet": ["attn.q", "attn.v"],
    **dict.fromkeys(T5_LIKE, ["q", "v"]),
}  # projections of queries and of values
ADAPTER = "parallel"  # name of an adapter in its host module
PEFT_PREFIX = "base_model.model."  # of names in adapter_model.safetensors


class ParallelAdapter(nn.Module):
    """PA(h) = s (W_up relu(W_down h + b_down) + b_up)  # He et al. 2022

    Args:
        size: D of h; bottleneck: rows of W_down.
        bias: without, for backbones whose linear layers have none.
    """

    def __init__(self, size: int, settings: RemSettings, bias: bool = True) -> None:
        super().__init__()
        self.down = nn.Linear(size, settings.bottleneck, bias)
        self.up = nn.Linear(settings.bottleneck, size, bias)
        self.scale = settings.scale
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))
        for weight in (self.up.weight, self.down.bias, self.up.bias):
            if weight is not None:
                nn.init.zeros_(weight)

    def forward(self, h: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return self.scale * self.up(torch.relu(self.down(h)))


@dataclass(frozen=True)
class Block:
    """A feed-forward block.

    Attributes:
        host: module that an adapter is attached to.
        residual: host is called with (inner states, h) and adds h; else with h alone.
        inward, outward: its linear layers; None where it is gated.
    """

    host: nn.Module
    residual: bool
    inward: nn.Linear | None
    outward: nn.Linear | None

    @property
    def has_bias(self) -> bool:
        """Return whether its output has a bias, and so an adapter."""
        return self.outward is not None and self.outward.bias is not None

    @property
    def gated(self) -> bool:
        """Return whether a product of two branches lies between input and output."""
        return self.inward is None


def blocks(transformer: Any) -> list[Block]:
    """List the feed-forward blocks of a transformers module, in order.

    Raises:
        ConfigError: a family whose blocks are not known.
    """
    family = transformer.config.model_type
    if family in BERT_LIKE:
        return [
            Block(layer.output, True, layer.intermediate.dense, layer.output.dense)
            for layer in transformer.encoder.layer
        ]
    if family == "distilbert":
        return [Block(layer.ffn, False, layer.ffn.lin1, layer.ffn.lin2) for layer in transformer.transformer.layer]
    if family in T5_LIKE:
        return [_t5_block(module) for module in transformer.modules() if type(module).__name__.endswith("ActDense")]
    known = ", ".join((*BERT_LIKE, "distilbert", *T5_LIKE))
    problem = f"a model of family {family} can't take a relevance module, which is known for {known}"
    raise ConfigError("rem", problem, "start from one of these, or set rem.shape: full")


def _t5_block(module: Any) -> Block:
    gated = "Gated" in type(module).__name__
    return Block(module, False, None if gated else module.wi, None if gated else module.wo)


def insert(transformer: Any, settings: RemSettings, seed: int) -> None:
    """Freeze a transformers module and put fresh modules into it.

    Args:
        seed: of fresh weights; the caller's random state is left alone.

    Raises:
        ConfigError: the transformer's family can't take them.
    """
    feed_forward = blocks(transformer)
    transformer.requires_grad_(False)
    # no devices: fresh weights are drawn on the CPU, so states of GPUs need no copy
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if settings.has_lora:
            from peft import inject_adapter_in_model

            inject_adapter_in_model(lora_config(transformer.config.model_type, settings), transformer)
        if settings.has_adapters:
            for block in feed_forward:
                _attach(block, ParallelAdapter(transformer.config.hidden_size, settings, block.has_bias))


def lora_config(family: str, settings: RemSettings) -> Any:
    """peft's configuration of the LoRA matrices."""
    from peft import LoraConfig

    modules = NAMES.get(family, BERT_NAMES)
    alpha: Any = float(settings.rank)
    return LoraConfig(r=settings.rank, lora_alpha=alpha, lora_dropout=0.0, bias="none", target_modules=modules)


def _attach(block: Block, adapter: ParallelAdapter) -> None:
    block.host.add_module(ADAPTER, adapter)
    if block.residual:
        block.host.register_forward_pre_hook(join_residual)
    else:
        block.host.register_forward_hook(join_output)


def join_residual(module: Any, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """LayerNorm(Dropout(FFN(h)) + (h + PA(h))), where the host adds its second input  # He et al. 2022"""
    inner, h = inputs
    return inner, h + module.parallel(h)


def join_output(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """FFN(h) + PA(h)."""
    return output + module.parallel(inputs[0])


def lora_layers(transformer: Any) -> Iterator[tuple[str, Any]]:
    """List names and modules of peft that replace linear layers."""
    return ((name, module) for name, module in transformer.named_modules() if hasattr(module, "lora_A"))


def adapters(transformer: Any) -> list[ParallelAdapter]:
    """List the parallel adapters, in the order of their blocks."""
    return [module for module in transformer.modules() if isinstance(module, ParallelAdapter)]


def weights(transformer: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return weights of LoRA by peft's names, and of parallel adapters as `layer.<i>.down.weight` and so on."""
    lora: dict[str, Tensor] = {}
    if next(lora_layers(transformer), None) is not None:
        from peft import get_peft_model_state_dict

        state = get_peft_model_state_dict(transformer, save_embedding_layers=False)
        lora = {f"{PEFT_PREFIX}{name}": value for name, value in state.items() if ".lora_" in name}
    parallel = {
        f"layer.{number}.{name}": value
        for number, adapter in enumerate(adapters(transformer))
        for name, value in adapter.state_dict().items()
    }
    return lora, parallel


def take_weights(transformer: Any, lora: dict[str, Tensor], parallel: dict[str, Tensor], where: object) -> None:
    """Copy weights as of `weights` into modules of the same shapes.

    Raises:
        ModelError: names or shapes differ.
    """
    there = weights(transformer)
    for mine, given in zip(there, (lora, parallel), strict=True):
        shapes = ({key: tuple(value.shape) for key, value in tensors.items()} for tensors in (mine, given))
        expected, actual = shapes
        if expected != actual:
            key = sorted(expected.items() ^ actual.items())[0][0]
            problem = (
                f"its modules don't fit: {key} is {actual.get(key, 'missing')}, expected {expected.get(key, 'none')}"
            )
            raise ModelError(where, problem, "take modules of the same settings")
        with torch.no_grad():
            for key, value in mine.items():
                value.copy_(given[key])


def counts(transformer: Any) -> dict[str, int]:
    """Count numbers in the LoRA matrices, in the parallel adapters, and in the backbone (its pooler counted, too)."""
    lora = sum(weight.numel() for name, weight in transformer.named_parameters() if ".lora_" in name)
    parallel = sum(weight.numel() for adapter in adapters(transformer) for weight in adapter.parameters())
    return {
        "lora": lora,
        "parallel_adapter": parallel,
        "backbone": sum(weight.numel() for weight in transformer.parameters()) - lora - parallel,
    }
