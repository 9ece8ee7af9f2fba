"""Write what a user adds, filled in, into `config/my/`, and name the next command: `zerodr new`."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable, Collection
from keyword import iskeyword
from pathlib import Path
from typing import NamedTuple

from zerodr.artifacts.manifest import file_digest
from zerodr.config.custom import custom_folder, lacking_imports
from zerodr.config.load import shipped_losses
from zerodr.config.measures import CUT, MEASURES, WHOLE
from zerodr.config.recipes import read_files
from zerodr.config.registry import NAME, read_registry
from zerodr.config.user_folders import split_rank
from zerodr.errors import CollectionError, ConfigError, ZerodrError

CONFIG, MIRROR = Path("config"), Path("resources/mirror")
BEIR_ZIP = "pack corpus.jsonl, queries.jsonl, qrels/"
PLAN = "snakemake --profile config/profiles/mini -n"
RECIPE = """# {what}. All values that are not here are dpr's: zerodr recipe {name} --diff dpr
like: dpr
label: {name}
description: {what}
settings:
  chain:
    ep0:
{stage}
"""
METHOD = """      training: {learning_rate: 3.0e-5}
      # negatives: {source: previous} # the model's own ranking in place of BM25's"""
OBJECTIVE = """      objective:
        name: {name}
        negatives_per_query: 1
        arguments: {arguments}"""
IMPORTS = '''"""Losses of mine: functions of the scores of a query's documents, and classes that see the whole batch."""

import torch
from torch import Tensor

from zerodr.training.objectives.base import Encoded, Objective
'''
LOSS = '''

def {name}(scores: Tensor, margin: float = 1.0) -> Tensor:
    """Compute the mean of `max(0, margin - positive + negative)`.

    Args:
        scores: (B, 1 + K) of a query's own documents, the positive first.
        margin: by how much a positive should score higher.
    """
    return (margin - scores[:, :1] + scores[:, 1:]).clamp(min=0).mean()
'''
CLASS = '''

class {name}(Objective):
    """Softmax of a query's positive among the documents of all queries of the batch, with smoothed labels."""

    def __init__(self, temperature: float = 0.05, smoothing: float = 0.1) -> None:
        self.temperature, self.smoothing = temperature, smoothing

    def __call__(self, batch: Encoded) -> dict[str, Tensor]:
        """Compute the loss of queries (B, D) and documents (B, 1 + K, D), each query's positive first."""
        count, width, _ = batch.documents.shape
        scores = batch.queries @ batch.documents.flatten(0, 1).T / self.temperature  # (B, B * (1 + K))
        positives = torch.arange(count, device=scores.device) * width
        counted = torch.ones_like(scores, dtype=torch.bool)
        if batch.known is not None:  # other documents that are known to be relevant are no negatives
            query, document = batch.known.to(scores.device).unbind(1)
            counted[query, document] = document == positives[query]
        logs = scores.masked_fill(~counted, -1e4).log_softmax(1)
        even = (logs * counted).sum(1) / counted.sum(1)  # smoothing is spread over the documents that count
        loss = -((1 - self.smoothing) * logs.gather(1, positives[:, None])[:, 0] + self.smoothing * even).mean()
        return {{"{name}": loss}}
'''
MEASURE_IMPORTS = '''"""Measures of mine: functions of a judged run and a cutoff, one value in [0, 1] a query."""

import numpy as np

from zerodr.evaluation.judged import JudgedRun
'''
MEASURE = '''

def {name}(run: JudgedRun, cut: int) -> np.ndarray:
    """Return the highest grade at the first `cut` ranks, as a share of the query's highest grade; (Q,)."""
    best = run.qrels.groupby("query")["grade"].max().reindex(run.queries).fillna(0).to_numpy(float)
    reached, top = np.zeros(len(best)), run.rank < cut
    np.maximum.at(reached, run.query[top], run.grade[top])
    return np.divide(reached, best, out=np.zeros_like(best), where=best > 0)
'''


class Written(NamedTuple):
    """Hold the files that were written, and the next command."""

    files: list[Path]
    next: str


def write_new(kind: str, name: str, source: Path | None = None, hub: str = "", ir_datasets: str = "") -> Written:
    """Write a scaffold.

    Args:
        kind: of KINDS.
        name: of what is added.
        source: the archive of a collection.
        hub: in its place, a data set of the hub or a task of MTEB.
        ir_datasets: in their place, a name of ir_datasets.

    Raises:
        ConfigError: the name is taken or can't be one, or a collection has no archive.
        CollectionError: the archive is not in BEIR's layout, or the data set in none that is read.
        ModelError: the hub refuses.
    """
    pattern = NAME if kind in ("method", "collection") else r"^[a-zA-Z_][a-zA-Z0-9_]*$"
    if not re.fullmatch(pattern, name) or (pattern != NAME and iskeyword(name)):
        what = (
            "small letters, digits, . _ -"
            if pattern == NAME
            else "a name of Python that is no keyword: letters, digits, _"
        )
        raise ConfigError(f"new {kind} {name}", f"can't be its name, expected {what}", "take another name")
    if (source is not None) + bool(hub) + bool(ir_datasets) != (kind == "collection"):
        step = "zerodr new collection NAME with one of --archive FILE.zip, --hub DATASET, --ir-datasets ID"
        raise ConfigError(f"new {kind} {name}", "only a collection, and every collection, has a source", step)
    _require_free(kind, name)
    folder = custom_folder(CONFIG) or CONFIG / "my"
    folder.mkdir(parents=True, exist_ok=True)
    if source is not None:
        return _collection(folder, name, source)
    if hub:
        from zerodr.operations.foreign_collections import describe

        text, judged = describe(name, hub)
        return _next(name, [_new(folder / f"{name}.yaml", text)], judged)
    if ir_datasets:
        return _from_ir_datasets(folder, name, ir_datasets)
    return KINDS[kind](folder, name)


def _require_free(kind: str, name: str) -> None:
    """Check that nothing has the name, before anything is written.

    Raises:
        ConfigError: a recipe, loss, measure or collection has it.
    """
    recipe = name if kind == "method" else _recipe_of(name) if kind in ("loss", "objective") else ""
    if recipe and recipe in read_files(CONFIG / "methods"):
        raise ConfigError(f"new {kind} {name}", f"{recipe} is a recipe already", "take another name")
    losses = shipped_losses()
    shipped: dict[str, Collection[str]] = {"loss": losses, "objective": losses, "measure": MEASURES}
    taken = read_registry(CONFIG / "collections") if kind == "collection" else shipped.get(kind, ())
    if name in taken or kind == "measure" and (name in CUT or name in WHOLE or f"{name}_10" in MEASURES):
        raise ConfigError(f"new {kind} {name}", f"the bench has a {kind} of that name", "take another name")


def _recipe_of(loss: str) -> str:
    return f"dpr-{loss.lower().replace('_', '-')}"


def _method(folder: Path, name: str) -> Written:
    text = RECIPE.format(what="DPR with another learning rate", name=name, stage=METHOD)
    return Written(
        [_new(folder / f"{name}.yaml", text)], f"{PLAN} results/beir/{name}.tsv --config collections=scifact"
    )


def _loss(folder: Path, name: str, code: str = LOSS, arguments: str = "{margin: 0.5}", what: str = "a loss") -> Written:
    recipe = _recipe_of(name)
    stage = OBJECTIVE.format(name=name, arguments=arguments)
    files = [_append(folder / "losses.py", name, IMPORTS, code.format(name=name))]
    files.append(
        _new(folder / f"{recipe}.yaml", RECIPE.format(what=f"DPR with {what} of mine", name=recipe, stage=stage))
    )
    return Written(files, f"{PLAN} results/beir/{recipe}.tsv --config collections=scifact")


def _objective(folder: Path, name: str) -> Written:
    return _loss(folder, name, CLASS, "{temperature: 0.05, smoothing: 0.1}", "an objective over the batch")


def _measure(folder: Path, name: str) -> Written:
    file = _append(folder / "measures.py", name, MEASURE_IMPORTS, MEASURE.format(name=name))
    words = f"--config collections=scifact measures=[ndcg_cut_10,{name}_10]"
    return Written([file], f"{PLAN} results/beir/scifact.tsv {words}")


KINDS: dict[str, Callable[[Path, str], Written]] = {
    "method": _method,
    "loss": _loss,
    "objective": _objective,
    "measure": _measure,
}


def _new(path: Path, text: str) -> Path:
    """Write a file that is not there.

    Raises:
        ConfigError: it is.
    """
    if path.exists():
        raise ConfigError(path, "exists already", "take another name, or edit it")
    path.write_text(text, encoding="utf-8")
    return path


def _append(path: Path, name: str, head: str, code: str) -> Path:
    """Add a definition to a file of code, and of the imports of `head` those that the file lacks.

    Raises:
        ConfigError: the file has one of that name, or is no Python.
    """
    text, imports = head, ""
    if path.exists():
        text, imports = path.read_text(encoding="utf-8"), lacking_imports(path.name, head)
    if f"def {name}(" in text or f"class {name}(" in text:
        raise ConfigError(path, f"defines {name} already", "take another name, or edit it")
    path.write_text(text + (f"\n\n{imports}" if imports else "") + code, encoding="utf-8")
    return path


def _from_ir_datasets(folder: Path, name: str, asked: str) -> Written:
    from zerodr.operations.foreign_collections import pack_dataset

    MIRROR.mkdir(parents=True, exist_ok=True)
    source = MIRROR / f"{name}.zip"
    if source.exists():
        raise ConfigError(source, "exists already", "remove it, or take another name")
    origin = pack_dataset(asked, source)
    try:
        written = _collection(folder, name, source, f" # {origin}")
    except ZerodrError:
        source.unlink()
        raise
    return written._replace(files=[*written.files, source])


def _collection(folder: Path, name: str, source: Path, origin: str = "") -> Written:
    """Count an archive in BEIR's layout, put it into the mirror folder, and write its block."""
    counts = count_archive(source)
    splits = {split: number for split, number in counts.splits.items() if number}
    unjudged = ", ".join(split for split in counts.splits if split not in splits)  # a hidden test's file has no line
    evaluated = min(splits, key=split_rank, default="")
    archive = f"{name}.zip"
    checksum = file_digest(source)
    if (MIRROR / archive).exists() and file_digest(MIRROR / archive) != checksum:
        raise ConfigError(MIRROR / archive, f"is another archive than {source}", "remove it, or take another name")
    text = f"""collections:
  {name}:
    label: {name}
    kind: complete # or subset, pool: never compared with published numbers
    archive: {archive}{origin}
    checksums: ["sha256:{checksum}"]
    documents: {counts.documents}
    queries: {counts.queries}
    splits: {json.dumps(splits)}{f" # without {unjudged}: nothing is judged relevant" if unjudged else ""}
    evaluation_split: {json.dumps(evaluated)}
    language: {counts.language} # guessed from the first documents; BM25 analyses texts by it
    licence: "" # of the data; a footnote of tables
"""
    files = [_new(folder / f"{name}.yaml", text)]
    MIRROR.mkdir(parents=True, exist_ok=True)
    if not (MIRROR / archive).exists():
        files.append(Path(shutil.copy(source, MIRROR / archive)))
    return _next(name, files, bool(evaluated))


def _next(name: str, files: list[Path], judged: bool) -> Written:
    target = f"results/beir/{name}.tsv" if judged else f"results/collections/{name}/manifest.json"
    return Written(
        files, f"{PLAN} {target} --config collections={name} methods=[bm25-flat+bm25s] baseline=bm25-flat+bm25s"
    )


class Counts(NamedTuple):
    """Count documents, queries, and queries with a positive by split; guess the language."""

    documents: int
    queries: int
    splits: dict[str, int]
    language: str


def count_archive(source: Path) -> Counts:
    """Count a ZIP with `corpus.jsonl`, `queries.jsonl` and `qrels/<split>.tsv`, in a folder or not, as a run reads it.

    Raises:
        CollectionError: it is no such ZIP, or names the line that is wrong.
        DownloadError: it is damaged.
    """
    from zerodr.collections.archives import open_archive
    from zerodr.collections.readers.base import BeirReader
    from zerodr.collections.user_folders import language_of_first

    if not zipfile.is_zipfile(source):
        raise CollectionError(source, "is no ZIP that can be read", BEIR_ZIP)
    archive = open_archive(source, str(source))
    names = [name for name in archive.names() if not name.startswith("__MACOSX") and "/._" not in name]
    corpora = [name for name in names if name.rpartition("/")[2] == "corpus.jsonl"]
    if len(corpora) != 1:
        problem = f"holds {len(corpora)} files corpus.jsonl, expected one"
        step = "write an entry for each, with member: FOLDER (docs/add-collection.md)" if corpora else BEIR_ZIP
        raise CollectionError(source, problem, step)
    reader = BeirReader(archive)
    positives = {split: {one.query for one in reader.judgements(split) if one.grade > 0} for split in reader.splits()}
    documents, queries = (sum(1 for _ in rows) for rows in (reader.documents(), reader.queries()))
    splits = {split: len(ids) for split, ids in positives.items()}
    return Counts(documents, queries, splits, language_of_first(reader.documents()))
