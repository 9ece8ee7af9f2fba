"""Losses on judged queries by given group, and the groups' weights: what is planned, and the item."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.paper_helpers import drawn, told

from zerodr.config.load import load_bench
from zerodr.config.papers import item_of
from zerodr.errors import ConfigError
from zerodr.papers.coco_dr import report_clusters
from zerodr.papers.coco_dr.report_clusters import group_losses
from zerodr.plan import Plan, paths
from zerodr.plan.items import read_item

ITEM = {"kind": "group_losses", "methods": ["ours"], "baseline": "plain"}
BOTH = ["plain", "ours"]
SEEDS = tuple({"seed": seed, "names": dict(zip(BOTH, BOTH, strict=True)), "drawing": BOTH} for seed in (13, 14))


@pytest.fixture(scope="module")
def plan(root):
    return Plan(load_bench(root, {"scale": "lab", "seeds": "14,15"}))


@pytest.fixture
def inputs(tmp_path):
    """The method is .5 better on the small group, and .1 worse on the large one; its weights are 3 to 1."""
    generator, cluster = np.random.default_rng(5), np.arange(120) % 4 > 0
    losses, models = [], []
    for seed in (13, 14):
        for method in BOTH:
            gain = np.where(cluster, 0.1, -0.5) * (method == "ours")
            values = 3 + generator.normal(0, 0.05, 120) + gain
            losses.append(tmp_path / f"{method}-{seed}.parquet")
            columns = {"query": [f"q{n}" for n in range(120)], "cluster": cluster.astype(int), "loss": values}
            pq.write_table(pa.table(columns), losses[-1])
            folder = tmp_path / f"{method}-{seed}"
            (folder / "groups").mkdir(parents=True)
            models.append(folder / "manifest.json")
            if method == "ours":
                trace = {"step": [100, 100, 180, 180], "cluster": [0, 1, 0, 1], "weight": [0.5, 0.5, 1.0, 0.0]}
                pq.write_table(pa.table(trace), folder / "groups/weights.parquet")
    (tmp_path / "statistics.json").write_text(json.dumps({"groups": ["few", "many"]}))
    return {"losses": losses, "models": models, "clusters": [tmp_path]}


def test_each_group_has_its_loss_and_weight(inputs, tmp_path):
    stage, settings = told(ITEM, inputs, tmp_path, methods=tuple(BOTH), values=SEEDS)
    made = group_losses(stage, settings, item_of(settings.item, "x"))
    rows = made.frame.set_index(["method", "group"])
    assert rows["queries"].tolist() == [120, 30, 90] * 2
    few, many = rows.loc[("ours", "few")], rows.loc[("ours", "many")]
    assert few["difference"] == pytest.approx(-0.5, abs=0.05) and many["difference"] == pytest.approx(0.1, abs=0.05)
    assert few["difference_low"] < few["difference"] < few["difference_high"] < 0 and few["p_t_holm"] < 0.001
    assert few["difference_seed13"] == pytest.approx(-0.5, abs=0.05) and few["difference_seed13"] != few["difference"]
    assert (few["weight"], many["weight"], few["weight_seed14"]) == pytest.approx((1.5, 0.5, 1.5))
    assert rows.loc["plain", "weight"].isna().all() and rows.loc["plain", "p_t_holm"].isna().all()
    header, lines = made.shown
    assert header == ["", "all queries", "few", "many"]
    names = ["queries", "Plain", "Ours", "difference", "95 %", "seed 13", "seed 14", "weight"]
    assert [line[0] for line in lines][:8] == names
    assert "▲" in lines[3][2] and "▼" in lines[3][3], "a lower loss is better"
    assert lines[7] == ["weight", "", "1.50", "0.50"]


def test_a_group_of_a_few_queries_has_no_interval(inputs, tmp_path):
    """It was [0, 1], the range of a measure that is no loss, around a difference of -.5."""
    for path in inputs["losses"]:
        table = pq.read_table(path)
        pq.write_table(table.filter(pa.array((np.arange(120) % 4 > 0) | (np.arange(120) < 12))), path)  # 3 of 30
    stage, settings = told(ITEM, inputs, tmp_path, methods=tuple(BOTH), values=SEEDS)
    made = group_losses(stage, settings, item_of(settings.item, "x"))
    few = made.frame.set_index(["method", "group"]).loc[("ours", "few")]
    assert few["queries"] == 3 and few["difference"] == pytest.approx(-0.5, abs=0.2)
    assert np.isnan(few["difference_low"]) and np.isnan(few["difference_high"])
    assert made.shown[1][4][2] == "" and "groups of fewer than 6 queries have no interval" in made.notes
    drawn(tmp_path, inputs, ITEM, methods=tuple(BOTH), values=SEEDS)


def test_many_groups_are_rows(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(report_clusters, "WIDE", 2)
    stage, settings = told(ITEM, inputs, tmp_path, methods=tuple(BOTH), values=SEEDS)
    made = group_losses(stage, settings, item_of(settings.item, "x"))
    header, lines = made.shown
    assert header == ["", "queries", "Plain", "Ours: difference", "weight"]
    assert [line[0] for line in lines] == ["all queries", "few", "many"] and lines[1][-1] == "1.50"
    assert lines[1][3].startswith("-0.") and lines[1][3].endswith("▲")
    assert any("in the tsv" in note for note in made.notes)


def test_a_figure_is_drawn(inputs, tmp_path):
    drawn(tmp_path, inputs, ITEM, methods=tuple(BOTH), values=SEEDS)


def test_models_and_losses_of_every_seed_are_read(plan):
    files = plan.inputs("build_item")(SimpleNamespace(paper="lab", item="idro-ciphered"))
    ends = ("", "-seed14", "-seed15")
    arms = ("", "-balanced", "-alpha-only", "-group-dro", "-idro", "-idro-others")
    names = [f"idro-groups{end}+ciphered{arm}" for end in ends for arm in arms]
    assert files["losses"] == [paths.cluster_losses(name, "shared", "ep1") for name in names]
    assert files["models"] == [paths.model(name, "shared", "ep1") for name in names]
    assert files["clusters"] == [paths.clusters("idro-groups+ciphered", "shared", "ep1")]
    wc = SimpleNamespace(model="idro-groups-seed14+ciphered-idro", scope="shared", stage="ep1")
    assert plan.inputs("finetune")(wc)["model"] == paths.model("dpr-seed14", "shared", "ep0")
    assert json.loads(plan.settings("measure_clusters")(wc))["settings"]["split"] == "dev"


def test_clusters_of_k_means_have_no_names(plan):
    item = {"kind": "group_losses", "title": "x", "methods": ["coco-dr+balanced"], "baseline": "coco-dr+erm"}
    with pytest.raises(ConfigError, match=r"coco-dr\+erm: its clusters are found by k-means"):
        read_item(plan, item_of(item, "x"), [])


@pytest.mark.parametrize(
    ("item", "source"), [("idro-mixture", "mixture"), ("idro-ciphered", "squad-ciphered"), ("modir", "squad-v1.1")]
)
def test_a_table_names_the_collection_that_its_methods_learned_from(plan, item, source):
    settings = json.loads(plan.settings("build_item")(SimpleNamespace(paper="lab", item=item)))["settings"]
    assert settings["source"] == source and source in settings["splits"]
