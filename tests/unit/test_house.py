"""The rules of the house: sizes, forbidden calls, rules and recipes, generated files, names, docstrings."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from tests.unit.house_helpers import ADAPTERS, CONVERTER, LIBRARY, MODULES, ROOT, dotted, name_of, trees

from zerodr.config.files import read_yaml
from zerodr.config.load import config_schema, read_starts
from zerodr.config.methods import METHOD_KINDS
from zerodr.config.recipes import load_methods
from zerodr.plan.rules import RULES

__all__ = ["trees"]
BANNED_CALLS = {
    "print",
    "eval",
    "exec",
    "torch.load",
    "yaml.load",
    "os.system",
    "os.popen",
    "pd.read_pickle",
    "pandas.read_pickle",
}
ROOMS_CLEAN = (  # rooms and modules whose names and module docstrings follow the rules of plain language
    *("artifacts", "collections", "lexical", "evaluation", "reporting", "lineage", "pages", "encoders", "losses"),
    *("mining", "retrieval", "config", "plan", "papers", "training", "operations", "checkout.py", "errors.py"),
    "run.py",
)
NOT_CLEAN_YET = (
    "config/papers.py",  # `beside` is a key of papers' files
)
VAGUE_WORDS = set(
    "own found made place places part parts kept told said say tell tells stand stands have beside".split()
)
VAGUE_START = re.compile(r"(What|Which|How|Whether)\b")
MACHINE_PATH = re.compile(r"(?<![\w.~}*$/-])/(?:work|home|root|tmp|Users|mnt|scratch)/\w")
SHORT_FLOW = 60  # letters of a mapping on one line
MODULE_LINES, MEDIAN_LINES, ADAPTER_LINES, RULE_LINES = 400, 170, 20, 200

RULE_FILES = sorted((ROOT / "workflow/rules").rglob("*.smk"))
RECIPES = sorted((ROOT / "config/methods").glob("*.yaml"))
SHIPPED_YAML = sorted(path for path in (ROOT / "config").rglob("*.yaml") if path.parent.name != "my")
SCALES = set(read_yaml(ROOT / "config/scales.yaml"))
STARTS = read_starts(ROOT / "config")


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_nothing_is_printed_unpickled_or_evaluated(trees):
    wrong = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            banned = isinstance(node, ast.Call) and dotted(node.func) in BANNED_CALLS
            if banned and not (path == CONVERTER and "weights_only=True" in ast.unparse(node)):
                wrong.append(f"{name_of(path)}:{node.lineno} calls {dotted(node.func)}")
            if isinstance(node, ast.keyword) and node.arg in ("shell", "allow_pickle", "trust_remote_code"):
                if not (isinstance(node.value, ast.Constant) and node.value.value is False):
                    wrong.append(f"{name_of(path)}:{node.value.lineno} sets {node.arg}")
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None or dotted(node.type) in ("Exception", "BaseException")
            ):
                wrong.append(f"{name_of(path)}:{node.lineno} catches everything")
    assert wrong == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_are_small(path):
    assert lines_of(path) <= MODULE_LINES


def test_tests_and_benchmarks_are_small():
    others = [path for folder in ("tests", "benchmarks", "docs/pictures") for path in (ROOT / folder).rglob("*.py")]
    assert [name_of(path) for path in others if lines_of(path) > MODULE_LINES] == []


def test_the_median_module_is_small():
    sizes = [lines_of(path) for path in MODULES if path.name != "__init__.py"]
    assert statistics.median(sizes) <= MEDIAN_LINES


def test_all_rules_have_one_small_adapter():
    (adapter,) = ADAPTERS
    assert lines_of(adapter) < ADAPTER_LINES


@pytest.mark.parametrize("path", RULE_FILES, ids=name_of)
def test_rule_files_are_short(path):
    assert lines_of(path) < RULE_LINES


def test_every_rule_runs_by_the_adapter_and_has_a_function():
    listed = []
    for path in RULE_FILES:
        text = path.read_text()
        rules = re.findall(r"^rule (\w+):", text, re.M)
        assert text.count('../scripts/run_stage.py"') == len(rules), name_of(path)
        listed += rules
    assert sorted(listed) == sorted(RULES)


def test_every_stage_function_exists(trees):
    for kind in RULES.values():
        module, function = kind.function.split(":")
        path = LIBRARY / f"{module.replace('.', '/')}.py"
        assert path.exists(), kind.function
        defined = {node.name for node in trees[path].body if isinstance(node, ast.FunctionDef)}
        assert function in defined, kind.function


def tracked() -> list[Path]:
    done = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False)
    names = [name for name in done.stdout.split("\0") if name and not name.endswith(".npz")]
    return [path for path in map(ROOT.joinpath, names) if path.is_file()] or [*MODULES, *ADAPTERS, *RULE_FILES]


def test_no_file_names_a_place_on_some_machine():
    wrong = []
    for path in tracked():
        if path.name == Path(__file__).name or path.suffix in (".png", ".parquet", ".npy", ".gz", ".zip"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if MACHINE_PATH.search(line):
                wrong.append(f"{name_of(path)}:{number}: {line.strip()[:80]}")
    assert wrong == []


@pytest.mark.parametrize("line", ['x = "/work/main/a"', "cd /tmp/w", "(/home/me/x)", "file:///root/x"[7:]])
def test_places_on_machines_are_recognized(line):
    assert MACHINE_PATH.search(line)


@pytest.mark.parametrize("line", ["results/work/x", "https://site.org/home/page", "a/tmp/b", "$HOME/tmp/x"])
def test_other_paths_are_left_alone(line):
    assert not MACHINE_PATH.search(line)


@cache
def methods_at(scale: str) -> set[str]:
    return set(load_methods(ROOT / "config/methods", scale, SCALES, STARTS))


@pytest.mark.parametrize("scale", sorted(SCALES))
@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_every_recipe_loads_at_every_scale(path, scale):
    value = read_yaml(path)
    assert "like" in value or value["kind"] in METHOD_KINDS
    assert {path.stem, *(f"{path.stem}+{variant}" for variant in value.get("variants") or {})} <= methods_at(scale)


def test_the_schema_is_the_configurations():
    assert (ROOT / "config/schema.json").read_text() == config_schema(), "run: zerodr schema --write"


def test_yaml_files_are_plain():
    for path in SHIPPED_YAML:
        yaml.safe_load(path.read_text())


def flow_mappings(node: yaml.Node) -> Iterator[yaml.Node]:
    for child in (part for pair in node.value for part in pair) if isinstance(node, yaml.MappingNode) else node.value:
        if not isinstance(child, yaml.ScalarNode):
            yield from flow_mappings(child)
    if isinstance(node, yaml.MappingNode) and node.flow_style:
        yield node


@pytest.mark.parametrize("path", SHIPPED_YAML, ids=name_of)
def test_configuration_is_block_style_with_short_lines(path):
    text = path.read_text(encoding="utf-8")
    long = [f"{name_of(path)}:{number}" for number, line in enumerate(text.splitlines(), 1) if len(line) > 120]
    flows = [(node, text[node.start_mark.index : node.end_mark.index]) for node in flow_mappings(yaml.compose(text))]
    wide = [node.start_mark.line + 1 for node, flow in flows if len(flow) > SHORT_FLOW or flow.count("{") > 1]
    assert long == [] and wide == []


def public_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions of a module and methods of its public classes."""
    for node in tree.body:
        body = node.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_") else [node]
        yield from (
            n for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and not n.name.startswith("_")
        )


def overrides(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(dotted(d) in ("override", "typing.override", "overload") for d in function.decorator_list)


def test_public_functions_are_typed_and_documented(trees):
    wrong = []
    for path in MODULES:
        for function in public_functions(trees[path]):
            place = f"{name_of(path)}:{function.lineno} {function.name}"
            arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            arguments += [a for a in (function.args.vararg, function.args.kwarg) if a]
            untyped = [a.arg for a in arguments if a.annotation is None and a.arg not in ("self", "cls")]
            if untyped or function.returns is None:
                wrong.append(f"{place}: no type for {', '.join(untyped) or 'the result'}")
            if ast.get_docstring(function) is None and not overrides(function):
                wrong.append(f"{place}: no docstring")
    assert wrong == []


def test_modules_and_public_classes_are_documented(trees):
    wrong = [name_of(path) for path in MODULES if ast.get_docstring(trees[path]) is None]
    for path in MODULES:
        classes = (
            node for node in trees[path].body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        )
        wrong += [f"{name_of(path)}: {c.name}" for c in classes if ast.get_docstring(c) is None]
    assert wrong == []


def clean_modules() -> list[Path]:
    names = {path: path.relative_to(LIBRARY).as_posix() for path in MODULES}
    return [path for path in MODULES if names[path].startswith(ROOMS_CLEAN) and names[path] not in NOT_CLEAN_YET]


def bindings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of all that a module names: variables, arguments, attributes, functions, classes, imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.alias) and node.asname:
            yield node.lineno, node.asname


def test_names_are_words_of_the_field(trees):
    vague = []
    for path in clean_modules():
        for line, name in bindings(trees[path]):
            if VAGUE_WORDS & set(name.lower().split("_")):
                vague.append(f"{name_of(path)}:{line}: {name}")
    assert vague == []


def test_module_docstrings_begin_with_what_the_module_does(trees):
    starts = {name_of(path): (ast.get_docstring(trees[path]) or "").split("\n")[0] for path in clean_modules()}
    assert [f"{name}: {line}" for name, line in starts.items() if VAGUE_START.match(line)] == []


def test_files_of_tests_have_names_of_their_own(root):
    """Pytest imports them by name: two of one name end a run before its first test."""
    names = [path.name for path in (root / "tests").rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


TEXT_FILES, TEXT_RUNS = {"read_text", "write_text"}, {"run", "Popen", "check_output"}
BINARY_OPENERS = {"sums", "gzip", "tarfile", "zipfile", "os", "webbrowser"}


def lacks_encoding(call: ast.Call) -> bool:
    """True for a call that reads or writes text by the machine's locale."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if "encoding" in keywords or None in keywords:
        return False
    if isinstance(call.func, ast.Attribute) and name in TEXT_FILES:
        return name == "write_text" or not call.args
    if name in TEXT_RUNS:
        return "text" in keywords or "universal_newlines" in keywords
    base = getattr(getattr(call.func, "value", None), "id", "")
    if name != "open" or base in BINARY_OPENERS:
        return False
    at = int(isinstance(call.func, ast.Name))
    mode = keywords.get("mode", call.args[at] if len(call.args) > at else ast.Constant("r"))
    return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and set(mode.value) <= set("rwaxt+")


def test_text_is_utf_8_whatever_the_locale():
    folders = [ROOT / "workflow", ROOT / "benchmarks", ROOT / "docs"]
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    lacking = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and lacks_encoding(node)
    ]
    assert lacking == [], "give encoding"
    assert lacks_encoding(ast.parse("open(path)").body[0].value)
