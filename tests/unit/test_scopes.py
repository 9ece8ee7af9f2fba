"""Scopes: stages that are made for each target, and everything that follows from it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from tests.unit.config_helpers import lab_plan, root

from zerodr.errors import ConfigError
from zerodr.plan.chains import Link
from zerodr.plan.dense import model_of
from zerodr.plan.targets import is_target, nearest_target, render

__all__ = ["root"]

ROOT = Path(__file__).parents[2]
ADAPTED = {
    "scope": "target",
    "negatives": {"source": "previous"},
    "objective": {"name": "pairwise_nll"},
    "training": {"schedule": "constant"},
}


def add(root: Path, name: str, chain: dict, init: str = "dpr/ep0", **variants: dict) -> None:
    value = {
        "kind": "trained",
        "label": name,
        "description": "test",
        "variants": variants,
        "settings": {"encoder": {"init": init}, "chain": chain},
    }
    (root / f"config/methods/{name}.yaml").write_text(yaml.safe_dump(value, sort_keys=False))


def wc(**wildcards: str) -> SimpleNamespace:
    return SimpleNamespace(**wildcards)


def test_a_target_stage_and_what_follows_it_are_made_for_each_target(root):
    add(
        root,
        "mine",
        {
            "warm": {k: v for k, v in ADAPTED.items() if k != "scope"},
            "fit1": ADAPTED,
            "fit2": {**ADAPTED, "scope": "shared"},
        },
    )
    chains = lab_plan(root).chains
    assert chains.link("mine", "scifact") == Link("mine", "fit2", "scifact")
    assert chains.parent(Link("mine", "fit2", "scifact")) == Link("mine", "fit1", "scifact")
    assert chains.parent(Link("mine", "fit1", "scifact")) == Link("mine", "warm")
    assert chains.model(Link("mine", "fit1", "scifact")) == "results/models/mine/scifact/fit1/manifest.json"
    with pytest.raises(ConfigError, match="made for each target, this names none"):
        chains.link("mine")


def test_a_collection_is_ranked_by_its_own_model_and_the_source_by_the_last_shared_one(root):
    add(root, "mine", {"fit1": ADAPTED})
    made = lab_plan(root)
    ours = wc(model="mine", collection="scifact", protocol="standard", shard="00000-of-00001")
    assert (
        made.inputs("search_shard")(ours)["queries"]
        == "results/embeddings/mine@fit1/scifact/scifact/standard/queries.test.npy"
    )
    assert model_of(made, "mine@fit1", "scifact") == "results/models/mine/scifact/fit1/manifest.json"
    source = wc(model="mine", collection="squad-v1.1", protocol="standard", shard="00000-of-00001")
    assert (
        made.inputs("search_shard")(source)["queries"]
        == "results/embeddings/dpr@ep0/shared/squad-v1.1/standard/queries.dev.npy"
    )
    assert made.chains.ranker("mine", "squad-v1.1") == Link("dpr", "ep0")


def test_the_parts_of_an_averaged_column_have_one_model(root):
    add(root, "mine", {"fit1": ADAPTED})
    chains = lab_plan(root).chains
    assert chains.ranker("mine", "cqadupstack-tex") == Link("mine", "fit1", "cqadupstack")
    assert len(chains.members("cqadupstack")) == 12 and chains.members("scifact") == ["scifact"]
    assert chains.members("shared") == []


def test_mining_is_shared_until_a_targets_model_ranks(root):
    add(root, "mine", {"fit1": {**ADAPTED, "repeat": 3}})
    made = lab_plan(root)
    one, two = (made.inputs("finetune")(wc(model="mine", stage=s, scope="scifact")) for s in ("fit1", "fit2"))
    assert one["mined"] == "results/mined/mine/shared/fit1/manifest.json"
    assert one["model"] == "results/models/dpr/shared/ep0/manifest.json"
    assert two["mined"] == "results/mined/mine/scifact/fit2/manifest.json"
    assert two["model"] == "results/models/mine/scifact/fit1/manifest.json"
    mined = made.inputs("mine_negatives")(wc(model="mine", stage="fit2", scope="scifact"))
    assert mined["candidates"] == "results/candidates/mine@fit1/scifact/squad-v1.1/train.top200.parquet"
    assert mined["previous"] == "results/mined/mine/shared/fit1/manifest.json"
    searched = wc(model="mine@fit1", scope="scifact", collection="squad-v1.1", split="train", shard="00000-of-00001")
    assert (
        made.inputs("search_candidates")(searched)["queries"]
        == "results/embeddings/mine@fit1/scifact/squad-v1.1/standard/queries.train.npy"
    )


def test_negatives_of_a_lexical_method_are_mined_once(root):
    add(root, "mine", {"fit1": {**ADAPTED, "repeat": 2, "negatives": {"source": "bm25-flat+bm25s"}}})
    inputs = lab_plan(root).inputs("finetune")(wc(model="mine", stage="fit2", scope="scifact"))
    assert inputs["mined"] == "results/mined/mine/shared/fit2/manifest.json"


def test_many_episodes_are_planned_quickly(root):
    add(root, "mine", {"fit1": {**ADAPTED, "repeat": 40}}, more={"settings": {"chain": {"fit1": {"repeat": 41}}}})
    inputs = lab_plan(root).inputs("finetune")(wc(model="mine+more", stage="fit41", scope="scifact"))
    assert inputs["model"] == "results/models/mine/scifact/fit40/manifest.json"


def test_a_recipe_that_starts_from_a_targets_model_is_made_for_each_target(root):
    add(root, "mine", {"fit1": ADAPTED})
    add(root, "next", {"ep1": {k: v for k, v in ADAPTED.items() if k != "scope"}}, init="mine/fit1")
    made = lab_plan(root)
    assert made.chains.link("next", "scifact") == Link("next", "ep1", "scifact")
    assert made.chains.link("next@init", "scifact") == Link("mine", "fit1", "scifact")
    assert made.chains.ranker("next", "squad-v1.1") == Link("dpr", "ep0")
    value = yaml.safe_load((root / "config/methods/next.yaml").read_text())
    value["settings"]["encoder"]["document_tokens"] = 64
    (root / "config/methods/next.yaml").write_text(yaml.safe_dump(value))
    made = lab_plan(root)
    assert made.inputs("init_model")(wc(model="next", scope="scifact")) == {
        "parent": "results/models/mine/scifact/fit1/manifest.json"
    }


def test_pretraining_for_a_target_reads_that_target(root):
    domain = {"kind": "pretrain", "scope": "target", "corpora": ["target"], "objective": {"name": "mlm"}}
    add(root, "mine", {"domain": domain, "ep0": {k: v for k, v in ADAPTED.items() if k != "scope"}})
    made = lab_plan(root)
    inputs = made.inputs("pretrain")(wc(model="mine", stage="domain", scope="nfcorpus"))
    assert inputs["collections"] == ["results/collections/nfcorpus/manifest.json"]
    assert made.chains.link("mine", "nfcorpus") == Link("mine", "ep0", "nfcorpus")
    assert made.chains.history(Link("mine", "domain", "scifact")) != made.chains.history(
        Link("mine", "domain", "nfcorpus")
    )
    add(root, "mine", {"domain": domain | {"scope": "shared"}})
    with pytest.raises(ConfigError, match="which a shared stage does not have: set scope: target"):
        lab_plan(root)


def test_what_there_is_not_is_refused(root):
    add(root, "mine", {"fit1": ADAPTED})
    made = lab_plan(root)
    with pytest.raises(ConfigError, match="source and target are the same collection"):
        made.inputs("finetune")(wc(model="mine", stage="fit1", scope="squad-v1.1"))
    with pytest.raises(ConfigError, match="made once, for all targets: ask for scope shared"):
        made.inputs("finetune")(wc(model="dpr", stage="ep0", scope="scifact"))
    with pytest.raises(ConfigError, match="made once, for all targets: ask for scope shared"):
        model_of(made, "dpr@ep0", "scifact")
    with pytest.raises(ConfigError, match="ask for the scope of a collection"):
        made.inputs("finetune")(wc(model="mine", stage="fit1", scope="shared"))


def test_a_shared_stage_takes_no_negatives_from_a_targets_model(root):
    add(root, "mine", {"fit1": ADAPTED})
    add(root, "after", {"ep0": {"negatives": {"source": "mine"}, "objective": {"name": "pairwise_nll"}}})
    with pytest.raises(ConfigError, match="mine@fit1, scope shared"):
        lab_plan(root).inputs("mine_negatives")(wc(model="after", stage="ep0", scope="shared"))


def test_targets_of_adapted_models_are_listed_and_exported_with_their_licences(root):
    add(root, "mine", {"fit1": ADAPTED})
    made = lab_plan(root)
    assert is_target("results/exported/mine/scifact/manifest.json", made)
    assert not is_target("results/exported/mine/shared/manifest.json", made)
    assert "results/exported/mine/scifact" in nearest_target("results/exported/mine/scifcat/manifest.json", made)
    assert "{adapted}: " in render(made)
    params = json.loads(made.settings("export_model")(wc(model="mine", scope="quora")))
    assert set(params["settings"]["licences"]) == {"squad-v1.1", "quora"}
