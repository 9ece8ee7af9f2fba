"""Check that a GPU gives the CPU's results, and measure what it does a second: `make check-gpu`.

Models have BERT-base's and T5-base's shapes and random weights, so nothing is downloaded. Texts are SQuAD's where the
mirror has them, else made from the seed. It prints one line a check and writes the same as JSON.

Run from the project's root: python benchmarks/gpu.py [--device cuda] [--tiny] [--json gpu.json]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import feed
import numpy as np
import torch
from train import quiet, say

Row = dict[str, Any]
COSINE, GRADIENT = 0.999, 2e-2  # smallest likeness of vectors, largest relative difference of gradients, in float32


@dataclass
class Check:
    """One run on one device.

    Attributes:
        peak: measured multiplications and additions a second, by dtype.
    """

    device: str
    tiny: bool
    folder: Path
    rows: list[Row] = field(default_factory=list)
    peak: dict[str, float] = field(default_factory=dict)
    tokenizers: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.layers, self.hidden, self.heads = (2, 32, 2) if self.tiny else (12, 768, 12)
        self.length, self.batch, self.steps = (32, 8, 2) if self.tiny else (128, 256, 10)
        self.texts = [" ".join(text.split()[: self.length]) for text in texts(256 if self.tiny else feed.POOL)]

    def add(self, name: str, **facts: Any) -> None:
        """Note a row, and print it."""
        self.rows.append({"what": name} | facts)
        shown = ", ".join(f"{key} {_short(value)}" for key, value in facts.items())
        say(f"{name}: {shown}")

    def clock(self, work: Callable[[], Any], times: int) -> float:
        """Seconds of one `work`, after one that warms up."""
        work()
        self.wait()
        start = time.perf_counter()
        for _ in range(times):
            work()
        self.wait()
        return (time.perf_counter() - start) / times

    def wait(self) -> None:
        """Let the device finish."""
        if self.device != "cpu":
            torch.cuda.synchronize()

    def share_of_peak(self, tokens: float, passes: int, dtype: str) -> float:
        """MFU of `tokens` a second of the transformer's layers; a backward pass counts as two."""
        each = self.layers * (24 * self.hidden**2 + 4 * self.length * self.hidden)
        return tokens * each * passes / self.peak[dtype]

    def model(self, family: str = "bert", kind: Any = None) -> Any:
        """A bi-encoder with random weights."""
        from zerodr.config.training import Architecture
        from zerodr.encoders.folder.contract import EncoderContract
        from zerodr.encoders.network.towers import Tower
        from zerodr.encoders.network.trainable import BiEncoder
        from zerodr.encoders.start.scratch import random_transformer
        from zerodr.encoders.start.vocabulary import train_tokenizer

        pooling = "cls" if family == "bert" else "decoder_first"
        size = Architecture(family=family, hidden=self.hidden, layers=self.layers, heads=self.heads)
        if family not in self.tokenizers:
            words = 1000 if self.tiny else size.vocabulary
            self.tokenizers[family] = train_tokenizer(family, lambda: self.texts, words)
        tokenizer = self.tokenizers[family]
        transformer = random_transformer(size, tokenizer, pooling, 13)
        contract = EncoderContract(
            pooling=pooling,
            normalize=False,
            similarity="dot",
            max_tokens=self.length,
            query_tokens=self.length,
            dimension=self.hidden,
            towers="tied",
            architecture=type(transformer).__name__,
            source="benchmarks/gpu.py",
            projections=(),
        )
        return (kind or BiEncoder)(contract, tokenizer, {"shared": Tower(transformer, contract, {})})


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def texts(count: int) -> list[str]:
    """SQuAD's passages, else words made from the seed."""
    try:
        return feed.passages(count)
    except SystemExit:
        random = np.random.default_rng(13)
        words = ["".join(random.choice(list("abcdefghijklmnoprstuvwz"), random.integers(2, 9))) for _ in range(5000)]
        return [" ".join(random.choice(words, 300)) for _ in range(count)]


def measure_peak(check: Check) -> None:
    """Largest rate of a matrix product, by dtype."""
    size = 256 if check.tiny else 8192
    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        a, b = (torch.randn(size, size, device=check.device, dtype=dtype) for _ in range(2))
        check.peak[name] = 2 * size**3 / check.clock(lambda a=a, b=b: a @ b, 10)
        check.add(f"matrix product, {name}", tera_flops=check.peak[name] / 1e12)


def engine(check: Check, name: str, precision: str, device: str, state: str, **changes: Any) -> Any:
    """The engine of one kind of training, with a model of its own."""
    from zerodr.config.training import TrainingSettings
    from zerodr.training.loop.engine import Engine, Run
    from zerodr.training.loop.speed import set_dropout, speed_up
    from zerodr.training.objectives.ranking import InfoNCE
    from zerodr.training.optimization.optimizers import make_optimizer
    from zerodr.training.optimization.schedules import schedule
    from zerodr.training.pretraining.span_forward import make_span_objective

    folder = check.folder / f"{name}-{precision}-{device}-{len(list(check.folder.iterdir()))}"
    folder.mkdir()
    model = check.model()
    model.precision = precision
    batch = changes.pop("batch_queries", check.batch)
    objective: Any = InfoNCE()
    if name == "queries":
        forward, stream = feed.finetuning(batch, folder, model, check.texts)
    else:
        options = {"max_tokens": check.length}
        forward, stream = feed.pretraining(
            name, batch // (2 if name == "coco" else 1), folder, model, check.texts, **options
        )
        objective = make_span_objective(forward.maker.settings)
        batch = batch // (2 if name == "coco" else 1)
    forward.device = device
    forward.model.to(device).train()
    set_dropout(forward.model, changes.pop("dropout", 0.1))
    speed_up(forward.model, device, precision)
    fixed = {"steps": check.steps, "batch_queries": batch, "learning_rate": 1e-4, "checkpoint_steps": 10**6}
    settings = TrainingSettings(**(fixed | {"precision": precision} | changes))
    optimizer = make_optimizer(forward.model, settings)
    run = Run(name, check.folder / state, "x", [13, 0])
    return Engine(forward, objective, stream, optimizer, schedule("constant", 0, 10**6), settings, run)


def check_gradients(check: Check) -> None:
    """Loss and gradients of one step, on the device and on the CPU."""
    from zerodr.training.loop.gradcache import add_gradients

    for name in ("queries", "coco", "mlm"):
        losses, gradients = [], []
        for device in ("cpu", check.device):
            made = engine(check, name, "fp32", device, f"gradients-{device}", dropout=0.0, batch_queries=8)
            terms = add_gradients(made.forward, made.objective, made._shares(0)[0], made.group, [0])
            losses.append(float(sum(float(value) for value in terms.values())))
            gradients.append(torch.cat([p.grad.flatten().cpu() for p in made.weights if p.grad is not None]))
        apart = float((gradients[0] - gradients[1]).norm() / gradients[0].norm())
        check.add(
            f"one step of {name}",
            cpu_loss=losses[0],
            device_loss=losses[1],
            gradients_apart=apart,
            right=apart < GRADIENT and abs(losses[0] - losses[1]) < GRADIENT * abs(losses[0]),
        )


def check_resume(check: Check) -> None:
    """A training that was cut off and continued, against one that was not."""
    whole = engine(check, "queries", "fp32", check.device, "whole", batch_queries=8, steps=4, checkpoint_steps=2)
    whole.fit()
    cut = engine(check, "queries", "fp32", check.device, "cut", batch_queries=8, steps=4, checkpoint_steps=2)
    prepared = cut._shares

    def broken(step: int) -> Any:
        if step == 3:
            raise KeyboardInterrupt
        return prepared(step)

    cut._shares = broken
    try:
        cut.fit()
    except KeyboardInterrupt:
        pass
    rest = engine(check, "queries", "fp32", check.device, "cut", batch_queries=8, steps=4, checkpoint_steps=2)
    rest.fit()
    same = all(torch.equal(a, b) for a, b in zip(whole.weights, rest.weights, strict=True))
    check.add("cut off and resumed", right=same)


def check_search(check: Check) -> None:
    """Exact search: ranks of the device against the CPU's, bit by bit, and queries a second."""
    from zerodr.retrieval.exact import search_exact
    from zerodr.retrieval.gpu import search_gpu
    from zerodr.retrieval.vectors import Vectors

    count, asked, depth = (2000, 20, 10) if check.tiny else (1_000_000, 1000, 1000)
    random = np.random.default_rng(13)
    corpus, queries = (random.standard_normal((n, check.hidden)).astype(np.float32) for n in (count, asked))
    ranks, few = np.arange(count, dtype=np.int32), Vectors(queries[:20])
    ours = list(search_gpu(few, Vectors(corpus), ranks, depth, None, 2, check.device))
    plain = list(search_exact(few, Vectors(corpus), ranks, depth, None, 2))
    same = all(
        np.array_equal(a.rows, b.rows) and np.array_equal(a.scores, b.scores) for a, b in zip(ours, plain, strict=True)
    )
    seconds = check.clock(
        lambda: list(search_gpu(Vectors(queries), Vectors(corpus), ranks, depth, None, 8, check.device)), 1
    )
    facts: Row = {"right": same, "queries_per_second": asked / seconds}
    if find_spec("faiss"):
        import faiss

        index = faiss.IndexFlatIP(check.hidden)
        where = "cpu"
        if check.device != "cpu" and hasattr(faiss, "StandardGpuResources"):
            index, where = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index), "gpu"
        index.add(corpus)
        facts |= {f"times_faiss_{where}": check.clock(lambda: index.search(queries, depth), 1) / seconds}
    check.add("exact search", **facts)


def check_encode(check: Check) -> None:
    """Vectors of the device and of the CPU, and tokens a second against sentence-transformers."""
    from zerodr.encoders.inference.encoder import load_encoder
    from zerodr.encoders.inference.parallel import encode_batches
    from zerodr.retrieval.batching import plan_batches
    from zerodr.retrieval.budget import choose_tokens

    check.model().save(check.folder / "encoder")
    many = check.texts
    for precision in ("fp32", "bf16"):
        encoder = load_encoder(check.folder / "encoder", precision, check.device)
        plain = load_encoder(check.folder / "encoder", "fp32", "cpu")
        tokens = encoder.tokenize(many)
        few = [tokens[row] for row in range(8)]
        a, b = encoder.encode_batch(few), plain.encode_batch(few)
        cosine = float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())
        longest = int(tokens.lengths.max())
        batch_tokens, _ = choose_tokens(encoder, longest, 4096, check.folder / f"choice-{precision}")
        batches = plan_batches(tokens.lengths, batch_tokens)
        seconds = check.clock(lambda e=encoder, t=tokens, p=batches: list(encode_batches(e, t, p, 2)), 1)
        rate = float(tokens.lengths.sum()) / seconds
        facts: Row = {"right": cosine > COSINE, "cosine": cosine, "tokens_per_second": rate}
        facts |= {"share_of_peak": check.share_of_peak(rate, 1, precision), "batch_tokens": batch_tokens}
        if find_spec("sentence_transformers"):
            from sentence_transformers import SentenceTransformer

            peer = SentenceTransformer(str(check.folder / "encoder"), device=check.device)
            facts["times_sentence_transformers"] = check.clock(lambda p=peer: p.encode(many), 1) / seconds
        check.add(f"encode, {precision}", **facts)


def check_training(check: Check) -> None:
    """Tokens a second of training, waiting, peak memory."""
    for name, changes in (("queries", {}), ("queries", {"optimizer": "lamb"}), ("coco", {}), ("mlm", {})):
        made = engine(check, name, "bf16", check.device, f"train-{name}-{len(check.rows)}", **changes)
        if check.device != "cpu":
            torch.cuda.reset_peak_memory_stats()
        made.fit()
        tokens = sum(
            len(row) for step in range(check.steps) for share in made._shares(step) for row in share.texts.tokens
        )
        rate = tokens / made.seconds
        memory = torch.cuda.max_memory_allocated() / 2**30 if check.device != "cpu" else None
        check.add(
            f"train {name} {changes.get('optimizer', '')}".strip(),
            tokens_per_second=rate,
            share_of_peak=check.share_of_peak(rate, 3, "bf16"),
            waited_for_data=made.waiting(),
            peak_gib=memory,
        )


def check_fusion(check: Check) -> None:
    """Forward and backward pass of MoMA's queries, each with 10 documents."""
    from zerodr.papers.moma.fusion_encoder import FusionEncoder, Grounded

    model = check.model("t5", FusionEncoder).to(check.device).train()
    model.precision = "bf16"
    documents, count = (2, 2) if check.tiny else (10, 16)
    rows = model.tokenize(check.texts[: count * (1 + documents)], "query")
    grounded = [Grounded(rows[n], rows[count + n * documents : count + (n + 1) * documents]) for n in range(count)]

    def step() -> None:
        features = {key: value.to(check.device) for key, value in model.pad(grounded).items()}
        model.encode(features, "query").square().mean().backward()

    rate = sum(map(len, grounded)) / check.clock(step, check.steps)
    check.add("MoMA's queries with documents", tokens_per_second=rate)


def main() -> int:
    """Run all; 1 where a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    quiet()
    if chosen.device == "cpu" and not chosen.tiny:
        say("there is no GPU here: give --device cpu --tiny to try the script itself")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        check = Check(chosen.device, chosen.tiny, Path(folder))
        name = "CPU" if chosen.device == "cpu" else torch.cuda.get_device_name()
        say(f"{name}, torch {torch.__version__}")
        for part in (
            measure_peak,
            check_gradients,
            check_resume,
            check_search,
            check_encode,
            check_training,
            check_fusion,
        ):
            part(check)
    wrong = [row["what"] for row in check.rows if row.get("right") is False]
    say(f"wrong: {', '.join(wrong)}" if wrong else "all results are right")
    if chosen.json:
        chosen.json.write_text(json.dumps({"device": name, "torch": torch.__version__, "rows": check.rows}, indent=1))
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
