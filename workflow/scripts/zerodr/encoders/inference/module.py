"""Compute vectors by a tower of torch, on any device."""

import numpy as np
import torch

from zerodr.encoders.folder.contract import Precision
from zerodr.encoders.network.moving import on_device, to_host
from zerodr.encoders.network.towers import DTYPES, Tower


class TowerPass:
    """`TowerPass(tower, precision, device)(ids, mask)`: vectors of a batch, without gradients.

    Args:
        tower: its transformer is moved and converted; pooling and projections stay float32.
        precision: arithmetic of the transformer.
        device: `cpu`, `cuda`, ...
    """

    def __init__(self, tower: Tower, precision: Precision, device: str) -> None:
        self._tower, self._device = tower.to(device), device
        tower.transformer.to(DTYPES[precision])

    def __call__(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Map ids, mask (B, L) int64 -> vectors (B, D) float32."""
        with torch.inference_mode():
            tensors = [on_device(torch.from_numpy(array), self._device) for array in (ids, mask)]
            vectors = self._tower.vectors(self._tower.hidden(*tensors), tensors[1])
            return to_host(vectors.float()).numpy()
