"""Pin models of the hub: give them the commits that `revisions` of config.yaml names."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from zerodr.config.methods import Method
from zerodr.errors import ConfigError, nearest

FIELDS = (
    ("model", "revision"),
    ("init", "revision"),
    ("tokenizer", "revision"),
    ("document_model", "document_revision"),
)


def with_revisions(methods: dict[str, Method], revisions: Mapping[str, str]) -> dict[str, Method]:
    """Pin the models of all recipes. A commit given here replaces the recipe's.

    Args:
        methods: by full name.
        revisions: commit by name of a hub model.

    Raises:
        ConfigError: no recipe names such a model.
    """
    if not revisions:
        return methods
    named: set[str] = set()
    pinned = {name: _pinned(method, revisions, named) for name, method in methods.items()}
    for model in sorted(set(revisions) - named):
        raise ConfigError("revisions", f"no recipe names the model {model!r}", nearest(model, named))
    return pinned


def _pinned(value: Any, revisions: Mapping[str, str], named: set[str]) -> Any:
    """Copy settings with commits filled in; `named` collects the models that occur."""
    if isinstance(value, dict):
        return {key: _pinned(inner, revisions, named) for key, inner in value.items()}
    if not isinstance(value, BaseModel):
        return value
    fields = {key: getattr(value, key) for key in type(value).model_fields}
    changed = {key: new for key, old in fields.items() if (new := _pinned(old, revisions, named)) is not old}
    for model, revision in FIELDS:
        if revision in fields and isinstance(fields.get(model), str):
            named.add(fields[model])
            if fields[model] in revisions:
                changed[revision] = revisions[fields[model]]
    return value.model_copy(update=changed) if changed else value
