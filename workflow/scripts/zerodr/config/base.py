"""Base of all settings, one spelling of JSON, descriptions of fields, and the sentences of errors."""

import ast
import inspect
import json
import re
import textwrap
from functools import cache
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo

from zerodr.errors import ConfigError, nearest

LARGEST = 2**53  # whole numbers that every program counts exactly
LARGEST_SEED = 2**31 - 1  # of faiss' k-means; t-SNE reads 32 bits


class Settings(BaseModel):
    """Frozen, refuses unknown keys. A docstring below each field describes it (config/base.py)."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, allow_inf_nan=False)
    read_with: ClassVar[dict[str, tuple[str, tuple[Any, ...]]]] = {}
    """Fields that are read only where another field has, or holds, one of some values: that field and these values."""
    later: ClassVar[tuple[str, ...]] = ()
    """Fields that were added when there were results. At its default such a field is not written, so that what was
    made before is the same."""
    retired: ClassVar[dict[str, Any]] = {}
    """Fields that went, each with the only value that anything was made with. It is still written, and may be given."""

    @classmethod
    def known_keys(cls) -> dict[str, tuple[type[BaseModel], FieldInfo]]:
        """Give the keys that a file may write here, each with the class and the field that it belongs to."""
        return {name: (cls, field) for name, field in cls.model_fields.items()}

    def by_key(self) -> dict[str, Any]:
        """Give the values by key, those of inner settings as settings."""
        return {key: getattr(self, key) for key in type(self).model_fields}

    def unwritten(self) -> set[str]:
        """Name the fields that are no part of a stage's identity."""
        return {name for name in self.later if getattr(self, name) == type(self).model_fields[name].default}

    @model_validator(mode="before")
    @classmethod
    def _refuse_truth(cls, given: Any) -> Any:
        """Refuse true and false, as YAML reads yes, on and off, for numbers: pydantic takes them for 1 and 0."""
        if not isinstance(given, dict):
            return given
        for key, value in given.items():
            kind = type(value)
            if kind is not bool and kind is not list and kind is not tuple:
                continue  # most values, of 17,000 settings in a start
            for item in (value,) if kind is bool else value:
                if isinstance(item, bool) and key in numbers(cls):
                    raise ValueError(f"{key} is a number, found {_written(item)} (YAML reads on and yes as true)")
        if not cls.retired:
            return given
        return {key: value for key, value in given.items() if key not in cls.retired or value != cls.retired[key]}

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        left_out = self.unwritten()
        partly = info.include is not None or info.exclude_unset or info.exclude_defaults or info.exclude_none
        return {k: v for k, v in write(self).items() if k not in left_out} | ({} if partly else self.retired)

    @model_validator(mode="after")
    def _read(self) -> Self:
        """Refuse a number that C can't count, and a value, other than the default, that nothing would read."""
        for key, value in self.__dict__.items():
            if type(value) is int and abs(value) > LARGEST:
                raise ValueError(f"{key} is beyond {LARGEST}, found {value}")
        for key, (decides, values) in self.read_with.items():
            setting = getattr(self, decides)
            given = setting if isinstance(setting, tuple) else (setting,)
            if getattr(self, key) != type(self).model_fields[key].default and not set(values) & set(given):
                now, wanted = ", ".join(map(_written, given)), " or ".join(map(_written, values))
                raise ValueError(f"{key} has no effect with {decides}: {now}: leave it out, or set {decides}: {wanted}")
        return self


@cache
def numbers(model: type[BaseModel]) -> frozenset[str]:
    """Name the fields of settings that are numbers, and never true or false."""
    kinds = {name: _types(field.annotation) for name, field in model.model_fields.items()}
    return frozenset(name for name, types in kinds.items() if {int, float} & types and bool not in types)


def _types(kind: Any) -> set[Any]:
    return {kind} if isinstance(kind, type) else {one for argument in get_args(kind) for one in _types(argument)}


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
            "see docs/settings.md",
        )
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ConfigError(where, *_explain(model, error)) from None


def mapping(value: Any, where: str) -> dict[str, Any]:
    """`value` as a mapping of names; nothing at all counts as an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(where, f"expected a mapping, found {type(value).__name__}", "write `name: value` lines")
    for name in value:
        if not isinstance(name, str):
            raise ConfigError(
                where,
                f"key {name!r} is no text (YAML reads on, off, yes and no as true and false)",
                "take another name",
            )
    return value


EXPECTED = dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "a whole number")
EXPECTED |= dict.fromkeys(("float_parsing", "float_type"), "a number")
EXPECTED |= dict.fromkeys(("bool_parsing", "bool_type"), "true or false")
"""Plain words for what pydantic's kinds of errors ask for."""


def _plain(problem: Any) -> str:
    """Say what an error of pydantic is in plain words: expected and found.

    >>> _plain({"type": "int_type", "loc": (), "msg": "Input should be a valid integer", "input": "a"})
    "expected a whole number, found 'a'"
    """
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "too_short" and context["min_length"] == 1:
        return "expected at least one entry, found none"
    if kind in EXPECTED:
        return f"expected {EXPECTED[kind]}, found {problem['input']!r}"
    return f"{problem['msg'].lower()}, found {problem['input']!r}"


def _explain(model: type[BaseModel], error: ValidationError) -> tuple[str, str]:
    first = min(
        error.errors(), key=lambda problem: problem["type"] != "extra_forbidden"
    )  # a misspelled key is missing, too
    location, kind = first["loc"], first["type"]
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if kind == "extra_forbidden":
        keys, fields = _walk(model, location[:-1])
        return f"unknown key {'.'.join([*keys, str(location[-1])])!r}{more}", nearest(str(location[-1]), fields)
    if location and isinstance(location[-1], int):
        location = location[:-1]  # an entry of a list, which the message shows
    key = ".".join(_walk(model, location)[0])
    named = f"key {key!r}: " if key else ""
    if kind == "missing":
        lacking = [".".join(_walk(model, one["loc"])[0]) for one in error.errors() if one["type"] == "missing"]
        if len(lacking) == error.error_count() > 1:
            return f"keys {', '.join(map(repr, lacking))} are missing", "add them"
        return f"key {key!r} is missing{more}", "add it"
    if kind == "value_error":
        return f"{named}{first['ctx']['error']}{more}", "correct the value"
    step = "correct the value"
    if kind == "string_type":
        step = "put it in quotes, so that YAML reads text (it takes no, on and 2024_05 for other values)"
    if kind == "too_short":
        step = "add one"
    if kind == "literal_error" and isinstance(first["input"], str):
        step = nearest(first["input"], re.findall(r"'([^']*)'", first["ctx"]["expected"]))
    return f"{named}{_plain(first)}{more}", step


def _written(value: Any) -> str:
    """Write `value` as YAML does."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _walk(model: Any, location: tuple) -> tuple[list[str], list[str]]:
    """Keys of a location as the user wrote them, and the known keys of its settings.

    Names of the members of a union are in pydantic's locations and not in the user's keys.
    """
    keys: list[str] = []
    for key in location:
        members = _members(model)
        if key in members:
            model = members[key]
            continue
        keys.append(str(key))
        if get_origin(model) is dict:
            model = get_args(model)[1]
        elif key in (known := _known(model)):
            model = _bare(known[str(key)][1].annotation)
    return keys, list(_known(model))


def _known(model: Any) -> dict[str, tuple[type[BaseModel], FieldInfo]]:
    """Keys of settings; of another type none."""
    return model.known_keys() if isinstance(model, type) and issubclass(model, Settings) else {}


def _members(kind: Any) -> dict[str, Any]:
    """Tagged members of a union by tag."""
    tagged = [get_args(member) for member in get_args(get_args(kind)[0] if get_origin(kind) is Annotated else kind)]
    return {args[1].tag: args[0] for args in tagged if len(args) > 1 and isinstance(args[1], Tag)}


def _bare(kind: Any) -> Any:
    """The settings inside an optional type, else the type."""
    return (
        kind if _members(kind) else next((member for member in get_args(kind) if hasattr(member, "model_fields")), kind)
    )


def canonical_json(value: Any) -> str:
    """Sorted keys, no spaces, no NaN, non-ASCII kept. `1.0` stays `1.0`, `1` stays `1`."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@cache
def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field of a class, those of its bases included.

    Pydantic would read them at every import, which costs each job of a run .2 seconds.
    """
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base.__module__.startswith("zerodr."):
            texts |= _docstrings(base)
    return {name: texts[name] for name in model.model_fields if name in texts}


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
