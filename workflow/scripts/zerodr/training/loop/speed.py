"""Take the fastest exact arithmetic of a training run on this kind of processor.

On the CPU, torch's fp32 multiplications go through MKL, which on some processors takes slower kernels than oneDNN has.
`FastLinear` computes the three products of a linear layer with oneDNN, without changing the model's numbers. The
operator is private to torch: it is tried first, and where it is missing or wrong the plain layers stay, and the run
says so. They also stay on kinds of processors on which they are faster (config/kernels.yaml).
"""

import logging
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from zerodr.artifacts.processor import kind_of_job
from zerodr.encoders.folder.contract import Precision
from zerodr.encoders.inference.processor import keep_freed_memory
from zerodr.training.distributed.processes import Group

log = logging.getLogger("zerodr")
NEAR = 1e-4
PREPARED = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")  # oneDNN keeps memory for each shape of text that it has seen


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x weight^T + bias by oneDNN. x (n, in), weight (out, in), bias (out) -> (n, out)."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class _Linear(torch.autograd.Function):
    """x (n, in), weight (out, in), bias (out) or None -> (n, out)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)
        return multiply(x, weight, bias)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = tangents
        tangent = x.new_zeros(len(x), len(weight)) if dbias is None else dbias.expand(len(x), -1).clone()
        if dx is not None:
            tangent += multiply(dx.contiguous(), weight, None)
        if dweight is not None:
            tangent += multiply(x, dweight.contiguous(), None)
        return tangent

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        wanted = ctx.needs_input_grad
        return (
            multiply(gradient, weight.t().contiguous(), None) if wanted[0] else None,
            multiply(gradient.t(), x.t(), None) if wanted[1] else None,
            gradient.sum(0) if wanted[2] else None,
        )


class FastLinear(nn.Linear):
    """`nn.Linear` with the same weights, multiplied by oneDNN in fp32 on the CPU."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        if input.dtype != torch.float32 or torch.is_autocast_enabled("cpu") or input.device.type != "cpu":
            return functional.linear(input, self.weight, self.bias)
        flat = input.reshape(-1, self.in_features)
        if not len(flat):
            return functional.linear(input, self.weight, self.bias)
        return _Linear.apply(flat, self.weight, self.bias).view(*input.shape[:-1], self.out_features)


def why_not_fast() -> str | None:
    """None when `FastLinear` gives the same numbers as `nn.Linear` here, forward and backward; else the reason."""
    if not torch.backends.mkldnn.is_available():
        return "torch has no oneDNN"
    x, weight = torch.linspace(-1, 1, 96).view(6, 16), torch.linspace(-1, 1, 128).view(8, 16)
    bias, gradient = torch.ones(8), torch.linspace(0, 1, 48).view(6, 8)
    try:
        fast = _gradients(_Linear.apply, x, weight, bias, gradient)
    except (AttributeError, RuntimeError, NotImplementedError) as error:
        return f"torch's oneDNN multiplication is not available ({str(error).splitlines()[0]})"
    right = _gradients(functional.linear, x, weight, bias, gradient)
    same = all(torch.allclose(a, b, atol=NEAR, rtol=NEAR) for a, b in zip(fast, right, strict=True))
    return None if same else "torch's oneDNN multiplication gives other numbers"


def _gradients(function: Any, x: Tensor, weight: Tensor, bias: Tensor | None, gradient: Tensor) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in (x, weight, bias) if t is not None]
    output = function(*leaves, *([None] if bias is None else []))
    output.backward(gradient)
    return [output.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


class Kernels(NamedTuple):
    """Kernels of a training.

    Attributes:
        words: for lineage.
        unusual: what was chosen in place of the usual kernels, by name: a part of the training's identity, as a
            training that resumes must not go on with others.
    """

    words: str
    unusual: dict[str, str]

    @property
    def identity(self) -> dict[str, Any]:
        """What the kernels add to the facts that a training's identity is a digest of."""
        return {"kernels": self.unusual} if self.unusual else {}


def arithmetic(precision: Precision, device: str, group: Group | None = None) -> Precision:
    """Choose the arithmetic of a training run: `fp32` where `bf16` is wanted and a processor is slower in it.

    bf16 is wanted for speed alone. AMD's processors with AVX-512 BF16, and Intel's with AMX, multiply it faster than
    fp32; an Intel Xeon without AMX does so at half the speed. Other devices and precisions stay as they are.
    """
    if device != "cpu" or precision != "bf16" or _agreed(kind_of_job().bf16 == "faster", group):
        return precision
    log.info("fp32 in place of bf16: this kind of processor is slower in bf16")
    return "fp32"


def _agreed(flag: bool, group: Group | None) -> bool:
    """Return the first process's flag in all."""
    return flag if group is None else bool(group.from_first(lambda: [float(flag)], 1)[0])


def speed_up(
    model: nn.Module, device: str, precision: str, wanted: str | None = None, group: Group | None = None
) -> Kernels:
    """Choose kernels for training `model` in place.

    Args:
        model: its linear layers may be replaced.
        device: where it is.
        precision: its arithmetic.
        wanted: the arithmetic of the settings. None: `precision`.
        group: the training's processes.
    """
    if wanted not in (None, precision):
        words, unusual = speed_up(model, device, precision, group=group)
        return Kernels(f"{precision} in place of {wanted}; {words}", {"arithmetic": precision} | unusual)
    if device != "cpu":
        return Kernels("torch", {})
    keep_freed_memory()
    os.environ.setdefault(*PREPARED)
    for module in model.modules():  # the fused attention has no dropout and no bf16 kernel on the CPU
        if hasattr(module, "set_attn_implementation"):
            module.set_attn_implementation("eager")  # type: ignore[operator]
    if precision != "fp32":
        return Kernels("bf16 by oneDNN, plain attention", {})
    reason = why_not_fast()
    if reason:
        log.info("plain linear layers, not oneDNN's: %s", reason)
    if group is not None and group.any(reason is not None):
        reason = reason or "another process lacks oneDNN's"
    if reason:
        return Kernels(f"torch ({reason})", {"linear": "torch"})
    if _agreed(kind_of_job().linear == "torch", group):
        return Kernels("fp32 by torch, plain attention", {"linear": "torch"})
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = FastLinear
    return Kernels("fp32 by oneDNN, plain attention", {})


def set_dropout(model: nn.Module, rate: float) -> None:
    """Set the same dropout everywhere, also in modules that keep their rate as a number (attention's in most)."""
    for module, name in _dropouts(model):
        setattr(module, name, rate)


def dropout_rates(model: nn.Module) -> list[float]:
    """List the rates of dropout in a model."""
    return [getattr(module, name) for module, name in _dropouts(model)]


def _dropouts(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Find the modules that drop, and the attributes with their rates."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            yield module, "p"
        for name, value in list(vars(module).items()):
            if name.endswith("dropout") and type(value) in (float, int):  # `dropout` of T5, `attention_dropout`
                yield module, name
