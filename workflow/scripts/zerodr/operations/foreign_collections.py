"""Describe a data set of the hub, or a task of MTEB, as a collection, and pack one of ir_datasets."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from zerodr.artifacts.manifest import file_digest
from zerodr.artifacts.progress import Progress
from zerodr.config.quantities import first_names
from zerodr.config.user_folders import FORMS, SHARD, SHORT, USUAL_SPLIT, shards_of, split_of, split_rank
from zerodr.encoders.start.hub_datasets import ask_dataset, fetch_dataset_file
from zerodr.errors import CollectionError, nearest
from zerodr.operations.sharing import read_tasks

SPLITS = ("train", "dev", "validation", "valid", "val", "test")
NEEDED = {"docs": "documents", "queries": "queries", "qrels": "judgements"}
HELP = "see https://ir-datasets.com, or download it and pass --archive"


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
        step = f"take one of {first_names(inside)}" if inside else HELP
        raise CollectionError(asked, f"has no {' and no '.join(absent)}", step)
    partial = target.with_suffix(".part")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as packed:
            _write(packed, "corpus.jsonl", map(_document, data.docs_iter()), data.docs_count() or 0)
            _write(packed, "queries.jsonl", map(_query, data.queries_iter()), data.queries_count() or 0)
            rows = (f"{row.query_id}\t{row.doc_id}\t{row.relevance}" for row in data.qrels_iter())
            head = ["query-id\tcorpus-id\tscore"]
            _write(packed, f"qrels/{split_named(asked)}.tsv", chain(head, rows), 0)
        partial.replace(target)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a library of a hundred parsers raises anything
        reason = f"{type(error).__name__}: {next(iter(error.args), '')}".partition("\n")[0]
        raise CollectionError(asked, f"can't be read by ir_datasets ({reason})", HELP) from None
    finally:
        partial.unlink(missing_ok=True)
    return f"ir_datasets {ir_datasets.__version__}: {asked}"


def split_named(asked: str) -> str:
    """Return the split that a name says, else `test`.

    >>> split_named("beir/fiqa/dev"), split_named("vaswani"), split_named("msmarco-passage/trec-dl-2019/judged")
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


STEM = rf"{{stem}}(?:\.(?:{'|'.join(map(re.escape, FORMS))})|/.+{SHARD}\.parquet)"
STEP = "download it, and give the folder to zerodr as byo (docs/own-corpus.md)"


def describe(name: str, asked: str) -> tuple[str, bool]:
    """Return the block of a collection, as YAML, and whether it has judgements.

    Args:
        name: of the collection.
        asked: `organisation/name` on the hub, or MTEB's name of a task, which is taken at MTEB's commit.

    Raises:
        CollectionError: there is no such task, or the data set has other files than a corpus, questions and judgements.
        ModelError: the hub refuses, or can't be reached.
    """
    from huggingface_hub import constants

    dataset, revision, evaluated = _named(asked)
    commit, checksums = ask_dataset(dataset, revision)
    files = read_files(dataset, checksums)
    splits = sorted({split for file in files if (split := split_of(Path(file)))})
    if evaluated not in splits:
        evaluated = min(splits, key=split_rank, default="")
    lines = [
        "collections:",
        f"  {name}:",
        f"    label: {name}",
        "    kind: complete # or subset, pool: never compared with published numbers",
        f"    archive: {name}.zip",
        "    format: folder",
        "    originals:",
        "      format: folder",
        f"      address: {constants.ENDPOINT}/datasets/{dataset}/resolve/{commit}/",
        "      files:",
    ]
    for file in files:
        checksum = checksums[file] or file_digest(fetch_dataset_file(dataset, commit, file))  # of a small file
        lines += [f"        - path: {json.dumps(file)}", f"          checksum: sha256:{checksum}"]
    lines += [
        f"    splits: {json.dumps(dict.fromkeys(splits))}",
        f"    evaluation_split: {json.dumps(evaluated)}",
        "    language: en # of the texts, which were not read: BM25 analyses them by it",
        '    licence: "" # of the data; a footnote of tables',
    ]
    return "\n".join(lines) + "\n", bool(splits)


def read_files(dataset: str, names: dict[str, str]) -> list[str]:
    """Choose the files of a data set that make a collection.

    >>> read_files("a/b", dict.fromkeys(["README.md", "corpus.jsonl", "queries.jsonl", "qrels/test.tsv"], ""))
    ['corpus.jsonl', 'queries.jsonl', 'qrels/test.tsv']

    Of a table in several forms, as MTEB's judgements are, the JSON lines are taken, which the data set's card names.

    Raises:
        CollectionError: it has no corpus, or several tables of one section.
    """
    splits = {split for name in names if (split := split_of(Path(name)))}
    wanted = {stem: re.compile(STEM.format(stem=stem)).fullmatch for stem in ("corpus", "queries")}
    chosen = []
    for stem, fits in wanted.items():
        chosen += _only(dataset, stem, [name for name in sorted(names) if fits(name)])
    if not chosen or not wanted["corpus"](chosen[0]):
        raise CollectionError(f"datasets/{dataset}", f"has no corpus.{SHORT}", STEP)
    for split in sorted(splits):
        chosen += _only(dataset, f"split {split}", [name for name in sorted(names) if split_of(Path(name)) == split])
    return chosen


def _only(dataset: str, what: str, names: list[str]) -> list[str]:
    """Return the one file, the shards of one table, or the JSON lines of one that is there in other forms, too."""
    if len({shards_of(Path(name)) or name for name in names}) > 1:
        lines = [name for name in names if name.endswith(".jsonl")]
        if len(lines) == 1 and all(name.startswith(lines[0].removesuffix("jsonl")) for name in names):
            return lines
        raise CollectionError(
            f"datasets/{dataset}", f"has {len(names)} files of {what}, expected one: {first_names(names)}", STEP
        )
    return names


def _named(asked: str) -> tuple[str, str, str]:
    """Return data set, revision, and the split that a task is evaluated on."""
    if "/" in asked:
        return asked, "main", USUAL_SPLIT
    tasks = {task.task: task for task in read_tasks().values()}
    if asked not in tasks:
        raise CollectionError(
            asked, "is no task of MTEB that zerodr knows", f"{nearest(asked, tasks)}, or organisation/name"
        )
    return tasks[asked].dataset, tasks[asked].revision, tasks[asked].split
