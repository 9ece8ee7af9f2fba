"""Items about memories: what they plan, the numbers that they tell, and their figures."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.paper_helpers import drawn, told

from zerodr.config.load import load_bench
from zerodr.config.papers import item_of
from zerodr.errors import ArtifactError, ConfigError
from zerodr.papers.moma import report as item_memories
from zerodr.papers.moma.items import ComponentsItem, SharesItem
from zerodr.papers.moma.measure_attention import COLUMNS
from zerodr.plan import Plan, paths
from zerodr.plan.items import read_item

SHARES = {"kind": "shares", "method": "ours"}
COMPONENTS = {"kind": "components", "methods": ["ours", "own"]}
STAGES = {"ours": ("m1", "m2"), "own": ("m1",)}


@pytest.fixture(scope="module")
def mini(root):
    return Plan(load_bench(root, {"collections": ("scifact", "nfcorpus"), "source": "squad-v1.1"}))


def test_every_episode_of_training_and_targets_is_asked_for(mini):
    found = read_item(mini, SharesItem(kind="shares", title="x", method="moma-t5ance"), ["scifact", "nfcorpus"]).files
    words = [("moma-t5ance", "shared", stage) for stage in ("moma1", "moma2")]
    assert found["learning"] == [paths.shares(*w, "learning", "squad-v1.1", "dev", "shares.tsv") for w in words]
    assert found["search"] == [
        paths.shares(*w, "search", name, "test", "shares.tsv") for w in words for name in ("scifact", "nfcorpus")
    ]


def test_what_trains_no_augmenter_has_none_to_look_at(mini):
    names = ("moma-t5ance", "moma-t5ance+no-learning", "moma-t5ance+no-distilling")
    found = read_item(mini, ComponentsItem(kind="components", title="x", methods=names), ["scifact"]).files
    assert len(found["main"]) == 6 and len(found["augmenter"]) == 2
    assert all("/moma-t5ance/" in path for path in found["augmenter"])


def test_what_only_search_changes_is_trained_once(mini):
    found = read_item(mini, ComponentsItem(kind="components", title="x", methods=("moma-t5ance+no-target",)), []).files
    assert all("/moma-t5ance/" in path for path in [*found["main"], *found["augmenter"]])
    shares = read_item(mini, SharesItem(kind="shares", title="x", method="moma-t5ance+no-target"), ["scifact"]).files
    assert all("/moma-t5ance/" in path for path in shares["learning"])
    assert all("/moma-t5ance+no-target/" in path for path in shares["search"])


def test_a_method_without_memories_is_refused(mini):
    with pytest.raises(ConfigError, match="method dpr: has no stage of kind moma"):
        read_item(mini, SharesItem(kind="shares", title="x", method="dpr"), ["scifact"])


def recorded(path: Path, **metrics: float) -> Path:
    """A file or a manifest with its record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    place = path.with_name("lineage.json" if path.name == "manifest.json" else f"{path.name}.lineage.json")
    told_of = [{"name": name, "step": 0, "value": value} for name, value in metrics.items()]
    place.write_text(json.dumps({"metrics": told_of}))
    if path.name == "manifest.json":
        path.write_text("{}")
    return path


def share_inputs(folder: Path) -> dict[str, list[Path]]:
    def file(name: str, attention: float) -> Path:
        rows = [
            ["s", 3, 0.75, attention, attention / 0.75, 9.0],
            ["wiki", 1, 0.25, 1 - attention, 4 - 4 * attention, 5.0],
        ]
        path = recorded(folder / f"{name}.shares.tsv", queries_with_relevant_document=attention / 2)
        pd.DataFrame(rows, columns=COLUMNS).to_csv(path, sep="\t", index=False)
        return path

    return {"learning": [file("l1", 0.6), file("l2", 0.9)], "search": [file(f"s{n}", n / 10) for n in range(4)]}


def test_shares_by_episode_and_queries(tmp_path):
    stage, settings = told(SHARES, share_inputs(tmp_path), tmp_path, collections=("a", "b"), stages=STAGES)
    found = item_memories.shares(stage, settings, item_of(settings.item, "x"))
    own = found.frame[found.frame["memory"] == "s"].set_index(["queries", "episode"])["attention_share"]
    assert own.to_dict() == {("s", 1): 0.6, ("s", 2): 0.9, ("a", 1): 0, ("b", 1): 0.1, ("a", 2): 0.2, ("b", 2): 0.3}
    assert found.shown[1][0] == ["s, training", "1", "s", "75.0%", "60.0%", "0.80", "9", "30.0%"]
    assert found.shown[1][-1][0] == "B"


def component_inputs(folder: Path) -> dict[str, list[Path]]:
    def made(method: str, stage: str, which: str, mrr: float) -> Path:
        return recorded(folder / method / "shared" / stage / which / "manifest.json", **{item_memories.MRR: mrr})

    return {
        "main": [made("ours", "m1", "main", 0.1), made("ours", "m2", "main", 0.2), made("own", "m1", "main", 0.3)],
        "augmenter": [made("ours", "m1", "augmenter", 0.4), made("ours", "m2", "augmenter", 0.5)],
    }


def test_components_by_episode(tmp_path):
    stage, settings = told(COMPONENTS, component_inputs(tmp_path), tmp_path, methods=("ours", "own"), stages=STAGES)
    frame = item_memories.components(stage, settings, item_of(settings.item, "x")).frame
    found = {(row.method, row.episode, row.component): row.mrr for row in frame.itertuples()}
    assert found == {
        ("ours", 1, "main model"): 0.1,
        ("ours", 1, "augmenter"): 0.4,
        ("ours", 2, "main model"): 0.2,
        ("ours", 2, "augmenter"): 0.5,
        ("own", 1, "main model"): 0.3,
    }


def test_a_component_without_the_measure_is_named(tmp_path):
    inputs = component_inputs(tmp_path)
    recorded(inputs["main"][1], loss=1.0)
    stage, settings = told(COMPONENTS, inputs, tmp_path, methods=("ours", "own"), stages=STAGES)
    with pytest.raises(ArtifactError, match=r"m2.main.*has no dev\.recip_rank_cut_10"):
        item_memories.components(stage, settings, item_of(settings.item, "x"))


@pytest.mark.parametrize(
    ("item", "inputs", "more"),
    [(SHARES, share_inputs, {"collections": ("a", "b")}), (COMPONENTS, component_inputs, {"methods": ("ours", "own")})],
)
def test_both_are_drawn_twice_the_same(tmp_path, item, inputs, more):
    drawn(tmp_path, inputs(tmp_path), item, stages=STAGES, **more)
