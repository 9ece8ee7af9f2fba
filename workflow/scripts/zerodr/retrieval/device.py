"""Choose the device of exact search, and of faiss."""

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


def faiss_gpus() -> int:
    """Count the GPUs that faiss can use: 0 with faiss-cpu, and where no GPU is visible."""
    import faiss

    return int(faiss.get_num_gpus())
