"""Evaluate one run on one split: means with intervals, and every measure by query."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import count_cut, count_doubts, read_run
from zerodr.collections.access import SplitSettings, corpus_size, read_qrels, split_queries
from zerodr.config.base import validate
from zerodr.config.custom import check_planned, code_of
from zerodr.config.measures import CUSTOM, FIRST, custom_functions, label_of
from zerodr.errors import ArtifactError, CollectionError, ProtocolError, nearest
from zerodr.evaluation.findings import count_excluded, read_findings
from zerodr.evaluation.judged import JudgedRun, judge
from zerodr.evaluation.metrics import measure
from zerodr.evaluation.numbers import DECIMALS
from zerodr.evaluation.significance import mean_interval

IDENTITY = ["model", "collection", "split", "protocol", "depth", "exclude_self"]
COUNTS = ["n_queries", "n_without_results", "n_without_positives", "n_without_text"]


class EvaluateSettings(SplitSettings):
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
    code: str = ""
    """SHA-256 of the code of the user's own measures, where one of them is computed."""

    @property
    def name(self) -> str:
        """Name of the run in errors."""
        return f"{self.model}/{self.collection}/{self.protocol}"


def evaluate_run(stage: Stage) -> None:
    """Read inputs `run` and `collection`; write `summary` (tsv) and `per_query` (parquet).

    A query whose judgements are all 0 or below can tell no method from another, and is in no mean.

    Raises:
        CollectionError: no query has a positive judgement.
        ConfigError: the code of the user's own measures is not the planned one.
    """
    settings = validate(EvaluateSettings, stage.params, stage.spec.rule)
    if settings.code:
        check_planned(CUSTOM, settings.code, *custom_functions(settings.measures))
    folder = stage.path("collection")
    run, qrels = read_run(stage.path("run")), read_qrels(folder, settings.split)
    queries = split_queries(folder, settings.split)["id"].tolist()
    if settings.every_query:
        run = run[run["query"].isin(queries)].reset_index(drop=True)
    check_protocol(run, settings)
    judged = judge(run, qrels, queries, settings.name)
    counted = judged.positives > 0
    if not counted.any():
        problem = f"none of {len(queries)} judged queries has a document with a grade above 0"
        raise CollectionError(settings.name, problem, f"correct the judgements of split {settings.split}")
    by_query = measure(judged, [*FIRST, *settings.measures])[counted]
    if settings.code:  # again: the file was read after the first check
        stage.note(custom_code="\n".join(code_of(CUSTOM, *custom_functions(settings.measures))))
        check_planned(CUSTOM, settings.code, *custom_functions(settings.measures))
    counts = count_queries(judged, int(qrels["query"].nunique()))
    doubts = doubts_of(stage.path("file"), queries, folder, settings) if "file" in stage.spec.inputs else {}
    findings = read_findings(folder, settings.split, settings.exclude_self)
    findings |= count_excluded(qrels, settings.exclude_self)
    summary = summarize(by_query, counts, settings, stage.seed, {**doubts, **findings})
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
    counted = judged.positives > 0
    return {
        "n_queries": int(counted.sum()),
        "n_without_results": int(((judged.results == 0) & counted).sum()),
        "n_without_positives": int((~counted).sum()),
        "n_without_text": judged_queries - len(judged.queries),
    }


def doubts_of(file: Path, queries: list[str], folder: Path, settings: SplitSettings) -> dict[str, tuple[int, int]]:
    """Count the queries of an imported file whose scores may mean something else than its ranks, or that are cut."""
    run = read_run(file, ranks=True)
    run = run[run["query"].isin(queries)]
    deepest = min(settings.depth, corpus_size(folder) - settings.exclude_self)
    return {**count_doubts(run), **count_cut(run, deepest)}


def summarize(
    by_query: pd.DataFrame,
    counts: dict[str, int],
    settings: EvaluateSettings,
    seed: int,
    remarks: Mapping[str, tuple[int, int]],
) -> pd.DataFrame:
    """Return columns IDENTITY, `metric`, `value`, `low`, `high` (95 % interval over queries), `queries`.

    A row a measure, then a row a count (no interval), then a row a remark: cases, and as `queries` what they are among.
    """
    values = by_query.to_numpy()
    low, high = mean_interval(values, settings.bootstrap_samples, seed, 0.0)
    rows: list[tuple] = []
    for name, *numbers in zip(by_query, values.mean(axis=0), low, high, strict=True):
        rows.append((name, *(f"{number:.{DECIMALS}f}" for number in numbers), len(values)))
    rows += [(name, str(counts[name]), "", "", counts["n_queries"]) for name in COUNTS]
    rows += [(name, str(cases), "", "", total) for name, (cases, total) in remarks.items()]
    frame = pd.DataFrame(rows, columns=["metric", "value", "low", "high", "queries"])
    identity = {name: getattr(settings, name) for name in IDENTITY}
    return pd.concat([pd.DataFrame([identity] * len(frame)), frame], axis=1)


def write_per_query(path: Path, by_query: pd.DataFrame, judged: JudgedRun, settings: EvaluateSettings) -> None:
    """Write columns IDENTITY, `query`, `results`, `positives` and a measure each (float64), a row a counted query."""
    counted = judged.positives > 0
    columns = {name: pa.array([getattr(settings, name)] * len(by_query)) for name in IDENTITY}
    columns["query"] = pa.array(judged.queries[counted], pa.string())
    columns["results"] = pa.array(judged.results[counted].astype(np.int32))
    columns["positives"] = pa.array(judged.positives[counted].astype(np.int32))
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
            raise ArtifactError(path, f"has no measure {name}", old if label_of(name) != name else nearest(name, known))
    return pq.read_table(path, columns=["model", "collection", "query", *names]).to_pandas()
