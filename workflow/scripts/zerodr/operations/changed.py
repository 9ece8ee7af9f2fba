"""Say what an adapted folder that changed keeps of its last answer: vectors, and the choice to be checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from zerodr.artifacts.record import read_record
from zerodr.config.quantities import counted
from zerodr.encoders.folder.retriever import ABOUT, INDEX
from zerodr.plan import Plan, paths
from zerodr.plan.adaptation import is_trained


class Earlier(NamedTuple):
    """The last answer about a folder that changed since: its choice, and the files that changed."""

    choice: str
    files: list[str]


def read_earlier(name: str) -> Earlier | None:
    """Read the last answer; None where there is none, or where no file of the folder changed since."""
    from zerodr.lookup.terminal import changed_files

    answer = Path(paths.adapted_answer(name)).parent / "answer.json"
    index = Path(paths.adapted_model(name)).parent / INDEX
    if not answer.exists() or not (index / ABOUT).exists():
        return None
    files = changed_files(index)
    return Earlier(json.loads(answer.read_text(encoding="utf-8"))["choice"], files) if files else None


def checked(plan: Plan, candidates: Sequence[str], choice: str) -> list[str]:
    """Leave out candidates that would be trained again and were not chosen."""
    stay = {choice, choice.removeprefix("hybrid+")}
    return [one for one in candidates if one in stay or not is_trained(plan, one)]


def announced(earlier: Earlier, left_out: Sequence[str]) -> list[str]:
    """Say before a run what changed, and what is not done again."""
    files = f"{earlier.files[0]}{f' and {len(earlier.files) - 1} more' if len(earlier.files) > 1 else ''}"
    lines = [f"changed     {files} since the last answer: texts that stayed keep their vectors"]
    if left_out:
        lines.append(f"checks      {earlier.choice}, which was chosen; not trained again: {', '.join(left_out)}")
    return lines


def concluded(name: str, before: str) -> list[str]:
    """Say after a run whether the choice held, and how many vectors were there."""
    answer = json.loads((Path(paths.adapted_answer(name)).parent / "answer.json").read_text(encoding="utf-8"))
    now, exported = answer["choice"], read_record(paths.adapted_model(name))
    outcome = f"{now}, as before" if now == before else f"{now}, where it was {before}"
    lines = [f"choice      checked on the changed documents: {outcome}"]
    vectors = [entry["path"] for entry in (exported["inputs"] if exported else []) if entry["name"] == "vectors"]
    notes = [record["notes"] for path in sorted({*vectors}) if (record := read_record(path))]
    texts, reused = (sum(note.get(key, 0) for note in notes) for key in ("texts", "reused"))
    if texts:
        lines.append(f"vectors     {texts - reused:,} of {counted(texts, 'text')} embedded; the others had theirs")
    return lines
