"""Cost of encoding with DDR's exported model over its backbone's, paired; and of the modular form beside it.

BERT-base with random weights (the shapes decide the cost), LoRA of rank 192 and parallel adapters of 192 units, both
with random weights too. Passages of 128 tokens, fp32. The exported model is a plain BertModel whose feed-forward blocks
have 192 more units. One process; each round encodes one batch with every model, in an order that changes from round to
round.

Run from the project's root: python benchmarks/ddr.py [--rounds 9] [--batch 16] [--threads 2]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

from idro import LENGTH, ROOT, say

sys.path.insert(0, str(ROOT / "workflow" / "scripts"))
PLAIN, EXPORTED, MODULAR = "backbone", "exported", "modular"


def models() -> dict[str, Any]:
    """The backbone, with the modules inserted, and that made plain."""
    import torch
    from transformers import BertConfig, BertModel

    from zerodr.papers.ddr.folding import folded
    from zerodr.papers.ddr.inserting import insert
    from zerodr.papers.ddr.settings import RemSettings

    torch.manual_seed(0)
    plain, modular, settings = BertModel(BertConfig()), BertModel(BertConfig()), RemSettings(shape="both")
    modular.load_state_dict(plain.state_dict())
    insert(modular, settings, 1)
    with torch.no_grad():
        for weight in modular.parameters():
            if weight.requires_grad:
                weight += 0.02 * torch.randn_like(weight)
    made = {PLAIN: plain, EXPORTED: folded("random BERT-base", modular, settings), MODULAR: modular}
    return {name: model.eval() for name, model in made.items()}


def seconds(model: Any, ids: Any) -> tuple[float, float]:
    """Wall and processor time of one pass."""
    import torch

    wall, processor = time.perf_counter(), time.process_time()
    with torch.inference_mode():
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    return time.perf_counter() - wall, time.process_time() - processor


def report(batch: int, rounds: int, threads: int) -> None:
    """Ratios to the backbone."""
    import torch

    torch.set_num_threads(threads)
    every = models()
    ids = torch.randint(1000, 30000, (batch, LENGTH), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        one, other = (every[name](input_ids=ids[:2]).last_hidden_state for name in (MODULAR, EXPORTED))
    say(f"largest difference of exported and modular states: {float((one - other).abs().max() / one.abs().max()):.1e}")
    names, seen = list(every), {name: list[tuple[float, float]]() for name in every}
    for name in names:
        seconds(every[name], ids)  # warm
    for number in range(rounds):
        for name in names[number % 3 :] + names[: number % 3]:
            seen[name].append(seconds(every[name], ids))
        say(f"round {number + 1}: " + ", ".join(f"{name} {seen[name][-1][0]:.3f} s" for name in names))
    say(f"BERT-base, batch {batch}, {LENGTH} tokens, {threads} threads, fp32")
    for place, what in ((0, "wall"), (1, "processor")):
        for name in (EXPORTED, MODULAR):
            ratios = [own[place] / plain[place] for own, plain in zip(seen[name], seen[PLAIN], strict=True)]
            told = ", ".join(f"{ratio:.3f}" for ratio in ratios)
            say(f"{name} / {PLAIN}, {what} time: {statistics.median(ratios):.3f} x (rounds: {told})")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    report(args.batch, args.rounds, args.threads)


if __name__ == "__main__":
    main()
