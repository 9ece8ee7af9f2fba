"""DDR's recipes at scale `paper` have the settings that its paper prints (docs/papers/items.md lists every one)."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from zerodr.config.load import load_bench
from zerodr.papers.ddr.items import AdaptationItem
from zerodr.plan import Plan
from zerodr.plan.items import read_item
from zerodr.plan.lines import Link

COLLECTIONS = ["beir18", "lotte", "ddr-zh", "trec-covid-v2", "trec-covid-v2@beir"]


@pytest.fixture(scope="module")
def plan(root):
    return Plan(load_bench(root, {"scale": "paper", "collections": COLLECTIONS}))


@pytest.mark.parametrize(
    ("method", "target", "published"),
    [
        ("ddr-contrast", "trec-covid", (20_000, 512, 190)),
        ("ddr-contrast", "trec-covid-v2", (20_000, 512, 190)),
        ("ddr-contrast", "lotte-writing-forum", (50_000, 512, 190)),
        ("ddr-contrast", "lotte-recreation-forum", (50_000, 512, 190)),
        ("ddr-contrast", "lotte-lifestyle-forum", (50_000, 512, 190)),
        ("ddr-contrast+no-sequential", "lotte-lifestyle-forum", (50_000, 512, 190)),
        ("ddr-contrast+per-target", "lotte-science-forum", (50_000, 512, 190)),
        ("ddr-contrast+half", "lotte-lifestyle-forum", (25_000, 512, 190)),
        ("ddr-contrast+zh", "cpr-ecom", (20_000, 1024, 100)),
        ("ddr-contrast+zh", "cpr-medical", (20_000, 512, 190)),
        ("ddr-contrast", "fever", (20_000, 1024, 100)),
    ],
)
def test_a_target_reads_the_published_steps_batches_and_lengths(plan, method, target, published):
    """Section 4.3 and 5.2.1: 1,024 x 100 short documents or 512 x 190 long ones, 50,000 steps on LoTTE, else 20,000."""
    link = Link(method, "target-dam", target)
    stage = plan.chains.pretraining(link)
    assert (stage.training.steps, stage.training.batch_queries, stage.objective.max_tokens) == published
    assert stage.max_epochs is None, "a cap of epochs would take steps off small collections"
    assert plan.chains.schedule(link)["total_steps"] == published[0]


def test_half_and_fourfold_steps_are_of_the_target_s_own(plan):
    steps = {
        target: [
            plan.chains.pretraining(Link(name, "target-dam", target)).training.steps
            for name in ("ddr-contrast+half", "ddr-contrast", "ddr-contrast+fourfold")
        ]
        for target in ("trec-covid", "lotte-technology-forum")
    }
    assert steps == {"trec-covid": [10_000, 20_000, 80_000], "lotte-technology-forum": [25_000, 50_000, 200_000]}


def test_lengths_of_a_target_are_part_of_what_its_model_is_made_from(plan):
    made = {at: plan.chains.history(Link("ddr-contrast", "target-dam", at))[-1] for at in ("fever", "nq", "scifact")}
    assert made["fever"][1] == made["nq"][1] != made["scifact"][1]


def test_an_axis_of_steps_needs_targets_with_equal_steps(plan):
    item = AdaptationItem(kind="adaptation", title="t", lines={"DDR": ("ddr-contrast+half", "ddr-contrast")})
    assert read_item(plan, item, ["lotte-writing-forum"], "x").points == {
        "DDR": {"ddr-contrast+half": 25_000, "ddr-contrast": 50_000}
    }


@pytest.mark.parametrize("at", ["ddr-distill@rem", "dr-distill@ep0", "ddr-contrast@rem", "dr-contrast@ep0"])
def test_public_negatives_and_scores_are_one_recipe(plan, at):
    """Section 4.3's negatives of many systems and a cross-encoder's scores, from public files; all else as without."""
    (recipe, stage), scored = at.split("@"), "distill" in at
    wanted = SimpleNamespace(model=f"{recipe}+public", scope="shared", stage=stage)
    file = "msmarco-scores.parquet" if scored else "msmarco-hard-negatives.jsonl.gz"
    assert plan.inputs("mine_negatives")(wanted)["file"] == f"resources/negatives/{file}"
    assert json.loads(plan.settings("mine_negatives")(wanted))["settings"].get("scored", False) is scored
    public, plain = (plan.chains.trained(name).chain[stage] for name in (wanted.model, recipe))
    assert public.negatives.depth >= 13 * 50, "13 systems have 50 each"
    assert public.model_copy(update={"negatives": plain.negatives, "teacher": plain.teacher}) == plain
    assert file in plan.method(wanted.model).remark, "its refusal says where the file is from"
    for item in ("table2-public", "table2-lotte-public"):
        assert wanted.model in plan.bench.papers["ddr"].items[item].rows.values()


@pytest.mark.parametrize("item", ["table3-checkpoints", "table3-lotte-checkpoints"])
def test_released_encoders_need_only_configuration(plan, item):
    """ADORE, RocketQA, TCT-ColBERT v2: folders that the recipes name, or a model of the hub."""
    chosen = plan.bench.papers["ddr"].items[item]
    assert chosen.rows == {"ADORE": "adore", "RocketQA": "rocketqa", "TCT v2": "tct-colbert-v2"}
    assert chosen.apart is True and set(chosen.rows.values()) < set(chosen.methods)
    for name in chosen.rows.values():
        assert plan.inputs("import_model")(SimpleNamespace(model=name, scope="shared")) == {"files": []}
