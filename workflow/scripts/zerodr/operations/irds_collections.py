"""Pack a data set of ir_datasets as an archive in BEIR's layout: its documents, queries and judgements."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from zerodr.artifacts.progress import Progress
from zerodr.config.quantities import first_names
from zerodr.errors import CollectionError, nearest

SPLITS = ("train", "dev", "validation", "valid", "val", "test")
NEEDED = {"docs": "documents", "queries": "queries", "qrels": "judgements"}
STEP = "see https://ir-datasets.com, or download it and pass --archive"


def pack_dataset(asked: str, target: Path) -> str:
    """Write the archive `target`; return ir_datasets' name of the data set with the library's version.

    Titles are kept apart where the data set has them; other fields are joined as ir_datasets joins them.

    Args:
        asked: its name at ir_datasets, such as `beir/scifact/test`.

    Raises:
        CollectionError: no such name, it lacks documents, queries or judgements, or can't be had.
    """
    try:
        import ir_datasets
    except ModuleNotFoundError as error:
        step = "run: pip install ir_datasets==0.6.3 (make does, too)"
        raise CollectionError(asked, f"needs the package {error.name}", step) from None
    try:
        data = ir_datasets.load(asked)
    except KeyError:
        names = list(ir_datasets.registry)
        raise CollectionError(asked, "is no data set of ir_datasets", nearest(asked, names)) from None
    absent = [what for entity, what in NEEDED.items() if not getattr(data, f"has_{entity}")()]
    if absent:
        inside = sorted(name for name in ir_datasets.registry if name.startswith(f"{asked}/"))
        step = f"take one of {first_names(inside)}" if inside else STEP
        raise CollectionError(asked, f"has no {' and no '.join(absent)}", step)
    partial = target.with_suffix(".part")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as packed:
            _write(packed, "corpus.jsonl", map(_document, data.docs_iter()), data.docs_count() or 0)
            _write(packed, "queries.jsonl", map(_query, data.queries_iter()), data.queries_count() or 0)
            rows = (f"{row.query_id}\t{row.doc_id}\t{row.relevance}" for row in data.qrels_iter())
            head = ["query-id\tcorpus-id\tscore"]
            _write(packed, f"qrels/{split_of(asked)}.tsv", chain(head, rows), 0)
        partial.replace(target)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a library of a hundred parsers raises anything
        reason = f"{type(error).__name__}: {next(iter(error.args), '')}".partition("\n")[0]
        raise CollectionError(asked, f"can't be read by ir_datasets ({reason})", STEP) from None
    finally:
        partial.unlink(missing_ok=True)
    return f"ir_datasets {ir_datasets.__version__}: {asked}"


def split_of(asked: str) -> str:
    """Return the split that a name says, else `test`.

    >>> split_of("beir/fiqa/dev"), split_of("vaswani"), split_of("msmarco-passage/trec-dl-2019/judged")
    ('dev', 'test', 'test')
    """
    named = [name for name in asked.split("/") if name in SPLITS]
    return named[-1] if named else "test"


def _document(row: Any) -> str:
    apart = {"title", "text"} <= set(row._fields)
    title, text = (row.title or "", row.text or "") if apart else ("", row.default_text())
    return json.dumps({"_id": row.doc_id, "title": title, "text": text}, ensure_ascii=False)


def _query(row: Any) -> str:
    return json.dumps({"_id": row.query_id, "text": row.default_text()}, ensure_ascii=False)


def _write(packed: zipfile.ZipFile, name: str, lines: Iterable[str], total: int) -> None:
    """Write lines to a member, with a fixed time, so that equal data make equal archives."""
    member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    member.compress_type = zipfile.ZIP_DEFLATED
    progress = Progress(name, total, "rows")
    with packed.open(member, "w", force_zip64=True) as stream:
        for line in lines:
            stream.write(f"{line}\n".encode())
            progress.add()
