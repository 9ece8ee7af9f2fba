"""Facts of rules: no other module compares rules by name."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from tests.unit.house_helpers import LIBRARY, name_of, trees

from zerodr.config.load import load_bench
from zerodr.config.trained import STAGE_KINDS, STAGES
from zerodr.plan import Plan
from zerodr.plan.lines import SCOPE
from zerodr.plan.rules import ADDITIONS, RULES, VERSIONS, Kind, facts_of

__all__ = ["trees"]
NAMES_RULES = ("plan", "papers")
ESTIMATES = ("operations",)  # follows in a change of its own


def test_no_module_names_a_rule_outside_the_plan_and_the_papers(trees):
    words, wrong = set(RULES) - set(get_args(Kind)), []
    for path, tree in trees.items():
        if not path.is_relative_to(LIBRARY):
            continue
        room = path.relative_to(LIBRARY).parts[0]
        if room in (*NAMES_RULES, *ESTIMATES):
            continue
        named = words - set(STAGE_KINDS) if room == "config" else words
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in named:
                wrong.append(f"{name_of(path)}:{node.lineno} names {node.value}")
    assert wrong == []


def test_a_paper_names_rules_of_the_core_and_its_own(trees):
    owners = {name: facts.function.split(".")[1] for name, facts in RULES.items() if facts.function[:7] == "papers."}
    wrong = []
    for path, tree in trees.items():
        if not path.is_relative_to(LIBRARY):
            continue
        room, *inner = path.relative_to(LIBRARY).parts
        reader = inner[0] if room == "papers" else ""
        for node in ast.walk(tree) if room in NAMES_RULES else []:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                owner = owners.get(node.value, reader)
                wrong += [f"{name_of(path)}:{node.lineno} names {node.value}"] if owner != reader else []
    assert [line for line in wrong if not line.endswith("names assemble")] == []  # a kind of work, too


def test_rules_that_only_old_records_name_claim_nothing():
    facts = facts_of("made_up")
    assert not (facts.trains or facts.embeds or facts.temporary or facts.downloads or facts.writes) and facts.light


def test_trainings_are_those_that_all_gpus_share():
    assert {name for name, facts in RULES.items() if facts.trains} == {
        *("finetune", "pretrain"),
        *("train_main", "train_augmenter"),
    }


# ---- versions ----------------------------------------------------------------------------------------------------
TRAINS_BY = {"moma": "train_main", "answers": "finetune"}  # rules of kinds of stages with another name


@pytest.fixture(scope="module")
def plan(root) -> Plan:
    return Plan(load_bench(root, {"scale": "lab", "collections": ["scifact"]}))


def trainings(plan: Plan) -> dict[tuple[str, str], Any]:
    """Stages with a training, by recipe and name."""
    recipes = [name for name, method in plan.bench.methods.items() if method.kind == "trained" and "@" not in name]
    chains = {name: plan.chains.trained(name).chain for name in recipes}
    return {(name, key): stage for name, chain in chains.items() for key, stage in chain.items() if stage.trainings}


def rendered(plan: Plan) -> dict[tuple[str, str], str]:
    """Params of all trainings by recipe and stage."""
    texts = {}
    for (name, key), stage in trainings(plan).items():
        scope = SCOPE if stage.scope == SCOPE else "scifact"
        wildcards = SimpleNamespace(model=name, scope=scope, stage=key)
        texts[name, key] = plan.settings(TRAINS_BY.get(stage.kind, stage.kind))(wildcards)
    return texts


def test_rules_that_share_a_function_share_its_version():
    functions = {facts.function for facts in RULES.values()}
    assert [name for name in VERSIONS if name not in functions] == []
    assert {name: facts.behind for name, facts in RULES.items() if facts.behind} == {"build_row": 1}


def test_every_addition_of_a_paper_has_a_version(plan):
    data = {"units", "clusters"}  # made by rules of their own, which have versions
    added = {key for kind in STAGES.values() for key in kind.added} - data
    assert added <= set(ADDITIONS)


@pytest.mark.parametrize("key", sorted(ADDITIONS))
def test_a_changed_addition_reruns_its_trainings_and_nothing_else(plan, key, monkeypatch):
    before = rendered(plan)
    monkeypatch.setitem(ADDITIONS, key, ADDITIONS[key] + 1)
    after = rendered(plan)
    section, _, name = key.rpartition(".")
    uses = {
        place
        for place, stage in trainings(plan).items()
        if (stage.objective.name == name if section else getattr(stage, key, None) is not None)
    }
    assert {place for place, text in before.items() if after[place] != text} == uses
    assert uses or key in ("objective.adist",), "no recipe uses it"  # of MoMA's second model


def test_a_changed_loss_of_modir_reruns_modirs_models_alone(plan, monkeypatch):
    before = rendered(plan)
    monkeypatch.setitem(ADDITIONS, "adversary", 2)
    changed = {name for (name, _), text in rendered(plan).items() if text != before[name, _]}
    assert changed and all(name.startswith("modir") for name in changed)
    assert len(changed) < len(before)
