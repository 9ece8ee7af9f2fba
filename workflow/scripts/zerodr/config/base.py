"""The base of all settings, and how their errors are told."""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

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
    key = ".".join(str(part) for part in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        known = _fields_at(model, first["loc"][:-1])
        return f"unknown key {key!r}{more}", nearest(str(first["loc"][-1]), known)
    if first["type"] == "missing":
        return f"key {key!r} is missing{more}", "add it"
    return f"key {key!r}: {first['msg'].lower()}, found {first['input']!r}{more}", "correct the value"


def _fields_at(model: Any, location: tuple) -> list[str]:
    """Known keys of the model that stands at `location`, through optional, nested and named settings."""
    for part in location:
        field = getattr(model, "model_fields", {}).get(part)
        model = field.annotation if field is not None else model
        if get_origin(model) is dict:
            model = get_args(model)[1] if field is None else model
        elif field is not None:
            model = next((kind for kind in get_args(model) if hasattr(kind, "model_fields")), model)
    return list(getattr(model, "model_fields", {}))
