"""Choose how many padded tokens an embedding batch may have: the setting on the CPU, by memory on a GPU.

On a GPU, one batch of the setting's size and of the longest texts runs first. Its peak memory is an upper estimate of
bytes a token, as attention needs most a token where texts are long. Batches that run at once get SHARE of the free
memory together. The choice is a power of two with an upper limit, so that jobs on one kind of GPU choose the same. A
resumed job keeps the choice of its first attempt: vectors of other batches may differ in the last bits.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from zerodr.artifacts.record import read_state, write_json
from zerodr.encoders.inference.encoder import GPU_WORKERS, BatchEncoder

log = logging.getLogger("zerodr")
CHOICE = "batch_tokens.json"
SHARE = 0.5  # of free memory; the rest is for fragments and for what the largest batch needs beyond the estimate
MOST, LEAST = 1 << 16, 64


class DeviceMemory(Protocol):
    """Memory of a device."""

    name: str

    def free(self) -> int:
        """Count bytes that can still be allocated."""

    def peak(self, work: Callable[[], Any]) -> int:
        """Run `work`; return the most bytes that it held at once."""


class GpuMemory:
    """Memory of the current GPU, as torch reports it."""

    def __init__(self) -> None:
        import torch  # not for the CPU, where it would be the only use

        self._cuda, self.name = torch.cuda, torch.cuda.get_device_name()

    def free(self) -> int:
        """Count bytes that can still be allocated, those that torch keeps for later included."""
        return self._cuda.mem_get_info()[0] + self._cuda.memory_reserved() - self._cuda.memory_allocated()

    def peak(self, work: Callable[[], Any]) -> int:
        """Run `work`; return the most bytes that it held at once."""
        before = self._cuda.memory_allocated()
        self._cuda.reset_peak_memory_stats()
        work()
        return self._cuda.max_memory_allocated() - before


def choose_tokens(
    encoder: BatchEncoder, longest: int, setting: int, state: Path, memory: Callable[[], DeviceMemory] = GpuMemory
) -> tuple[int, dict[str, Any]]:
    """Choose the padded tokens of a batch, and record the choice in `state`.

    Args:
        longest: tokens of the longest text.
        setting: tokens of a batch on the CPU, and of the batch that is measured.
        state: folder of the job's attempts.
        memory: of the GPU.

    Returns:
        tokens, and what the choice on a GPU follows from, for lineage: nothing on the CPU.
    """
    if encoder.device == "cpu":
        return setting, {}
    device, path = memory(), state / CHOICE
    if (facts := read_state(path)) and facts["device"] == device.name:
        return facts["tokens"], facts
    texts = [np.zeros(longest, np.int32)] * max(1, setting // longest)
    bytes_a_token = -(-device.peak(lambda: encoder.encode_batch(texts)) // (longest * len(texts)))
    free = device.free()
    affordable = int(SHARE * free / GPU_WORKERS / max(1, bytes_a_token))
    tokens = 1 << max(LEAST, min(MOST, affordable)).bit_length() - 1
    facts = {"tokens": tokens, "device": device.name, "bytes_a_token": bytes_a_token, "free_bytes": free}
    write_json(path, facts)
    message = "batches of %d tokens: %s has %.1f GiB free, a token takes %d bytes"
    log.info(message, tokens, device.name, free / 2**30, bytes_a_token)
    return tokens, facts
