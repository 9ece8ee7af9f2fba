"""The device that is checked, sizes of models and data, clocks; models of random weights, made once in a folder."""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

SEED = 13
POOLINGS = {"bert": "cls", "t5": "decoder_first"}


@dataclass
class Check:
    """One device.

    Attributes:
        tiny: small sizes, to try the check itself.
        folder: of models and states.
        texts: each of `length` words.
        peak: multiplications and additions a second that were measured, by precision.
    """

    device: str
    tiny: bool
    folder: Path
    texts: list[str] = field(default_factory=list, repr=False)
    peak: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.layers, self.hidden, self.heads, self.vocabulary = (2, 32, 2, 1000) if self.tiny else (12, 768, 12, 30522)
        self.length, self.batch, self.pool = (32, 8, 256) if self.tiny else (128, 256, 2048)
        self.warm, self.steps = (1, 2) if self.tiny else (4, 20)  # steps before and in a measurement

    @property
    def on_gpu(self) -> bool:
        """Tell whether the device is a GPU."""
        return self.device != "cpu"

    def name(self) -> str:
        """Name the device."""
        if self.on_gpu:
            return torch.cuda.get_device_name(self.device)
        models = [
            line
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ]
        return f"CPU ({models[0].partition(': ')[2]})" if models else "CPU"

    def new_folder(self, name: str) -> Path:
        """Make a folder for one training or choice."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))

    def free(self) -> None:
        """Remove what rows left: memory of the device, and all folders but those of models."""
        gc.collect()
        if self.on_gpu:
            torch.cuda.empty_cache()
        for folder in self.folder.iterdir():
            if folder.name not in POOLINGS and folder.is_dir():
                shutil.rmtree(folder)

    def wait(self) -> None:
        """Let the device finish."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def clock(self, work: Callable[[], Any], times: int = 1) -> float:
        """Measure seconds of one `work`, after one that warms up."""
        work()
        self.wait()
        start = time.perf_counter()
        for _ in range(times):
            work()
        self.wait()
        return (time.perf_counter() - start) / times

    def peak_gib(self, work: Callable[[], Any]) -> float | None:
        """Run `work`; return the most GiB that the GPU held meanwhile, models included. None on the CPU."""
        if not self.on_gpu:
            work()
            return None
        torch.cuda.reset_peak_memory_stats()
        work()
        return torch.cuda.max_memory_allocated() / 2**30

    def share_of_peak(self, operations_a_second: float, precision: str) -> float | None:
        """Return the part of the measured rate of matrix products; None where that was not measured."""
        return operations_a_second / self.peak[precision] if precision in self.peak else None

    def operations(self, lengths: list[int], more_layers: int = 0, cross: bool = False) -> float:
        """Count the operations of one forward pass over texts of these tokens: products of the layers alone.

        Args:
            more_layers: of a head.
            cross: a decoder's keys and values of all tokens (T5).
        """
        each = 24 + 4 * cross
        tokens, squares = sum(lengths), sum(length * length for length in lengths)
        return (self.layers + more_layers) * (each * self.hidden**2 * tokens + 4 * self.hidden * squares)

    def model(self, family: str = "bert", kind: Any = None, precision: str = "fp32") -> Any:
        """Load a bi-encoder with the random weights of its family."""
        from zerodr.encoders.network.trainable import BiEncoder

        return (kind or BiEncoder).load(self.model_folder(family), precision)

    def model_folder(self, family: str) -> Path:
        """Return the folder of a family's model; it is made the first time."""
        from zerodr.config.training import Architecture
        from zerodr.encoders.folder.contract import EncoderContract
        from zerodr.encoders.network.towers import Tower
        from zerodr.encoders.network.trainable import BiEncoder
        from zerodr.encoders.start.scratch import random_transformer, train_tokenizer

        folder = self.folder / family
        if folder.exists():
            return folder
        size = Architecture(family=family, hidden=self.hidden, layers=self.layers, heads=self.heads)  # type: ignore[arg-type]
        tokenizer = train_tokenizer(family, lambda: self.texts, self.vocabulary)
        transformer = random_transformer(size, tokenizer, POOLINGS[family], SEED)
        contract = EncoderContract(
            pooling=POOLINGS[family],  # type: ignore[arg-type]
            normalize=False,
            similarity="dot",
            max_tokens=self.length,
            dimension=self.hidden,
            architecture=type(transformer).__name__,
            source="benchmarks/gpu.py",
        )
        partial = folder.with_name(f".{family}.making")
        BiEncoder(contract, tokenizer, {"shared": Tower(transformer, contract, {})}).save(partial)
        return partial.replace(folder)


@contextmanager
def deterministic(device: str) -> Iterator[None]:
    """Choose the deterministic kernels that a training takes on a GPU (training/jobs.py)."""
    if device == "cpu":
        yield
        return
    from zerodr.training.jobs import repeat_bits

    repeat_bits()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
