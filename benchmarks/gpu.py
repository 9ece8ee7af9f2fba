"""Check that a GPU gives the CPU's results, and measure what it does a second: `make check-gpu`.

Models have BERT-base's and T5-base's shapes and random weights; texts are those of a small archive of a mirror folder.
Nothing asks a network. Each row is printed when it ends, and all are written as JSON after each; at the end comes a
table for benchmarks/gpu.md. The answer is 1 where a result is wrong or a row failed; missed goals are only said.

Run from the project's root: python benchmarks/gpu.py [--device cuda] [--seconds 600] [--json gpu.json] [--only WORDS]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_check import packages
from train import quiet, say

Part = tuple[str, Callable[[], dict[str, Any]]]
SECONDS = 600.0


def parts(check: Any, report: Any, source: str) -> Iterator[Part]:
    """Name each row and what finds its facts, in the order in which they run: results first."""
    from gpu_check import correct, encode, search, speed
    from gpu_check.lessons import LESSONS

    yield "texts", partial(dict, source=source, texts=check.pool, words_each=check.length)
    for precision in ("bf16", "fp32"):
        yield f"matrix product, {precision}", partial(speed.product, check, precision)
    for name in LESSONS:
        yield f"one step of {name}", partial(correct.one_step, check, name)
    yield "killed and resumed", partial(correct.killed_and_resumed, check, report.left)
    yield "exact search", partial(search.exact, check)
    for precision in ("fp32", "bf16"):
        yield f"encode, {precision}", partial(encode.encode, check, precision)
    yield "train queries", partial(speed.train, check, "queries")
    yield "train queries, LAMB", partial(speed.train, check, "queries", optimizer="lamb")
    for name in ("coco", "mlm", "moma"):
        yield f"train {name}", partial(speed.train, check, name)
    yield "trainer of sentence-transformers", partial(speed.trainer, check)


def say_packages() -> int:
    """Say which packages are missing, and how they come; 1 where no row can run."""
    needed, search, whole = (packages.missing(kind) for kind in (packages.NEEDED, packages.SEARCH, packages.WHOLE))
    for name, why in (needed | search | whole).items():
        say(f"package {name} is missing{'' if name in needed else ', only'}: {why}")
    for line in packages.advice([*needed, *search]) if needed or search else []:
        say(line)
    say("no row can run" if needed else "the check can run")
    return int(bool(needed))


def run(chosen: argparse.Namespace) -> int:
    """Run the rows that were asked for."""
    import torch
    from gpu_check.check import Check
    from gpu_check.report import Report, today
    from gpu_check.texts import read_texts

    with tempfile.TemporaryDirectory() as folder:
        check = Check(chosen.device, chosen.tiny, Path(folder))
        check.texts, source = read_texts(check.pool, check.length)
        facts = {
            "date": today(),
            "device": check.name(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda or "none",
        }
        facts |= {"sizes": "tiny" if check.tiny else "base", "versions": packages.found()}
        report = Report(facts, chosen.seconds, chosen.json and chosen.json.resolve(), check.on_gpu and not check.tiny)
        say(", ".join(f"{name} {value}" for name, value in facts.items() if isinstance(value, str)))
        for what, work in parts(check, report, source):
            if not chosen.only or any(word in what for word in chosen.only.split("+")):
                report.run(what, work)
                check.free()
        say(f"\n{report.table()}")
        for name, rows in (("wrong", report.wrong()), ("failed", report.named("failed")), *_rest(report)):
            say(f"{name}: {'; '.join(rows) or 'none'}")
        return int(bool(report.wrong() or report.named("failed")))


def _rest(report: Any) -> list[tuple[str, list[str]]]:
    """Rows that did not run, and goals by verdict."""
    goals: dict[str, list[str]] = {}
    for one in report.verdicts():
        goals.setdefault(f"goals {one.verdict}", []).append(f"{one.row}, {one.goal}")
    return [("not run", report.named("not run")), *goals.items()]


def main() -> int:
    """Run all; 1 where a result is wrong or a row failed, 2 where there is nothing to check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: the first visible GPU")
    parser.add_argument("--tiny", action="store_true", help="tiny models and data, to try the script")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="rows that no longer fit are not run")
    parser.add_argument("--json", type=Path, help="write device, rows, goals and the table there")
    parser.add_argument("--only", default="", help="rows whose names hold one of these words, joined by +")
    parser.add_argument("--packages", action="store_true", help="say which packages are missing")
    chosen = parser.parse_args()
    if chosen.packages or packages.missing(packages.NEEDED):
        return say_packages() and (1 if chosen.packages else 2)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible.partition(",")[0]  # a peer's trainer would take all GPUs
    import torch

    chosen.device = chosen.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if chosen.device == "cpu" and not chosen.tiny:
        say("there is no GPU here: give --device cpu --tiny to try the script itself")
        return 2
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before the first product, as in a training
    quiet()
    if chosen.device != "cpu":
        torch.set_num_threads(os.cpu_count() or 1)
    return run(chosen)


if __name__ == "__main__":
    raise SystemExit(main())
