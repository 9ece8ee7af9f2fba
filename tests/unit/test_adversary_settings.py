"""Settings of MoDIR's adversary: modes, what can't be combined, and how they reach the stage."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from pydantic import ValidationError
from tests.unit.config_helpers import copy_config

from zerodr.config.load import load_bench
from zerodr.config.stages import FinetuneStage
from zerodr.errors import ConfigError
from zerodr.papers.modir.settings import AdversarySettings, adversary_of
from zerodr.plan import Plan
from zerodr.plan.chains import Link
from zerodr.plan.reporting import remark_of, table

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lab() -> Plan:
    return Plan(load_bench(ROOT, {"scale": "lab"}))


@pytest.fixture(scope="module")
def paper() -> Plan:
    return Plan(load_bench(ROOT, {"scale": "paper"}))


def params(plan: Plan, model: str, scope: str, stage: str = "modir1") -> dict:
    wildcards = SimpleNamespace(model=model, scope=scope, stage=stage)
    return json.loads(plan.settings("finetune")(wildcards))["settings"]


def stage_of(plan: Plan, model: str, scope: str, stage: str = "modir1") -> dict:
    return params(plan, model, scope, stage)["settings"]


def test_a_mode_says_what_is_not_set():
    paper, official = AdversarySettings(), AdversarySettings(mode="official")
    told = [(s.clamp, s.restart, s.official) for s in (paper, official)]
    assert told == [(None, 0, False), (5.0, 100, True)]
    assert AdversarySettings(mode="official", restart_steps=0).restart == 0
    assert (paper.queue_length, paper.updates, paper.minibatch, paper.learning_rate) == (1000, 20, None, 5e-6)
    assert (paper.gradient_limit, official.gradient_limit, official.batches_per_update) == (None, 1.0, 50)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"l2": 0.1}, "l2 is for oracle_steps, which is not set"),
        ({"oracle_steps": 10, "updates": 3}, "updates is for a classifier that learns by updates, oracle_steps"),
        ({"queries": "generated"}, "'test', 'train', 'unlabelled' or 'none'"),
    ],
)
def test_what_is_refused(values, said):
    with pytest.raises(ValidationError, match=said):
        AdversarySettings(**values)


def test_an_adversary_needs_a_target():
    stage = {"objective": {"name": "pairwise_nll"}, "adversary": {}}
    with pytest.raises(ValidationError, match="which a shared stage does not have: set scope: target"):
        FinetuneStage(**stage)
    assert adversary_of(FinetuneStage(**stage, scope="target")) == AdversarySettings()


def test_a_stage_learns_how_its_target_is_read(lab):
    told = params(lab, "modir-dpr", "scifact")
    assert told["targets"] == {"scifact": {"split": "test", "title_join": " "}} and not told["continue_classifier"]
    assert "adversary" not in stage_of(lab, "dpr", "shared", "ep0")
    assert params(lab, "modir-dpr+inductive", "scifact")["targets"]["scifact"]["split"] is None
    inputs = lab.inputs("finetune")(SimpleNamespace(model="modir-dpr", scope="cqadupstack", stage="modir1"))
    assert len(inputs["targets"]) == 12 and set(params(lab, "modir-dpr", "cqadupstack")["targets"]) == {
        path.split("/")[2] for path in inputs["targets"]
    }


def test_the_published_settings(paper):
    ance = stage_of(paper, "modir-ance", "trec-covid")
    assert (ance["adversary"]["weight"], ance["adversary"]["half_life_steps"]) == (1.0, 10000)
    assert (ance["training"]["steps"], ance["training"]["dropout"]) == (10000, 0.0)
    single, matched = (stage_of(paper, f"modir-ance+{v}", "scifact")["adversary"] for v in ("single", "single-matched"))
    assert (single["queue_length"], single["updates"], single["learning_rate"]) == (1, 1, 5e-6)
    assert (matched["queue_length"], matched["updates"], matched["learning_rate"]) == (1, 1, 20 * 5e-6)
    repeat, n100 = (stage_of(paper, f"modir-ance+{v}", "scifact")["adversary"] for v in ("repeat", "n100"))
    assert [(a["queue_length"], a["updates"]) for a in (repeat, n100)] == [(1, 20), (100, 2)]
    official = stage_of(paper, "modir-dpr+official", "scifact")
    assert (official["adversary"]["weight"], official["training"]["learning_rate"]) == (0.5, 5e-6)


def test_longer_runs_go_on_with_schedule_and_classifier(paper):
    first, second = (params(paper, "modir-ance+30k", "scifact", stage) for stage in ("modir1", "modir2"))
    assert [one["schedule"]["first_step"] for one in (first, second)] == [0, 10000]
    assert (first["continue_classifier"], second["continue_classifier"]) == (False, True)
    assert paper.chains.parent(Link("modir-ance+30k", "modir2", "scifact")) == Link(
        "modir-ance+30k", "modir1", "scifact"
    )
    assert (first["save_optimizer"], params(paper, "modir-ance", "scifact")["save_optimizer"]) == (True, False)
    assert paper.chains.link("modir-ance+50k@modir2", "scifact") == Link("modir-ance+30k", "modir2", "scifact")


def test_a_classifier_begins_anew_where_its_queue_was_not_kept(tmp_path):
    """The queue is kept next to the moments that keep_optimizer goes on with; a kept step has neither."""
    copy_config(tmp_path)
    stages = {"modir2": {"like": "modir1"}, "late": {"like": "modir1", "after": "modir1.50"}}
    more = {"modir3": {"like": "modir1", "training": {"keep_optimizer": True}}}
    for name, chain in {"anew": stages, "kept": more}.items():
        recipe = {"like": "modir-dpr", "label": name, "settings": {"chain": chain}}
        (tmp_path / f"config/methods/{name}.yaml").write_text(yaml.safe_dump(recipe))
    made = Plan(load_bench(tmp_path, {"scale": "lab"}))
    for recipe, stage, goes_on in (("anew", "modir2", False), ("anew", "late", False), ("kept", "modir3", True)):
        assert params(made, recipe, "scifact", stage)["continue_classifier"] == goes_on
        assert params(made, recipe, "scifact")["save_optimizer"] == (recipe == "kept")


def test_rows_say_that_a_target_was_seen(lab):
    seen = remark_of(lab, "modir-ance")
    assert "transductive: learns from the queries that it is evaluated with, without their labels" in seen
    assert "one model for each target" in seen and "squad-v1.1 is ranked by" not in seen
    with_source = Plan(load_bench(ROOT, {"scale": "lab", "collections": ("squad-v1.1", "scifact")}))
    assert "squad-v1.1 is ranked by ance@ep2" in remark_of(with_source, "modir-ance")
    for name in ("modir-dpr+inductive", "modir-dpr+no-adversary"):  # an adversary of weight 0 teaches nothing
        assert "transductive" not in remark_of(lab, name)
    assert remark_of(lab, "dpr") == f"{lab.bench.methods['dpr'].remark}; training steps at scale lab: ep0 400"
    methods = table(lab, ["modir-ance"])["methods"]
    assert methods[0]["remark"] == seen


def test_a_target_without_such_queries_is_refused(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text('{"_id": "1", "title": "", "text": "a"}\n')
    plan = Plan(load_bench(ROOT, {"byo": str(folder)}))
    with pytest.raises(ConfigError, match=r"target notes: has no test queries: take the variant \+inductive"):
        params(plan, "modir-dpr", "notes")
    assert params(plan, "modir-dpr+inductive", "notes")["targets"] == {"notes": {"split": None, "title_join": " "}}
