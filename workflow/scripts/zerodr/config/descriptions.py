"""Read what the docstrings below the fields of a settings class say: for the reference and the schema alone."""

import ast
import inspect
import textwrap
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel


@cache
def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field of a class, those of its bases included.

    Pydantic would read them at every import, which costs each job of a run .2 seconds.
    """
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base.__module__.startswith("zerodr.") and _is_written(base):
            texts |= _docstrings(base)
    return {name: texts[name] for name in model.model_fields if name in texts}


def _is_written(model: type) -> bool:
    """Test whether a class was written in a module, not made by `create_model`."""
    try:
        return inspect.getsource(model).lstrip().startswith((f"class {model.__name__}", "@"))
    except (OSError, TypeError):
        return False


def _docstrings(model: type) -> dict[str, str]:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(node, ast.ClassDef)
    texts = {}
    for field, below in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            if isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
                texts[field.target.id] = inspect.cleandoc(below.value.value)
    return texts


def describe(schema: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Add the docstrings of fields to a class's JSON schema, its definitions included."""
    models = {inner.__name__: inner for inner in _models(model)}
    for name, block in {model.__name__: schema, **schema.get("$defs", {})}.items():
        for field, text in descriptions(models[name]).items() if name in models else ():
            block["properties"][field]["description"] = text
    return schema


def _models(kind: Any) -> list[type[BaseModel]]:
    """List the settings classes in a type, itself first."""
    inside = [inner for argument in get_args(kind) for inner in _models(argument)]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        inside = [kind, *(inner for field in kind.model_fields.values() for inner in _models(field.annotation))]
    return inside
