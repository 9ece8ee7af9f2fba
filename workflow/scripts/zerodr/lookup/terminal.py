"""Print the answers of one or two methods to a query as a table for the terminal."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerodr.errors import ArtifactError
from zerodr.lineage.graph import Graph
from zerodr.lookup.desk import Desk
from zerodr.lookup.folders import is_model, source_of_folder
from zerodr.lookup.sources import LEXICAL, Source, Sources

NARROWEST = 100  # columns of a terminal that is none


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
    head = f"[bold]{escape(row['id'])}[/bold]  {row['score']:.4f}{judged}{elsewhere}"
    title = "".join(text for text, _ in row["title"])
    marked = "".join(f"[reverse]{escape(text)}[/reverse]" if match else escape(text) for text, match in row["text"])
    return "\n".join(line for line in (head, f"[italic]{escape(title)}[/italic]" if title else "", marked) if line)
