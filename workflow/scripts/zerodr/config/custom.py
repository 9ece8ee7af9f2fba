"""Find what is a user's own: recipes, collections, losses, measures and settings in `config/my/`.

Git ignores the folder, and so do the tests. ZERODR_MY names another one; empty: none.
"""

import ast
import hashlib
import os
import re
import sys
import traceback
from collections.abc import Collection, Sequence
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from zerodr.config.base import mapping
from zerodr.config.files import read_yaml, yaml_files
from zerodr.errors import ConfigError

SETTINGS = "config.yaml"
KINDS = {
    "collections": "collections",
    "kind": "recipe",
    "like": "recipe",
    "items": "items",
}  # key -> kind of file
LEFT_OUT: set[Path] = set()  # files of the user's own that this process does not read


def custom_folder(config: Path) -> Path | None:
    """Return the user's own folder next to `config`'s files; None where there is none.

    Raises:
        ConfigError: ZERODR_MY names a folder that is not there.
    """
    named = os.environ.get("ZERODR_MY")
    folder = config / "my" if named is None else Path(named)
    if named and not folder.is_dir():
        raise ConfigError("ZERODR_MY", f"{named} is no folder, so that nothing in it is read", "correct or unset it")
    return folder if named != "" and folder.is_dir() else None


def custom_files(config: Path, kind: str) -> dict[str, dict[str, Any]]:
    """Read the user's own files of a kind: `recipe`, `collections` or `items` (of results/lab), by path.

    Raises:
        ConfigError: a file is neither, or names two kinds.
    """
    folder, files = custom_folder(config), dict[str, dict[str, Any]]()
    for path in yaml_files(folder, str(folder), "file of yours") if folder else ():
        if path.name == SETTINGS or path in LEFT_OUT:
            continue
        written = mapping(read_yaml(path), str(path))
        kinds = {KINDS[key] for key in KINDS if key in written}
        if len(kinds) != 1:
            step = "begin a recipe with `kind:` or `like: <recipe>`, others with `collections:` or `items:`"
            raise ConfigError(path, f"is no recipe, no list of collections or items, and not {SETTINGS}", step)
        if kinds == {kind}:
            files[str(path)] = written
    return files


def leave_out(config: Path, error: ConfigError) -> bool:
    """Leave the user's own file that an error names out of this process; False where it names no further one.

    Of code it is a file that is no Python: what is computed by it then is no loss, and no measure.
    """
    folder = custom_folder(config)
    files = [path for path in folder.glob("*.yaml") if path.name != SETTINGS] if folder else []
    where = error.where.removeprefix(f"{folder}/")
    blamed = {path for path in files if re.match(rf"{re.escape(path.name)}(?:[: ]|$)", where)}
    blamed |= {path for path in map(custom_code, CODE) if path and error.where.startswith(f"{path}:")}
    if not blamed - LEFT_OUT:
        return False
    LEFT_OUT.update(blamed)
    return True


def custom_settings(config: Path) -> dict[str, Any]:
    """Read the user's own settings, which lie over those of `config/config.yaml`."""
    folder = custom_folder(config)
    path = folder / SETTINGS if folder else None
    return mapping(read_yaml(path), str(path)) if path is not None and path.is_file() else {}


def recipe_file(recipe: str, config: Path) -> str:
    """Return the file of a recipe, for messages."""
    folder = custom_folder(config)
    mine = folder / f"{recipe}.yaml" if folder else None
    return str(mine) if mine is not None and mine.is_file() else f"config/methods/{recipe}.yaml"


# ---- losses.py and measures.py -----------------------------------------------------------------------------------
CONFIG, CODE = Path("config"), ("losses.py", "measures.py")


def custom_code(file: str) -> Path | None:
    """Return the user's own `losses.py` or `measures.py`; None where there is none."""
    folder = custom_folder(CONFIG)
    path = folder / file if folder else None
    return path if path and path.is_file() and path not in LEFT_OUT else None


def refuse_taken(file: str, taken: Collection[str]) -> None:
    """Refuse functions and classes of the user's own that bear a name of the bench's, which would be read instead.

    Raises:
        ConfigError: names the first one and its line.
    """
    for name, node in _parsed(file)[1].items():
        if name in taken:
            problem = f"{name} is a name of the bench, which would be read instead"
            raise ConfigError(f"{custom_code(file)}:{node.lineno}", problem, "take another name")


def defined(file: str) -> list[str]:
    """Name what a file of the user's own defines. Nothing is run.

    Raises:
        ConfigError: the file is no Python.
    """
    return list(_parsed(file)[1])


def lacking_imports(file: str, needed: str) -> str:
    """Return the imports of `needed` whose names a file of the user's own does not have.

    Raises:
        ConfigError: the file is no Python.
    """
    bound = set[str]().union(*map(_bound, _parsed(file)[0]))
    imports = [node for node in ast.parse(needed).body if isinstance(node, ast.Import | ast.ImportFrom)]
    lacking = [(node, {_alias(item) for item in node.names} - bound) for node in imports]
    return "".join(f"{ast.unparse(_narrowed(node, names))}\n" for node, names in lacking if names)


def kind_of(file: str, name: str) -> str:
    """Return `function` or `class`, of the user's own file; empty where it has none of that name."""
    named = _parsed(file)[1]
    if name not in named:
        return ""
    return "class" if isinstance(named[name], ast.ClassDef) else "function"


def _parsed(file: str) -> tuple[list[ast.stmt], dict[str, ast.stmt]]:
    """Parse a file: its statements, and its functions and classes by name."""
    path = custom_code(file)
    return _parse(path, path.stat().st_mtime_ns) if path else ([], {})


@cache
def _parse(path: Path, changed: int) -> tuple[list[ast.stmt], dict[str, ast.stmt]]:
    try:
        body = _Bare().visit(ast.parse(path.read_bytes())).body
    except SyntaxError as error:
        raise ConfigError(f"{path}:{error.lineno}", f"is no Python ({error.msg})", "correct the line") from None
    named = {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return body, dict[str, ast.stmt](named)


class _Bare(ast.NodeTransformer):
    """Leave docstrings out: code without them makes the same."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Drop a statement that is a text."""
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else node


WRAPPERS = {
    *("property", "staticmethod", "classmethod", "torch.no_grad", "torch.inference_mode"),
    *("dataclass", "dataclasses.dataclass", "cache", "lru_cache", "functools.cache", "functools.lru_cache"),
}
"""Decorators that change nothing but what they decorate."""


class Parameter(NamedTuple):
    """A keyword argument of the user's own function or class.

    Attributes:
        needed: it has no default.
        kind: its annotation, as written; empty without one.
    """

    needed: bool
    kind: str


def parameters(file: str, name: str) -> dict[str, Parameter] | None:
    """Describe the keyword arguments of a function, or of a class' `__init__`.

    The first one, which the bench gives, is left out. None: it takes any, or a base class has `__init__`.
    """
    node = _parsed(file)[1][name]
    if isinstance(node, ast.ClassDef):
        starts = [member for member in node.body if isinstance(member, ast.FunctionDef) and member.name == "__init__"]
        if not starts:
            return _fields(node)
        (node,) = starts
    assert isinstance(node, ast.FunctionDef)
    given = node.args
    if given.kwarg:
        return None
    positional = [*given.posonlyargs, *given.args]
    needed = {arg.arg: n < len(positional) - len(given.defaults) for n, arg in enumerate(positional)}
    needed |= {arg.arg: default is None for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)}
    kinds = {arg.arg: ast.unparse(arg.annotation) for arg in (*positional, *given.kwonlyargs) if arg.annotation}
    return {key: Parameter(must, kinds.get(key, "")) for key, must in list(needed.items())[1:]}


def _fields(node: ast.ClassDef) -> dict[str, Parameter] | None:
    """Describe the fields of a dataclass without another base than the bench's Objective; None: of any other class."""
    decorators = [ast.unparse(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list]
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    if not {"dataclass", "dataclasses.dataclass"} & {*decorators} or bases != {"Objective"}:
        return None
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
    if any(isinstance(one.value, ast.Call) or "ClassVar" in ast.unparse(one.annotation) for one in fields):
        return None  # field(...) may be no argument
    return {ast.unparse(one.target): Parameter(one.value is None, ast.unparse(one.annotation)) for one in fields}


def code_of(file: str, *names: str) -> list[str]:
    """Return the statements of functions or classes of a file of the user's own.

    With what they use of the file: further functions, imports and names, what may change any name, and modules and
    packages next to it that they import, whole. Without comments and docstrings.
    """
    path, statements, files = custom_code(file), _used(_parsed(file)[0], names), dict[Path, list[ast.stmt]]()
    pending = _imported(statements)
    while path and pending:
        name = pending.pop()
        for module in (path.parent / f"{name}.py", *sorted((path.parent / name).rglob("*.py"))):
            if module not in files and module.is_file():
                files[module] = _parse(module, module.stat().st_mtime_ns)[0]
                pending |= _imported(files[module])
    return [ast.unparse(node) for node in chain(statements, *(files[module] for module in sorted(files)))]


def code_digest(file: str, *names: str) -> str:
    """Return the SHA-256 of `code_of`: what it makes is known by it."""
    return hashlib.sha256("".join(code_of(file, *names)).encode()).hexdigest()


def check_planned(file: str, code: str, *names: str) -> None:
    """Refuse functions or classes of the user's own that changed since a job was planned: they would pass for the old.

    Args:
        code: their `code_digest` in the plan.

    Raises:
        ConfigError: they did.
    """
    if code != code_digest(file, *names):
        raise ConfigError(f"{file}: {', '.join(names)}", "has changed since this job was planned", "run again")


def _imported(body: Sequence[ast.stmt]) -> set[str]:
    """Name the modules that statements import, functions' own imports included."""
    inner = [node for statement in body for node in ast.walk(statement)]
    names = {item.name.partition(".")[0] for node in inner if isinstance(node, ast.Import) for item in node.names}
    return names | {str(node.module).partition(".")[0] for node in inner if isinstance(node, ast.ImportFrom)}


def _used(body: list[ast.stmt], names: Sequence[str]) -> list[ast.stmt]:
    """Select the statements of a file that functions or classes of it use, and of imports what they use."""
    used, size = {*names, "*"}, 0
    while size < len(used):
        size = len(used)
        for node in body:
            if not _is_plain(node) or _bound(node) & used:
                used |= {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    chosen = [node for node in body if not _is_plain(node) or _bound(node) & used]
    return [_narrowed(node, used) if isinstance(node, ast.Import | ast.ImportFrom) else node for node in chosen]


def _is_plain(node: ast.stmt) -> bool:
    """True of an import, function, class or assignment that does nothing but bind names.

    A call may change what another name holds (`WEIGHTS.append(.5)`), where it runs with the file: not in a function.
    """
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return _only_wrapped(node) and not _calls([node.args])
    if isinstance(node, ast.ClassDef):
        bare = _only_wrapped(node) and not node.keywords
        return bare and not _calls(node.bases) and all(map(_is_plain, node.body))
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return all(isinstance(one, ast.Name) for one in targets) and not _calls([node])
    return isinstance(node, ast.Pass)


def _only_wrapped(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """True of a definition whose decorators, if any, are of WRAPPERS."""
    calls = [one if isinstance(one, ast.Call) else ast.Call(one, [], []) for one in node.decorator_list]
    return all(ast.unparse(call.func) in WRAPPERS and not _calls([*call.args, *call.keywords]) for call in calls)


def _calls(nodes: Sequence[ast.AST]) -> bool:
    """True where something is called."""
    return any(isinstance(inner, ast.Call) for node in nodes for inner in ast.walk(node))


def _bound(node: ast.AST) -> set[str]:
    """Name what a statement binds in its file."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {_alias(item) for item in node.names}
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Store) else set()
    return set[str]().union(*map(_bound, ast.iter_child_nodes(node)))


def _alias(item: ast.alias) -> str:
    return item.asname or item.name.partition(".")[0]


def _narrowed(node: ast.Import | ast.ImportFrom, used: set[str]) -> ast.stmt:
    names = [item for item in node.names if _alias(item) in used]
    return ast.Import(names) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, names, node.level)


def load_code(file: str, name: str) -> Any:
    """Load a function or class of the user's own file, which may import modules and packages next to it.

    Raises:
        ConfigError: there is no such file.
    """
    path = custom_code(file)
    if path is None:
        raise ConfigError(f"{CONFIG / 'my' / file}", f"is missing, which defines {name}", "put it back")
    if (folder := str(path.parent.absolute())) not in sys.path:
        sys.path.append(folder)  # last: nothing of the bench's takes its name from there
    spec = spec_from_file_location(f"zerodr_my_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look names of annotations up
    spec.loader.exec_module(module)
    return getattr(module, name)


def raised_by(error: BaseException) -> str:
    """Say where in the user's own files an error was raised, and which; empty where it was elsewhere."""
    folder, frames = custom_folder(CONFIG), traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if folder and folder.absolute() in Path(frame.filename).absolute().parents]
    if not folder or not mine:
        return ""
    last = mine[-1]
    file = folder / Path(last.filename).absolute().relative_to(folder.absolute())
    return f"{file}:{last.lineno} in {last.name}: {type(error).__name__}: {error}"
