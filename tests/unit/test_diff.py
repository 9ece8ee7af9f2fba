"""Two artifacts side by side, and the queries that moved."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_bench import COLLECTION, MODEL, TABLE, make_bench, make_evaluation, plan_of

from zerodr.artifacts.record import read_record, write_json
from zerodr.errors import ArtifactError
from zerodr.lineage.diff import diff, per_query_file, query_moves
from zerodr.lineage.graph import Graph, flatten
from zerodr.plan import paths

RUNS = [paths.run(model, "toy", "standard") for model in ("bm25-flat", "dense")]
SUMMARIES = [paths.summary(model, "toy", "standard") for model in ("bm25-flat", "dense")]


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_bench(tmp_path)


@pytest.mark.parametrize("pair", [RUNS, SUMMARIES])
def test_runs_and_evaluations_show_metrics_and_winners(plan, pair):
    text = diff(Graph(), *pair)
    assert "ndcg_cut_10" in text and "+0.100000" in text
    assert "queries by ndcg_cut_10: 1 better in B, 1 worse, 2 equal" in text
    assert "+0.7000  0.2000 -> 0.9000  q1  what is archive toy.zip about, asks q1" in text
    assert "-0.3000  0.4000 -> 0.1000  q2" in text


def test_a_run_with_counts_of_its_own_shows_those_of_its_evaluation(plan):
    counts = [{"name": "queries_without_hits", "value": 1.0, "step": 0}]
    write_json(Path(f"{RUNS[0]}.lineage.json"), read_record(RUNS[0]) | {"metrics": counts})
    text = diff(Graph(), *RUNS)
    assert "queries_without_hits" in text and "+0.100000" in text


def test_settings_inputs_and_stages_that_differ_are_listed(plan):
    text = diff(Graph(), *RUNS)
    assert "rule  search_bm25  ->  merge_run" in text
    assert "k1" in text and "0.9  ->  -" in text
    assert "depth" not in text
    assert paths.shard_hits("dense", "toy", "standard", "shard-00000-of-00002") in text
    assert "environment: the same environment" in text
    record = read_record(RUNS[0])
    write_json(
        Path(f"{RUNS[0]}.lineage.json"), record | {"environment": record["environment"] | {"slurm_job": "17 on a"}}
    )
    assert "environment: the same environment" in diff(Graph(), *RUNS)


def test_inputs_of_one_name_are_the_same_where_another_comes_before_them(plan):
    """The file of an imported run stands before the sections of an own folder."""
    for name, more in zip(SUMMARIES, ([], [{"name": "file", "path": "their.trec", "digest": "d" * 64}]), strict=True):
        sections = [{"name": "sections", "path": path, "digest": path * 64} for path in "qj"]
        write_json(Path(f"{name}.lineage.json"), read_record(name) | {"inputs": [*more, *sections]})
    text = diff(Graph(), *SUMMARIES)
    assert "file  -  ->  their.trec" in text and "sections" not in text


def test_code_is_the_same_only_when_it_is_known(plan):
    def told(left: str | None, right: str | None) -> str:
        for run, commit in zip(RUNS, (left, right), strict=True):
            code = {"commit": commit, "dirty_patch_sha256": None}
            write_json(Path(f"{run}.lineage.json"), read_record(run) | {"code": code})
        return diff(Graph(), *RUNS)

    assert "code: the same code" in told("a" * 40, "a" * 40)
    assert f"commit  {'a' * 12}  ->  {'b' * 12}" in told("a" * 40, "b" * 40)
    assert f"commit  unknown  ->  {'b' * 12}" in told(None, "b" * 40)
    text = told(None, None)
    assert "code: unknown, both artifacts come from outside a git checkout" in text
    assert "the same code" not in text


def test_kinds_of_processors_that_differ_are_listed(plan):
    def computed_as(*kinds: str) -> str:
        for run, kind in zip(RUNS, kinds, strict=True):
            record = read_record(run)
            write_json(Path(f"{run}.lineage.json"), record | {"notes": record["notes"] | {"processor_kind": kind}})
        return diff(Graph(), *RUNS)

    assert "kernels" not in diff(Graph(), *RUNS)
    assert "kernels:\n  kind of processor  avx2  ->  intel-amx" in computed_as("avx2", "intel-amx")
    assert "kernels: the same kind of processor" in computed_as("avx2", "avx2")


def test_lines_of_the_users_loss_that_differ_are_listed(plan):
    for path, margin in zip(RUNS, ("0.1", "0.2"), strict=True):
        record = read_record(path)
        code = f"import torch\ndef mine(scores):\n    return scores.mean() + {margin}"
        write_json(Path(f"{path}.lineage.json"), record | {"notes": {"custom_code": code}})
    text = diff(Graph(), *RUNS)
    assert "code of yours:" in text and "  -    return scores.mean() + 0.1\n  +    return scores.mean() + 0.2" in text
    assert "code of yours" not in diff(Graph(), RUNS[0], RUNS[0])


def test_an_artifact_and_itself_do_not_differ(plan):
    text = diff(Graph(), TABLE, TABLE)
    assert "the same bytes" in text
    assert "settings: the same settings" in text
    assert "queries by" not in text


def test_a_changed_setting_moves_a_number(plan, tmp_path):
    summary = SUMMARIES[0]
    kept = Path("results/kept.tsv")
    kept.write_bytes(Path(summary).read_bytes())
    Path("results/kept.tsv.lineage.json").write_text(Path(f"{summary}.lineage.json").read_text())
    (tmp_path / "config/config.yaml").write_text("{scale: mini, seed: 7, bootstrap_samples: 500}\n")
    make_evaluation(plan_of(tmp_path), "bm25-flat")
    text = diff(Graph(), str(kept), summary)
    assert "bootstrap_samples  1000  ->  500" in text
    assert "inputs: the same inputs" in text


def test_queries_of_two_collections_are_said_to_be_others(plan):
    assert "may be two queries" not in diff(Graph(), *SUMMARIES)
    record = Path(f"{paths.per_query('dense', 'toy', 'standard')}.lineage.json")
    facts = json.loads(record.read_text())
    facts["spec"]["params"]["collection"] = "other"
    record.write_text(json.dumps(facts))
    assert "A is of toy/test, B of other/test: what has one id may be two queries" in diff(Graph(), *SUMMARIES)


def test_models_have_metrics_and_no_winners(plan):
    text = diff(Graph(), MODEL, COLLECTION)
    assert "loss" in text
    assert "queries by" not in text
    assert "ndcg" not in diff(Graph(), COLLECTION, COLLECTION)


def test_an_unknown_metric_is_answered_with_the_nearest(plan):
    with pytest.raises(ArtifactError, match="did you mean ndcg_cut_10"):
        diff(Graph(), *RUNS, metric="ndgc_cut_10")
    with pytest.raises(
        ArtifactError, match=r"recall_20: is no per-query metric: evaluate by it: --config measures=\[rec"
    ):
        diff(Graph(), *RUNS, metric="recall_20")
    with pytest.raises(ArtifactError, match="is no per-query metric"):
        diff(Graph(), *RUNS, metric="model")


def test_a_missing_evaluation_file_is_told(plan):
    Path(paths.per_query("dense", "toy", "standard")).unlink()
    with pytest.raises(ArtifactError, match="build it: snakemake"):
        diff(Graph(), *RUNS)


def test_per_query_file_is_found_from_either_side(plan):
    graph = Graph()
    for artifact in (RUNS[1], SUMMARIES[1], paths.per_query("dense", "toy", "standard")):
        assert per_query_file(graph, artifact) == paths.per_query("dense", "toy", "standard")
    assert per_query_file(graph, TABLE) is None
    assert read_record(SUMMARIES[1])["outputs"]["per_query"] == paths.per_query("dense", "toy", "standard")


values = st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1), min_size=1)


@settings(max_examples=25, deadline=None)
@given(a=values, b=values)
def test_moves_cover_both_sides_and_sum_to_the_difference(tmp_path_factory, a, b):
    folder = tmp_path_factory.mktemp("moves")
    for name, side in (("a", a), ("b", b)):
        pd.DataFrame({"query": list(side), "m": list(side.values())}).to_parquet(folder / name)
    moves = query_moves(str(folder / "a"), str(folder / "b"), "m")
    assert sorted(moves["query"]) == sorted(a.keys() | b.keys())
    assert moves["change"].sum() == pytest.approx(sum(b.values()) - sum(a.values()))
    assert list(moves["change"]) == sorted(moves["change"], reverse=True)


def test_flatten_keeps_types_apart():
    assert flatten({"a": {"b": 1.0, "c": "x"}, "d": [1, "y"], "e": {}, "f": None, "g": True}) == {
        "a.b": "1.0",
        "a.c": "x",
        "d": '[1,"y"]',
        "e": "{}",
        "f": "null",
        "g": "true",
    }
