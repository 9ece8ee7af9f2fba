"""Optimisers by name, and their moments as plain tensors."""

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from zerodr.config.training import TrainingSettings
from zerodr.training.optimization.lamb import Lamb


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
        optimizer.state[weight][key] = value.to(weight.device).clone()


def moments_fit(optimizer: Optimizer, saved: dict[str, Tensor]) -> bool:
    """Check that saved tensors are of this optimiser's weights: same numbers, same shapes."""
    weights = _weights(optimizer)
    numbers = {int(name.split(".")[0]) for name in saved}
    shapes = all(
        value.shape in ((), weights[int(name.split(".")[0])].shape)
        for name, value in saved.items()
        if int(name.split(".")[0]) < len(weights)
    )
    return numbers == set(range(len(weights))) and shapes


def _weights(optimizer: Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]
