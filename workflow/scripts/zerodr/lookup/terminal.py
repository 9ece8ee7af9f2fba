"""Open what a command searches, a folder with a model from elsewhere too, and print answers as a table.

Vectors of such a folder stay in `results/.state/lookup`, so that its second query is quick.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerodr.artifacts.digest import file_digest, object_digest
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.record import STATE
from zerodr.collections.access import corpus_size
from zerodr.collections.user_folders import guess_language, write_section
from zerodr.config.registry import Collection
from zerodr.config.user_folders import SHORT, UserFolder, find_files, not_read
from zerodr.encoders.folder.contract import CONTRACT
from zerodr.encoders.inference.encoder import Encoder, load_encoder
from zerodr.errors import ArtifactError, CollectionError, ModelError
from zerodr.evaluation.numbers import fixed
from zerodr.lineage.graph import Graph
from zerodr.lookup.desk import Desk
from zerodr.lookup.sources import DENSE, LEXICAL, PLAIN, Source, Sources
from zerodr.retrieval.batching import plan_batches
from zerodr.retrieval.embed import document_texts

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
    if corpus and is_model(Path(result)) and Path(corpus).expanduser().is_dir():
        source, language = source_of_folder(Path(result), Path(corpus).expanduser())
        light = Source("bm25", source.collection, LEXICAL, (), {"language": language})
        desk = Desk(sources, source.collection, light, source)
    else:
        source = sources.find(result, corpus)
        desk = Desk(sources, source.collection)
    names = [source.name] + ([desk.source(other).name] if other else [])
    if len(set(names)) < len(names):
        raise ArtifactError(other, f"is {names[0]} itself", f"choose another of {', '.join(desk.methods)}")
    return desk, names


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
    files = find_files(corpus)
    if "corpus" not in files:
        unread = not_read(corpus)
        problem = f"holds no corpus.{SHORT}{f'; {unread}' if unread else ''}"
        raise CollectionError(corpus, problem, "name a folder with documents")
    weights = sorted(path for path in model.rglob("*") if path.suffix in (".safetensors", ".json"))
    digests = {str(path): file_digest(path) for path in [*map(Path, files["corpus"]), *weights]}
    home = VECTORS / object_digest([*digests.values()])[:16] / corpus.resolve().name.lower()
    if not (home / "corpus.parquet").exists():
        _normalize(corpus, files, home)
    vectors = home / "corpus.npy"
    if not vectors.exists():
        _embed(model, home, vectors)
    inputs = {"model": [str(model / "manifest.json")]}
    language = guess_language(UserFolder(str(corpus), files))
    return Source(model.name, str(home / "manifest.json"), DENSE, (str(vectors),), {}, PLAIN, inputs), language


def _normalize(corpus: Path, files: dict[str, tuple[str, ...]], home: Path) -> None:
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
        vectors[start:stop] = _encode(encoder, texts)
        progress.add(stop - start)
    progress.finish()
    making = target.with_name(f".{target.name}")
    with open(making, "wb") as stream:
        np.save(stream, vectors)
    making.replace(target)


def _encode(encoder: Encoder, texts: list[str]) -> np.ndarray:
    contract = encoder.contract
    tokens = encoder.tokenize(texts, contract.prefix("document"), contract.tokens("document"))
    vectors = np.empty((len(texts), encoder.dimension), np.float32)
    for rows in plan_batches(tokens.lengths, BATCH_TOKENS):
        vectors[rows] = encoder.encode_batch([tokens[row] for row in rows])
    return vectors
