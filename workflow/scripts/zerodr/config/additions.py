"""Additions of papers to the core's settings: keys next to the core's, held under the paper's name.

A file writes the keys of a paper where those of the core are: `adversary: {...}` in a stage. They are checked by the
paper's class, and only settings that have such keys have an addition.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo

from zerodr.config.base import Settings
from zerodr.papers import modules

HELD = "additions"


class PaperKeys(Settings):
    """Keys that a paper adds. Settings have an addition if a file gives one of its keys another value than null."""

    def check(self, owner: Any) -> None:
        """Check the keys against the settings that they are added to.

        Raises:
            ValueError: they don't fit; the sentence says why and what to set.
        """

    @classmethod
    def of(cls, owner: object) -> Self | None:
        """Give this addition of settings; None where they have none."""
        held = owner.additions.values() if isinstance(owner, Extensible) else ()
        return next((keys for keys in held if isinstance(keys, cls)), None)


class StageKeys(PaperKeys):
    """Keys that a paper adds to a stage of a chain."""

    encoding: ClassVar[str | None] = None
    """The key, where the addition changes how training encodes texts."""
    further: ClassVar[str | None] = None
    """The key, where the addition trains on further texts, which have a loss of their own."""

    @property
    def freezing(self) -> str | None:
        """Return the addition's key if it freezes the model's weights."""
        return None

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """Corpora whose documents the stage learns from without labels."""
        return ()

    @property
    def teachers(self) -> tuple[str, ...]:
        """Recipes, or `<recipe>/<stage>`, that the stage learns from."""
        return ()


@cache
def papers() -> dict[str, Any]:
    """List the additions of all papers, `PaperSettings`, by the paper's name in the papers' order."""
    return {module.__name__.split(".")[-2]: module.SETTINGS for module in modules("settings")}


@cache
def added_to(attribute: str) -> dict[str, type[PaperKeys]]:
    """List by paper the keys for an attribute of PaperSettings; empty: papers add none."""
    return {
        name: keys for name, paper in papers().items() if attribute and (keys := getattr(paper, attribute)) is not None
    }


class Extensible(Settings):
    """Settings to which papers may add keys."""

    extended_by: ClassVar[str] = ""
    """The attribute of PaperSettings that holds what papers add here; empty: they add nothing."""
    additions: dict[str, PaperKeys] = Field({}, exclude=True)
    """Additions by paper. A file writes their keys next to the others."""

    @model_validator(mode="before")
    @classmethod
    def _hold(cls, value: Any) -> Any:
        """Take the papers' keys from those that a file gives."""
        if not isinstance(value, dict):
            return value
        if HELD in value:
            raise ValueError(f"{HELD} is no key of a file: write a paper's keys next to the others")
        core, held = dict(value), dict[str, PaperKeys]()
        for paper, keys in added_to(cls.extended_by).items():
            taken = {key: core.pop(key) for key in keys.model_fields if key in core}
            if any(inner is not None for inner in taken.values()):
                held[paper] = keys.model_validate({key: inner for key, inner in taken.items() if inner is not None})
        return core | {HELD: held}

    @model_validator(mode="after")
    def _fit(self) -> Self:
        for keys in self.additions.values():
            keys.check(self)
        return self

    @classmethod
    def known_keys(cls) -> dict[str, tuple[type[BaseModel], FieldInfo]]:
        """Give the keys of the core, then those of papers."""
        core = {key: owned for key, owned in super().known_keys().items() if key != HELD}
        return core | {
            key: owned for keys in added_to(cls.extended_by).values() for key, owned in keys.known_keys().items()
        }

    def by_key(self) -> dict[str, Any]:
        """Give the values by key, with those of the additions that are there."""
        core = {key: value for key, value in super().by_key().items() if key != HELD}
        for keys in self.additions.values():
            core |= keys.by_key()
        return core

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        written = super()._write(write, info)
        chosen: Any = {"mode": info.mode, "include": info.include, "exclude": info.exclude}
        for keys in self.additions.values():
            written |= keys.model_dump(**chosen)
        return written
