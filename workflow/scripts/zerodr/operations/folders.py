"""Look into users' own folders before the first job: digests, language, and whether the contents can be used.

Every job reads the configuration anew, so the findings are remembered in `results/.state/folders` until a file changes.
"""

import json
import logging
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from zerodr.artifacts.manifest import file_digest, object_digest
from zerodr.artifacts.record import STATE, write_json
from zerodr.config.bench import Bench
from zerodr.config.loose_files import COLUMNS, CUT, is_table
from zerodr.config.registry import UNKNOWN, Collection
from zerodr.config.settings import Config
from zerodr.config.user_folders import SECTIONS, UserFolder
from zerodr.errors import ZerodrError

log = logging.getLogger("zerodr")
FINDINGS = STATE / "folders"
VERSION = 13  # of what is remembered: raise it when readers or checks change
READ_BYTES = 1 << 30  # larger folders are read by their first job alone


def examine(bench: Bench) -> Bench:
    """Return the bench with digests, languages and faults of the user's folders."""
    if not bench.folders:
        return bench
    rows, folders = dict(bench.collections), dict(bench.folders)
    for name, folder in bench.folders.items():
        facts = _look_up(folder, rows[name])
        fault = facts["fault"] and tuple(facts["fault"])
        folders[name] = replace(folder, digests=facts["digests"], fault=fault, remarks=tuple(facts["remarks"]))
        if notes := [*facts["remarks"], *([folder.unread] if folder.unread else [])]:
            rows[name] = rows[name].model_copy(update={"remark": "; ".join(notes)})
        if not bench.config.byo_language:
            of_it = [key for key, row in rows.items() if name in (key, row.held_out_of)]
            rows |= {key: rows[key].model_copy(update={"language": facts["language"]}) for key in of_it}
    return replace(bench, collections=rows, folders=folders)


def notices(bench: Bench) -> list[str]:
    """Return sentences on guessed languages, on what is not read or can be read in two ways, on what can't be used."""
    stated = [key for key in sorted(bench.config.model_fields_set) if key.startswith("byo_")]
    unused = [key for key in stated if getattr(bench.config, key) != type(bench.config).model_fields[key].default]
    lines = [f"{', '.join(unused)}: no effect without byo=FOLDER"] if unused and not bench.folders else []
    for name, folder in bench.folders.items():
        lines += [f"{name}: {remark}" for remark in (*folder.remarks, *_without_effect(folder, bench.config))]
        if folder.unread:
            lines.append(f"{name}: {folder.unread} (forms that are read: docs/own-corpus.md)")
        language = bench.collections[name].language
        if not bench.config.byo_language:
            lines.append(f"{name}: language {language}, guessed from its texts (or say: --config byo_language=...)")
        if language == UNKNOWN:
            words = "its words as they are written, and letters without blanks between words in pairs"
            lines.append(f"{name}: no analyser knows its language: BM25 compares {words}")
        if folder.fault:
            lines.append(f"{name} is left out: {': '.join(folder.fault)}")
    return lines


def _without_effect(folder: UserFolder, config: Config) -> list[str]:
    """Say which settings about tables, or about texts, count for nothing because a folder has none of them."""
    files = folder.files.get("corpus", ())
    if config.byo_columns != COLUMNS and not any(map(is_table, files)):
        return ["columns (--text, --title, --id) have no effect: it holds no table"]
    if config.byo_cut != CUT and all(map(is_table, files)):
        return ["byo_cut has no effect: a row of a table is a document as it is, cut long ones yourself"]
    return []


def _look_up(folder: UserFolder, row: Collection) -> dict[str, Any]:
    """Return digests, language and fault, from memory where no file changed."""
    reading = [folder.columns.model_dump(), folder.cut.model_dump(), row.drop_missing]
    memory = FINDINGS / f"{object_digest([VERSION, str(Path(folder.path).resolve()), folder.path, *reading])[:16]}.json"
    paths = [path for section in SECTIONS for path in folder.files.get(section, ())]
    times = {path: _times(Path(path)) for path in paths}
    known = _read(memory)
    if known.get("times") == times:
        return known
    digests = {path: file_digest(Path(path)) for path in paths}
    if known.get("digests") != digests:
        from zerodr.collections.user_folders import guess_language

        fault, remarks = inspect(folder, row)
        known = {"language": guess_language(folder), "fault": fault, "remarks": remarks, "digests": digests}
    known |= {"times": times}
    try:
        write_json(memory, known)
    except OSError as error:
        log.warning("%s is not remembered: %s", folder.path, error)
    return known


def _times(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def inspect(folder: UserFolder, row: Collection) -> tuple[tuple[str, str, str] | None, list[str]]:
    """Read a folder as the jobs would.

    Returns:
        location, problem and next step of the first thing that can't be used, and remarks on how the files were read.
    """
    remarks: list[str] = []
    if sum(Path(path).stat().st_size for paths in folder.files.values() for path in paths) > READ_BYTES:
        return None, remarks
    from zerodr.collections.user_folders import write_section

    try:
        with tempfile.TemporaryDirectory() as home:
            for section in SECTIONS:
                if section in folder.files:
                    files = folder.files[section]
                    remarks += write_section(section, folder.path, files, row, Path(home), folder.columns, folder.cut)
    except ZerodrError as error:
        return (error.where, error.what, error.next_step), remarks
    return None, remarks
