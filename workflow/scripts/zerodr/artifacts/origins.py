"""Find what artifacts that are not here, nor their records, were made with: a copy of results may leave out models."""

import json

from zerodr.artifacts.record import STATE, read_record
from zerodr.artifacts.stage import StageSpec


def begun() -> dict[str, list[tuple[str, StageSpec]]]:
    """Read what jobs were begun with, by the path that they write: spec digests, cut, and specs."""
    specs: dict[str, list[tuple[str, StageSpec]]] = {}
    for file in sorted(STATE.glob("*/spec.json")):
        try:
            spec = StageSpec(**json.loads(file.read_text(encoding="utf-8")))
        except (ValueError, TypeError):  # of an interrupted copy: it says nothing
            continue
        for path in spec.outputs.values():
            specs.setdefault(path, []).append((file.parent.name, spec))
    return specs


def unfinished(path: str) -> str | None:
    """Name the job that began to write an artifact and did not finish: it runs, or was stopped."""
    for digest, spec in begun().get(path, []):
        if (STATE / digest / "work").is_dir():
            return spec.name()
    return None


def of_unknown_origin(artifacts: list[str]) -> list[str]:
    """List what artifacts were made from of which neither record nor settings are here."""
    seen, waiting, unknown = set[str](), list(artifacts), set[str]()
    while waiting:
        if (path := waiting.pop()) in seen:
            continue
        seen.add(path)
        if record := read_record(path):
            lacking = {e["path"] for e in record["inputs"] if e["record"] and read_record(e["path"]) is None}
            unknown |= lacking
            waiting += [entry["path"] for entry in record["inputs"] if entry["path"] not in lacking]
    return sorted(unknown - begun().keys()) if unknown else []
