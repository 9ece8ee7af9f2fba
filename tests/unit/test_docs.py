"""README and docs/: strict build, links, names, examples, pictures, the layout that the workflow catalog accepts."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from tests.unit.config_helpers import add_variants

from zerodr.config.load import load_bench
from zerodr.config.measures import MEASURES, Measure, added
from zerodr.config.papers import item_of
from zerodr.config.registry import Collection
from zerodr.config.training import LOSSES, Loss
from zerodr.encoders.network import loading
from zerodr.encoders.network.loading import FAMILIES, NetworkFamily
from zerodr.errors import ModelError
from zerodr.training.objectives.ranking import ScoreLoss

WRITTEN = {
    "tests/unit/test_best_grade.py",
    "config/revisions.yaml",
}  # by the reader of an example, or by a run
HINGE = {
    "settings": {
        "chain": {"ep0": {"objective": {"name": "hinge", "margin": 0.5, "inverse_temperature": 1.0}}},
    }
}
RECIPES = {
    "modir": ("modir-dpr", "modir-ance"),
    "moma": ("moma-t5ance", "moma-cocondenser"),
    "berm": ("berm-dpr", "berm-ance", "berm-kd", "coco-berm"),
    "coco-dr": ("coco-dr",),
    "ddr": ("ddr-contrast", "ddr-distill"),
}


@pytest.fixture(scope="module")
def methods(root) -> set[str]:
    return set(load_bench(root, {}).methods)


@pytest.fixture(scope="module")
def pages(root) -> dict[str, str]:
    """Texts by path relative to the checkout."""
    paths = [root / "README.md", root / "config/README.md", *(root / "docs").rglob("*.md")]
    return {path.relative_to(root).as_posix(): path.read_text() for path in paths}


def load(root, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script of docs/pictures as a module."""
    monkeypatch.syspath_prepend(root / "docs/pictures")
    spec = importlib.util.spec_from_file_location(f"pictures_{name}", root / f"docs/pictures/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_the_pages_build_strictly(root, tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site/papers/modir.html").exists()
    assert "unpkg.com" not in (tmp_path / "site/index.html").read_text(), "search from file:// needs no network"
    assert not list((tmp_path / "site").rglob("*.py"))


def test_readme_is_short_and_names_snakemake_and_workflow(pages):
    assert len(pages["README.md"].splitlines()) <= 120
    assert {"snakemake", "workflow"} <= set(re.findall(r"\w+", pages["README.md"].lower()))


def test_links_to_files_lead_somewhere(root, pages):
    for name, text in pages.items():
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            if not target.startswith("https://"):
                assert ((root / name).parent / target).exists(), f"{name}: {target}"
        for target in re.findall(r"`((?:benchmarks|docs|config|envs|tests)/[\w/.-]+\.\w+)`", text):
            assert (root / target).exists() or target in WRITTEN or "config/my/" in target, f"{name}: {target}"


def test_variants_that_are_named_exist(methods, pages):
    recipes = {name for name in methods if not {"+", "@"} & set(name)}
    for name, text in pages.items():
        for recipe, variant in re.findall(r"(?<![\w/-])([a-z0-9-]+)\+([a-z0-9._-]*[a-z0-9])", text):
            by_word = re.search(r"[a-z]\.[a-z]", variant)  # of `set`
            assert recipe not in recipes or by_word or f"{recipe}+{variant}" in methods, f"{name}: {recipe}+{variant}"


@pytest.mark.parametrize("paper", RECIPES)
def test_the_page_of_a_paper_names_all_its_recipes_and_variants(paper, methods, pages):
    page = pages[f"docs/papers/{paper}.md"]
    words = set(re.findall(r"`([^`\s]+)`", page))
    for recipe in RECIPES[paper]:
        assert recipe in words and f"`{recipe}`" in pages["README.md"]
        variants = {name.partition("+")[2] for name in methods if name.startswith(f"{recipe}+") and "@" not in name}
        assert variants <= words | {word.partition("+")[2] for word in words}, recipe


def defined(path: Path, name: str) -> bool:
    """Whether a module defines a function, a class or a method (`Class.method`)."""
    body = ast.parse(path.read_text()).body
    for word in name.split("."):
        found = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == word]
        if not found:
            return False
        body = found[0].body
    return True


@pytest.mark.parametrize("paper", RECIPES)
def test_the_page_of_a_paper_says_where_its_equations_are(paper, root, pages):
    page = pages[f"docs/papers/{paper}.md"]
    table = page.partition("## Where is ...")[2].partition("\n## ")[0]
    places = re.findall(r"`([\w/]+\.py)(?::([\w.]+))?`", table)
    library = root / "workflow/scripts/zerodr"
    assert len(places) >= 10
    assert [place for place in places if not (library / place[0]).is_file()] == []
    assert [place for place in places if place[1] and not defined(library / place[0], place[1])] == []
    assert table.count("`") == 2 * (len(places) + 1), "some code in the table is no place"


def test_the_users_command_is_explained_by_eight_files(root, pages):
    section = pages["docs/cluster.md"].partition("## What happens, file by file")[2].partition("\n## ")[0]
    files = re.findall(r"^\| (\d) \| `([^`]+)` \|", section, re.M)
    assert [int(number) for number, _ in files] == list(range(1, len(files) + 1)) and 1 < len(files) <= 8
    assert [name for _, name in files if not (root / name).is_file()] == []


PLANNED = """
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from zerodr.config.load import load_bench
from zerodr.plan import Plan

RULES = {"finetune": ["finetune"], "answers": ["finetune"], "moma": ["train_main", "train_augmenter"]}
plan = Plan(load_bench(Path(sys.argv[1]), {"scale": "mini"}))
for name in plan.chains.names():
    for stage, settings in plan.chains.trained(name).chain.items():
        for rule in [*RULES.get(settings.kind, [settings.kind]), "init_model", "mine_negatives"]:
            if rule == "mine_negatives" and settings.kind not in ("finetune", "moma"):
                continue
            scope = "scifact" if plan.chains.per_target(name, stage) else "shared"
            wildcards = SimpleNamespace(model=name, stage=stage, scope=scope)
            print(name, stage, rule, plan.settings(rule)(wildcards))
"""


def planned(library: Path, root: Path) -> list[str]:
    """Params of all trainings at scale mini, as the library in a folder plans them."""
    environment = os.environ | {"PYTHONPATH": str(library)}
    command = [sys.executable, "-c", PLANNED, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=root)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def with_hinge(root, pages, tmp_path_factory) -> Path:
    """A copy of the library in which somebody followed docs/add-loss.md."""
    library = tmp_path_factory.mktemp("library")
    shutil.copytree(root / "workflow/scripts/zerodr", library / "zerodr", ignore=shutil.ignore_patterns("__pycache__"))
    (loss,) = re.findall(r"```python\n(.*?)```", pages["docs/add-loss.md"], re.S)
    line, field = re.findall(r"```\n(    .*?)```", pages["docs/add-loss.md"], re.S)
    (library / "zerodr/losses/hinge.py").write_text(loss)
    settings = library / "zerodr/config/training.py"
    text = settings.read_text()
    places = [("LOSSES = {\n", f"LOSSES = {{\n{line}")]
    places.append(("    @property\n    def compares", f"{field}\n    @property\n    def compares"))
    for old, new in places:
        before, found, after = text.rpartition(old)
        assert found, old
        text = before + new + after
    settings.write_text(text)
    return library


def test_the_loss_of_the_example_is_right_and_is_an_objective(with_hinge, monkeypatch):
    spec = importlib.util.spec_from_file_location("zerodr.losses.hinge", with_hinge / "zerodr/losses/hinge.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert doctest.testmod(module) == (0, 6)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(LOSSES, "hinge", Loss((), "hinge:hinge"))
    assert ScoreLoss("hinge").loss is module.hinge


def test_the_metrics_of_the_example_are_measured_and_shown(pages, monkeypatch):
    text = pages["docs/add-metric.md"]
    first, function, second, test = re.findall(r"```python\n(.*?)```", text, re.S)
    module = ModuleType("zerodr.evaluation.best_grade")
    exec(compile(function, "docs/add-metric.md", "exec", dont_inherit=True), vars(module))
    assert importlib.util.find_spec(module.__name__) is None, "the page writes a new module"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    lines = {"Measure": Measure, "MEASURES": {}}
    exec(first + second, lines)
    for name, one in lines["MEASURES"].items():
        monkeypatch.setitem(MEASURES, name, one)
    names: dict[str, Callable[[], None]] = {}
    exec(compile(test, "docs/add-metric.md", "exec", dont_inherit=True), names)
    names["test_best_grade"]()
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
    assert item_of(yaml.safe_load(block)["main"], "main").beside == ("recall_20",)
    assert added() == ["recall_20", "best_grade_10"]


def test_a_loss_with_an_option_leaves_all_models_as_they_are(with_hinge, root, tmp_path):
    before = planned(root / "workflow/scripts", root)
    assert planned(with_hinge, root) == before and len(before) > 300
    shutil.copytree(root / "config", tmp_path / "config")
    (tmp_path / "resources").symlink_to(root / "resources")
    add_variants(tmp_path, "dpr", hinge=HINGE)
    new = [line for line in planned(with_hinge, tmp_path) if line not in before]
    assert {line.split()[0] for line in new} == {"dpr+hinge"}
    assert any('"margin":0.5,"mask_known_positives":true,"name":"hinge"' in line for line in new)


def test_the_encoder_of_the_example_works(pages, monkeypatch):
    text = pages["docs/add-encoder.md"]
    (record,) = re.findall(r'^    "ernie": (NetworkFamily\(.*\)),$', text, re.M)
    (test,) = re.findall(r"```python\n(.*?)```", text, re.S)
    names: dict[str, Callable[[], None]] = {}
    exec(compile(test, "docs/add-encoder.md", "exec", dont_inherit=True), names)
    with pytest.raises(ModelError, match="is of family ernie"):
        names["test_ernie"]()
    monkeypatch.setitem(FAMILIES, "ernie", eval(record, {"NetworkFamily": NetworkFamily}))
    names["test_ernie"]()
    assert doctest.testmod(loading).failed == 0


def test_the_collection_of_the_example_is_a_valid_entry(pages):
    block = re.search(r"```yaml[^\n]*\n(collections:.*?)```", pages["docs/add-collection.md"], re.S)
    assert block is not None
    entry = yaml.safe_load(block[1])["collections"]["letters"]
    assert Collection.model_validate({"name": "letters"} | entry).evaluation_split == "test"


def test_the_picture_of_the_dag_has_every_rule(root, monkeypatch):
    rules = load(root, "dag", monkeypatch).rules()
    told = re.search(r"<desc[^>]*>(.*)</desc>", (root / "docs/pictures/dag.svg").read_text())
    assert told is not None
    assert set(re.findall(r"\w+_\w+|pretrain|finetune|assemble", told[1])) == set().union(*rules.values()), (
        "run: make pictures"
    )


def test_an_arrow_without_an_edge_and_a_file_without_a_phase_are_refused(root, monkeypatch):
    dag = load(root, "dag", monkeypatch)
    by_file = dag.rules()
    with pytest.raises(ValueError, match="no such edges"):
        dag.draw(by_file, set())
    with pytest.raises(ValueError, match="a phase"):
        dag.draw(by_file | {"new": []}, set())


def test_figures_of_results_are_those_of_the_benchmarks(root, monkeypatch):
    results = load(root, "results", monkeypatch)
    for name in results.FIGURES:
        drawn = results.figure(name)
        assert drawn == (root / f"docs/pictures/{name}.svg").read_text(), "run: make pictures"
    points = [len(effects()) for _, effects in results.FIGURES.values()]
    assert points == [4, 7, 21, 7, 21, 21, 14, 14, 14, 14, 4, 24, 7, 14, 11]
    pairs = results.proxies()
    assert results.scatter(results.SCATTER, pairs) == (root / "docs/pictures/proxies.svg").read_text(), (
        "run: make pictures"
    )
    assert len(pairs) == 18


def test_the_workflow_catalog_accepts_the_layout(root):
    assert (root / "workflow/Snakefile").is_file() and (root / "Snakefile").is_file()
    assert (root / "config/README.md").is_file()
    usage = yaml.safe_load((root / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage["report"] is False and usage["software-stack-deployment"] == {"conda": True}
    assert (root / usage["mandatory-flags"]["flags"].split()[1] / "config.yaml").is_file()
