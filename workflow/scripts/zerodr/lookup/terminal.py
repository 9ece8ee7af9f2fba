"""Open what a command searches, and print answers as a table."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerodr.artifacts.manifest import file_digest
from zerodr.artifacts.record import read_record
from zerodr.config.user_folders import find_files, label_of
from zerodr.encoders.folder.retriever import INDEX, is_retriever, read_index, read_retriever
from zerodr.errors import ArtifactError
from zerodr.evaluation.numbers import fixed
from zerodr.lineage.graph import Graph
from zerodr.lookup.desk import Desk
from zerodr.lookup.sources import LEXICAL, Source, Sources, of_retriever
from zerodr.plan import paths

NAMED = 3  # files of a message
NARROWEST = 100  # columns of a terminal that is none
log = logging.getLogger("zerodr")


def open_desk(result: str, other: str, corpus: str) -> tuple[Desk, list[str]]:
    """Open the collection of a result; return it with the names of one or two methods.

    Args:
        result: artifact, `METHOD/COLLECTION`, the folder of a retriever, or of an answer of `zerodr adapt` or its name.
        other: second method; empty: none. `bm25` is any BM25.
        corpus: a collection's name; empty where it is clear.

    Raises:
        ArtifactError: nothing answers queries there.
    """
    sources, adapted = Sources(Graph()), Path(paths.adapted_model(Path(result).name)).parent
    if result in (adapted.parent.name, str(adapted.parent)) and is_retriever(adapted):
        result = str(adapted)
    if is_retriever(Path(result)):
        if corpus:
            raise ArtifactError(result, "has documents of its own", "leave --corpus out")
        desk, chosen = open_retriever(sources, Path(result))
    else:
        source = sources.find(result, corpus)
        desk, chosen = Desk(sources, source.collection, source), source.name
    names = [chosen] + ([desk.source(other).name] if other else [])
    if len(set(names)) < len(names):
        raise ArtifactError(other, f"is {names[0]} itself", f"choose another of {', '.join(desk.methods)}")
    return desk, names


def open_retriever(sources: Sources, folder: Path) -> tuple[Desk, str]:
    """Open what `zerodr adapt` chose, over its own documents; return the name of the method."""
    facts = read_retriever(folder)
    if notice := stale(folder / INDEX, facts.collection):
        log.warning("%s: %s", facts.collection, notice)
    methods = list(of_retriever(folder).values())
    collection = methods[0].collection
    if not facts.named(LEXICAL):
        methods.append(Source("bm25", collection, LEXICAL, (), {"language": facts.language}))
    return Desk(sources, collection, *methods, alone=facts.collection), facts.method


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
        rank = f"below {depth}" if row["other"] is None else row["other"]
        elsewhere = f", there {rank}" if rank else ", not found there"
    head = f"[bold]{escape(row['id'])}[/bold]  {fixed(row['score'])}{judged}{elsewhere}"
    title = "".join(text for text, _ in row["title"])
    marked = "".join(f"[reverse]{escape(text)}[/reverse]" if match else escape(text) for text, match in row["text"])
    return "\n".join(line for line in (head, f"[italic]{escape(title)}[/italic]" if title else "", marked) if line)
