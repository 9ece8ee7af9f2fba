"""Plans of samples: names, what shares a ranking, what stays as it was, what a ranking of a sample costs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from tests.unit.config_helpers import inputs, lab_plan, params, root

from zerodr.config.speeds import read_speeds
from zerodr.operations.estimate.costs import Estimates, units_of
from zerodr.operations.estimate.jobs import Job
from zerodr.plan import Plan, paths
from zerodr.plan.mining import Sample, ranked_share, read_name, split_of
from zerodr.plan.patterns import Patterns

__all__ = ["root"]

ROOT = Path(__file__).parents[2]
ANCE = "train.sample20000-stage0-dev500-seed13"
BM25 = {"model": "bm25-flat+bm25s", "scope": "shared", "collection": "squad-v1.1", "depth": "200"}


def candidates(made: Plan, model: str, stage: str) -> str:
    files = inputs(made, "mine_negatives", model=model, stage=stage, scope="shared")
    return files["candidates"].removeprefix("results/candidates/")


@pytest.mark.parametrize("split", ["train", "adapt-query.distil", "dev_2"])
def test_names_are_read_as_they_are_written(split):
    sample = Sample(split, 100000, 3, 500, 13)
    assert sample.name == f"{split}.sample100000-stage3-dev500-seed13"
    assert read_name(sample.name) == sample and split_of(sample.name) == split
    assert read_name(split) is None and split_of(split) == split
    path = paths.sample("c", *sample)
    assert path == f"results/samples/c/{sample.name}.parquet"


def test_a_split_and_its_samples_are_told_apart_in_paths(root):
    ranked, plain = (re.compile(p()) for p in (Patterns(lab_plan(root)).ranked_splits, Patterns(lab_plan(root)).splits))
    generated = "adapt-query.distil.sample5-stage1-dev0-seed13"
    for name in ("train", ANCE, generated):
        assert ranked.fullmatch(name)
    assert plain.fullmatch("train") and not plain.fullmatch(ANCE) and not ranked.fullmatch("train.sample5")


def test_a_stage_with_a_sample_reads_a_ranking_of_it_and_others_of_all(root):
    made = lab_plan(root)
    assert candidates(made, "ance", "ep1") == f"dpr@ep0/shared/squad-v1.1/{ANCE}.top200.parquet"
    later = ANCE.replace("stage0", "stage1")
    assert candidates(made, "ance", "ep2") == f"ance@ep1/shared/squad-v1.1/{later}.top200.parquet"
    assert candidates(made, "dpr", "ep0") == "bm25-flat+bm25s/shared/squad-v1.1/train.top200.parquet"
    assert inputs(made, "rank_bm25", **BM25, split="train") == {
        "index": "results/bm25/bm25s-flat/squad-v1.1/manifest.json",
        "collection": "results/collections/squad-v1.1/manifest.json",
    }


def test_equal_draws_share_one_ranking_across_recipes(root):
    """Distilled DR and KD mine at the same position of their chains, with the same numbers."""
    made = lab_plan(root, seeds=[14])
    shared = candidates(made, "kd", "ep0")
    assert shared == f"bm25-flat+bm25s/shared/squad-v1.1/{ANCE}.top200.parquet"
    assert candidates(made, "dr-distill", "ep0") == candidates(made, "kd+kl", "ep0") == shared
    assert candidates(made, "kd-seed14", "ep0") == shared.replace("seed13", "seed14")


def test_a_fixed_method_ranks_all_queries_once_the_samples_of_a_model_are_more(root):
    """Four samples of 20,500 are below the split's 87,599, five are not; the model before always ranks samples."""
    edit(root, "ance", "repeat: 1}", "repeat: 5}")
    made, stages = lab_plan(root), [f"ep{n}" for n in range(1, 7)]
    every = candidates(made, "dpr", "ep0")
    assert {candidates(made, "ance+bm25", stage) for stage in stages} == {every}, "DPR, its start, reads all queries"
    assert all(".sample" in candidates(made, "ance", stage) for stage in stages)
    edit(root, "dpr", "depth: 200, count: 30}", "depth: 200, count: 30, queries: 20000}")
    made = lab_plan(root)
    fixed = [candidates(made, name, stage) for name, stage in [("dpr", "ep0"), *(("ance+bm25", s) for s in stages)]]
    assert [".sample" in ranking for ranking in fixed] == [True] * 4 + [False] * 3 and len(set(fixed)) == 4
    assert fixed[0] == fixed[1] and fixed[-1] == every
    edit(root, "ance", "queries: 20000", "queries: 87599")
    assert not any(".sample" in candidates(lab_plan(root), name, "ep1") for name in ("ance", "ance+bm25"))


def edit(root: Path, name: str, old: str, new: str) -> None:
    path = root / f"config/methods/{name}.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_the_sample_is_drawn_as_the_stage_that_mines_draws(root):
    made = lab_plan(root, seeds=[14])
    sample = Sample("train", 20000, 0, 500, 14)
    words = {"collection": "squad-v1.1"} | {key: str(value) for key, value in sample._asdict().items()}
    drawn = params(made, "sample_queries", **words)
    mining = params(made, "mine_negatives", model="kd-seed14", scope="shared", stage="ep0")
    assert drawn["seed"] == mining["seed"] == 14
    shared = {key: mining["settings"][key] for key in ("split", "stage_index", "dev_queries")}
    assert drawn["settings"] == shared | {"queries": mining["settings"]["negatives"]["queries"]}
    ranking = inputs(made, "rank_bm25", **BM25, split=sample.name)
    assert ranking["sample"] == paths.sample("squad-v1.1", *sample)
    assert params(made, "rank_bm25", **BM25, split=sample.name) == params(made, "rank_bm25", **BM25, split="train")


def test_a_sample_is_searched_with_the_vectors_of_all(root):
    made = lab_plan(root)
    words = BM25 | {"model": "dpr@ep0", "shard": "00000-of-00001"}
    some, every = (inputs(made, "search_candidates", **words, split=split) for split in (ANCE, "train"))
    assert some["sample"].endswith(f"/{ANCE}.parquet") and "sample" not in every
    assert some["queries"] == every["queries"] and some["queries"].endswith("/queries.train.npy")
    merged = inputs(made, "merge_candidates", **words, split=ANCE)
    assert merged["sample"] == some["sample"] and f"/{ANCE}.top200/" in merged["hits"][0]


def test_both_rankings_of_a_fusion_are_of_the_sample(root):
    words = BM25 | {"model": "hybrid+teacher", "split": ANCE}
    rankings = inputs(lab_plan(root), "fuse_candidates", **words)["rankings"]
    assert len(rankings) == 2 and all(f"/{ANCE}.top200.parquet" in path for path in rankings)


def test_a_sample_of_generated_queries_is_of_their_collection(root):
    path = root / "config/methods/adapt-query.yaml"
    value = yaml.safe_load(path.read_text())
    value["variants"] = {"few": {"settings": {"chain": {"distil": {"negatives": {"queries": 50}}}}}}
    path.write_text(yaml.safe_dump(value, sort_keys=False))
    made = lab_plan(root)
    mined = inputs(made, "mine_negatives", model="adapt-query+few", scope="scifact", stage="distil")
    ranked = re.fullmatch(r".*/scifact/(adapt-query\.distil\.sample50-[^.]*)\.top100\.parquet", mined["candidates"])
    assert ranked is not None
    sample = read_name(ranked.group(1))
    assert sample is not None
    drawn = {key: str(value) for key, value in sample._asdict().items()} | {"collection": "scifact"}
    generated = {"collection": "results/generated/adapt-query/scifact/distil/manifest.json"}
    assert inputs(made, "sample_queries", **drawn) == generated
    ranking = inputs(made, "rank_bm25", **BM25 | {"collection": "scifact"}, split=sample.name)
    assert ranking["collection"] == generated["collection"]


def test_a_ranking_costs_in_proportion_to_its_queries(root, monkeypatch):
    """100,500 of MS MARCO's 502,939 training queries."""
    monkeypatch.chdir(root)
    made, ance = lab_plan(root, scale="paper"), "train.sample100000-stage0-dev500-seed13"
    assert ranked_share(ance, {"train": 502939}) == pytest.approx(100500 / 502939)
    assert ranked_share(ance, {}) == ranked_share("train", {"train": 5}) == ranked_share(ance, {"train": 99}) == 1.0
    words = {"model": "dpr@ep0", "scope": "shared", "collection": "msmarco", "depth": "200", "shard": "00000-of-00005"}
    jobs = [Job("search_candidates", words | {"split": split}) for split in ("train", ance)]
    every, some = (units_of(job, made) for job in jobs)
    assert some == pytest.approx(every * 100500 / 502939)
    base, slope = read_speeds(root).jobs["search_candidates"]
    assert Estimates(made, root / "none").seconds(jobs[1]) == (pytest.approx(base + slope * some), False)
    assert made.machines.memory_mib("search_candidates")(SimpleNamespace(**jobs[0].wildcards)) == (
        made.machines.memory_mib("search_candidates")(SimpleNamespace(**jobs[1].wildcards))
    )
    past = {
        "rule": "search_candidates",
        "wildcards": jobs[1].wildcards,
        "spec": {"params": {"shards": 5}},
        "spec_digest": "a",
        "seconds": 100.0,
        "notes": {"device": "cuda"},
    }
    (root / "past").mkdir()
    (root / "past/a.lineage.json").write_text(json.dumps(past))
    found = [Estimates(made, root / "past").seconds(job) for job in jobs]
    assert found[0][1] and found[1][1] and found[0][0] / found[1][0] == pytest.approx(502939 / 100500)
