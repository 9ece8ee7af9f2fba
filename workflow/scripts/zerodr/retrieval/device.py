"""Choose the device of exact search."""

import os
from pathlib import Path

DRIVERS = ("/dev/nvidiactl", "/dev/dxg")


def search_device() -> str:
    """Return `cuda` when torch can use a GPU, else `cpu`. Torch is imported only where a driver is present."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "" or not any(Path(driver).exists() for driver in DRIVERS):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
