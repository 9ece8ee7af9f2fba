"""Open what a command searches, a folder with a model from elsewhere too, and print answers as a table.

Vectors of such a folder stay in `results/.state/lookup`, so that its second query is quick.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerodr.artifacts.manifest import file_digest, object_digest
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.record import STATE, read_record, write_json
from zerodr.collections.access import corpus_size
from zerodr.config.registry import Collection
from zerodr.config.user_folders import SHORT, UserFolder, find_files, label_of, not_read
from zerodr.encoders.folder.contract import CONTRACT
from zerodr.encoders.folder.retriever import (
    ABOUT,
    BM25,
    INDEX,
    MODELS,
    is_retriever,
    read_index,
    read_retriever,
)
from zerodr.encoders.folder.retriever import VECTORS as VECTORS_OF
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.errors import ArtifactError, CollectionError, ModelError
from zerodr.evaluation.numbers import fixed
from zerodr.lexical.folder import TermIndexSettings
from zerodr.lexical.index import build_index
from zerodr.lexical.search import SearchSettings
from zerodr.lineage.graph import Graph
from zerodr.lookup.desk import Desk
from zerodr.lookup.retriever import encode_documents
from zerodr.lookup.sources import DENSE, LEXICAL, PLAIN, Source, Sources, of_retriever
from zerodr.retrieval.embed import document_texts

NAMED = 3  # files of a message
NARROWEST = 100  # columns of a terminal that is none
log = logging.getLogger("zerodr")
VECTORS = STATE / "lookup"
TITLE_JOIN = " "
WINDOW, BATCH_TOKENS = 2048, 8192


def open_desk(result: str, other: str, corpus: str) -> tuple[Desk, list[str]]:
    """Open the collection of a result; return it with the names of one or two methods.

    Args:
        result: artifact, `METHOD/COLLECTION`, or a model folder from anywhere together with `corpus`.
        other: second method; empty: none. `bm25` is any BM25.
        corpus: a collection's name, or a folder of documents; empty where it is clear.

    Raises:
        ArtifactError: nothing answers queries there.
    """
    sources = Sources(Graph())
    if is_retriever(Path(result)):
        desk, chosen = open_retriever(sources, Path(result), corpus)
        names = [chosen] + ([desk.source(other).name] if other else [])
    elif corpus and is_model(Path(result)) and Path(corpus).expanduser().is_dir():
        source, language = source_of_folder(Path(result), Path(corpus).expanduser())
        light = Source("bm25", source.collection, LEXICAL, (), {"language": language})
        desk = Desk(sources, source.collection, light, source)
        names = [source.name] + ([desk.source(other).name] if other else [])
    else:
        source = sources.find(result, corpus)
        desk = Desk(sources, source.collection)
        names = [source.name] + ([desk.source(other).name] if other else [])
    if len(set(names)) < len(names):
        raise ArtifactError(other, f"is {names[0]} itself", f"choose another of {', '.join(desk.methods)}")
    return desk, names


def open_retriever(sources: Sources, folder: Path, corpus: str) -> tuple[Desk, str]:
    """Open what `zerodr adapt` chose, over its own documents or those of a folder; return the name of the method.

    Raises:
        CollectionError: `corpus` is no folder.
    """
    facts, index = read_retriever(folder), folder / INDEX
    if corpus:
        home = Path(corpus).expanduser()
        if not home.exists():
            raise CollectionError(corpus, "is no folder of documents", "leave --corpus out: the retriever has its own")
        index = index_of_folder(folder, home)
    elif notice := stale(index, facts.collection):
        log.warning("%s: %s", facts.collection, notice)
    methods = of_retriever(folder, index).values()
    light = [] if facts.named(LEXICAL) else [Source("bm25", "", LEXICAL, (), {"language": facts.language})]
    collection = next(iter(methods)).collection
    others = [replace(source, collection=collection) for source in light]
    name = Path(corpus).name if corpus else facts.collection
    return Desk(sources, collection, *methods, *others, alone=name), facts.method


def stale(index: Path, name: str) -> str:
    """Say how the files that an index was made of differ from those that are there; empty: they do not.

    Args:
        index: of the retriever.
        name: of its collection, which the command to give names where the folder has another name. Next to a page it
            is the command that made the page.

    Raises:
        ArtifactError: there is no index.
    """
    changed, folder = changed_files(index), read_index(index).get("folder") or ""
    if folder and not Path(folder).exists():
        return f"{folder}, which the index was made of, is not there: hits are of its documents then"
    if not changed:
        return ""
    named = "" if label_of(Path(folder)).lower().replace(" ", "-") == name else f" --name {shlex.quote(name)}"
    names = f"{', '.join(changed[:NAMED])}{' and others' if len(changed) > NAMED else ''}"
    page = read_record(index.parents[1] / "index.html")
    command = page["spec"]["params"]["command"] if page else f"zerodr adapt {shlex.quote(folder)}{named}"
    return f"{names} changed since the index was made, and hits are of the old documents; give again: {command}"


def changed_files(index: Path) -> list[str]:
    """List the files of a folder that came, went or changed since an index was made of it.

    Raises:
        ArtifactError: there is no index.
    """
    about = read_index(index)
    recorded, folder = about["files"], about.get("folder")
    if not folder or not Path(folder).exists():
        return []
    there = set(find_files(Path(folder)).get("corpus", ()))
    return [path for path in sorted(there | set(recorded)) if _digest(path, there) != recorded.get(path)]


def _digest(path: str, there: set[str]) -> str | None:
    return file_digest(Path(path)) if path in there else None


def index_of_folder(model: Path, corpus: Path) -> Path:
    """Make an index of a folder's documents for a retriever, unless that was done; return it.

    Raises:
        CollectionError: the folder holds no documents that can be read.
    """
    facts, home = read_retriever(model), home_of(model, corpus)
    if (home / ABOUT).exists():
        return home
    for name in facts.named(DENSE):
        target = home / VECTORS_OF / name / "00000.npy"
        target.parent.mkdir(parents=True, exist_ok=True)
        _embed(model if name == facts.encoder else model / INDEX / MODELS / name, home, target)
    for name in facts.named(LEXICAL):
        settings = SearchSettings.model_validate(facts.ways[name].params)
        target = home / BM25 / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        kept = settings.model_dump(include=set(TermIndexSettings.model_fields))
        build_index(home, target, home, TermIndexSettings(**kept))
    write_json(home / ABOUT, {"documents": corpus_size(home), "folder": "", "files": {}})
    return home


def print_answer(answer: dict[str, Any]) -> None:
    """Print an answer of `Desk.answer`: a row a rank, a column a method."""
    console = Console()
    console = console if console.is_terminal else Console(width=max(console.width, NARROWEST))
    query = answer["query"]
    if query["id"] is not None:
        console.print(f"query {escape(query['id'])} of the collection, {query['relevant']} relevant documents known")
    table = Table(show_lines=True, expand=True)
    table.add_column("", width=3, justify="right")
    for column in answer["columns"]:
        table.add_column(escape(f"{column['method']} ({column['milliseconds']:.0f} ms)"), ratio=1)
    rows = max(len(column["documents"]) for column in answer["columns"])
    for at in range(rows):
        cells = [column["documents"][at : at + 1] for column in answer["columns"]]
        table.add_row(str(at + 1), *(_cell(cell[0], answer["depth"]) if cell else "" for cell in cells))
    console.print(table if rows else "no document")
    for column in answer["columns"]:
        if column["notice"]:
            console.print(f"{escape(column['method'])}: {escape(column['notice'])}")


def print_json(columns: list[dict[str, Any]]) -> None:
    """Print what `Desk.hits` gives for each method."""
    sys.stdout.write(json.dumps({"columns": columns}, ensure_ascii=False, indent=1) + "\n")


def _cell(row: dict[str, Any], depth: int) -> str:
    judged = "" if row["grade"] is None else f", judged {row['grade']}"
    elsewhere = ""
    if "other" in row:
        elsewhere = f", there {row['other']}" if row["other"] else f", there below {depth}"
    head = f"[bold]{escape(row['id'])}[/bold]  {fixed(row['score'])}{judged}{elsewhere}"
    title = "".join(text for text, _ in row["title"])
    marked = "".join(f"[reverse]{escape(text)}[/reverse]" if match else escape(text) for text, match in row["text"])
    return "\n".join(line for line in (head, f"[italic]{escape(title)}[/italic]" if title else "", marked) if line)


def is_model(folder: Path) -> bool:
    """True when a folder holds a model of the bench."""
    return (folder / CONTRACT).is_file()


def source_of_folder(model: Path, corpus: Path) -> tuple[Source, str]:
    """Embed the documents of a folder with a model, unless that was done; return the source, and their language.

    Args:
        model: a model folder, such as an exported one.
        corpus: a folder with `corpus.{jsonl,tsv,csv,parquet}`, or a normalised collection.

    Raises:
        ModelError: the first is no model folder.
        CollectionError: the second holds no documents that can be read.
    """
    if not is_model(model):
        raise ModelError(model, f"holds no {CONTRACT}", "name an exported folder")
    files, home = find_files(corpus), home_of(model, corpus)
    from zerodr.collections.user_folders import guess_language

    vectors = home / "corpus.npy"
    if not vectors.exists():
        _embed(model, home, vectors)
    inputs = {"model": [str(model / "manifest.json")]}
    language = guess_language(UserFolder(str(corpus), files))
    return Source(model.name, str(home / "manifest.json"), DENSE, (str(vectors),), {}, PLAIN, inputs), language


def home_of(model: Path, corpus: Path) -> Path:
    """Return the folder that keeps what a model makes of a folder's documents, which are normalised there.

    Raises:
        CollectionError: the folder holds no documents that can be read.
    """
    files = find_files(corpus)
    if "corpus" not in files:
        unread = not_read(corpus)
        problem = f"holds no corpus.{SHORT}{f'; {unread}' if unread else ''}"
        raise CollectionError(corpus, problem, "name a folder with documents")
    every = (path for path in model.rglob("*") if path.suffix in (".safetensors", ".json"))
    weights = sorted(path for path in every if INDEX not in path.relative_to(model).parts)
    digests = {str(path): file_digest(path) for path in [*map(Path, files["corpus"]), *weights]}
    name = re.sub(r"[^a-z0-9]+", "-", corpus.resolve().name.lower()).strip("-") or "documents"
    home = VECTORS / object_digest([*digests.values()])[:16] / name
    if not (home / "corpus.parquet").exists():
        _normalize(corpus, files, home)
    return home


def _normalize(corpus: Path, files: dict[str, tuple[str, ...]], home: Path) -> None:
    from zerodr.collections.user_folders import write_section

    making = home.with_name(f".{home.name}.making")
    making.mkdir(parents=True, exist_ok=True)
    row = Collection(name=home.name, label=home.name, kind="own", format="folder", drop_missing=True)
    if not (corpus / "manifest.json").exists():
        for section in files:
            write_section(section, str(corpus), files[section], row, making)
    else:
        (making / "corpus.parquet").symlink_to((corpus / "corpus.parquet").resolve())
    making.replace(home)


def _embed(model: Path, home: Path, target: Path) -> None:
    encoder, size = load_encoder(model, side="document"), corpus_size(home)
    vectors = np.empty((size, encoder.dimension), np.float32)
    progress = Progress(f"embed {home.name}", size, "documents")
    for start in range(0, size, WINDOW):
        stop = min(start + WINDOW, size)
        texts = [text for _, text in document_texts(home, start, stop, TITLE_JOIN)]
        vectors[start:stop] = encode_documents(encoder, texts, {"batch_tokens": BATCH_TOKENS})
        progress.add(stop - start)
    progress.finish()
    making = target.with_name(f".{target.name}")
    with open(making, "wb") as stream:
        np.save(stream, vectors)
    making.replace(target)
