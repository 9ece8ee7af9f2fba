"""Test every method against the baseline on each collection, and join the table's per-query measures in one file."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.config.measures import FIRST
from zerodr.errors import CollectionError, ProtocolError
from zerodr.evaluation.numbers import tsv
from zerodr.evaluation.significance import few_queries, holm, paired_tests

METRIC = "ndcg_cut_10"
CARD = ["split", "protocol", "depth", "exclude_self"]
TEST_COLUMNS = """collection method baseline metric protocol queries method_value baseline_value difference low high
    effect wins ties losses p_t p_t_holm p_randomization p_randomization_holm""".split()


class CompareSettings(Settings):
    """Settings of `compare_runs`."""

    baseline: str
    """Full name of the method that the others are tested against."""
    samples: int = Field(ge=1)
    """Permutations of the randomisation test, resamples of the intervals."""
    methods: tuple[str, ...]
    """Full names of the table's methods, in its order."""
    metric: str = METRIC
    """Measure that is tested."""


def compare_runs(stage: Stage) -> None:
    """Read input `per_query` (a file a run); write `significance` (tsv), `per_query` (parquet), `holes` (tsv)."""
    settings = validate(CompareSettings, stage.params, stage.spec.rule)
    frame = read_per_query(stage.paths("per_query"), settings.methods)
    tests = compare(frame, settings, stage.seed)
    write_tests(stage.output("significance"), tests, settings)
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), stage.output("per_query"))
    stage.output("holes").write_text(tsv(hole_table(frame), digits="%.6f"), encoding="utf-8")
    stage.note(tests=len(tests), baseline=settings.baseline)


def read_per_query(paths: list[Path], methods: tuple[str, ...]) -> pd.DataFrame:
    """Read all files into one frame: methods in the table's order, collections in the order of the files.

    Raises:
        CollectionError: there are no files.
        ProtocolError: a file is of another method, a run appears twice, a collection was evaluated under different
            protocols, or on different queries.
    """
    if not paths:
        step = "add qrels/<split>.tsv, or request rankings and statistics (docs/own-corpus.md)"
        raise CollectionError("the chosen collections", "have no judged queries, so there is nothing to compare", step)
    frames = [pq.read_table(path).to_pandas() for path in paths]
    frame = pd.concat(frames, ignore_index=True)
    unknown = sorted(set(frame["model"]) - set(methods))
    if unknown:
        problem = f"the table does not list these methods of its inputs: {', '.join(unknown)}"
        raise ProtocolError("the table", problem, "give the per-query files of the table's methods")
    if frame.duplicated(["model", "collection", "query"]).any():
        raise ProtocolError("the table", "a run appears twice", "give each per-query file once")
    for collection, rows in frame.groupby("collection", sort=False):
        _check_collection(str(collection), rows)
    order = {name: number for number, name in enumerate(methods)}
    collections = {name: number for number, name in enumerate(dict.fromkeys(frame["collection"]))}
    key = frame["model"].map(order) * len(collections) + frame["collection"].map(collections)
    return frame.iloc[np.argsort(key.to_numpy(), kind="stable")].reset_index(drop=True)


def _check_collection(collection: str, rows: pd.DataFrame) -> None:
    cards = rows[CARD].drop_duplicates()
    if len(cards) > 1:
        protocols = " and ".join(str(card) for card in cards.to_dict("records")[:2])
        problem = f"its runs have different protocols: {protocols}"
        raise ProtocolError(collection, problem, "evaluate all methods under one protocol")
    queries = {tuple(run["query"]) for _, run in rows.groupby("model", sort=False)}
    if len(queries) > 1:
        step = "evaluate all methods on the same normalised collection"
        raise ProtocolError(collection, "methods were evaluated on different queries", step)


def compare(frame: pd.DataFrame, settings: CompareSettings, seed: int) -> pd.DataFrame:
    """Return TEST_COLUMNS, a row a test. Holm's correction is over all rows. Empty without results of the baseline."""
    rows = []
    for collection, runs in frame.groupby("collection", sort=False):
        values = runs.pivot(index="query", columns="model", values=settings.metric)
        others = [m for m in settings.methods if m in values.columns and m != settings.baseline]
        if settings.baseline not in values.columns or not others:
            continue
        base = values[settings.baseline].to_numpy()
        tests = paired_tests(values[others].to_numpy(), base, settings.samples, seed)
        shared = {"collection": str(collection), "baseline": settings.baseline, "metric": settings.metric}
        shared |= {"protocol": runs["protocol"].iloc[0], "baseline_value": base.mean()}
        for method, test in zip(others, tests, strict=True):
            rows.append(shared | asdict(test) | {"method": method, "method_value": values[method].mean()})
    table = pd.DataFrame(rows, columns=[c for c in TEST_COLUMNS if not c.endswith("_holm")])
    for name in ("p_t", "p_randomization"):
        table[f"{name}_holm"] = holm(table[name].to_numpy(float))
    return table[TEST_COLUMNS]


def write_tests(path: Path, tests: pd.DataFrame, settings: CompareSettings) -> None:
    """Write the table, then its explanation as lines that start with `# `."""
    notes = [
        f"each method against {settings.baseline} on the same queries, {settings.metric}; "
        "difference: method minus baseline",
        "p_t: two-sided paired t-test; p_randomization: two-sided sign-flip permutation test, "
        f"{settings.samples} permutations, (1 + extreme) / (1 + permutations)",
        f"_holm: Holm's step-down correction over the {len(tests)} tests of this table",
        "effect: Cohen's d of paired differences; low, high: 95 % interval of the difference, from means of subsets "
        "of the queries",
        *few_queries(tests["queries"]),
    ]
    if settings.baseline not in settings.methods:
        notes.append(f"no test was made: the baseline {settings.baseline} is not among the table's methods")
    path.write_text(tsv(tests, notes), encoding="utf-8")


def hole_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Average the hole rates of each run, with nDCG@10 over all documents and over judged documents only."""
    measures = [*(name for name in FIRST if name.startswith("hole_")), METRIC, f"{METRIC}_judged"]
    grouped = frame.groupby(["collection", "model", "protocol"], sort=False)
    means = grouped[measures].mean()
    means.insert(0, "queries", grouped.size())
    means.insert(1, "n_without_results", grouped["results"].agg(lambda results: int((results == 0).sum())))
    return means.reset_index()
