"""The rooms of the library: who imports whom, which packages a room must not touch, what Snakemake parses."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.unit.house_helpers import CONVERTER, LIBRARY, MODULES, SCRIPTS, name_of, trees

from zerodr import papers

__all__ = ["trees"]
GROUND, TOP = "config plan artifacts collections lexical encoders losses", "mining training retrieval evaluation"
ROOMS = [*GROUND.split(), *TOP.split(), "reporting", "lineage", "pages", "lookup", "papers", "operations"]
LOOSE = {"__init__", "__main__", "errors", "checkout", "run"}  # the only modules outside the rooms
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
EVERYWHERE_BANNED = {"pickle", "dill", "joblib", "shelve", "marshal", "beir"}


def room_of(path: Path) -> str | None:
    """The room of a module; None for the modules at the top (LOOSE)."""
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


def test_every_room_is_known():
    found = {path.name for path in LIBRARY.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert found <= set(ROOMS)


def test_no_module_stands_outside_the_rooms():
    assert {path.stem for path in MODULES if room_of(path) is None} == LOOSE


def test_a_room_imports_only_from_rooms_above_it(trees):
    wrong = []
    for path in MODULES:
        room = room_of(path)
        if room is None:
            continue
        allowed = set(ROOMS[: ROOMS.index(room) + 1]) - BANNED_ROOMS.get(room, set()) | {"errors"}
        allowed |= {"checkout"} if room == "operations" else set()
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


def parsed_modules() -> set[str]:
    """Modules that a job loads when it parses the Snakefile: those it imports, and those that a plan needs."""
    root = SCRIPTS.parents[1]
    lines = [line for line in (root / "Snakefile").read_text().splitlines() if line.startswith("from zerodr")]
    lines += [f"from pathlib import Path; load_plan(Path({str(root)!r}), {{'scale': 'mini'}}, False, {{}})"]
    lines += ["import sys; sys.stdout.write(' '.join(sys.modules))"]
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_snakemake_parses_without_heavy_packages():
    assert parsed_modules() & NOT_AT_PARSE_TIME == set()


def test_a_jobs_parse_loads_settings_plan_and_little_else():
    """What checks and starts a run, its screen and its estimates, is imported in `onstart` or by the main process."""
    others = {name for name in parsed_modules() if name.startswith("zerodr.")}
    others = {name.removeprefix("zerodr.") for name in others if name.split(".")[1] not in ("config", "plan", "papers")}
    artifacts = {f"artifacts.{name}" for name in ("guard", "machine", "manifest", "record")}
    assert others == {"checkout", "errors", "artifacts", *artifacts, "operations", "operations.loading"}
