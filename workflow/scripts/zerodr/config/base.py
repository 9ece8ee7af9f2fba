"""The base of all settings, and how their errors are told."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Tag, ValidationError

from zerodr.errors import ConfigError, nearest


class Settings(BaseModel):
    """Frozen, refuses unknown keys, documents every field."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], value: Any, where: str) -> Model:
    """`value` as `model`.

    Raises:
        ConfigError: names the file, the key, what was found, what is allowed and the nearest known key.
    """
    if not isinstance(value, dict):
        raise ConfigError(
            where,
            f"expected a mapping of settings, found {type(value).__name__}",
            "see README, Configuration",
        )
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ConfigError(where, *_tell(model, error)) from None


def mapping(value: Any, where: str) -> dict[str, Any]:
    """`value` as a mapping; nothing at all counts as an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(where, f"expected a mapping, found {type(value).__name__}", "write `name: value` lines")
    return value


def _tell(model: type[BaseModel], error: ValidationError) -> tuple[str, str]:
    first = error.errors()[0]
    keys, fields = _walk(model, first["loc"][:-1])
    key = ".".join([*keys, str(first["loc"][-1])] if first["loc"] else keys)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        return f"unknown key {key!r}{more}", nearest(str(first["loc"][-1]), fields)
    if first["type"] == "missing":
        return f"key {key!r} is missing{more}", "add it"
    return f"key {key!r}: {first['msg'].lower()}, found {first['input']!r}{more}", "correct the value"


def _walk(model: Any, location: tuple) -> tuple[list[str], list[str]]:
    """Keys of a location as the user wrote them, and the known keys of the settings that stand there.

    Names of the members of a union are in pydantic's locations and not in the user's keys.
    """
    keys: list[str] = []
    for part in location:
        members = _members(model)
        if part in members:
            model = members[part]
            continue
        keys.append(str(part))
        if get_origin(model) is dict:
            model = get_args(model)[1]
        elif part in getattr(model, "model_fields", {}):
            model = _bare(model.model_fields[part].annotation)
    return keys, list(getattr(model, "model_fields", {}))


def _members(kind: Any) -> dict[str, Any]:
    """Tagged members of a union by tag."""
    tagged = [get_args(member) for member in get_args(get_args(kind)[0] if get_origin(kind) is Annotated else kind)]
    return {args[1].tag: args[0] for args in tagged if len(args) > 1 and isinstance(args[1], Tag)}


def _bare(kind: Any) -> Any:
    """The settings inside an optional type, else the type."""
    return next((part for part in get_args(kind) if hasattr(part, "model_fields")), kind)
