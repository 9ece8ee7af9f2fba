"""Optimisers by name, their moments as plain tensors, and learning rate factors by finished steps.

LAMB is exactly as ANCE's released code uses it: no bias correction, weight norm cut at 10. Steps count over all
episodes, so schedules survive them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from zerodr.config.training import TrainingSettings

Kind = TypeVar("Kind", bound=Tensor)
PORTION = 1 << 24  # elements that are updated, or travel, together: 64 MiB in float32
Schedule = Callable[[int], float]


class Lamb(Optimizer):
    """Layer-wise adaptive moments.

    Per tensor W: m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; u = m / (sqrt(v) + eps) + decay W;
    W -= lr * trust * u with trust = min(|W|, cut) / |u|, or 1 when either norm is 0.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        cut: float = 10.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "cut": cut})

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # type: ignore[override]
        """One update of every tensor that has a gradient."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for weights in portions([weight for weight in group["params"] if weight.grad is not None]):
                self._update(weights, group)
        return loss

    def _update(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """Update some tensors, each operation for all of them at once."""
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {"m": torch.zeros_like(weight), "v": torch.zeros_like(weight)}
        m, v = ([self.state[weight][name] for weight in weights] for name in ("m", "v"))
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        beta1, beta2 = group["betas"]
        torch._foreach_mul_(m, beta1)
        torch._foreach_add_(m, gradients, alpha=1 - beta1)
        torch._foreach_mul_(v, beta2)
        torch._foreach_addcmul_(v, gradients, gradients, value=1 - beta2)
        scale = torch._foreach_sqrt(v)
        torch._foreach_add_(scale, group["eps"])
        updates = list(torch._foreach_div(m, scale))
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        torch._foreach_mul_(updates, self._trust(weights, updates, group["cut"]))  # type: ignore[arg-type]
        torch._foreach_add_(weights, updates, alpha=-group["lr"])

    @staticmethod
    def _trust(weights: list[Tensor], updates: list[Tensor], cut: float) -> list[Tensor]:
        """Compute the trust of each tensor, scalars."""
        norms, update_norms = (torch.stack(torch._foreach_norm(tensors)) for tensors in (weights, updates))
        ratios = norms.clamp(max=cut) / update_norms
        return list(torch.where((norms > 0) & (update_norms > 0), ratios, 1.0).unbind())


def portions(tensors: Iterable[Kind], most: int = PORTION) -> Iterator[list[Kind]]:
    """Cut a list into stretches of at most `most` elements, or of one tensor: they bound the memory of an update."""
    portion: list[Kind] = []
    size = 0
    for tensor in tensors:
        if portion and size + tensor.numel() > most:
            yield portion
            portion, size = [], 0
        portion.append(tensor)
        size += tensor.numel()
    if portion:
        yield portion


def make_optimizer(model: nn.Module, settings: TrainingSettings) -> Optimizer:
    """Make AdamW (fused kernels) or ANCE's LAMB over the weights that are trained.

    Weight decay spares vectors (biases, gains of normalisation).
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices, vectors = [p for p in trained if p.ndim > 1], [p for p in trained if p.ndim <= 1]
    groups = [
        {"params": weights, "weight_decay": decay}
        for weights, decay in ((matrices, settings.weight_decay), (vectors, 0.0))
        if weights
    ]
    if settings.optimizer == "lamb":
        return Lamb(groups, lr=settings.learning_rate)
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)


def make_scaler(settings: TrainingSettings, device: str) -> torch.amp.GradScaler:
    """Loss scaling: only fp16 needs it; otherwise it passes values through."""
    return torch.amp.GradScaler(torch.device(device).type, enabled=settings.precision == "fp16")


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Return the learning rate of the next update."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def moments(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return all state tensors, named `<number of the weight>.<key>`."""
    return {
        f"{number}.{key}": value
        for number, weight in enumerate(_weights(optimizer))
        for key, value in optimizer.state.get(weight, {}).items()
    }


def load_moments(optimizer: Optimizer, saved: dict[str, Tensor]) -> None:
    """Restore the state of `moments`, on the weights' devices."""
    weights = _weights(optimizer)
    optimizer.state.clear()
    for name, value in saved.items():
        number, key = name.split(".")
        weight = weights[int(number)]
        # Loaded tensors may share the file's memory; updates in place need memory of their own.
        optimizer.state[weight][key] = value.to(weight.device).clone()


def moments_fit(optimizer: Optimizer, saved: dict[str, Tensor]) -> bool:
    """Check that saved tensors are of this optimiser and its weights: same names, same shapes."""
    names = ("m", "v") if isinstance(optimizer, Lamb) else ("step", "exp_avg", "exp_avg_sq")
    shapes = {f"{n}.{name}": weight.shape for n, weight in enumerate(_weights(optimizer)) for name in names}
    return saved.keys() == shapes.keys() and all(value.shape in ((), shapes[key]) for key, value in saved.items())


def _weights(optimizer: Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def schedule(kind: Literal["linear", "constant"], warmup_steps: int, total_steps: int) -> Schedule:
    """Factor on the learning rate for the update after `k` finished steps.

    Linear warm-up from 0 over `warmup_steps`; then `linear` falls to 0 at `total_steps`, `constant` stays at 1.
    With warm-up, the first update has learning rate 0, as in ANCE's released code.
    """

    def factor(finished: int) -> float:
        if finished < warmup_steps:
            return finished / warmup_steps
        if kind == "constant":
            return 1.0
        return max(0.0, (total_steps - finished) / max(1, total_steps - warmup_steps))

    return factor
