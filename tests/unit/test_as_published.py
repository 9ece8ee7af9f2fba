"""Recipes at scale `paper` have the settings that the five papers print (docs/papers/counted.md lists every one)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from zerodr.config.load import load_bench
from zerodr.papers.coco_dr.settings import GroupKeys
from zerodr.papers.ddr.items import AdaptationItem
from zerodr.plan import Plan
from zerodr.plan.items import read_item
from zerodr.plan.lines import Link

PICTURES = Path(__file__).parents[2] / "docs/pictures"
COLLECTIONS = ["beir18", "lotte", "ddr-zh", "trec-covid-v2", "trec-covid-v2@beir"]


@pytest.fixture(scope="module")
def plan(root):
    return Plan(load_bench(root, {"scale": "paper", "collections": COLLECTIONS}))


# ---- DDR -------------------------------------------------------------------------------------------------------
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


# ---- COCO-DR ---------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def simulation():
    sys.path.insert(0, str(PICTURES))
    import idro_weights

    yield idro_weights
    sys.path.remove(str(PICTURES))


def stage_of(plan, method, name="ep1"):
    stage = plan.chains.trained(method).chain[name]
    return stage, GroupKeys.of(stage).groups


@pytest.mark.parametrize("method", ["coco-dr", "coco-dr+paper", "coco-dr+k10", "coco-dr+large"])
def test_gradients_act_at_the_end_of_an_episode(plan, simulation, method):
    """Weights of 60 to 80 % of the clusters after the recipe's own steps; T = 1,000 left 100.0 %, T = 1e6 too."""
    stage, groups = stage_of(plan, method)
    seen = simulation.simulate(groups, 40, stage.training.batch_queries, stage.training.steps)
    assert 0.6 <= seen.effective <= 0.8
    assert seen.spread > 2


def test_a_temperature_of_figure_3_acts(plan, simulation):
    effective = [
        simulation.simulate(stage_of(plan, f"coco-dr+effective-{share}")[1], 20, 512, 45_000).effective
        for share in (0.9, 0.5, 0.3)
    ]
    assert effective == pytest.approx([0.9, 0.5, 0.3], abs=1e-3)


def test_official_has_the_released_devices(plan, simulation):
    """64 triples a device, six of a query: 10 of 50 clusters, weights that differ 10 times. A global batch: 49, 1.3."""
    stage, groups = stage_of(plan, "coco-dr+official")
    queries = stage.training.batch_queries // groups.devices
    assert groups.devices == 8 and 60 <= queries * stage.objective.negatives_per_query <= 68
    seen = simulation.simulate(groups, 100, stage.training.batch_queries)
    assert 9 <= seen.present <= 11 and seen.spread > 8


def test_iDRO_as_published_takes_adamw_in_all_episodes(plan):
    """Appendix: AdamW, 5e-6, 64 on each of 8 GPUs."""
    chain = plan.chains.trained("coco-dr+paper").chain
    for name in ("ep0", "ep1", "ep2", "ep3"):
        training = chain[name].training
        assert (training.optimizer, training.learning_rate, training.batch_queries) == ("adamw", 5e-6, 512), name


@pytest.mark.parametrize("item", ["table2", "table7"])
def test_both_modes_of_idro_are_rows(plan, item):
    assert {"coco-dr", "coco-dr+paper"} <= set(plan.bench.papers["coco-dr"].items[item].methods)
