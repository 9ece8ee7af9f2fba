"""Move tensors to the device of a model without stopping the host."""

import torch
from torch import Tensor


def on_device(tensor: Tensor, device: str | torch.device) -> Tensor:
    """Copy a tensor of the host to `device`; to a GPU from pinned memory, while the host goes on."""
    target = torch.device(device)
    if target.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(target, non_blocking=True)
