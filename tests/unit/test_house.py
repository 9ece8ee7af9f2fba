"""The rules of the house: who imports whom, sizes, forbidden calls, generated files."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
import yaml

from zerodr import papers
from zerodr.config.files import read_yaml
from zerodr.config.load import config_schema, read_starts
from zerodr.config.methods import METHOD_KINDS
from zerodr.config.recipes import load_methods
from zerodr.plan.rules import RULES

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "workflow/scripts"
LIBRARY = SCRIPTS / "zerodr"
GROUND, TOP = "config plan artifacts collections lexical encoders losses", "mining training retrieval evaluation"
ROOMS = [*GROUND.split(), *TOP.split(), "analysis", "reporting", "lineage", "pages", "lookup", "papers"]
NOT_AT_PARSE_TIME = {
    "torch",
    "pandas",
    "numpy",
    "pyarrow",
    "mlflow",
    "snakemake",
    "transformers",
    "faiss",
    "matplotlib",
}
BANNED = {  # room -> packages that it must not import, not even lazily
    "config": NOT_AT_PARSE_TIME,
    "plan": NOT_AT_PARSE_TIME,
    "artifacts": {"torch"},
    "collections": {"torch", "transformers", "sentence_transformers"},
    "lexical": {"torch"},
    "encoders": {"snakemake"},
    "losses": {"snakemake", "mlflow", "logging", "pandas"},
    "training": {"snakemake", "mlflow"},
    "evaluation": {"torch", "transformers"},
    "lineage": {"torch", "snakemake"},
}
BANNED_ROOMS = {  # rooms above that a room must not import all the same
    "collections": {"lexical", "encoders"},
    "encoders": {"losses"},
    "losses": set(ROOMS) - {"losses"},
    "mining": {"training"},
    "evaluation": {"encoders", "losses", "mining", "training", "retrieval"},
}
LIGHT_LAYERS = ("settings", "checks", "items", "plan")  # of a paper: what Snakemake parses
PAPER_PAIRS: set[tuple[str, str]] = set()  # (paper, paper that it builds on)
CONVERTER = LIBRARY / "encoders/start/convert.py"  # the one reader of pickled files, of tensors alone
EVERYWHERE_BANNED = {"pickle", "dill", "joblib", "shelve", "marshal", "beir"}
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
    *("artifacts", "collections", "lexical", "evaluation", "reporting", "lineage", "pages"),
    *("encoders", "losses", "mining", "retrieval", "analysis"),
    *(
        "checkout.py",
        "cli.py",
        "cluster.py",
        "costs.py",
        "doctor.py",
        "errors.py",
        "forecast.py",
        "lingering.py",
        "run.py",
    ),
    *("schedule.py", "submission.py", "reference.py", "config", "plan", "papers", "training"),
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
MODULE_LINES, MEDIAN_LINES, ADAPTER_LINES, RULE_LINES = 400, 150, 20, 200

MODULES = sorted(LIBRARY.rglob("*.py"))
ADAPTERS = sorted(SCRIPTS.glob("*.py"))
RULE_FILES = sorted((ROOT / "workflow/rules").rglob("*.smk"))
RECIPES = sorted((ROOT / "config/methods").glob("*.yaml"))
SCALES = set(read_yaml(ROOT / "config/scales.yaml"))
STARTS = read_starts(ROOT / "config")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def room_of(path: Path) -> str | None:
    """The room of a module; None for the modules at the top (errors, run, cli, doctor, forecast)."""
    parts = path.relative_to(LIBRARY).parts
    return parts[0] if len(parts) > 1 else None


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            yield module
            if module == "zerodr":
                yield from (f"zerodr.{alias.name}" for alias in node.names)


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in [*MODULES, *ADAPTERS]}


def test_every_room_is_known():
    found = {path.name for path in LIBRARY.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert found <= set(ROOMS)


def test_a_room_imports_only_from_rooms_above_it(trees):
    wrong = []
    for path in MODULES:
        room = room_of(path)
        if room is None:
            continue
        allowed = set(ROOMS[: ROOMS.index(room) + 1]) - BANNED_ROOMS.get(room, set()) | {"errors"}
        for module in imports_of(trees[path]):
            parts = module.split(".")
            if module == "zerodr.papers":
                continue
            if parts[0] == "zerodr" and len(parts) > 1 and parts[1] not in allowed:
                wrong.append(f"{name_of(path)} imports {module}")
    assert wrong == []


def paper_of(path: Path) -> str | None:
    parts = path.relative_to(LIBRARY).parts
    return parts[1] if parts[0] == "papers" and len(parts) > 2 else None


def layer_of(path: Path) -> str:
    return path.relative_to(LIBRARY).with_suffix("").parts[2]


def test_every_paper_is_listed():
    folders = {path.name for path in (LIBRARY / "papers").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(papers.NAMES)


def test_papers_import_one_another_only_where_one_builds_on_another(trees):
    wrong = []
    for path in MODULES:
        paper = paper_of(path)
        others = {m.split(".")[2] for m in imports_of(trees[path]) if m.startswith("zerodr.papers.")}
        if paper is not None:
            wrong += [
                f"{name_of(path)} imports {other}" for other in others - {paper} if (paper, other) not in PAPER_PAIRS
            ]
    assert wrong == []


def code_words(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines and names of a module's code, strings included, docstrings and comments left out."""
    described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            yield node.lineno, node.value
        for field in ("id", "name", "attr", "arg", "module"):
            if isinstance(value := getattr(node, field, None), str):
                yield getattr(node, "lineno", 0), value


def test_the_core_names_no_paper(trees):
    words = re.compile(rf"(?<![a-z])({'|'.join(papers.NAMES)})(?![a-z])", re.I)
    wrong = []
    for path in MODULES:
        if room_of(path) != "papers":
            wrong += [
                f"{name_of(path)}:{line} {word[:60]}" for line, word in code_words(trees[path]) if words.search(word)
            ]
    assert wrong == []


def test_what_snakemake_parses_of_a_paper_is_light(trees):
    wrong = []
    for path in MODULES:
        if paper_of(path) and layer_of(path) in LIGHT_LAYERS:
            wrong += [f"{name_of(path)}: {m}" for m in imports_of(trees[path]) if m.split(".")[0] in NOT_AT_PARSE_TIME]
    assert wrong == []


def test_losses_of_papers_are_pure(trees):
    for path in MODULES:
        if paper_of(path) and path.stem == "losses":
            assert not [m for m in imports_of(trees[path]) if m.startswith("zerodr") and m != "zerodr.errors"], name_of(
                path
            )


def test_no_modules_import_in_a_circle(trees):
    known = {
        ".".join(path.relative_to(SCRIPTS).with_suffix("").parts).removesuffix(".__init__"): path for path in MODULES
    }
    graph = {name: named_modules(trees[path], known.keys()) - {name} for name, path in known.items()}
    while free := [name for name, needs in graph.items() if not needs & graph.keys()]:
        graph = {name: needs for name, needs in graph.items() if name not in free}
    assert graph == {}, "these import one another, or what does"


def named_modules(tree: ast.Module, known: Collection[str]) -> set[str]:
    """Modules among `known` that import statements name; of `from package import module`, the module alone."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & set(known) if inner <= set(known) else {node.module or "", *inner}
    return found & set(known)


def test_errors_stand_on_the_ground(trees):
    assert not [m for m in imports_of(trees[LIBRARY / "errors.py"]) if m.startswith("zerodr")]


def test_no_room_imports_what_it_must_not_touch(trees):
    wrong = []
    for path in MODULES:
        banned = BANNED.get(room_of(path) or "", set()) | EVERYWHERE_BANNED
        banned -= {"pickle"} if path == CONVERTER else set()  # for the name of an error
        wrong += [f"{name_of(path)} imports {m}" for m in imports_of(trees[path]) if m.split(".")[0] in banned]
    assert wrong == []


def test_nothing_is_printed_unpickled_or_evaluated(trees):
    wrong = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            safe = path == CONVERTER and "weights_only=True" in ast.unparse(node)
            if isinstance(node, ast.Call) and dotted(node.func) in BANNED_CALLS and not safe:
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


def test_snakemake_parses_without_heavy_packages():
    script = (
        "import sys; import zerodr.config.load, zerodr.plan, zerodr.artifacts.guard;"
        f" sys.stdout.write(repr(sorted(set({sorted(NOT_AT_PARSE_TIME)}) & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=SCRIPTS, capture_output=True, text=True, check=True)
    assert done.stdout == "[]"


@pytest.mark.parametrize("scale", sorted(SCALES))
@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_every_recipe_loads_at_every_scale(path, scale):
    value = read_yaml(path)
    assert value["kind"] in METHOD_KINDS
    methods = load_methods(path.parent, scale, SCALES, STARTS)
    assert {path.stem, *(f"{path.stem}+{variant}" for variant in value.get("variants") or {})} <= set(methods)


def test_the_schema_is_the_configurations():
    assert (ROOT / "config/schema.json").read_text() == config_schema(), "run: python -m zerodr schema --write"


def test_yaml_files_are_plain():
    for path in (ROOT / "config").rglob("*.yaml"):
        yaml.safe_load(path.read_text())


def flow_mappings(node: yaml.Node) -> Iterator[yaml.Node]:
    for child in (part for pair in node.value for part in pair) if isinstance(node, yaml.MappingNode) else node.value:
        if not isinstance(child, yaml.ScalarNode):
            yield from flow_mappings(child)
    if isinstance(node, yaml.MappingNode) and node.flow_style:
        yield node


@pytest.mark.parametrize("path", sorted((ROOT / "config").rglob("*.yaml")), ids=name_of)
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
