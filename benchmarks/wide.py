"""Measure stages of wide evaluations on made-up runs, next to the code of an earlier commit.

Run from the project's root: python benchmarks/wide.py --ref 796cacae [--queries 10000] [--depth 200] [--methods 8]
`judge_adaptation` and `build_queries` compare methods on one collection; `compare_runs` tests 100 methods on 18.
It prints processor seconds, their ratio, the largest memory of each process, and whether what they wrote is equal.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from waits import ROOT, measured, show

from zerodr.artifacts.trec import write_run
from zerodr.collections.access import write_qrels
from zerodr.config.measures import FIRST

COLLECTIONS, TABLE = 18, 100
JUDGED = 5  # documents a query
STAGE = """
import hashlib, shutil
from pathlib import Path
from types import SimpleNamespace
def run(function, rule, params, inputs, **outputs):
    for path in map(Path, outputs.values()):
        shutil.rmtree(path, ignore_errors=True)
        if not path.suffix:
            path.mkdir()
    function(SimpleNamespace(
        params=params, seed=13, spec=SimpleNamespace(rule=rule, name=lambda: rule, inputs=inputs),
        note=lambda **facts: None, metric=lambda name, value: None, output=lambda name: Path(outputs[name]),
        path=lambda name: Path(inputs[name][0]), paths=lambda name: list(map(Path, inputs[name]))))
    whole = hashlib.sha256()
    for top in sorted(outputs.values()):
        for path in [Path(top)] if Path(top).is_file() else sorted(Path(top).rglob("*.*")):
            whole.update(path.read_bytes() if path.is_file() else b"")
    found["digest"] = whole.hexdigest()
methods, runs = %r, %r
"""
RULES = {
    "judge_adaptation": """
from zerodr.evaluation.judge_adaptation import judge_adaptation
shared = {"kind": "encoder", "description": "", "remark": ""}
candidates = [shared | {"name": m, "label": m, "adapted": n > 3} for n, m in enumerate(methods)]
run(judge_adaptation, "judge_adaptation",
    {"collection": "wide", "methods": candidates, "collections": [{"name": "wide", "split": "test", "proxy": False}]},
    {"runs": runs, "per_query": [f"{m}.parquet" for m in methods], "collections": ["wide/manifest.json"]},
    answer="answer")
""",
    "build_queries": """
from zerodr.pages.queries import build_queries
shown = [{"name": "wide", "label": "Wide", "split": "test"}]
run(build_queries, "build_queries",
    {"runs": [[m, "wide"] for m in methods], "labels": {m: m for m in methods}, "collections": shown,
     "baseline": methods[0], "queries": 10, "documents": 5},
    {"runs": runs, "per_query": [f"{m}.parquet" for m in methods], "collections": ["wide/manifest.json"]},
    pages="pages")
""",
    "compare_runs": """
from zerodr.evaluation.compare import compare_runs
files = sorted(map(str, Path("table").glob("*.parquet")))
run(compare_runs, "compare_runs",
    {"baseline": "m00", "samples": 10000, "methods": [f"m{n:02}" for n in range(100)]},
    {"per_query": files}, significance="significance.tsv", per_query="joined.parquet", holes="holes.tsv")
""",
}


def make_collection(folder: Path, queries: int, methods: Sequence[str], depth: int) -> None:
    """Write texts, judgements, a run and measures by query of each method."""
    draw, names = np.random.default_rng(0), np.array([f"query-{n}" for n in range(queries)])
    documents = np.array([f"document-{n}" for n in range(20 * depth)])
    home = folder / "wide"
    home.mkdir()
    texts = {"id": documents, "title": documents, "text": [f"{name} " * 40 for name in documents]}
    pd.DataFrame(texts).to_parquet(home / "corpus.parquet")
    pd.DataFrame({"id": names, "text": names}).to_parquet(home / "queries.parquet")
    rows = [(name, documents[n], 1) for name in names for n in draw.choice(len(documents), JUDGED, replace=False)]
    write_qrels(home, "test", rows)
    for method in methods:
        order = draw.random((queries, len(documents) // 4)).argpartition(depth, axis=1)[:, :depth]
        scores = -np.sort(-draw.normal(size=(queries, depth)).round(3), axis=1).ravel()
        run = {"query": names.repeat(depth), "document": documents[order.ravel()], "score": scores}
        write_run(folder / f"{method}.trec.gz", pd.DataFrame(run).astype({"score": "float32"}), "wide")
        write_measures(folder / f"{method}.parquet", method, "wide", names, draw)


def write_measures(path: Path, method: str, collection: str, names: np.ndarray, draw: np.random.Generator) -> None:
    """Write measures by query, as `evaluate_run` does."""
    identity = {"model": method, "collection": collection, "split": "test", "protocol": "standard", "depth": 1000}
    frame = pd.DataFrame(identity | {"exclude_self": False, "query": names, "results": 1000, "positives": JUDGED})
    values = draw.random((len(names), len(FIRST))).round(4) * (draw.random((len(names), 1)) > 0.4)
    pd.concat([frame, pd.DataFrame(values, columns=list(FIRST))], axis=1).to_parquet(path)


def main(words: Sequence[str] | None = None) -> None:
    """Print a row a stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ref", default="796cacae", help="commit to compare with")
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--depth", type=int, default=200)
    parser.add_argument("--methods", type=int, default=8)
    parser.add_argument("--only", choices=sorted(RULES), help="one stage")
    given = parser.parse_args(words)
    methods = [f"m{n:02}" for n in range(given.methods)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "old").mkdir()
        (folder / "table").mkdir()
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", given.ref], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", str(folder / "old")], input=archive.stdout, check=True)
        make_collection(folder, given.queries, methods, given.depth)
        draw = np.random.default_rng(1)
        for column in range(COLLECTIONS) if given.only in (None, "compare_runs") else ():
            names = np.array([f"query-{n}" for n in range(given.queries // (column + 1))])
            for number in range(TABLE):
                path = folder / "table" / f"{column:02}-{number:02}.parquet"
                write_measures(path, f"m{number:02}", f"c{column:02}", names, draw)
        runs = [f"{method}.trec.gz" for method in methods]
        for rule in [given.only] if given.only else RULES:
            code = STAGE % (methods, runs) + RULES[rule]
            before, after = (measured(code, tree, folder) for tree in (folder / "old", ROOT))
            same = "equal digests" if before["digest"] == after["digest"] else "DIGESTS DIFFER"
            memory = f"{before['mib']:.0f} -> {after['mib']:.0f} MiB, {same}"
            show(rule, before["seconds"], after["seconds"], memory)


if __name__ == "__main__":
    main()
