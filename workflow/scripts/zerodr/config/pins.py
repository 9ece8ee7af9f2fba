"""Pin models of the hub: give them the commits of `config/revisions.yaml`, or those that `revisions` names."""

import re
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from zerodr.config.base import mapping
from zerodr.config.files import read_yaml
from zerodr.config.methods import Method
from zerodr.errors import ConfigError, ModelError, nearest

FIELDS = (
    ("model", "revision"),
    ("init", "revision"),
    ("tokenizer", "revision"),
    ("document_model", "document_revision"),
)
LOCK = "config/revisions.yaml"
COMMIT = re.compile(r"[0-9a-f]{40}")
REPOSITORY = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # organisation/name, or a name alone
HEAD = """# The commit of each hub model, resolved by the run that needed it first. Commit this file: other machines
# then use the same weights. `zerodr pin` compares it with the hub and renews it.
"""


def no_repository(model: str) -> ModelError:
    """Make the error of a model that is no folder, and whose name no repository of a hub can have."""
    return ModelError(model, "is neither a folder nor a hub name", "make the folder, or write organisation/name")


def require_repositories(models: Iterable[str]) -> None:
    """Raise a ModelError for the first of these models, none of them a folder, whose name no repository can have."""
    for model in models:
        if not REPOSITORY.fullmatch(model):
            raise no_repository(model)


def read_lock(path: Path) -> dict[str, tuple[str, date]]:
    """Read the commit of each locked model, and the day on which it was resolved.

    Raises:
        ConfigError: an entry is no commit with a date; names it.
    """
    locked = {}
    for model, entry in (mapping(read_yaml(path), LOCK) if path.exists() else {}).items():
        values = entry if isinstance(entry, dict) else {}
        commit, day = values.get("commit"), values.get("date")
        if not isinstance(day, date) or not isinstance(commit, str) or not COMMIT.fullmatch(commit):
            problem = f"expected {{commit: <40 hexadecimal digits>, date: <year-month-day>}}, found {entry!r}"
            raise ConfigError(f"{LOCK}: {model}", problem, "remove the line: the next run resolves the model again")
        locked[str(model)] = commit, day
    return locked


def render_lock(locked: Mapping[str, tuple[str, date]]) -> str:
    """Format the file, a line a model.

    >>> print(render_lock({"a/b": ("f" * 40, date(2026, 11, 26))}).splitlines()[-1])
    a/b: {commit: ffffffffffffffffffffffffffffffffffffffff, date: 2026-11-26}
    """
    return HEAD + "".join(
        f"{model}: {{commit: {commit}, date: {day}}}\n" for model, (commit, day) in sorted(locked.items())
    )


def with_revisions(
    methods: dict[str, Method], revisions: Mapping[str, str], locked: Mapping[str, str] | None = None
) -> dict[str, Method]:
    """Pin the models of all recipes. A commit given here replaces the recipe's, a locked one fills in a missing one.

    Args:
        methods: by full name.
        revisions: commit by name of a hub model.
        locked: the same from LOCK, which may hold models of recipes that are not here any more.

    Raises:
        ConfigError: no recipe names such a model.
    """
    locked = locked or {}
    if not revisions and not locked:
        return methods
    named: dict[str, str | None] = {}
    pinned = {name: _pinned(method, revisions, locked, named) for name, method in methods.items()}
    for model in sorted(revisions.keys() - named.keys()):
        raise ConfigError("revisions", f"no recipe names the model {model!r}", nearest(model, named))
    return pinned


def named_models(methods: Mapping[str, Method]) -> dict[str, str | None]:
    """List the models, other than recipes' stages, that recipes start from, with the commit that they name."""
    named: dict[str, str | None] = {}
    for method in methods.values():
        _pinned(method, {}, {}, named)
    return {name: commit for name, commit in sorted(named.items()) if name.replace("/", "@") not in methods}


def _pinned(value: Any, revisions: Mapping[str, str], locked: Mapping[str, str], named: dict[str, str | None]) -> Any:
    """Copy settings with commits filled in; `named` collects the models that occur, with their commits."""
    if isinstance(value, dict):
        return {key: _pinned(inner, revisions, locked, named) for key, inner in value.items()}
    if not isinstance(value, BaseModel):
        return value
    fields = {key: getattr(value, key) for key in type(value).model_fields}
    changed = {key: new for key, old in fields.items() if (new := _pinned(old, revisions, locked, named)) is not old}
    for model, revision in FIELDS:
        if revision in fields and isinstance(name := fields.get(model), str):
            named[name] = fields[revision] or named.get(name)
            commit = revisions.get(name) or fields[revision] or locked.get(name)
            changed |= {revision: commit} if commit != fields[revision] else {}
    return value.model_copy(update=changed) if changed else value
