"""Commands `search` and `serve`: answer single queries with what the bench embedded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zerodr.checkout import from_root, require_checkout
from zerodr.errors import ArtifactError
from zerodr.operations.cli import CALLED_IN
from zerodr.operations.setup_commands import app

if TYPE_CHECKING:
    from zerodr.lookup.desk import Desk

Result = Annotated[
    str,
    typer.Argument(help="METHOD/COLLECTION, a run, embeddings, an index, a model folder, or an adapted folder's name."),
]
With = Annotated[str, typer.Option("--with", metavar="METHOD", help="A second method of the collection, such as bm25.")]
Corpus = Annotated[str, typer.Option(help="A collection, where a model has embedded several.")]


@app.command(rich_help_panel="Ask single queries")
def search(
    result: Result,
    query: Annotated[str, typer.Argument(help="What to look for.")],
    other: With = "",
    count: Annotated[int, typer.Option("-k", min=1, max=100, help="Documents to print.")] = 10,
    corpus: Corpus = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with whole texts.")] = False,
) -> None:
    """Search a collection by a method that indexed or embedded it, side by side with another one."""
    from zerodr.lookup.terminal import print_answer, print_json

    desk, names = _open(result, other, corpus)
    if as_json:
        print_json([desk.hits(query, name, count) for name in names])
    else:
        print_answer(desk.answer(query, names, count))


@app.command(rich_help_panel="Ask single queries")
def serve(
    result: Result,
    other: With = "",
    corpus: Corpus = "",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 8000,
) -> None:
    """Show a web page on 127.0.0.1 that queries methods side by side, and answer programs at /search, until Ctrl-C."""
    from zerodr.lookup.server import run_server

    run_server(*_open(result, other, corpus), port)


@app.command(rich_help_panel="Extend and set up")
def export(
    retriever: Annotated[Path, typer.Argument(help="Such as results/adapted/notes/model.")],
    target: Annotated[Path, typer.Argument(help="The folder to make.")],
    kind: Annotated[str, typer.Option("--to", help="sentence-transformers, onnx, qdrant or lancedb.")],
) -> None:
    """Export the model of a retriever, or its vectors and texts as a store on disk."""
    from zerodr.lookup.exporting import export as run

    source = Path(_from_root(str(retriever)))
    typer.echo(run(source, kind, CALLED_IN[0] / target.expanduser()))


@app.command(rich_help_panel="Extend and set up")
def share(
    row: Annotated[str, typer.Argument(help="A row of a table, such as dpr.")],
    target: Annotated[Path, typer.Argument(help="The folder to make.")],
    protocol: Annotated[str, typer.Option(help="Protocol of its evaluations.")] = "standard",
) -> None:
    """Write a row's finished results for other tools: MTEB's JSON, TREC runs and judgements, a card with a block."""
    from zerodr.operations.sharing import share as run

    require_checkout(f"share {row}")
    folder = CALLED_IN[0] / target.expanduser()
    typer.echo("\n".join([*run(row, protocol, folder), f"written to {folder}"]))


def _open(result: str, other: str, corpus: str) -> tuple[Desk, list[str]]:
    """Open what answers queries; outside of a checkout, results that are not found lack the checkout first of all."""
    from zerodr.lookup.terminal import open_desk

    try:
        return open_desk(_from_root(result), other, corpus)
    except ArtifactError:
        require_checkout(f"search {result}")
        raise


def _from_root(text: str) -> str:
    return from_root(str(Path(text).expanduser()) if text.startswith("~") else text, CALLED_IN[0])
