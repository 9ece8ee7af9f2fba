"""Run the layers of a transformer through `torch.compile`, in place, where a training asks for it.

Each layer's forward pass is compiled, not the whole network: so every way into it is (a whole pass, T5's encoder
alone), and hooks on layers work as before. A compiled layer is of a subclass of its class, so a copy of the model
computes with the copy's weights, and files of weights stay as they are.

The numbers are not those of plain layers: kernels are fused, dropout draws others, and a GPU's kernels are chosen by
time. So a training that was cut off and continued may end with other last bits.
"""

import logging
import subprocess
from typing import Any

import torch
from torch import nn

from zerodr.training.distributed.processes import Group

log = logging.getLogger("zerodr")
SHAPES = 64  # compiled forms of a layer's code before torch takes the plain one: modes, arithmetic, sides of T5
TRIED = (16, 64)  # shape of the tensor that is tried


def compile_layers(model: nn.Module, device: str, group: Group | None = None, backend: str = "inductor") -> str | None:
    """Compile the forward pass of each layer of `model`, in place.

    Args:
        device: where it is.
        group: processes that train together; where one of them can't compile, none does.
        backend: of torch.compile.

    Returns:
        None when layers are compiled; else the reason why they are not, which is logged.
    """
    layers = layers_of(model)
    reason = None if layers else "no layers that torch.compile is known for"
    reason = reason or why_not_compiled(device, backend)
    if group is not None and group.any(reason is not None, device):
        reason = reason or "another process can't"
    if reason is not None:
        log.warning("layers are not compiled: %s", reason)
        return reason
    torch._dynamo.config.recompile_limit = SHAPES  # type: ignore[attr-defined]
    classes = {kind: compiled_class(kind, backend) for kind in {type(layer) for layer in layers}}
    for layer in layers:
        layer.__class__ = classes[type(layer)]
    log.info("%d layers are compiled", len(layers))
    return None


def layers_of(model: nn.Module) -> list[nn.Module]:
    """List the layers that transformers repeats: BERT's layers, T5's blocks."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def compiled_class(kind: type[nn.Module], backend: str) -> type[nn.Module]:
    """Make a subclass of a layer's class with a compiled forward pass, for texts of any number and length."""
    compiled = torch.compile(kind.forward, dynamic=True, backend=backend)

    def forward(layer: Any, *args: Any, **options: Any) -> Any:
        return compiled(layer, *args, **options)

    return type(f"Compiled{kind.__name__}", (kind,), {"forward": forward, "__module__": kind.__module__})


def why_not_compiled(device: str, backend: str = "inductor") -> str | None:
    """Compile a small function and run it with its gradient; return None when that works, else the reason."""
    if torch.device(device).type == "cpu" and backend == "inductor":
        return "the CPU has kernels of its own (oneDNN)"
    x = torch.linspace(-1, 1, TRIED[0] * TRIED[1], device=device).view(TRIED).requires_grad_()
    try:
        torch.compile(lambda values: torch.softmax(values, -1).square().sum(), backend=backend)(x).backward()
    except (RuntimeError, ImportError, OSError, subprocess.SubprocessError) as error:  # no compiler, no Triton
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"torch.compile does not work here ({first})"
    return None
