"""Methods repeated with other seeds, and claims about what they gain."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from tests.unit.paper_helpers import scores, told

from zerodr.config.counterparts import drawing, seeded, with_seeds
from zerodr.config.load import load_bench
from zerodr.config.papers import item_of
from zerodr.errors import ArtifactError, ConfigError
from zerodr.plan import Plan, paths
from zerodr.plan.items import read_item
from zerodr.reporting import claims, item_tables, items

CLAIM = {"kind": "claim", "methods": ["ours"], "baseline": "plain"}
BOTH = ["plain", "ours"]
GAIN = ["difference", "95 %"]
SEEDS = [
    {"seed": seed, "names": {name: f"{name}{end}" for name in BOTH}, "drawing": BOTH}
    for seed, end in ((13, ""), (14, "-seed14"))
]
VALUES = {
    ("plain", "a"): [0.2, 0.4, 0.6, 0.8],
    ("plain-seed14", "a"): [0.4, 0.4, 0.6, 0.8],
    ("ours", "a"): [0.4, 0.6, 0.6, 0.9],
    ("ours-seed14", "a"): [0.4, 0.6, 0.8, 1.0],
    ("plain", "b"): [0.5, 0.5],
    ("plain-seed14", "b"): [0.5, 0.5],
    ("ours", "b"): [0.4, 0.5],
    ("ours-seed14", "b"): [0.4, 0.4],
}


@pytest.fixture(scope="module")
def plan(root):
    return Plan(load_bench(root, {"scale": "lab", "seeds": "14,15", "collections": "scifact"}))


def claim(tmp_path, values=VALUES, seeds=SEEDS):
    files = [scores(tmp_path, *key, value) for key, value in values.items()]
    stage, settings = told(
        CLAIM, {"per_query": files}, tmp_path, collections=("a", "b"), methods=("plain", "ours"), values=seeds
    )
    return stage, settings, claims.claim(stage, settings, item_of(settings.item, "x"))


def test_a_name_keeps_its_variant_and_stage():
    names = ("dpr", "coco-dr+no-idro@ep0", "dpr@ep0.200")
    assert [seeded(name, 14) for name in names] == ["dpr-seed14", "coco-dr-seed14+no-idro@ep0", "dpr-seed14@ep0.200"]


def test_a_counterpart_starts_from_counterparts_and_shares_what_draws_nothing(plan):
    methods = plan.bench.methods
    assert methods["modir-dpr-seed14"].settings.encoder.init == "dpr-seed14/ep0"
    assert methods["hybrid-seed14+moma-minilm"].settings.runs == ("bm25-flat+bm25s", "moma-minilm-seed14")
    assert methods["adapt-seed15"].settings.chain["distil"].teacher == "hybrid+teacher"
    assert methods["kd-seed14"].settings.chain["ep0"].teacher == "cross-encoder"
    assert not {"cross-encoder-seed14", "reader-seed14", "bm25-flat-seed14", "all-minilm-l6-v2-seed14"} & set(methods)
    assert methods["coco-dr-seed14"].label == "COCO-DR, seed 14" and methods["dpr"].seed is None
    assert methods["coco-dr-seed14+no-idro@ep0"].label == "COCO-DR without iDRO, seed 14 @ep0"
    assert methods["ddr-distill-seed14"].settings.chain["ddr"].dam == "ddr-contrast-seed14/target-dam"


def test_a_counterpart_that_nobody_asked_for_is_one_sentence(plan):
    with pytest.raises(ConfigError, match=r"dpr-seed99: not in the configuration: --config seeds=\[99\] adds it"):
        plan.method("dpr-seed99")
    with pytest.raises(ConfigError, match="drp: not in the configuration: did you mean dpr"):
        plan.method("drp")


def test_only_jobs_of_a_counterpart_draw_from_its_seed(plan):
    def seed_of(rule, **wildcards):
        return json.loads(plan.settings(rule)(SimpleNamespace(**wildcards)))["seed"]

    link = {"stage": "ep0", "scope": "shared"}
    assert [seed_of("finetune", model=m, **link) for m in ("dpr", "dpr-seed14", "dpr-seed15")] == [13, 14, 15]
    assert seed_of("mine_negatives", model="dpr-seed14", **link) == 14
    assert seed_of("learn_attention", model="moma-minilm-seed15") == 15
    first, other = (
        json.loads(plan.settings("finetune")(SimpleNamespace(model=m, **link)))["settings"]
        for m in ("dpr", "dpr-seed14")
    )
    assert first == other


def test_without_further_seeds_nothing_changes(root):
    recipes = load_bench(root, {"scale": "lab"}).recipes
    assert with_seeds(recipes, ()) == recipes


def test_methods_that_draw_random_numbers(plan):
    names = drawing(plan.bench.recipes)
    assert {"dpr+official", "moma-minilm", "hybrid+coco-dr", "hybrid+moma-minilm", "zero+adapt-query"} <= names
    assert not {"zero", "hybrid", "hybrid+teacher", "hybrid+zero", "cross-encoder+zh"} & names


def test_a_fusion_like_another_draws_what_its_own_members_draw_and_a_seed_of_its_own_is_no_second_one():
    base = {"kind": "fusion", "settings": {"runs": ["bm25", "released"]}}
    recipes = {
        "trained": {"kind": "trained", "settings": {"encoder": {}}, "seed": 14},
        "hybrid": base,
        "mine": base | {"label": "Mine", "changes": [{"settings": {"runs": ["bm25", "trained"]}}]},
    }
    assert drawing(recipes) == {"trained", "mine"}
    more = with_seeds(recipes, (14, 15))
    assert {*more} - {*recipes} == {"trained-seed15", "mine-seed14", "mine-seed15"}
    assert more["mine-seed15"]["changes"][0]["settings"]["runs"] == ["bm25", "trained-seed15"]


def test_rows_of_the_table_are_repeated_by_seed(root):
    rows = load_bench(root, {"scale": "lab", "seeds": ["13", "14", "15"], "methods": ["bm25-flat", "dpr"]}).rows
    assert rows == ("bm25-flat", "dpr", "dpr-seed14", "dpr-seed15")
    assert load_bench(root, {"methods": ["dpr-seed14+official"]}).methods["dpr-seed14+official"].seed == 14


@pytest.mark.parametrize("seeds", ["14,14", [13, 13]])
def test_a_seed_is_named_once(root, seeds):
    with pytest.raises(ConfigError, match="name one seed twice: name each once"):
        load_bench(root, {"seeds": seeds})


def test_a_word_is_no_seed(root):
    with pytest.raises(ConfigError, match="seeds.*expected a whole number, found 'many'"):
        load_bench(root, {"seeds": "14,many"})


def test_a_claim_reads_every_seed_once(plan):
    wildcards = SimpleNamespace(paper="lab", item="moma")
    files = plan.inputs("build_item")(wildcards)["per_query"]
    names = [f"moma-minilm{end}{v}" for end in ("", "-seed14", "-seed15") for v in ("", "+own-memory")]
    assert files == [paths.per_query(name, "scifact", "standard") for name in ["all-minilm-l6-v2", *names]]


def test_a_claim_compares_no_method_with_a_seed_of_its_custom(plan):
    item = item_of(CLAIM | {"title": "x", "methods": ["dpr-seed14"], "baseline": "dpr"}, "x")
    with pytest.raises(ConfigError, match="method dpr-seed14: has a seed of its own, 14; pages over several seeds"):
        read_item(plan, item, ["scifact"])


def test_differences_are_of_queries_averaged_over_seeds(tmp_path):
    _, _, made = claim(tmp_path)
    rows = made.frame.set_index("collection")
    assert rows.loc["a", "difference"] == pytest.approx((0.125 + 0.15) / 2)
    assert rows.loc["a", ["difference_seed13", "difference_seed14"]].tolist() == pytest.approx([0.125, 0.15])
    assert rows.loc["a", "p_t"] == 0.125  # four queries: the sign-flip test's least, where Student's would give .0105
    assert rows.loc["mean", "difference"] == pytest.approx((0.1375 - 0.075) / 2)
    assert rows.loc["mean", "difference_low"] < rows.loc["mean", "difference"] < rows.loc["mean", "difference_high"]
    assert np.isnan(rows.loc["mean", "p_t_holm"]) and rows.loc["a", "p_t_holm"] == 0.25
    assert made.shown[0] == ["", "A", "B", "mean"] and made.shown[1][2][1] == "+0.1375"
    assert [row[0] for row in made.shown[1][4:]] == ["seed 13", "seed 14", "deviation of seeds"]
    assert rows.loc["a", "seeds_sd"] == pytest.approx(0.025 / 2**0.5)


def test_a_method_is_compared_with_its_own_control(tmp_path):
    files = [scores(tmp_path, name, "a", VALUES[name, "a"]) for name in BOTH]
    files.append(scores(tmp_path, "bare", "a", [0.0, 0.0, 0.0, 0.5]))
    item = CLAIM | {"methods": ["ours", "plain"], "baseline": "plain", "controls": {"plain": "bare"}}
    named = ["plain", "ours", "bare"]
    values = [{"seed": 13, "names": {name: name for name in named}, "drawing": named}]
    stage, settings = told(item, {"per_query": files}, tmp_path, collections=("a",), methods=named, values=values)
    made = claims.claim(stage, settings, item_of(settings.item, "x"))
    assert made.frame.set_index(["method", "collection"])["difference"].loc[:, "a"].to_dict() == pytest.approx(
        {"ours": 0.125, "plain": 0.375}
    )
    assert [row[0] for row in made.shown[1]] == [
        "Plain",
        "Ours",
        "difference",
        "95 %",
        "Bare",
        "Plain",
        *("difference", "95 %"),
    ]
    with pytest.raises(ConfigError, match="controls: other is not among methods"):
        item_of(item | {"title": "x", "controls": {"other": "bare"}}, "x")


def test_the_mean_of_methods_is_compared_with_their_control(tmp_path):
    by_method = {"ours": [0.5, 0.5, 0.5, 0.5], "other": [0.1, 0.3, 0.1, 0.3], "plain": [0.2, 0.2, 0.2, 0.2]}
    files, named = [scores(tmp_path, name, "a", numbers) for name, numbers in by_method.items()], list(by_method)
    item = CLAIM | {"methods": ["ours", "other"], "pooled": True}
    values = [{"seed": 13, "names": {name: name for name in named}, "drawing": named}]
    stage, settings = told(item, {"per_query": files}, tmp_path, collections=("a",), methods=named, values=values)
    made = claims.claim(stage, settings, item_of(settings.item, "x"))
    pooled = made.frame[made.frame["method"] == claims.POOLED].set_index("collection")
    assert pooled.loc["a", "value"] == pytest.approx(0.35) and pooled.loc["mean", "difference"] == pytest.approx(0.15)
    assert claims.POOLED in [row[0] for row in made.shown[1]]
    claims.draw_claim(made.frame, settings)


def test_few_seeds_are_no_claim(tmp_path):
    first = {key: value for key, value in VALUES.items() if "seed" not in key[0]}
    assert any("a first look, no claim" in note for note in claim(tmp_path, first, SEEDS[:1])[2].notes)
    three = [*SEEDS, SEEDS[0] | {"seed": 15}]
    assert not any("no claim" in note for note in claim(tmp_path, seeds=three)[2].notes)


def test_methods_that_draw_nothing_are_not_counted_as_repeated(tmp_path, plan):
    (alone,) = json.loads(plan.settings("build_item")(SimpleNamespace(paper="lab", item="zero")))["settings"]["values"]
    assert alone["drawing"] == [] and alone["seed"] == 13
    first = {key: value for key, value in VALUES.items() if "seed" not in key[0]}
    _, _, made = claim(tmp_path, first, [SEEDS[0] | {"drawing": []}])
    assert "Plain; Ours: the same with every seed, no random number is drawn" in made.notes


def test_no_counterpart_reads_what_was_drawn_with_another_seed(plan):
    names, chains = drawing(plan.bench.recipes) - {"minilm-lm"}, plan.chains  # a start, given to all seeds
    ours = {name for name in names if "-seed14" in name}
    for name in ours & set(chains.names()):
        starts = [chains.start_of_chain(name)]
        for stage in chains.trained(name).chain.values():
            starts += chains.other_parents(stage)
        assert all("-seed14" in start[0] for start in starts if start and start[0] in names), name


def test_a_recipe_with_the_name_of_a_counterpart_is_refused(root):
    recipes = load_bench(root, {"scale": "lab"}).recipes
    with pytest.raises(ConfigError, match="dpr-seed14 is the name of a recipe of yours: rename one of them"):
        with_seeds(recipes | {"dpr-seed14": recipes["dpr"]}, (14,))


def test_seeds_on_other_queries_are_refused(tmp_path):
    for key in (("ours-seed14", "b"), ("plain-seed14", "b")):
        with pytest.raises(ArtifactError, match="on b are of other queries: evaluate all again"):
            claim(tmp_path, VALUES | {key: [0.4, 0.4, 0.1]})
    odd = VALUES | {(name, "b"): [0.4, 0.4, 0.1] for name in ("ours", "ours-seed14")}
    with pytest.raises(ArtifactError, match="on b are of other queries: evaluate all again"):
        claim(tmp_path, odd)


def test_the_page_and_the_figure_are_drawn_from_the_table(tmp_path):
    stage, _, _ = claim(tmp_path)
    items.build_item(stage)
    frame = pd.read_csv(tmp_path / "table", sep="\t", comment="#")
    assert frame["collection"].tolist() == ["a", "b", "mean"] and b"+0.1375" in (tmp_path / "html").read_bytes()
    stage.inputs["table"] = [tmp_path / "table"]
    item_tables.plot_item(stage)
    assert (tmp_path / "png").stat().st_size > 5000


def test_methods_of_a_claim_are_drawn_on_one_scale():
    frame = pd.DataFrame({"method": ["small"] * 2 + ["large"] * 2, "difference": [0.01, 0.0, 0.5, -0.5]})
    frame = frame.assign(difference_low=frame["difference"] - 0.01, difference_high=frame["difference"] + 0.01)
    item, names = {"methods": ["small", "large"], "baseline": "plain"}, ("small", "large", "plain")
    settings = SimpleNamespace(item=item, collections={"a": "A"}, methods={name: name for name in names})
    left, right = claims.draw_claim(frame, settings).axes
    assert left.get_xlim() == right.get_xlim() and left.get_xlim()[0] < -0.51
