"""Sources of recipes' values: every listed key exists, no value has two sources, and the settings page shows them."""

from __future__ import annotations

import pytest

from zerodr.config.load import load_bench
from zerodr.config.provenance import recipe_values
from zerodr.errors import ConfigError
from zerodr.operations.reference import render
from zerodr.papers import modules


def test_each_paper_has_a_recipe_whose_values_have_sources(root):
    found = dict(recipe_values(root))
    assert {"modir-ance", "berm-dpr", "coco-dr", "ddr-contrast", "moma-t5ance"} <= set(found)
    papers = {module.__name__.split(".")[2] for module in modules("settings")}
    assert papers == {"modir", "berm", "coco_dr", "ddr", "moma", "udalm"}, "of UDALM, a variant of ddr's baseline"
    assert "modir1.adversary.queue_length 1000" in found["modir-ance"]["paper"]
    assert "modir1.training.optimizer lamb" in found["modir-ance"]["code"]
    assert "ep1.groups.mode idro" in found["coco-dr"]["ours"], "its numbers are the code's, its sums ours"
    assert not found["moma-t5ance"]["code"], "no code was released"
    page = render(root)
    assert '| coco-dr | code | coco.without ["fever"]; coco.objective.head if_present; ' in page


@pytest.fixture
def recipe(tmp_path):
    """Write a recipe with sources, and read them."""

    def written(origins: str) -> dict[str, list[str]]:
        folder = tmp_path / "config/methods"
        folder.mkdir(parents=True, exist_ok=True)
        settings = "settings:\n  chain:\n    ep0: {training: {steps: 5, dropout: 0.1}}\n"
        (folder / "mine.yaml").write_text(f"kind: trained\n{settings}origins: {origins}\n")
        return dict(recipe_values(tmp_path))["mine"]

    return written


def test_sources_of_values(recipe):
    assert recipe("{paper: [chain.ep?.training.steps]}") == {
        "paper": ["ep0.training.steps 5"],
        "code": [],
        "ours": ["ep0.training.dropout 0.1"],
    }


@pytest.mark.parametrize(
    ("origins", "said"),
    [
        ("{paper: [chain.ep0.training.stepz]}", "chain.ep0.training.stepz is no value of the recipe"),
        ("{paper: [chain.*], code: ['*.steps']}", "chain.ep0.training.steps is claimed by paper and by code"),
        ("{papr: []}", "unknown key 'origins: papr'|did you mean paper"),
    ],
)
def test_wrong_sources(recipe, origins, said):
    with pytest.raises(ConfigError, match=said):
        recipe(origins)


def test_a_bench_reads_recipes_with_sources(root):
    assert load_bench(root, {"scale": "mini"}).methods["modir-ance"].origins.paper
