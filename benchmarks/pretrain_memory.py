"""Peak memory and processor seconds a step of the stage `pretrain` on the CPU, each run a process of its own.

The model is made from scratch: BERT, 4 layers of 256 components, 18,000 words of the texts, with the prediction layer 8
million parameters. Texts are neighbouring SQuAD passages of at least 128 tokens. The peak is what the kernel says when
the process ends (`ru_maxrss`). Seconds a step are the difference of a longer and a shorter run by that of their steps.

Run from the project's root: python benchmarks/pretrain_memory.py [--objective mlm] [--batch 64] [--steps 4,24]
[--rounds 3] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from train import ROOT, passages, say

SCRIPTS = ROOT / "workflow" / "scripts"
TEXTS = 2048
SHAPE = {"family": "bert", "hidden": 256, "layers": 4, "heads": 4, "vocabulary": 18000}


def run(
    rule: str, inputs: dict[str, Any], place: str, params: dict[str, Any], threads: int
) -> tuple[float, float, dict[str, Any]]:
    """Run a stage by `python -m zerodr.run`; returns its peak in MiB, processor seconds, and notes of its lineage."""
    from zerodr.artifacts.stage import StageSpec
    from zerodr.plan.rules import RULES

    outputs = {"model": f"{place}/manifest.json"}
    spec = StageSpec(rule, RULES[rule].version, {"output": place}, inputs, outputs, params, 13, threads)
    Path("spec.json").write_text(json.dumps(asdict(spec)), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS), "OMP_NUM_THREADS": str(threads)}
    child = os.posix_spawn(sys.executable, [sys.executable, "-m", "zerodr.run", "spec.json"], environment)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"{rule} ended with status {status}")
    record = Path(place) / "lineage.json"
    notes = json.loads(record.read_text(encoding="utf-8"))["notes"] if record.exists() else {}
    return usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime, notes


def write_collection(folder: Path) -> None:
    """Write the texts as a normalised collection."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from zerodr.artifacts.manifest import build_manifest
    from zerodr.collections.access import CORPUS_SCHEMA

    folder.mkdir(parents=True)
    texts = passages(TEXTS)
    columns = [[f"d{number}" for number in range(len(texts))], [""] * len(texts), texts]
    pq.write_table(pa.table(columns, schema=CORPUS_SCHEMA), folder / "corpus.parquet")
    (folder / "manifest.json").write_text(json.dumps(build_manifest(folder)), encoding="utf-8")


def pretraining(objective: str, batch: int, steps: int) -> dict[str, Any]:
    """Params of a stage."""
    training = {"steps": steps, "batch_queries": batch, "learning_rate": 1e-4, "dev_queries": 0}
    return {
        "settings": {"kind": "pretrain", "objective": {"name": objective, "max_tokens": 128}, "training": training},
        "schedule": {"stage": "lm", "stage_index": 0, "total_steps": steps},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objective", default="mlm")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", default="4,24")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    few, many = map(int, chosen.steps.split(","))
    sys.path.insert(0, str(SCRIPTS))
    with tempfile.TemporaryDirectory() as folder:
        start = Path.cwd()
        write_collection(Path(folder) / "results/collections/squad")
        os.chdir(folder)
        collection = "results/collections/squad/manifest.json"
        lengths = {"query_tokens": 64, "document_tokens": 128}
        model = {"init": "scratch", "architecture": SHAPE, **lengths}
        notes = run("init_model", {"source": collection}, "results/init", model, chosen.threads)[2]
        inputs = {"model": "results/init/manifest.json", "collections": [collection]}
        peaks: dict[int, list[float]] = {few: [], many: []}
        seconds = []
        for number in range(chosen.rounds):
            spent = {}
            for steps in (few, many):
                params = pretraining(chosen.objective, chosen.batch, steps)
                place = f"results/lm{steps}-{number}"
                peak, spent[steps], trained = run("pretrain", inputs, place, params, chosen.threads)
                peaks[steps].append(peak)
            seconds.append((spent[many] - spent[few]) / (many - few))
        os.chdir(start)
    sizes = notes["parameters"], trained["parameters"]
    say(f"{chosen.objective}, {chosen.batch} texts, {sizes[0]} parameters, {sizes[1]} with the prediction layer")
    for steps, of in peaks.items():
        say(f"{steps} steps: peak resident MiB {', '.join(f'{peak:.0f}' for peak in of)}")
    say(f"processor seconds a step: {', '.join(f'{s:.2f}' for s in seconds)}, median {statistics.median(seconds):.2f}")


if __name__ == "__main__":
    main()
