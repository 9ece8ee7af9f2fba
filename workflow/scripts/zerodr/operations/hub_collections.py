"""Describe a data set of the hub, or a task of MTEB, as a collection: its files at one commit, with checksums."""

from __future__ import annotations

import json
import re
from pathlib import Path

from zerodr.artifacts.digest import file_digest
from zerodr.config.quantities import first_names
from zerodr.config.user_folders import FORMS, SHARD, SHORT, USUAL_SPLIT, split_of
from zerodr.encoders.start.hub import ask_dataset
from zerodr.errors import CollectionError, nearest
from zerodr.operations.sharing import read_tasks

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
        evaluated = USUAL_SPLIT if USUAL_SPLIT in splits else next(iter(splits), "")
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
        checksum = checksums[file] or _checksum(dataset, commit, file)
        lines += [f"        - path: {json.dumps(file)}", f"          checksum: sha256:{checksum}"]
    lines += [
        f"    splits: {json.dumps(dict.fromkeys(splits))}",
        f"    evaluation_split: {json.dumps(evaluated)}",
        "    language: en",
        '    licence: "" # of the data; a footnote of tables',
    ]
    return "\n".join(lines) + "\n", bool(splits)


def read_files(dataset: str, names: dict[str, str]) -> list[str]:
    """Choose the files of a data set that make a collection.

    >>> read_files("a/b", dict.fromkeys(["README.md", "corpus.jsonl", "queries.jsonl", "qrels/test.tsv"], ""))
    ['corpus.jsonl', 'queries.jsonl', 'qrels/test.tsv']

    Raises:
        CollectionError: it has no corpus, or several files of one section.
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
    if len(names) > 1:
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


def _checksum(dataset: str, commit: str, file: str) -> str:
    """Download a small file, whose digest the hub does not tell."""
    from huggingface_hub import hf_hub_download

    return file_digest(Path(hf_hub_download(dataset, file, repo_type="dataset", revision=commit)))
