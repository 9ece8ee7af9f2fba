"""The checked configuration of a checkout."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from zerodr.config.base import Settings
from zerodr.config.methods import Method
from zerodr.config.papers import Paper
from zerodr.config.registry import Collection
from zerodr.config.settings import Config, Protocol, Scale

Kind = TypeVar("Kind", bound=Settings)


@dataclass(frozen=True)
class Bench:
    """The checked configuration.

    Attributes:
        config: `config/config.yaml` with what the command line changed.
        collections: rows of the registry, and the user's own collection, by name.
        methods: every recipe and `recipe+variant`, by full name.
        protocols: by name.
        scale: the chosen preset.
        own_files: files of the user's own collection, sorted.
        papers: tables and figures by paper.
    """

    config: Config
    collections: dict[str, Collection]
    methods: dict[str, Method]
    protocols: dict[str, Protocol]
    scale: Scale
    own_files: tuple[str, ...] = ()
    papers: dict[str, Paper] = field(default_factory=dict)

    def settings(self, method: str, kind: type[Kind]) -> Kind:
        """Settings of a method that is known to be of a kind, such as LexicalSettings."""
        settings = self.methods[method].settings
        assert isinstance(settings, kind), f"{method} has {type(settings).__name__}"
        return settings
