"""Move tensors to the device of a model without stopping the host, and back while waiting for nothing else."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from zerodr.encoders.network.tokenizing import padded

Features = dict[str, Tensor]


def pad(rows: Sequence[Sequence[int] | np.ndarray], padding: int) -> tuple[Tensor, Tensor]:
    """Pad rows on the right to ids (B, L) int64 and mask (B, L) of 0 and 1; L is the longest length, at least 1."""
    ids, there = padded(rows, padding)
    return torch.from_numpy(ids), torch.from_numpy(there.astype(np.int64))


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


def to_host(tensor: Tensor) -> Tensor:
    """Copy a tensor to the host; from a GPU into pinned memory, waiting without work of the processor for this copy.

    What other threads queued on the GPU after it is not waited for, and they may queue more meanwhile.
    """
    if not tensor.is_cuda:
        return tensor.cpu()
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    copied = torch.cuda.Event(blocking=True)
    copied.record(torch.cuda.current_stream(tensor.device))
    copied.synchronize()
    return host
