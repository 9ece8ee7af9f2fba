"""LAMB exactly as ANCE's released code uses it (specs/modir-ance 2.8): no bias correction, weight norm cut at 10."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.optim import Optimizer


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
            beta1, beta2 = group["betas"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(weight), torch.zeros_like(weight)
                m, v = state["m"], state["v"]
                m.mul_(beta1).add_(weight.grad, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(weight.grad, weight.grad, value=1 - beta2)
                update = m / (v.sqrt() + group["eps"])
                if group["weight_decay"]:
                    update.add_(weight, alpha=group["weight_decay"])
                weight.add_(update * self._trust(weight, update, group["cut"]), alpha=-group["lr"])
        return loss

    @staticmethod
    def _trust(weight: Tensor, update: Tensor, cut: float) -> Tensor:
        weight_norm, update_norm = weight.norm().clamp(max=cut), update.norm()
        ratio = weight_norm / update_norm
        return torch.where((weight_norm > 0) & (update_norm > 0), ratio, torch.ones_like(ratio))
