"""Facts of rules: no other module compares rules by name."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from tests.unit.house_helpers import LIBRARY, name_of, trees

from zerodr.config.additions import added_to
from zerodr.config.load import load_bench
from zerodr.config.trained import STAGE_KINDS, STAGES
from zerodr.plan import Plan
from zerodr.plan.lines import SCOPE
from zerodr.plan.plan import INPUTS
from zerodr.plan.rules import ADDITIONS, RULES, VERSIONS, Kind, facts_of

__all__ = ["trees"]
NAMES_RULES = ("plan", "papers")


def test_no_module_names_a_rule_outside_the_plan_and_the_papers(trees):
    words, wrong = set(RULES) - set(get_args(Kind)), []
    for path, tree in trees.items():
        if not path.is_relative_to(LIBRARY):
            continue
        room = path.relative_to(LIBRARY).parts[0]
        if room in NAMES_RULES:
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
    return {(name, key): stage for name, chain in chains.items() for key, stage in chain.items() if stage.optimisation}


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
    assert {name: facts.behind for name, facts in RULES.items() if facts.behind} == {"build_row": 2}


def test_every_addition_of_a_paper_has_a_version(plan):
    data = {"units", "clusters"}  # made by rules of their own, which have versions
    papers = [keys for kind in STAGES.values() for keys in added_to(kind.extended_by).values()]
    added = {key for keys in papers for key in keys.model_fields} - data
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
        if (stage.objective.name == name if section else stage.by_key().get(key) is not None)
    }
    assert {place for place, text in before.items() if after[place] != text} == uses
    assert uses or key in ("objective.adist",), "no recipe uses it"  # of MoMA's second model


def test_a_changed_loss_of_modir_reruns_modirs_models_alone(plan, monkeypatch):
    before = rendered(plan)
    monkeypatch.setitem(ADDITIONS, "adversary", 2)
    changed = {name for (name, _), text in rendered(plan).items() if text != before[name, _]}
    assert changed and all(name.startswith("modir") for name in changed)
    assert len(changed) < len(before)


# ---- rule files --------------------------------------------------------------------------------------------------
SHOW = """
import json, sys
from pathlib import Path
from snakemake.api import SnakemakeApi
from snakemake.settings.types import ConfigSettings, OutputSettings, Quietness, ResourceSettings

root = Path(sys.argv[1])
with SnakemakeApi(OutputSettings(quiet={Quietness.ALL})) as api:
    settings = ConfigSettings(config={"scale": "lab"})
    workflow = api.workflow(ResourceSettings(cores=1), settings, snakefile=root / "Snakefile", workdir=root)._workflow
    rules = {
        rule.name: {
            "docstring": rule.docstring or "",
            "local": rule.name in workflow._localrules,
            "log": list(map(str, rule.log)),
            "benchmark": str(rule.benchmark),
            "environment": str(rule.conda_env),
            "resources": sorted(rule.resources),
            "wildcards": sorted(rule.wildcard_names),
        }
        for rule in workflow.rules
    }
print(json.dumps(rules))
"""
READ_WHERE_A_FILE_IS = {  # inputs that the golden plans lack: their recipes name no file, mirror or folder
    "fetch_archive": {"mirror"},
    "import_model": {"files"},
    "init_model": {"files"},
    "mine_negatives": {"file"},
    "cluster_queries": {"groups"},
    "finetune": {"rem"},
}


TABLE: dict[str, str] = {}
WILDCARDS = {  # of rules that the golden plans lack
    **dict.fromkeys(("compare_runs", "build_table", "plot_table", "publish_lineage", "build_leaderboard"), TABLE),
    **{"build_queries": TABLE, "build_published": {"paper": "modir"}},
    "build_query_page": {"model": "zero", "baseline": "bm25-flat", "collection": "scifact", "protocol": "standard"},
    "build_row": {"model": "bm25-flat"},
    "transform_collection": {"collection": "nfcorpus-new-words"},
    "export_memory": {"model": "moma-t5ance", "scope": "scifact", "memory": "scifact"},
}
FOLDERS = {  # of users, and runs made elsewhere
    *("normalize_corpus", "normalize_queries", "normalize_judgements", "import_run"),
    *("hold_out_items", "judge_adaptation", "export_adapted", "build_adapted_page"),
}


@pytest.fixture(scope="module")
def declared(root) -> dict[str, Any]:
    """Rules as Snakemake has them."""
    done = subprocess.run([sys.executable, "-c", SHOW, str(root)], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    rules = json.loads(done.stdout.splitlines()[-1])
    assert rules.pop("all")["local"]
    return rules


def test_every_rule_has_what_all_rules_have(declared):
    assert set(declared) == set(RULES)
    for name, rule in declared.items():
        assert rule["local"] == RULES[name].local, name
        assert rule["environment"].endswith("envs/zerodr.yaml"), name
        (log,) = rule["log"]
        assert log.startswith(f"results/logs/{name}/") and log.endswith(".log"), name
        assert rule["benchmark"] == log.replace("results/logs", "results/benchmarks").replace(".log", ".tsv"), name
        assert sorted(re.findall(r"{([a-z]\w*)", log)) == rule["wildcards"], name  # no two jobs write one log


def test_every_rule_that_is_submitted_says_what_it_needs(declared):
    for name, rule in declared.items():
        assert rule["local"] or {"mem_mb", "runtime"} <= set(rule["resources"]), name


def read_by(docstring: str) -> set[str]:
    """Names of inputs after `Reads:`."""
    return set(re.findall(r"\w+", docstring.partition("Reads:")[2]))


def given_by_plans(root: Path) -> dict[str, set[str]]:
    """Names of inputs by rule in the golden plans of all recipes and papers at all scales."""
    given: dict[str, set[str]] = defaultdict(set)
    for path in sorted((root / "tests/dag/golden/plans").glob("*.txt")):
        rule = ""
        for line in path.read_text().splitlines():
            if not line.startswith(" "):
                rule = line.partition(" ")[0]
                given.setdefault(rule, set())
            elif found := re.match(r"  <(\w+)", line):
                given[rule].add(found[1])
    given.pop("==")
    return given


def test_a_rule_file_lists_what_the_plan_gives_to_its_rules(declared, root, plan):
    given = given_by_plans(root)
    for name in set(RULES) - set(given):
        wildcards = WILDCARDS.get(name)
        if wildcards is not None:
            given[name] = set(INPUTS[name](plan, SimpleNamespace(**wildcards)))
    unread = {name: facts["docstring"] for name, facts in declared.items() if name not in given}
    assert set(unread) == FOLDERS and all(map(read_by, unread.values()))
    for name, names in sorted(given.items()):
        assert read_by(declared[name]["docstring"]) - READ_WHERE_A_FILE_IS.get(name, set()) == names, name
