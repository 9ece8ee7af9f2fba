"""A checkout with two methods evaluated on a made-up collection by the real stages, up to the pages."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from tests.unit.tiny_bench import COLLECTION, plan_of, run_stage, write_config

from zerodr.artifacts.stage import Stage, function_of
from zerodr.artifacts.trec import write_run
from zerodr.plan import Plan, paths
from zerodr.plan.plan import INPUTS

METHODS = ("bm25-flat", "dense")
TEXTS = [f"Document {n} about topic {n % 3} <b>& more</b>" for n in range(8)]
QUERIES = {f"q{n}": f"what of topic {n}?" for n in range(4)}
RELEVANT = {("q0", "d0"): 1, ("q1", "d1"): 2, ("q1", "d7"): 0, ("q2", "d2"): 1, ("q3", "d3"): 1}
RANKED = {
    "bm25-flat": {"q0": "d0 d1 d2", "q1": "d5 d1 d7", "q2": "d3 d4 d2", "q3": "d1 d2"},
    "dense": {"q0": "d1 d0 d2", "q1": "d1 d5 d6", "q2": "d2 d3 d4", "q3": "d4 d5"},
}


def _normalize(stage: Stage) -> None:
    folder = stage.output("collection")
    corpus = {"id": [f"d{n}" for n in range(8)], "title": [f"Title {n}" for n in range(8)], "text": TEXTS}
    pd.DataFrame(corpus).to_parquet(folder / "corpus.parquet")
    pd.DataFrame({"id": list(QUERIES), "text": list(QUERIES.values())}).to_parquet(folder / "queries.parquet")
    rows = [(query, document, grade) for (query, document), grade in RELEVANT.items()]
    qrels = pd.DataFrame(rows, columns=["query-id", "corpus-id", "score"])
    qrels.to_csv(folder / "qrels.test.tsv", sep="\t", index=False)


def _rank(stage: Stage) -> None:
    ranked = RANKED[stage.spec.wildcards["model"]]
    rows = [(q, d, float(-n)) for q, line in ranked.items() for n, d in enumerate(line.split())]
    run = pd.DataFrame(rows, columns=["query", "document", "score"]).astype({"score": "float32"})
    write_run(stage.output("run"), run, stage.spec.wildcards["model"])


def stage_of(plan: Plan, rule: str, outputs: dict[str, str]) -> None:
    """Run a rule without wildcards, with the inputs that the plan gives it."""
    inputs = INPUTS[rule](plan, None)
    run_stage(plan, rule, inputs, outputs, function_of(rule))


def make_evaluated(root: Path) -> Plan:
    """Collection, runs and evaluations of both methods, in the working directory `root`."""
    write_config(root)
    config = root / "config/config.yaml"
    config.write_text("{scale: mini, seed: 7, randomization_samples: 50, bootstrap_samples: 50, references: []}\n")
    plan = plan_of(root)
    run_stage(plan, "normalize_collection", {}, {"collection": COLLECTION}, _normalize, collection="toy")
    for name in METHODS:
        where = {"model": name, "collection": "toy", "protocol": "standard"}
        run = paths.run(*where.values())
        run_stage(plan, "search_bm25" if name == METHODS[0] else "merge_run", {}, {"run": run}, _rank, **where)
        outputs = {"summary": paths.summary(*where.values()), "per_query": paths.per_query(*where.values())}
        inputs = {"run": run, "collection": COLLECTION}
        run_stage(plan, "evaluate_run", inputs, outputs, function_of("evaluate_run"), **where)
    return plan


def make_pages(root: Path) -> Plan:
    """Everything up to the leaderboard."""
    plan = make_evaluated(root)
    name = plan.selection
    compared = {kind: paths.compared(name, f"{kind}.tsv") for kind in ("significance", "holes")}
    stage_of(plan, "compare_runs", compared | {"per_query": paths.compared(name, "per_query.parquet")})
    table = {"table": "tsv", "notes": "notes.md", "markdown": "md", "tex": "tex"}
    outputs = {key: paths.beir(f"{name}.{kind}") for key, kind in table.items()}
    stage_of(plan, "build_table", outputs | {"published": paths.compared(name, "published.tsv")})
    stage_of(plan, "plot_table", {kind: paths.beir(f"{name}.{kind}") for kind in ("svg", "png")})
    stage_of(plan, "build_queries", {"pages": paths.query_pages(name)})
    stage_of(plan, "build_leaderboard", {"page": paths.beir(f"{name}.html")})
    return plan
