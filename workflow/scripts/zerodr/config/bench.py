"""The checked configuration of a checkout, with what was counted in the papers."""

import csv
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from zerodr.config.base import Settings
from zerodr.config.counterparts import seeded
from zerodr.config.files import known
from zerodr.config.methods import Method, RunSettings
from zerodr.config.papers import Paper
from zerodr.config.registry import Collection
from zerodr.config.settings import Config, Protocol, Scale
from zerodr.config.user_folders import UserFolder
from zerodr.errors import ConfigError

COUNTED = "resources/reference/papers/counted.tsv"


@dataclass(frozen=True)
class Counted:
    """A thing that a paper has.

    Attributes:
        paper: its name in config/papers.
        what: the thing.
        state: faithful, mode, impossible or short.
        held_by: kind and name of what holds it: an item, a test, a protocol, or a key, `<method>:<path>`,
            with its value, `=<YAML>`, where the row is about a value.
        why_not: the reason that it is not as published; empty: it is.
    """

    paper: str
    what: str
    state: str
    held_by: tuple[tuple[str, str], ...]
    why_not: str

    def named(self, kind: str) -> list[str]:
        """Name what holds it, of a kind."""
        return [name for of, name in self.held_by if of == kind]


def read_counted(root: Path) -> tuple[Counted, ...]:
    """Read the list of a checkout; none where there is no file."""
    path = root / COUNTED
    if not path.exists():
        return ()
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    return tuple(Counted(**row | {"held_by": _holders(row["held_by"])}) for row in rows)  # type: ignore[arg-type]


def _holders(held_by: str) -> tuple[tuple[str, str], ...]:
    words = [word.partition(" ") for word in held_by.split(", ") if word]
    return tuple((kind, name) for kind, _, name in words)


Kind = TypeVar("Kind", bound=Settings)
LONGEST_SELECTION = 80  # characters of a file's name


@dataclass(frozen=True)
class Bench:
    """The checked configuration.

    Attributes:
        config: `config/config.yaml` with what the command line changed.
        collections: collections of the registry, and the user's collection, by name.
        methods: every recipe and `recipe+variant`, by full name.
        protocols: by name.
        scale: the chosen preset.
        folders: folders of the user's collections, by name.
        papers: tables and figures by paper.
        mirrored: path of each archive that a mirror folder has, by file name.
        mirror_bytes: sizes of those that no checksum pins.
        absent: collections without an address whose archive is not here.
        root: the checkout.
        recipes: what the files of recipes hold, by recipe.
        overridden: variants that `set` made, by the method that they change.
        counted: what the papers have, and why it is not as published.
    """

    config: Config
    collections: dict[str, Collection]
    methods: dict[str, Method]
    protocols: dict[str, Protocol]
    scale: Scale
    folders: dict[str, UserFolder] = field(default_factory=dict)
    papers: dict[str, Paper] = field(default_factory=dict)
    mirrored: dict[str, str] = field(default_factory=dict)
    mirror_bytes: dict[str, int] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    root: Path = Path(".")
    recipes: dict[str, Any] = field(default_factory=dict)
    overridden: dict[str, tuple[str, ...]] = field(default_factory=dict)
    counted: tuple[Counted, ...] = ()

    @property
    def rows(self) -> tuple[str, ...]:
        """Methods of the main table, in order: each is followed by its variants of `set`, and these by other seeds."""
        named = tuple(self.scale.families) if self.config.methods is None else self.config.methods
        chosen = dict.fromkeys([*named, *(name for name in self.overridden if self.methods[name].ranks)])
        every = [row for name in chosen for row in (name, *self.overridden.get(name, ()))]
        return tuple(dict.fromkeys(row for name in every for row in self.by_seed(name)))

    def by_seed(self, row: str) -> list[str]:
        """A row, and its counterparts with the further seeds."""
        return [row, *(name for seed in self.config.seeds if (name := seeded(row, seed)) in self.methods)]

    def family(self, row: str) -> str:
        """Family of a row, other seeds and variants of `set` included; empty where the configuration names the rows."""
        if self.config.methods is not None:
            return ""
        changed = {variant: name for name, variants in self.overridden.items() for variant in variants}
        families = {name: family for first, family in self.scale.families.items() for name in self.by_seed(first)}
        families |= {name: families.get(first, "") for row, first in changed.items() for name in self.by_seed(row)}
        return families.get(row, "")

    @property
    def wanted(self) -> list[Collection]:
        """Evaluated collections of the main table, in registry order, gated ones included."""
        names = set(self.scale.collections if self.config.collections is None else self.config.collections)
        return [
            row
            for row in self.collections.values()
            if row.evaluation_split and (row.kind == "own" or names & {row.name, row.column, *row.groups})
        ]

    @property
    def columns(self) -> list[Collection]:
        """The wanted collections that are available: public ones, gated ones that `gated` names, usable folders."""
        open_rows = [row for row in self.wanted if row.access == "public" or row.name in self.config.gated]
        return [row for row in open_rows if row.name not in self.faults]

    @property
    def faults(self) -> dict[str, str]:
        """Problems of the user's folders that can't be used, by collection."""
        return {name: f"{f.fault[0]}: {f.fault[1]}" for name, f in self.folders.items() if f.fault}

    @property
    def selected(self) -> list[str]:
        """Names of the table's collections in paths: `all` (the scale's own), or those that the configuration names."""
        chosen = sorted(set(self.config.collections or ["all"]))
        users = [row.name for row in self.collections.values() if row.kind == "own" and row.evaluation_split]
        return [*chosen, *(name for name in users if name not in chosen)]

    @property
    def selection(self) -> str:
        """The selected names, joined by `+`; a long name ends with its digest."""
        names = self.selected
        name = "+".join(names)
        if len(name) <= LONGEST_SELECTION:
            return name
        return f"{names[0]}+{len(names) - 1}-more-{hashlib.sha256(name.encode()).hexdigest()[:8]}"

    def settings(self, method: str, kind: type[Kind]) -> Kind:
        """Settings of a method that is known to be of a kind, such as LexicalSettings."""
        settings = self.methods[method].settings
        assert isinstance(settings, kind), f"{method} has {type(settings).__name__}"
        return settings

    def run_file(self, method: str, collection: str) -> str:
        """File of an imported run.

        Raises:
            ConfigError: the recipe names no file for the collection, the collection is unknown or has no judgements, or
                the file is absent.
        """
        where, file = f"method {method}: files", known(f"method {method}: files", collection, self._runs_of(method))
        if not known(where, collection, self.collections).evaluation_split:
            step = "name one with an evaluation_split"
            raise ConfigError(f"{where}.{collection}", "the collection has no judgements", step)
        if not Path(self.root, file).is_file():
            step = "give a TREC run: query Q0 document rank score tag"
            raise ConfigError(f"{where}.{collection}", f"{file} is no file", step)
        return file

    def _runs_of(self, method: str) -> dict[str, str]:
        settings = self.methods[method].settings
        return settings.files if isinstance(settings, RunSettings) else {}
