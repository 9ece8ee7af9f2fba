"""Record the kernels that a job chose, so that a later attempt takes the same and lineage names them.

A choice is between two ways to compute the same numbers, which differ in the last bits. The first attempt of a job
writes its choices into the job's state, and later attempts read them there, on whatever machine they run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from zerodr.artifacts.record import STATE, write_json
from zerodr.config.kernels import check_pins, pinned
from zerodr.errors import ArtifactError

FILE = "kernels.json"  # in a job's state
PROJECT = STATE / "kernels"  # choices of a project, by processor and shape


class Taken(NamedTuple):
    """The way that was taken.

    Attributes:
        way: its name.
        times: how many times as fast as the usual way the other way was; None: it was not measured.
        by: `pin` of the configuration, `probe` of this job, `memory` of an earlier job's probe, or `default`.
    """

    way: str
    times: float | None
    by: str


class Choices:
    """Choices of one job.

    Args:
        file: where they are written; None: nowhere.
        pins: the user's.
        project: folder in which jobs of the project remember choices, or None.
    """

    def __init__(
        self, file: Path | None = None, pins: dict[str, str] | None = None, project: Path | None = None
    ) -> None:
        self.file, self.pins, self.project = file, check_pins(pins or {}), project

    def find(self, name: str) -> Taken | None:
        """Return what the job has already taken, else what is pinned, else None.

        Raises:
            ArtifactError: an earlier attempt took another way than the pinned one.
        """
        way, before = pinned(self.pins, name), self.facts().get(name)
        if before is None:
            return None if way is None else self.add(name, Taken(way, None, "pin"))
        if way not in (None, before["way"]):
            raise ArtifactError(
                self.file or name,
                f"an earlier attempt of this job computed {name!r} by {before['way']}, the configuration pins {way}",
                f"take the pin out of kernels, or remove {self.file and self.file.parent} to start afresh",
            )
        return Taken(**before)

    def add(self, name: str, taken: Taken) -> Taken:
        """Record a choice."""
        facts = self.facts()
        if self.file is not None and facts.get(name) != taken._asdict():
            write_json(self.file, facts | {name: taken._asdict()})
        return taken

    def facts(self) -> dict[str, dict[str, Any]]:
        """Read the job's choices by name."""
        return json.loads(self.file.read_text()) if self.file is not None and self.file.exists() else {}


_CURRENT: ContextVar[Choices] = ContextVar("choices", default=Choices())  # noqa: B039 - it holds nothing


def current() -> Choices:
    """Return the choices of the job that runs; outside of a job, ones that are not recorded."""
    return _CURRENT.get()


@contextmanager
def job_choices(state: Path, site: dict[str, Any]) -> Iterator[Choices]:
    """Make the choices of a job the current ones.

    Args:
        state: the job's folder.
        site: of its spec; `kernels` holds the user's pins.
    """
    choices = Choices(state / FILE, site.get("kernels"), PROJECT)
    token = _CURRENT.set(choices)
    try:
        yield choices
    finally:
        _CURRENT.reset(token)
