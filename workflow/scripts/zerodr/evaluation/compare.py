"""Test every method against the baseline on each collection, and join the table's per-query measures in one file."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.config.measures import FIRST
from zerodr.errors import CollectionError, ProtocolError
from zerodr.evaluation.numbers import tsv
from zerodr.evaluation.significance import FEW, few_queries, holm, paired_tests

METRIC = "ndcg_cut_10"
CARD = ["split", "protocol", "depth", "exclude_self"]
NAMES = ["model", "collection", "split", "protocol", "query"]
HOLES = [*(name for name in FIRST if name.startswith("hole_")), METRIC, f"{METRIC}_judged"]
ROW_GROUP = 1 << 20
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
    controls: dict[str, str] = {}
    """Methods of a further seed: the baseline of that seed, which they are tested against instead."""


def compare_runs(stage: Stage) -> None:
    """Read input `per_query` (a file a run); write `significance` (tsv), `per_query` (parquet), `holes` (tsv)."""
    settings = validate(CompareSettings, stage.params, stage.spec.rule)
    files = stage.paths("per_query")
    frame = read_per_query(files, settings.methods, dict.fromkeys([settings.metric, *HOLES]))
    tests = compare(frame, settings, stage.seed)
    write_tests(stage.output("significance"), tests, settings)
    stage.output("holes").write_text(tsv(hole_table(frame), digits="%.6f"), encoding="utf-8")
    join_files(_in_order(files, settings.methods), stage.output("per_query"))
    stage.note(tests=len(tests), baseline=settings.baseline)


def read_per_query(paths: list[Path], methods: tuple[str, ...], measures: Iterable[str] | None = None) -> pd.DataFrame:
    """Read all files into one frame: methods in the table's order, collections in the order of the files.

    Args:
        paths: a file a run.
        methods: full names of the table's methods.
        measures: the columns that are read next to names and numbers of results; None: all.

    Raises:
        CollectionError: there are no files.
        ProtocolError: a file is of another method, a run appears twice, a collection was evaluated under different
            protocols, or on different queries.
    """
    if not paths:
        step = "add qrels/<split>.tsv, or request rankings and statistics (docs/own-corpus.md)"
        raise CollectionError("the chosen collections", "have no judged queries, so there is nothing to compare", step)
    columns = None if measures is None else [*NAMES, "depth", "exclude_self", "results", *measures]
    ordered = _in_order(paths, methods)
    tables = [pq.ParquetFile(path, read_dictionary=NAMES).read(columns) for path in ordered]
    frame = pa.concat_tables(tables, promote_options="default").to_pandas(split_blocks=True)
    if frame.duplicated(["model", "collection", "query"]).any():
        raise ProtocolError("the table", "a run appears twice", "give each per-query file once")
    for collection, rows in frame.groupby("collection", sort=False):
        _check_collection(str(collection), rows)
    return frame


def _in_order(paths: list[Path], methods: tuple[str, ...]) -> list[Path]:
    """Sort files by the table's methods, then by when their collection first appears."""
    names = {path: tuple(pq.ParquetFile(path).read(NAMES[:2]).slice(0, 1).to_pylist()[0].values()) for path in paths}
    if unknown := sorted({method for method, _ in names.values()} - set(methods)):
        problem = f"the table does not list these methods of its inputs: {', '.join(unknown)}"
        raise ProtocolError("the table", problem, "give the per-query files of the table's methods")
    collections = list(dict.fromkeys(collection for _, collection in names.values()))
    return sorted(paths, key=lambda path: (methods.index(names[path][0]), collections.index(names[path][1])))


def join_files(paths: list[Path], target: Path) -> None:
    """Write the rows of all files to one, a group of rows in memory at a time."""
    shared = pa.unify_schemas([pq.read_schema(path) for path in paths]).empty_table().to_pandas()
    schema = pa.Schema.from_pandas(shared, preserve_index=False)
    with pq.ParquetWriter(target, schema) as writer:
        held: list[pa.Table] = []
        for path in paths:
            whole = pa.concat_tables([schema.empty_table(), pq.ParquetFile(path).read()], promote_options="permissive")
            held.append(whole.cast(schema))
            if sum(map(len, held)) >= ROW_GROUP:
                rows = pa.concat_tables(held)
                writer.write_table(rows.slice(0, ROW_GROUP))
                held = [rows.slice(ROW_GROUP)]
        writer.write_table(pa.concat_tables(held))


def _check_collection(collection: str, rows: pd.DataFrame) -> None:
    cards = rows[CARD].drop_duplicates()
    if len(cards) > 1:
        protocols = " and ".join(str(card) for card in cards.to_dict("records")[:2])
        problem = f"its runs have different protocols: {protocols}"
        raise ProtocolError(collection, problem, "evaluate all methods under one protocol")
    queries = {run["query"].cat.codes.to_numpy().tobytes() for _, run in rows.groupby("model", sort=False)}
    if len(queries) > 1:
        step = "evaluate all methods on the same normalised collection"
        raise ProtocolError(collection, "methods were evaluated on different queries", step)


def compare(frame: pd.DataFrame, settings: CompareSettings, seed: int) -> pd.DataFrame:
    """Return TEST_COLUMNS, a row a test. Holm's correction is over all rows. Empty without results of the baseline."""
    rows = []
    for collection, runs in frame.groupby("collection", sort=False):
        runs = runs.astype({"query": "str", "model": "str"})
        values = runs.pivot(index="query", columns="model", values=settings.metric)
        others = [m for m in settings.methods if m in values.columns and settings.controls.get(m) != m]
        for baseline in dict.fromkeys([settings.baseline, *settings.controls.values()]):
            tested = [m for m in others if m != baseline and settings.controls.get(m, settings.baseline) == baseline]
            if baseline not in values.columns or not tested:
                continue
            base = values[baseline].to_numpy()
            tests = paired_tests(values[tested].to_numpy(), base, settings.samples, seed)
            shared = {"collection": str(collection), "baseline": baseline, "metric": settings.metric}
            shared |= {"protocol": runs["protocol"].iloc[0], "baseline_value": base.mean()}
            for method, test in zip(tested, tests, strict=True):
                rows.append(shared | asdict(test) | {"method": method, "method_value": values[method].mean()})
    table = pd.DataFrame(rows, columns=[c for c in TEST_COLUMNS if not c.endswith("_holm")])
    for name in ("p_t", "p_randomization"):
        table[f"{name}_holm"] = holm(table[name].to_numpy(float))
    return table[TEST_COLUMNS]


def write_tests(path: Path, tests: pd.DataFrame, settings: CompareSettings) -> None:
    """Write the table, then its explanation as lines that start with `# `."""
    notes = [
        f"each method against {settings.baseline} on the same queries, {settings.metric}; "
        f"{'one of a further seed against the baseline of that seed; ' if settings.controls else ''}"
        "difference: method minus baseline",
        f"p_t: two-sided paired t-test, over fewer than {FEW} queries the larger p of it and of the sign-flip test; "
        "p_randomization: two-sided sign-flip permutation test, "
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
    grouped = frame.groupby(["collection", "model", "protocol"], sort=False)
    means = grouped[HOLES].mean()
    means.insert(0, "queries", grouped.size())
    means.insert(1, "n_without_results", grouped["results"].agg(lambda results: int((results == 0).sum())))
    return means.reset_index()
