"""Move tensors to the device of a model without stopping the host."""

from collections.abc import Mapping

import torch
from torch import Tensor

Features = dict[str, Tensor]


def pinned(tensor: Tensor, device: str | torch.device) -> Tensor:
    """Return a tensor of the host in memory that a GPU reads by itself, where `device` is one."""
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu" and not tensor.is_pinned():
        return tensor.pin_memory()
    return tensor


def on_device(tensor: Tensor, device: str | torch.device) -> Tensor:
    """Copy a tensor of the host to `device`; to a GPU from pinned memory, while the host goes on."""
    return pinned(tensor, device).to(device, non_blocking=True)


def features_on(features: Mapping[str, Tensor], device: str | torch.device) -> Features:
    """Copy tensors of the host to `device`, as `on_device`."""
    return {name: on_device(tensor, device) for name, tensor in features.items()}
