"""Evaluate one run on one split: means with intervals, and every measure by query."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import Doubt, count_doubts, read_run
from zerodr.collections.access import read_qrels, split_queries
from zerodr.collections.samples import RunSettings
from zerodr.config.base import validate
from zerodr.config.measures import FIRST, MEASURES
from zerodr.errors import ArtifactError, ProtocolError, nearest
from zerodr.evaluation.judged import JudgedRun, judge
from zerodr.evaluation.metrics import measure
from zerodr.evaluation.significance import bootstrap_interval

IDENTITY = ["model", "collection", "split", "protocol", "depth", "exclude_self"]
COUNTS = ["n_queries", "n_without_results", "n_without_positives", "n_without_text"]
DECIMALS = 10  # so that a table rounds once


class EvaluateSettings(RunSettings):
    """Settings of `evaluate_run`: the run, its collection and its protocol."""

    model: str
    """Full name of the method."""
    language: str = "en"
    """Language of the collection."""
    protocol: str
    """Name of the protocol."""
    every_query: bool = False
    """The run ranks all queries of the collection; those of the split count."""
    bootstrap_samples: int = Field(ge=1)
    """Resamples of the intervals."""
    measures: tuple[str, ...] = ()
    """Measures in addition to those of every evaluation."""

    @property
    def name(self) -> str:
        """Name of the run in errors."""
        return f"{self.model}/{self.collection}/{self.protocol}"


def evaluate_run(stage: Stage) -> None:
    """Read inputs `run` and `collection`; write `summary` (tsv) and `per_query` (parquet)."""
    settings = validate(EvaluateSettings, stage.params, stage.spec.rule)
    folder = stage.path("collection")
    run, qrels = read_run(stage.path("run")), read_qrels(folder, settings.split)
    queries = split_queries(folder, settings.split)["id"].tolist()
    if settings.every_query:
        run = run[run["query"].isin(queries)].reset_index(drop=True)
    check_protocol(run, settings)
    judged = judge(run, qrels, queries, settings.name)
    by_query = measure(judged, [*FIRST, *settings.measures])
    counts = count_queries(judged, int(qrels["query"].nunique()))
    doubts = doubts_of(stage.path("file"), queries) if "file" in stage.spec.inputs else {}
    summary = summarize(by_query, counts, settings, stage.seed, doubts)
    summary.to_csv(stage.output("summary"), sep="\t", index=False, lineterminator="\n")
    write_per_query(stage.output("per_query"), by_query, judged, settings)
    for row in summary.itertuples():
        stage.metric(row.metric, row.value)


def check_protocol(run: pd.DataFrame, settings: EvaluateSettings) -> None:
    """Refuse a run that contradicts the settings.

    Raises:
        ProtocolError: a query retrieved itself although `exclude_self`, or more than `depth` documents.
    """
    itself = run["query"] == run["document"]
    if settings.exclude_self and itself.any():
        problem = f"exclude_self is true, but {int(itself.sum())} queries retrieved the document with their id"
        example = f"({run['query'][itself].iloc[0]}, ...)"
        raise ProtocolError(settings.name, f"{problem} {example}", "search again: the search leaves them out")
    deepest = int(run.groupby("query", sort=False).size().max()) if len(run) else 0
    if deepest > settings.depth:
        problem = f"a ranking has {deepest} documents, expected {settings.depth} at most"
        raise ProtocolError(settings.name, problem, "search again with this depth")


def count_queries(judged: JudgedRun, judged_queries: int) -> dict[str, int]:
    """Count the queries that are averaged, and the special ones. `judged_queries` includes those without text."""
    return {
        "n_queries": len(judged.queries),
        "n_without_results": int((judged.results == 0).sum()),
        "n_without_positives": int((judged.positives == 0).sum()),
        "n_without_text": judged_queries - len(judged.queries),
    }


def doubts_of(file: Path, queries: list[str]) -> dict[str, Doubt]:
    """Count the queries of an imported file whose scores may mean something else than the file's ranks."""
    run = read_run(file, ranks=True)
    return count_doubts(run[run["query"].isin(queries)])


def summarize(
    by_query: pd.DataFrame,
    counts: dict[str, int],
    settings: EvaluateSettings,
    seed: int,
    doubts: dict[str, Doubt] | None = None,
) -> pd.DataFrame:
    """Return columns IDENTITY, `metric`, `value`, `low`, `high` (95 % bootstrap interval over queries), `queries`.

    A row a measure, then a row a count (no interval), then a row a doubt about an imported run, where there is one.
    """
    values = by_query.to_numpy()
    low, high = bootstrap_interval(values, settings.bootstrap_samples, seed)
    rows: list[tuple] = []
    for name, *numbers in zip(by_query, values.mean(axis=0), low, high, strict=True):
        rows.append((name, *(f"{number:.{DECIMALS}f}" for number in numbers), len(values)))
    rows += [(name, str(counts[name]), "", "", counts["n_queries"]) for name in COUNTS]
    rows += [(name, str(doubt.queries), "", "", doubt.all_queries) for name, doubt in (doubts or {}).items()]
    frame = pd.DataFrame(rows, columns=["metric", "value", "low", "high", "queries"])
    identity = {name: getattr(settings, name) for name in IDENTITY}
    return pd.concat([pd.DataFrame([identity] * len(frame)), frame], axis=1)


def write_per_query(path: Path, by_query: pd.DataFrame, judged: JudgedRun, settings: EvaluateSettings) -> None:
    """Write columns IDENTITY, `query`, `results`, `positives` and a measure each (float64), a row a judged query."""
    columns = {name: pa.array([getattr(settings, name)] * len(by_query)) for name in IDENTITY}
    columns["query"] = pa.array(judged.queries, pa.string())
    columns["results"] = pa.array(judged.results.astype(np.int32))
    columns["positives"] = pa.array(judged.positives.astype(np.int32))
    columns |= {name: pa.array(by_query[name].to_numpy()) for name in by_query}
    pq.write_table(pa.table(columns), path)


def read_measures(path: Path, *names: str) -> pd.DataFrame:
    """Read measures by query of the file that `write_per_query` wrote: columns model, collection, query and `names`.

    Raises:
        ArtifactError: the file lacks a measure.
    """
    known = pq.read_schema(path).names
    for name in names:
        if name not in known:
            old = "evaluate its run again: the file is older than this measure"
            raise ArtifactError(path, f"has no measure {name}", old if name in MEASURES else nearest(name, known))
    return pq.read_table(path, columns=["model", "collection", "query", *names]).to_pandas()
