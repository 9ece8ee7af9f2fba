"""Evaluation of a ranking against pytrec_eval by itself: reading the file, checking it, and all measures by query.

A made-up run of 2,000 queries x 1,000 documents, gzipped; rounds take turns, every part in a process of its own. Both
compute the measures of a table with trec_eval's code. zerodr also refuses runs that are out of order or have a
document twice, and computes MRR@10, nDCG@10 of judged documents and holes.

Run from the project's root: python benchmarks/evaluate.py [--queries 2000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow/scripts"))
KINDS = ("zerodr", "zerodr, any white space", "pytrec_eval")
DEPTH, DOCUMENTS, JUDGED = 1000, 100_000, 5


def make(folder: Path, queries: int) -> None:
    """Write `run.trec.gz` and `qrels.tsv`."""
    import pandas as pd

    from zerodr.artifacts.trec import total_order, write_run

    random = np.random.default_rng(0)
    rows = np.concatenate([random.choice(DOCUMENTS, DEPTH, replace=False) for _ in range(queries)])
    query = np.repeat(np.arange(queries), DEPTH)
    scores = random.standard_normal(len(rows)).astype(np.float32)
    names = {"query": [f"question{q}" for q in query], "document": [f"document{d}" for d in rows], "score": scores}
    write_run(folder / "run.trec.gz", total_order(pd.DataFrame(names)), "made-up")
    judged = [(f"question{q}", f"document{d}") for q in range(queries) for d in random.choice(DOCUMENTS, JUDGED, False)]
    (folder / "qrels.tsv").write_text("".join(f"{q} 0 {d} 1\n" for q, d in judged), encoding="utf-8")


def ours(folder: Path, any_space: bool) -> float:
    """Mean nDCG@10 by this bench."""
    import pandas as pd

    from zerodr.artifacts import trec
    from zerodr.evaluation.judged import judge
    from zerodr.evaluation.metrics import measure

    read = trec._read_any if any_space else trec.read_run
    qrels = pd.read_csv(folder / "qrels.tsv", sep=" ", names=["query", "q0", "document", "grade"])
    qrels = qrels.astype({"query": "str", "document": "str"})
    return float(
        measure(judge(read(folder / "run.trec.gz"), qrels, qrels["query"].unique().tolist())).ndcg_cut_10.mean()
    )


def alone(folder: Path) -> float:
    """Mean nDCG@10 by pytrec_eval, which reads text line by line."""
    import pytrec_eval

    from zerodr.evaluation.metrics import TREC

    with gzip.open(folder / "run.trec.gz") as stream:
        run = pytrec_eval.parse_run(io.TextIOWrapper(stream, encoding="utf-8"))
    with open(folder / "qrels.tsv", encoding="utf-8") as stream:
        qrels = pytrec_eval.parse_qrel(stream)
    found = pytrec_eval.RelevanceEvaluator(qrels, set(TREC)).evaluate(run)
    return float(np.mean([measures["ndcg_cut_10"] for measures in found.values()]))


def child(folder: Path, kind: str) -> None:
    """One timed evaluation; prints its facts."""
    import pandas  # noqa: F401 - loading libraries is not timed
    import pytrec_eval  # noqa: F401

    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    value = alone(folder) if kind == "pytrec_eval" else ours(folder, kind != "zerodr")
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    facts = {"seconds": seconds, "processor": used, "ndcg": value}
    sys.stdout.write(json.dumps(facts) + "\n")


def main() -> None:
    """Alternate the kinds; print a table of medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(Path(given.child[0]), given.child[1])
        return
    with tempfile.TemporaryDirectory() as name:
        make(Path(name), given.queries)
        seen: dict[str, list[dict]] = {kind: [] for kind in KINDS}
        for _ in range(given.rounds):
            for kind in KINDS:
                command = [sys.executable, __file__, "--child", name, kind]
                seen[kind].append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    if len({round(facts["ndcg"], 12) for rounds in seen.values() for facts in rounds}) > 1:
        raise SystemExit("the means differ")
    sys.stdout.write(f"{given.queries:,} queries x {DEPTH} documents, medians of {given.rounds} rounds\n")
    for kind, rounds in seen.items():
        middle = {key: statistics.median(facts[key] for facts in rounds) for key in ("seconds", "processor")}
        ratios = [b["processor"] / a["processor"] for a, b in zip(rounds, seen["pytrec_eval"], strict=True)]
        line = f"{middle['seconds']:6.1f} s, {middle['processor']:6.1f} s of processor"
        sys.stdout.write(f"{kind:24} {line}, pytrec_eval / it {statistics.median(ratios):.2f} x (processor)\n")


if __name__ == "__main__":
    main()
