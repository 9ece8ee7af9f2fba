"""Small archives in the documented formats, for the tests of the collections room."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from zerodr.artifacts.stage import Stage, StageSpec
from zerodr.collections.archives import open_archive
from zerodr.collections.normalize import NormalizeSettings, write_collection
from zerodr.collections.readers import open_reader

CORPUS = [{"_id": "d1", "title": "One", "text": "first text"}, {"_id": "d2", "title": "", "text": "second text"}]
QUERIES = [{"_id": "q1", "text": "what is first"}, {"_id": "q2", "text": "second"}]
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t2\n"


def json_lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_zip(path: Path, members: dict[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def write_tar(path: Path, members: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content.encode())
            archive.addfile(info, io.BytesIO(content.encode()))
    return path


def beir_zip(
    path: Path, corpus: str | bytes | None = None, queries: str | None = None, qrels: str | None = None, **more: str
) -> Path:
    members: dict[str, str | bytes] = {
        "x/corpus.jsonl": json_lines(CORPUS) if corpus is None else corpus,
        "x/queries.jsonl": json_lines(QUERIES) if queries is None else queries,
        "x/qrels/test.tsv": QRELS if qrels is None else qrels,
    }
    return write_zip(path, members | {f"x/{name}": content for name, content in more.items()})


def normalize(path: Path, folder: Path, **settings: Any) -> dict[str, Any]:
    """Normalise the archive at `path` into `folder`; the audit."""
    folder.mkdir(parents=True, exist_ok=True)
    row = NormalizeSettings(**({"name": "x", "kind": "complete", "format": "beir", "archive": path.name} | settings))
    return write_collection(open_reader(row.format, open_archive(path), row.member), row, folder)


def stage_of(function: str, params: dict, inputs: dict, outputs: dict, state: Path) -> Stage:
    """A stage as the runner makes it, for the current folder."""
    return Stage(StageSpec(function.partition(":")[2], 1, {}, inputs, outputs, params), state)
