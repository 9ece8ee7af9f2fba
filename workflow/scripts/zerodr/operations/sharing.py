"""Write a row's finished evaluations for other tools: MTEB's result files, TREC runs and judgements, a card's block."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd
import yaml

from zerodr.artifacts.record import Record
from zerodr.artifacts.trec import escape, read_run, strings
from zerodr.collections.access import read_qrels, split_queries
from zerodr.errors import ArtifactError, nearest
from zerodr.evaluation.judged import judge
from zerodr.evaluation.metrics import measure
from zerodr.lineage.graph import Graph
from zerodr.plan import paths

TASKS = Path("resources/reference/mteb.tsv")
CUTS = (1, 3, 5, 10, 20, 100, 1000)
MEASURES = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall", "precision": "P", "mrr": "recip_rank_cut"}
MAIN, DECIMALS = "ndcg_at_10", 5  # as MTEB's files have
ENGLISH = ["eng-Latn"]  # of every task in TASKS


class Task(NamedTuple):
    """MTEB's name of a collection, with the data set and the commit of the hub that MTEB reads it from."""

    collection: str
    task: str
    dataset: str
    revision: str
    split: str


class Evaluated(NamedTuple):
    """A finished evaluation.

    Attributes:
        collection: its name.
        record: that of its summary.
        scores: MTEB's measures, in [0, 1], not rounded, so that a reader rounds once.
    """

    collection: str
    record: Record
    scores: dict[str, float]

    @property
    def split(self) -> str:
        """The judged split."""
        return str(self.record["spec"]["params"]["split"])

    def is_of(self, task: Task | None) -> bool:
        """Test whether it measures a task: the same split of its collection."""
        return task is not None and task.split == self.split


def share(row: str, protocol: str, target: Path) -> list[str]:
    """Write what is finished of a row to a new folder; return lines on what was written.

    `runs/<collection>.trec` and `qrels/<collection>.qrels`, of the queries that count, are as trec_eval and ir_measures
    read them, `mteb/results/` is a folder for `mteb.ResultCache("mteb")`, `README.md` begins with a card's block.

    Raises:
        ArtifactError: nothing of the row is finished, an artifact is damaged, or something is at `target`.
    """
    if target.exists():
        raise ArtifactError(target, "is there already", "name a new folder")
    graph, tasks = Graph(), read_tasks()
    home = Path(paths.summary(row, "*", protocol)).parents[1]
    summaries = sorted(home.glob(f"*/{protocol}.summary.tsv"))
    if not summaries:
        rows = sorted(path.name for path in home.parent.glob("*"))
        step = nearest(row, rows) if rows else f"run: snakemake {paths.beir(f'{row}.tsv')}"
        raise ArtifactError(paths.summary(row, "<collection>", protocol), "there is no finished evaluation", step)
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        making = Path(folder, target.name)
        for kind in ("runs", "qrels"):
            (making / kind).mkdir(parents=True)
        done = [_evaluated(graph, path, making) for path in map(str, summaries)]
        known = {one.collection: tasks[one.collection] for one in done if one.is_of(tasks.get(one.collection))}
        for one in done:
            if one.collection in known:
                _write_result(making / "mteb" / "results" / f"zerodr__{row}", one, known[one.collection])
        (making / "README.md").write_text(_card(row, protocol, done, known), encoding="utf-8")
        making.replace(target)
    return [
        f"{one.collection:<24} nDCG@10 {one.scores[MAIN]:.4f}  "
        + (f"MTEB's {known[one.collection].task}" if one.collection in known else "no task of MTEB")
        for one in done
    ]


def read_tasks() -> dict[str, Task]:
    """Read MTEB's tasks by collection."""
    with open(TASKS, encoding="utf-8", newline="") as stream:
        return {row["collection"]: Task(**row) for row in csv.DictReader(stream, delimiter="\t")}


def _evaluated(graph: Graph, summary: str, target: Path) -> Evaluated:
    """Write run and judgements of an evaluation, and measure them."""
    record = graph.require(summary)
    inputs = {entry["name"]: entry["path"] for entry in record["inputs"]}
    for path in (summary, *inputs.values()):
        if graph.is_damaged(path):
            raise ArtifactError(path, "is missing or is not what was evaluated", f"see: zerodr explain {summary}")
    params = record["spec"]["params"]
    name, folder, split = Path(summary).parent.name, Path(inputs["collection"]).parent, params["split"]
    run, qrels = read_run(Path(inputs["run"])), read_qrels(folder, split)
    queries = split_queries(folder, split)["id"].tolist()
    if params.get("every_query"):
        run = run[run["query"].isin(queries)].reset_index(drop=True)
    with gzip.open(inputs["run"], "rb") as source, open(target / "runs" / f"{name}.trec", "wb") as stream:
        shutil.copyfileobj(source, stream)
    judged = judge(run, qrels, queries, summary)
    counted = judged.positives > 0
    _write_qrels(target / "qrels" / f"{name}.qrels", qrels[qrels["query"].isin(judged.queries[counted])])
    names = {f"{stem}_at_{cut}": f"{ours}_{cut}" for stem, ours in MEASURES.items() for cut in CUTS}
    means = measure(judged, list(names.values()))[counted].mean()
    return Evaluated(name, record, {theirs: float(means[ours]) for theirs, ours in names.items()})


def _write_qrels(path: Path, qrels: pd.DataFrame) -> None:
    """Write `query 0 document grade`, with ids as in run files."""
    columns = [escape(strings(qrels[name])).to_pylist() for name in ("query", "document")]
    rows = zip(*columns, qrels["grade"].tolist(), strict=True)
    lines = (f"{query} 0 {document} {grade}\n" for query, document, grade in rows)
    with open(path, "w", encoding="utf-8", newline="") as stream:
        stream.writelines(lines)


def _write_result(folder: Path, one: Evaluated, task: Task) -> None:
    """Write MTEB's file of a task, for a model without a commit. Its version is null: MTEB did not measure."""
    rounded = {name: round(score, DECIMALS) for name, score in one.scores.items()}
    scores = rounded | {"main_score": rounded[MAIN], "hf_subset": "default", "languages": ENGLISH}
    result = {
        "dataset_revision": task.revision,
        "task_name": task.task,
        "mteb_version": None,
        "scores": {task.split: [scores]},
        "evaluation_time": None,
        "kg_co2_emissions": None,
    }
    folder /= "no_revision_available"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{task.task}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _card(row: str, protocol: str, done: list[Evaluated], known: dict[str, Task]) -> str:
    """Write the block of a model's card, and a table for people."""
    results = list(_results(done, known))
    block: dict[str, Any] = {"tags": ["mteb", "zerodr"]}
    block |= {"model-index": [{"name": row, "results": results}]} if results else {}
    lines = [
        f"# {row}",
        "",
        f"Evaluated by zerodr, protocol {protocol}, on the publishers' archives. The data set and commit of a task are",
        "those of MTEB's copy on the hub, which was not read; MTEB did not compute these numbers. Measures are",
        "those of `trec_eval -c qrels/<collection>.qrels runs/<collection>.trec`: a query without results scores 0.",
        "Ids with white space have it as \\u0020. `zerodr lineage <digest>` traces a run.",
        "",
        "| collection | split | nDCG@10 | R@100 | task of MTEB | digest of the run |",
        "|---|---|---|---|---|---|",
    ]
    for one in done:
        task = known[one.collection].task if one.collection in known else ""
        digest = next(entry["digest"] for entry in one.record["inputs"] if entry["name"] == "run")[:12]
        numbers = f"{one.scores[MAIN]:.4f} | {one.scores['recall_at_100']:.4f}"
        lines.append(f"| {one.collection} | {one.split} | {numbers} | {task} | {digest} |")
    head = yaml.safe_dump(block, sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n\n" + "\n".join(lines) + "\n"


def _results(done: list[Evaluated], known: dict[str, Task]) -> Iterator[dict[str, Any]]:
    """List the results of a card: percentages, as on MTEB's cards."""
    for one in done:
        if task := known.get(one.collection):
            dataset = {"type": task.dataset, "name": f"MTEB {task.task}", "config": "default", "split": task.split}
            metrics = [{"type": name, "value": round(100 * value, 3)} for name, value in one.scores.items()]
            metrics.append({"type": "main_score", "value": round(100 * one.scores[MAIN], 3)})
            yield {
                "task": {"type": "Retrieval"},
                "dataset": dataset | {"revision": task.revision},
                "metrics": metrics,
            }
