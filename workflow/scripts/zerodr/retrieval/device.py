"""Choose the device of exact search."""

import os
from pathlib import Path

DRIVERS = ("/dev/nvidiactl", "/dev/dxg")


def search_device() -> str:
    """Return `cuda` when torch can use a GPU, else `cpu`. Torch is imported only where a driver is present."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "" or not driver_present():
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def driver_present() -> bool:
    """Report whether a driver of an NVIDIA GPU is loaded."""
    return any(Path(driver).exists() for driver in DRIVERS)
