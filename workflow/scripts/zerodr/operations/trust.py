"""Let the record beside each artifact decide what is up to date, in the place of `.snakemake/` and of times.

Snakemake compares settings and inputs with what `.snakemake/metadata` remembers of a path, and contents only where an
input is newer. Results that were copied here have times and a memory that say nothing of them: a changed learning
rate would plan a table over old models, and lost times would repeat all work. Seen in Snakemake 9.27.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from zerodr.artifacts.manifest import file_digest
from zerodr.artifacts.origins import begun
from zerodr.artifacts.record import Record, read_record, record_path
from zerodr.artifacts.stage import StageSpec
from zerodr.config.base import canonical_json
from zerodr.errors import ArtifactError

Reader = Callable[[str], Record | None]
CHANGED = set[str]()  # artifacts whose bytes are not those of their record, of all that Snakemake compared
READ_BYTES = 1 << 26  # larger foreign files are read again only where they changed after their use


def trust_records() -> None:
    """Answer Snakemake's questions on finished outputs from their records; without a record it asks its memory."""
    from snakemake.io import _IOFile
    from snakemake.persistence import RECORD_FORMAT_VERSION, MetadataRecord, PersistenceBase

    records = cache(_read)
    remember, changed = _original(PersistenceBase.metadata), _original(PersistenceBase._input_changed)
    checksum, eligible = _original(_IOFile.checksum), _original(_IOFile.is_checksum_eligible)
    answers = dict[str, Any]()  # Snakemake asks some times for each output
    specs = cache(begun)

    def metadata(self: Any, target: Any) -> Any:
        if str(target) in answers:
            return answers[str(target)]
        memory, record = remember(self, target), records(str(target))
        if record is None:
            left_out = memory is None and not Path(target).exists()
            answers[str(target)] = _as_begun(specs().get(str(target), []), records) if left_out else memory
            return answers[str(target)]
        known = (memory or MetadataRecord(rule=record["rule"])).model_copy()
        known.record_format_version = RECORD_FORMAT_VERSION
        known.params = [repr(settings_of(record))]
        known.input = sorted(entry["path"] for entry in record["inputs"])
        known.input_checksums = {entry["path"]: f"sha256:{entry['digest']}" for entry in record["inputs"]}
        answers[str(target)] = known
        return known

    def input_changed(self: Any, job: Any, file: Any = None) -> bool:
        return changed(self, job, file) or any(replaced_inputs(str(file), records))

    async def recorded_checksum(self: Any, *args: Any, **kwargs: Any) -> str | None:
        if record := _of_this_file(str(self)):
            return f"sha256:{record['digest']}"
        computed = await checksum(self, *args, **kwargs)
        if (record := _read(str(self))) and computed not in (None, f"sha256:{record['digest']}"):
            CHANGED.add(str(self))
        _give_time_back(str(self), computed)
        return computed

    async def of_any_size(self: Any, limit: Any) -> bool:  # most digests are known without reading
        return bool(await eligible(self, sys.maxsize))

    replacements: list[tuple[Any, str, Any, Any]] = [
        (PersistenceBase, "metadata", metadata, remember),
        (PersistenceBase, "_input_changed", input_changed, changed),
        (_IOFile, "checksum", recorded_checksum, checksum),
        (_IOFile, "is_checksum_eligible", of_any_size, eligible),
    ]
    for where, name, new, old in replacements:
        new.__wrapped__ = old
        setattr(where, name, new)


def changed_artifacts(written: Iterable[str]) -> str:
    """Say which artifacts have other content than their records hold: jobs that read them are refused.

    Args:
        written: outputs of the planned jobs, which make them anew.
    """
    if not (changed := sorted(CHANGED - set(written))):
        return ""
    one = len(changed) == 1
    step = "delete it, and it is made again" if one else "delete them, and they are made again"
    return f"{', '.join(changed)}: {'has' if one else 'have'} other content than recorded: {step}"


def _as_begun(written: list[tuple[str, StageSpec]], records: Reader) -> Any:
    """Answer for an artifact that a copy left out, record and all, from what its job was begun with.

    What was made from it is here, and says nothing of settings above it. Jobs of different settings wrote such a path:
    which one was read is not known, so that it is made anew.
    """
    from snakemake.persistence import RECORD_FORMAT_VERSION, MetadataRecord

    if not written:
        return None
    settings = {settings_of({"spec": asdict(spec), "seed": spec.seed}) for _, spec in written}
    spec = written[-1][1]
    known = MetadataRecord(rule=spec.rule)
    known.record_format_version = RECORD_FORMAT_VERSION
    known.params = [repr(settings.pop())] if len(settings) == 1 else ["several"]
    known.input, known.input_checksums = sorted(spec.input_list()), {}
    for digest, spec in written:
        inputs = {path: record["digest"] for path in spec.input_list() if (record := records(path))}
        if spec.digest(inputs).startswith(digest):  # it read the inputs that are here
            known.input_checksums = {path: f"sha256:{value}" for path, value in inputs.items()}
    return known


def _original(method: Any) -> Any:
    """Return Snakemake's own method: one process may plan several times."""
    return getattr(method, "__wrapped__", method)


def _read(path: str) -> Record | None:
    try:
        return read_record(path)
    except ArtifactError:  # `zerodr verify` names it
        return None


def settings_of(record: Record) -> str:
    """Return the `params: settings=` of the job that wrote a record, as the plan writes them."""
    spec = record["spec"]
    cut = {"rehearsal": spec["rehearsal"]} if spec.get("rehearsal") else {}
    return canonical_json({"version": spec["version"], "seed": record["seed"], "settings": spec["params"]} | cut)


def replaced_inputs(artifact: str, records: Reader) -> Iterator[str]:
    """List the inputs that have other bytes than those that an artifact read, whatever their times are.

    Inputs that were removed after their use are left to Snakemake.
    """
    record = records(artifact)
    for entry in record["inputs"] if record else ():
        path, now = Path(entry["path"]), records(entry["path"])
        if not path.is_file():
            continue
        digest = now["digest"] if now else _foreign_digest(path, artifact, entry, record["seconds"])  # type: ignore[index]
        if digest != entry["digest"]:
            yield entry["path"]
    yield from _other_packages(record["notes"].get("origin") if record else None)


def _other_packages(origin: Any) -> Iterator[str]:
    """List the packages that gave a model its weights and have another version here."""
    for key, value in origin.items() if isinstance(origin, dict) else ():
        if key == "packages":
            yield from (name for name, read in value.items() if _version(name) not in ("", read))
        else:
            yield from _other_packages(value)


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _foreign_digest(path: Path, artifact: str, entry: dict[str, Any], seconds: float) -> str:
    """Return the digest of a file without a record; of a large one that is older than its use, the known one.

    Args:
        seconds: that the job took. It reads digests when it begins, and writes the record when it ends.
    """
    stat = path.stat()
    # `cp -p` and `touch -d` set no such time; a folder above that was renamed, or a link to another one, does.
    changed = max(stat.st_ctime_ns, *(one.lstat().st_ctime_ns for one in (path, *path.absolute().parents)))
    if stat.st_size > READ_BYTES and changed < record_path(artifact).stat().st_mtime_ns - seconds * 1e9:
        return entry["digest"]
    return _digest(path, stat.st_size, stat.st_mtime_ns, changed)


@cache
def _digest(path: Path, *_: int) -> str:
    """Return the digest of a file; many artifacts may read it, so it is computed once for each size and times."""
    return file_digest(path)


def _of_this_file(path: str) -> Record | None:
    """Return the record of a file that has the size and time of its writing: its digest is that of the bytes."""
    record = _read(path)
    if record is None or not Path(path).exists():
        return None
    stat = Path(path).stat()
    return record if (record["bytes"], record["mtime_ns"]) == (stat.st_size, stat.st_mtime_ns) else None


def _give_time_back(path: str, checksum: str | None) -> None:
    """Set the recorded time of a file that a copy gave another one, so that it is read for comparison once."""
    record = _read(path)
    if record is not None and checksum == f"sha256:{record['digest']}" and os.access(path, os.W_OK):
        os.utime(path, ns=(record["mtime_ns"],) * 2)
