"""Stages with masked words in the plan: what they read, one model a target, recipes that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.config_helpers import add_variants, inputs, lab_plan, params, root

from zerodr.errors import ConfigError
from zerodr.plan import Plan
from zerodr.plan.chains import Link
from zerodr.plan.items import target_steps

__all__ = ["root"]

ROOT = Path(__file__).parents[2]
RECIPE = "dr-contrast+udalm"
STAGE = {"model": RECIPE, "scope": "scifact", "stage": "ep0"}


def plan(root: Path, scale: str = "lab", recipe: str = "dr-contrast", **variants: dict) -> Plan:
    add_variants(root, recipe, **variants)
    return lab_plan(root, scale=scale)


def joint(*, chain: dict[str, Any] | None = None, **words: Any) -> dict[str, Any]:
    """A variant whose fine-tuning learns masked words of the target."""
    return {"settings": {"chain": {"ep0": {"scope": "target", "masked_words": words} | (chain or {})}}}


@pytest.mark.parametrize("scale", ["mini", "lab", "paper"])
def test_a_stage_reads_its_target_and_starts_from_its_language_model(root, scale):
    made = plan(root, scale)
    files = inputs(made, "finetune", **STAGE)
    assert files["corpora"] == ["results/collections/scifact/manifest.json"]
    assert files["model"] == "results/models/ddr-contrast+per-target/scifact/target-dam/manifest.json"
    told = params(made, "finetune", **STAGE)["settings"]
    assert told["left_out"] == [] and told["settings"]["masked_words"]["corpora"] == ["target"]
    assert made.chains.is_adapted(RECIPE) and not made.chains.is_adapted("dr-contrast")
    assert made.chains.mined(Link(RECIPE, "ep0", "scifact")) == Link("dr-contrast", "ep0")
    steps = made.chains.trained(RECIPE).chain["ep0"].training.steps
    assert target_steps(made, RECIPE, "scifact") == steps + target_steps(made, "ddr-contrast+per-target", "scifact")


def test_it_differs_from_its_control_by_masked_words_alone(root):
    """At scale lab; at mini the control takes fewer steps."""
    chains = plan(root).chains
    joined, control = chains.trained(RECIPE).chain["ep0"], chains.trained("ddr-contrast+per-target").chain["rem"]
    left, right = (stage.model_dump(exclude={"masked_words", "scope", "after", "rem"}) for stage in (joined, control))
    assert left == right and chains.encoder(RECIPE).init == "ddr-contrast+per-target/target-dam"


def test_shared_stages_may_learn_masked_words_of_the_source_and_of_columns(root):
    shared = {"scope": "shared"}
    made = plan(root, "lab", "dpr", broad=joint(chain=shared, corpora=["source", "targets"]))
    files = inputs(made, "finetune", **STAGE | {"model": "dpr+broad", "scope": "shared"})
    names = [path.split("/")[2] for path in files["corpora"]]
    assert names == sorted({"squad-v1.1", *(row.name for row in made.columns)})
    assert not made.chains.is_adapted("dpr+broad")


def test_corpora_that_are_all_gated_are_refused(root):
    made = plan(root, "lab", "dpr", none=joint(chain={"scope": "shared"}, corpora=["bioasq"]))
    problem = r"dpr\+none@ep0: masked_words.corpora: there is no text to learn from .all gated: bioasq.: name another"
    with pytest.raises(ConfigError, match=problem):
        inputs(made, "finetune", **STAGE | {"model": "dpr+none", "scope": "shared"})


@pytest.mark.parametrize(
    ("recipe", "variant", "problem"),
    [
        ("t5-ance", joint(), "stage ep0: masked_words: is for BERT and its kin, a T5 has no token for a mask"),
        (
            "dpr",
            joint() | {"settings": joint()["settings"] | {"encoder": {"towers": "separate"}}},
            "stage ep0: masked_words: teaches one network, encoder.towers are separate: set encoder.towers: tied",
        ),
        ("cross-encoder", joint(), "masked_words is not for a cross-encoder: leave it out of stage ep0"),
        ("dpr", joint(chain={"scope": "shared"}), "which a shared stage does not have: set scope: target"),
        ("dpr", joint(corpora=["scifat"]), "corpora 'scifat': is not known: did you mean scifact"),
    ],
    ids=["T5", "towers", "cross-encoder", "shared", "unknown"],
)
def test_recipes_that_cannot_learn_masked_words_are_refused(root, recipe, variant, problem):
    with pytest.raises(ConfigError, match=problem):
        plan(root, "lab", recipe, words=variant)
