"""Something that is not as it was when an artifact was made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """Something that is not as it was when an artifact was made.

    Attributes:
        what: `input`, `setting`, `name` (one that the configuration lacks), `stage version`, `seed`, `function`,
            `rule`, `content`, `code` or `environment`.
        name: which one.
        then: value at that time.
        now: value today.
        matters: whether the artifact is out of date because of it. Code and environment alone don't make it so: a
            change of results is told by the stage version.
    """

    what: str
    name: str
    then: str
    now: str
    matters: bool = True

    def __str__(self) -> str:
        return f"{f'{self.what} {self.name}'.strip()}: {self.then} then, {self.now} now"
