"""Read what was counted in the papers: each table, figure, equation and setting, and why it is not as published."""

import csv
from dataclasses import dataclass
from pathlib import Path

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
