"""Rows of throughput: products, training, its optimiser, a peer's trainer. Steps that warm up do not count."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from unittest import mock

import torch
from train import fit_peer

from gpu_check.check import Check, deterministic
from gpu_check.lessons import HEAD_LAYERS, LESSONS, engine, pairs
from gpu_check.report import Facts

PRECISIONS = {"bf16": torch.bfloat16, "fp32": torch.float32}
PEERS = ("sentence_transformers", "datasets", "accelerate")  # of its trainer
FUSED_BATCH = {True: 2, False: 16}  # queries of a step (MoMA), by `tiny`


def product(check: Check, precision: str) -> Facts:
    """Measure the largest rate of a matrix product, which shares of the peak refer to."""
    size, dtype = 256 if check.tiny else 8192, PRECISIONS[precision]
    a, b = (torch.randn(size, size, device=check.device, dtype=dtype) for _ in range(2))
    check.peak[precision] = 2 * size**3 / check.clock(lambda: a @ b, 10)
    return {"tera_flops": check.peak[precision] / 1e12}


@dataclass
class Watch:
    """The steps of a training: when each ended, how long it waited for data, what was in it.

    Args:
        check: of the device; it is waited for where the measurement begins and ends.
        warm: steps before the measurement; steps: all of them.
    """

    check: Check
    warm: int
    steps: int
    ended: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    lengths: list[list[int]] = field(default_factory=list)

    def mark(self) -> None:
        """Note that a step ended."""
        if len(self.ended) + 1 in (self.warm, self.steps):
            self.check.wait()
        self.ended.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """Seconds of the measured steps."""
        return self.ended[self.steps - 1] - self.ended[self.warm - 1]

    @property
    def seconds_a_step(self) -> float:
        """Seconds of one measured step."""
        return self.seconds / (self.steps - self.warm)

    @property
    def measured(self) -> list[int]:
        """Tokens of each text of the measured steps."""
        return [length for step in self.lengths[self.warm :] for length in step]

    def facts(self) -> Facts:
        """Rate and waiting."""
        waited = sum(self.waits[self.warm :]) / self.seconds
        rate = sum(self.measured) / self.seconds
        return {"tokens_per_second": rate, "waited_for_data": waited, "seconds_a_step": self.seconds_a_step}


def lengths_of(shares: list[Any]) -> list[int]:
    """List the tokens of each text of a step; of a fused query, of its documents, too. Equal texts count once."""
    found = []
    for share in shares:
        documents = set()
        for row in share.texts.tokens:
            found.append(len(getattr(row, "query", row)))
            documents |= {tuple(ids) for ids in getattr(row, "documents", ())}
        found += [len(ids) for ids in documents]
    return found


@contextmanager
def watched(made: Any, watch: Watch) -> Iterator[None]:
    """Let `watch` see the steps of an engine that trains inside."""
    from zerodr.training.loop import engine as loop

    plain = made.objective.on_step

    class Seen(loop.Feed):  # type: ignore[misc,name-defined]
        def get(self, step: int) -> Any:
            started = time.perf_counter()
            prepared = super().get(step)
            watch.waits.append(time.perf_counter() - started)
            watch.lengths.append(lengths_of(prepared))
            return prepared

    def on_step(finished: int) -> Mapping[str, Any]:
        facts = plain(finished)
        watch.mark()
        return facts

    made.objective.on_step = on_step
    with mock.patch.object(loop, "Feed", Seen):
        yield


def train(check: Check, name: str, **settings: Any) -> Facts:
    """Train in bf16: tokens a second, share of the peak, waiting, peak memory; LAMB's share of a step."""
    batch = FUSED_BATCH[check.tiny] if name == "moma" else check.batch // (2 if name == "coco" else 1)
    watch = Watch(check, check.warm, check.warm + check.steps)
    with deterministic(check.device):
        made = engine(check, LESSONS[name], batch, precision="bf16", **settings)
        with watched(made, watch):
            memory = check.peak_gib(made.fit)
        facts = watch.facts()
        if settings.get("optimizer") == "lamb":
            facts["optimizer_share"] = check.clock(made.optimizer.step, check.steps) / watch.seconds_a_step
    more = HEAD_LAYERS if name == "coco" else 0
    operations = 3 * check.operations(watch.measured, more, name == "moma")  # a backward pass counts as two
    return facts | {"share_of_peak": check.share_of_peak(operations / watch.seconds, "bf16"), "peak_gib": memory}


def trainer(check: Check) -> Facts:
    """Compare with sentence-transformers' trainer: the same network, pairs and batch, in bf16, AdamW, clipping."""
    for name in PEERS:
        import_module(name)
    batch, total = check.batch // 2, check.warm + check.steps
    ours, theirs = Watch(check, check.warm, total), Watch(check, check.warm, total)
    folder, half = check.model_folder("bert"), check.pool // 2
    data = list(zip(check.texts[:half], check.texts[half:], strict=True)) * -(-batch * total // half)
    memory = check.peak_gib(
        lambda: fit_peer(folder, data, "bf16", check.device, batch, check.length, total, theirs.mark)
    )
    with deterministic(check.device):
        made = engine(check, pairs, batch, precision="bf16")
        with watched(made, ours):
            made.fit()
    return {
        "times_sentence_transformers": theirs.seconds_a_step / ours.seconds_a_step,
        "seconds_a_step": ours.seconds_a_step,
        "their_seconds_a_step": theirs.seconds_a_step,
        "their_peak_gib": memory,
    }
