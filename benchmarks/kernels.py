"""Measure what the table of processors says: both ways of each column, and the row that this machine should have.

Processor time on one thread, in turn; the last number is how many times as fast the other way is, the median of the
rounds, and its range. benchmarks/kernels.md says how a row is added.

Run from the project's root: python benchmarks/kernels.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow/scripts"))
import torch
from torch.nn import functional

LAYERS = ((384, 384), (384, 1536), (1536, 384), (768, 768), (768, 3072), (3072, 768))
TOKENS, DOCUMENTS = 512, 4096
CLEARLY = 1.15  # times that the other way of a column must be faster
SAMPLE_S = 0.03  # processor time of one round of the usual way
Ways = tuple[Callable[[], Any], Callable[[], Any]]


def pairs() -> dict[str, tuple[str, str, Ways]]:
    """Make the usual and the other way of each comparison, by `column, shape`."""
    from zerodr.training.loop import speed

    found: dict[str, tuple[str, str, Ways]] = {}
    for inputs, outputs in LAYERS:
        x, weight, gradient = linear_tensors(inputs, outputs)
        step = partial(speed._gradients, x=x, weight=weight, bias=torch.ones(outputs), gradient=gradient)
        ways = partial(step, speed._Linear.apply), partial(step, functional.linear)
        found[f"linear, {inputs}x{outputs}"] = "onednn", "torch", ways
    single = linear_tensors(768, 768)
    half = [tensor.bfloat16() for tensor in single]
    training: Ways = (
        partial(speed._gradients, functional.linear, half[0], half[1], None, half[2]),
        partial(speed._gradients, functional.linear, single[0], single[1], None, single[2]),
    )
    found["bf16, training 512x768x768"] = "bf16", "fp32", training
    for width in (384, 768):
        queries, documents = (torch.linspace(-1, 1, n * width).view(n, width) for n in (TOKENS, DOCUMENTS))
        low = queries.bfloat16(), documents.bfloat16()
        product: Ways = lambda a=low: a[0] @ a[1].T, lambda a=(queries, documents): a[0] @ a[1].T
        found[f"bf16, search {TOKENS}x{width}x{DOCUMENTS}"] = "bf16", "fp32", product
    return found


def linear_tensors(inputs: int, outputs: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Make tokens, weights and gradients of a layer."""
    x, weight = (torch.linspace(-1, 1, n * inputs).view(n, inputs) for n in (TOKENS, outputs))
    return x, weight, torch.linspace(-1, 1, TOKENS * outputs).view(TOKENS, outputs)


def measure(usual: Callable[[], Any], other: Callable[[], Any], rounds: int) -> list[tuple[float, float]]:
    """Time both ways in turn: seconds of a call of each, by round."""
    usual(), other()
    calls = max(1, round(SAMPLE_S / max(seconds(usual, 1), 1e-6)))
    found = []
    for number in range(rounds):
        ways = (usual, other) if number % 2 == 0 else (other, usual)
        took = [seconds(way, calls) for way in ways]
        found.append((took[0], took[1]) if number % 2 == 0 else (took[1], took[0]))
    return found


def seconds(function: Callable[[], Any], calls: int) -> float:
    """Processor time of this thread, by call."""
    start = time.thread_time()
    for _ in range(calls):
        function()
    return (time.thread_time() - start) / calls


def main() -> None:
    """Print a line a comparison, and a row for the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    times: dict[str, list[float]] = {}
    for name, (usual, other, ways) in pairs().items():
        rounds = measure(*ways, options.rounds)
        ratios = sorted(a / b for a, b in rounds)
        times.setdefault(name.partition(",")[0], []).extend(ratios)
        first, second = (1e3 * statistics.median(column) for column in zip(*rounds, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        sys.stdout.write(f"{name:28} {usual:6} {first:8.1f} ms  {other:6} {second:8.1f} ms  {spread}\n")
        sys.stdout.flush()
    suggest({column: statistics.median(ratios) for column, ratios in times.items()})


def suggest(times: dict[str, float]) -> None:
    """Print the row that these times make, and the row that the machine has."""
    from zerodr.artifacts.processor import kind_of_machine, vendor_and_flags

    vendor, flags = vendor_and_flags()
    wide = sorted(flag for flag in flags if flag in ("avx512f", "avx512_bf16", "amx_bf16"))
    absent = not {"avx512_bf16", "amx_bf16"} & flags
    bf16 = "absent" if absent else "slower" if times["bf16"] >= CLEARLY else "faster"
    linear = "torch" if times["linear"] >= CLEARLY else "onednn"
    say = sys.stdout.write
    say(f"measured: vendor: {vendor}, flags: [{', '.join(wide)}], bf16: {bf16}, linear: {linear}\n")
    say(f"in config/kernels.yaml: {kind_of_machine()!r}\ntorch {torch.__version__}, 1 thread\n")


if __name__ == "__main__":
    main()
