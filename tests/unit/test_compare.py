"""Every method against the baseline, over several collections."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_table import collection as column
from test_table import run_stage as build
from test_table import settings_of, write_summary

from zerodr.artifacts.stage import Stage, StageSpec, temporary_output
from zerodr.config.measures import FIRST
from zerodr.errors import CollectionError, ProtocolError
from zerodr.evaluation import compare as module
from zerodr.evaluation.compare import (
    TEST_COLUMNS,
    CompareSettings,
    compare,
    compare_runs,
    join_files,
    read_per_query,
    write_tests,
)
from zerodr.evaluation.numbers import signed
from zerodr.evaluation.significance import holm, t_test
from zerodr.reporting.grid import TableMethod, TableSettings
from zerodr.reporting.render import significance_section
from zerodr.reporting.table import gains_over_seeds, over_seeds

METHODS = ("base", "better", "equal")
SETTINGS = CompareSettings(baseline="base", samples=200, methods=METHODS)


def write(folder: Path, model: str, collection: str, values: np.ndarray, **card: object) -> Path:
    count = len(values)
    identity = {
        "model": model,
        "collection": collection,
        "split": "test",
        "protocol": "standard",
        "depth": 10,
        "exclude_self": False,
    } | card
    columns = {name: [value] * count for name, value in identity.items()}
    columns |= {
        "query": [f"q{i:02d}" for i in range(count)],
        "results": [10] * (count - 1) + [0],
        "positives": [1] * count,
    }
    columns |= {name: values for name in FIRST}
    path = folder / f"{model}.{collection}.parquet"
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    generator = np.random.default_rng(0)
    files = []
    for collection in ("one", "two"):
        base = generator.random(30) / 2
        gains = {"base": 0, "better": generator.random(30) / 5, "equal": 0}
        files += [write(tmp_path, model, collection, base + gains[model]) for model in reversed(METHODS)]
    return files


def test_every_method_but_the_baseline_on_every_collection(paths):
    table = compare(read_per_query(paths, METHODS), SETTINGS, 13)
    assert list(zip(table["collection"], table["method"], strict=True)) == [
        ("one", "better"),
        ("one", "equal"),
        ("two", "better"),
        ("two", "equal"),
    ]
    np.testing.assert_allclose(table["difference"], table["method_value"] - table["baseline_value"], atol=1e-12)
    better, equal = (table[table["method"] == name] for name in ("better", "equal"))
    assert (better["p_t_holm"] < 0.01).all() and (better["low"] > 0).all() and (better["wins"] == 30).all()
    assert (equal["p_t_holm"] == 1).all() and (equal["effect"] == 0).all() and (equal["ties"] == 30).all()


def test_the_family_of_holm_is_the_whole_table(paths):
    frame = read_per_query(paths, METHODS)
    table = compare(frame, SETTINGS, 13)
    np.testing.assert_allclose(table["p_t_holm"], holm(table["p_t"].to_numpy()))
    part = frame[frame["collection"] == "two"].pivot(index="query", columns="model", values="ndcg_cut_10")
    expected = t_test((part["better"] - part["base"]).to_numpy()[:, None])[0]
    assert table.set_index(["collection", "method"]).loc[("two", "better"), "p_t"] == pytest.approx(expected)


def test_a_further_seed_meets_the_baseline_of_that_seed_and_no_seed_of_the_baseline_is_tested(tmp_path, paths):
    names = ("base", "base-seed14", "better", "better-seed14")
    values = np.random.default_rng(1).random(30) / 2
    further = [write(tmp_path, "base-seed14", "one", values), write(tmp_path, "better-seed14", "one", values + 0.1)]
    frame = read_per_query([*(path for path in paths if "equal" not in path.name), *further], names)
    controls = {"base-seed14": "base-seed14", "better-seed14": "base-seed14"}
    table = compare(frame, SETTINGS.model_copy(update={"methods": names, "controls": controls}), 13)
    rows = list(zip(table["collection"], table["method"], table["baseline"], strict=True))
    second = ("one", "better-seed14", "base-seed14")
    assert rows == [("one", "better", "base"), second, ("two", "better", "base")]
    assert table["difference"].iloc[1] == pytest.approx(0.1)


def test_a_gain_over_seeds_is_of_queries_averaged_over_them(tmp_path):
    names = ("base", "base-seed14", "better", "better-seed14", "alone")
    generator = np.random.default_rng(2)
    base, other = generator.random(30) / 2, generator.random(30) / 2
    files = [
        write(tmp_path, *row)
        for row in (
            ("base", "one", base),
            ("base-seed14", "one", other),
            ("better", "one", base + generator.random(30) / 10),
            ("better-seed14", "one", other + 0.1),
            ("alone", "one", base),
        )
    ]
    frame = read_per_query(files, names)
    seeds = {"base": names[:2], "better": names[2:4]}
    methods = tuple(TableMethod.model_construct(name=name, label=name.title()) for name in names)
    words = {"methods": methods, "metric": "ndcg_cut_10", "bootstrap_samples": 200}
    table = TableSettings.model_construct(**words, seeds=seeds, baseline="base")
    (note,) = gains_over_seeds(frame, table, 13)
    means = frame.groupby("model", observed=True)["ndcg_cut_10"].mean()
    gain = (means["better"] + means["better-seed14"] - means["base"] - means["base-seed14"]) / 2
    assert note.startswith(f"Better minus Base, queries averaged over 2 seeds: one {signed(gain)} [+0.0")
    level, _ = over_seeds(frame, table, 13)
    value = f"{(means['base'] + means['base-seed14']) / 2:.4f}"
    assert re.fullmatch(rf"Base, mean over 2 seeds .*: one {value} \[0\.\d{{4}}, 0\.\d{{4}}\], seeds .*", level), level
    assert gains_over_seeds(frame, table.model_copy(update={"baseline": ""}), 13) == []
    assert gains_over_seeds(frame[frame["model"] != "base-seed14"], table, 13) == []


def test_methods_come_in_the_order_of_the_table(paths):
    frame = read_per_query(paths, METHODS)
    assert list(dict.fromkeys(frame["model"])) == list(METHODS)
    assert len(frame) == 6 * 30


def test_different_protocols_do_not_meet(tmp_path, paths):
    paths[1] = write(tmp_path, "better", "one", np.ones(30), protocol="modir-paper")
    with pytest.raises(ProtocolError, match="one: its runs have different protocols.*modir-paper"):
        read_per_query(paths, METHODS)


def test_different_queries_do_not_meet(tmp_path, paths):
    paths[1] = write(tmp_path, "better", "one", np.ones(29))
    with pytest.raises(ProtocolError, match="different queries"):
        read_per_query(paths, METHODS)


def test_a_run_given_twice_or_of_another_method_is_refused(paths):
    with pytest.raises(ProtocolError, match="twice"):
        read_per_query([*paths, paths[0]], METHODS)
    with pytest.raises(ProtocolError, match="does not list these methods of its inputs: equal"):
        read_per_query(paths, METHODS[:2])


def run_stage(folder: Path, paths: list[Path], **changes: object) -> dict[str, Path]:
    outputs = {
        "significance": str(folder / "s.tsv"),
        "per_query": str(folder / "a.parquet"),
        "holes": str(folder / "h.tsv"),
    }
    params = {"baseline": "base", "samples": 100, "methods": list(METHODS)} | changes
    spec = StageSpec("compare_runs", 1, {}, {"per_query": [str(p) for p in paths]}, outputs, params, 13)
    compare_runs(Stage(spec, folder))
    return {name: temporary_output(path) for name, path in outputs.items()}


def test_nothing_to_compare_is_one_clear_error():
    with pytest.raises(CollectionError, match="have no judged queries, so there is nothing to compare: add qrels"):
        read_per_query([], METHODS)


def test_the_stage_writes_tests_queries_and_holes(tmp_path, paths):
    made = run_stage(tmp_path, paths)
    tests = pd.read_csv(made["significance"], sep="\t", comment="#")
    assert len(tests) == 4
    assert "Holm's step-down correction over the 4 tests" in made["significance"].read_text()
    assert len(pq.read_table(made["per_query"])) == 180
    holes = pd.read_csv(made["holes"], sep="\t")
    assert (holes["n_without_results"] == 1).all() and (holes["queries"] == 30).all()
    assert {"hole_pair_10", "hole_corpus_10", "ndcg_cut_10_judged"} <= set(holes.columns)
    before = {name: path.read_bytes() for name, path in made.items()}
    assert before == {name: path.read_bytes() for name, path in run_stage(tmp_path, paths).items()}


def test_joined_files_hold_all_rows_whatever_is_in_memory(tmp_path, paths, monkeypatch):
    join_files(paths, tmp_path / "whole.parquet")
    monkeypatch.setattr(module, "ROW_GROUP", 70)
    join_files(paths, tmp_path / "groups.parquet")
    groups = pq.ParquetFile(tmp_path / "groups.parquet")
    assert [groups.metadata.row_group(n).num_rows for n in range(groups.num_row_groups)] == [70, 70, 40]
    assert groups.read().equals(pq.read_table(tmp_path / "whole.parquet"))
    assert len(groups.read()) == sum(len(pq.read_table(path)) for path in paths)


def test_without_the_baseline_the_table_is_empty_and_says_so(tmp_path, paths):
    made = run_stage(tmp_path, paths, baseline="bm25-flat")
    assert pd.read_csv(made["significance"], sep="\t", comment="#").empty
    assert "the baseline bm25-flat is not among the table's methods" in made["significance"].read_text()


@pytest.mark.parametrize("name", ["2024", "1e5", "nan", "true"])
def test_a_folder_whose_name_looks_like_a_number_keeps_its_marks(tmp_path, name):
    values = np.random.default_rng(0).uniform(0.4, 0.6, 50)
    both = {"bm25": values, "dense": values - 0.1}
    frame = read_per_query([write(tmp_path, *item) for item in ((m, name, v) for m, v in both.items())], tuple(both))
    settings = CompareSettings(baseline="bm25", samples=20, methods=tuple(both))
    write_tests(tmp_path / "tests.tsv", compare(frame, settings, 13), settings)
    summaries = [str(write_summary(tmp_path, model, name, one.mean())) for model, one in both.items()]
    inputs = {"summaries": summaries, "significance": str(tmp_path / "tests.tsv")}
    made = build(tmp_path, inputs, ("markdown", "table"), collections=[column(name, "own")])
    assert made["markdown"].read_text().count("▼ |") == 2, "in its cell, and in the list of differences"
    assert f"\n| {name} " in made["markdown"].read_text()


def test_collections_that_the_baseline_did_not_rank_are_named_as_not_tested():
    tests = pd.DataFrame([dict.fromkeys(TEST_COLUMNS, 0.5)]).assign(
        method="dense", collection="alpha", baseline="bm25", queries=50
    )
    whole = settings_of()
    lacking = [
        method.model_copy(update={"absent": ("beta",)}) if method.name == "bm25" else method for method in whole.methods
    ]
    for settings, words in (
        (whole, []),
        (whole.model_copy(update={"methods": tuple(lacking)}), ["in no test, as BM25 has no run there: beta"]),
    ):
        notes, _ = significance_section(tests, settings)
        assert notes[1:] == words


@pytest.mark.parametrize(("count", "said"), [(400, False), (750, True)])
def test_permutations_that_are_too_few_for_so_many_tests_are_named(count, said):
    """At scale paper 750 tests: with 10,000 permutations no p is below .075, next to .001 of the t-test."""
    tests = pd.DataFrame([dict.fromkeys(TEST_COLUMNS, 0.001)] * count).assign(
        method="dense", collection="alpha", baseline="bm25", queries=50, p_randomization=1 / 10001
    )
    notes, _ = significance_section(tests, settings_of())
    words = "the least p of the randomisation tests, 0.0001, is 0.075 after Holm's correction over 750 tests"
    assert any(note.startswith(words) for note in notes) == said
