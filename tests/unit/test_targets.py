"""What can be asked for: all of it can be planned, and a mistyped name gets the nearest."""

from __future__ import annotations

import random

import pytest

from zerodr.config.load import load_bench
from zerodr.plan import Plan, paths
from zerodr.plan.targets import TARGETS, idle_variants, is_target, names, nearest_target, other_names, render


@pytest.fixture(scope="module")
def plan(root):
    return Plan(load_bench(root, {}))


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("results/beir/al.tsv", "results/beir/all.tsv"),
        ("results/beir/all-minilm-l6v2.tsv", "results/beir/all-minilm-l6-v2.tsv"),
        ("results/beir/hybrid.md5", "results/beir/hybrid.md"),
        (paths.summary("bm25-flatt", "scifact", "standard"), paths.summary("bm25-flat", "scifact", "standard")),
        (paths.run("hybird", "sci-fact", "standart"), paths.run("hybrid", "scifact", "standard")),
        ("result/runs/bm25-flat/scifact/standard.trec", paths.run("bm25-flat", "scifact", "standard")),
        ("results/collections/nfcorpsu/statistic.json", paths.statistics("nfcorpus")),
        ("al", "all"),
    ],
)
def test_the_nearest_target_comes_first(plan, wrong, meant):
    assert not is_target(wrong, plan)
    assert is_target(meant, plan)
    assert nearest_target(wrong, plan).startswith(f"did you mean {meant}")


def test_a_table_of_some_columns_has_another_name(root):
    plan = Plan(load_bench(root, {"collections": "scifact"}))
    assert nearest_target("results/beir/all.tsv", plan) == "with these collections it is results/beir/scifact.tsv"
    assert nearest_target(paths.compared("all", "holes.tsv"), plan).endswith(paths.compared("scifact", "holes.tsv"))
    assert nearest_target("results/beir/al.tsv", plan).startswith("did you mean")
    other = nearest_target("results/beir/scifact+nfcorpus.tsv", plan)
    assert other == "these collections are not chosen: add --config collections=scifact,nfcorpus"
    other = nearest_target("results/beir/nfcorpus.tsv", plan)
    assert other == "these collections are not chosen: add --config collections=nfcorpus"
    named = "a table is named by its columns, here results/beir/scifact.tsv; methods= chooses its rows"
    assert nearest_target("results/beir/mytable.tsv", plan) == named


def test_a_table_is_found_under_its_columns_in_any_order_and_under_all_of_them(root):
    few = Plan(load_bench(root, {"collections": "scifact,nfcorpus,fiqa"}))
    holes = paths.compared("scifact+fiqa+nfcorpus", "holes.tsv")
    words = ["-n", holes, "results/beir/nfcorpus+fiqa+scifact.html", "results/beir/fiqa+nfcorpus+scifact.tsv"]
    assert other_names([*words, "results/beir/fiqa+scifact.tsv", "results/beir/fiqa+fiqa+scifact.tsv"], few) == {
        holes: paths.compared("fiqa+nfcorpus+scifact", "holes.tsv"),
        words[2]: words[3].replace(".tsv", ".html"),
    }
    every = sorted(row.name for row in few.bench.collections.values() if row.evaluation_split)[:12]
    many, asked = Plan(load_bench(root, {"collections": every})), f"results/beir/{'+'.join(every)}.tsv"
    assert "-more-" in many.selection
    assert other_names([asked], many) == {asked: f"results/beir/{many.selection}.tsv"}


def test_a_variant_that_a_run_makes_nothing_of_is_named_with_its_row(root):
    changed = Plan(load_bench(root, {"set": ["dpr.training.batch_queries=8"]}))
    words, files = ["snakemake", "results/beir/dpr.tsv"], ["results/models/dpr/shared/ep0/manifest.json"]
    name = "dpr+training.batch_queries-8"
    assert idle_variants(words, files, changed) == f"set: nothing here reads {name}: its row is results/beir/{name}.tsv"
    assert idle_variants(words, [*files, f"results/models/{name}/shared/ep0/manifest.json"], changed) == ""
    longer = f"results/models/{name}0/shared/ep0/manifest.json"
    assert name in idle_variants(words, [*files, longer], changed), "of another value that begins alike"
    assert idle_variants(words, files, Plan(load_bench(root, {}))) == ""


@pytest.mark.parametrize("wrong", ["", "foo", "results/beir/qqqq.zip", "a/b/c/d/e/f"])
def test_what_is_like_nothing_points_to_the_list(plan, wrong):
    assert nearest_target(wrong, plan) == "see: zerodr targets"


def test_the_table_of_a_mistyped_collection_is_answered_with_its_name(plan):
    assert nearest_target("results/beir/nfcorpuss.tsv", plan).startswith("did you mean results/beir/nfcorpus.tsv")


def test_a_collection_without_judgements_has_rankings_but_no_metrics(plan):
    assert is_target(paths.run("bm25-flat", "memory-wordnet", "standard"), plan)
    assert not is_target(paths.summary("bm25-flat", "memory-wordnet", "standard"), plan)


def test_the_list_holds_every_target_and_name(plan):
    text, known = render(plan), names(plan)
    for target in TARGETS:
        assert target.path in text
    for name in [*known["method"], *known["protocol"], *known["collection"]]:
        assert name in text.split()
    assert max(map(len, text.splitlines())) <= 118


def test_every_family_matches_its_own_members(plan):
    chance, known = random.Random(1), names(plan)
    for target in TARGETS:
        path = target.path
        for kind, choices in known.items():
            path = path.replace(f"{{{kind}}}", chance.choice(choices))
        assert is_target(path, plan)
