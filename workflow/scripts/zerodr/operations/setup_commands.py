"""Commands of `zerodr` that set up and extend a checkout: scaffolds, schema, reference and rehearsal; single queries.

Those of plans and results are in `cli`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zerodr.checkout import from_root, require_checkout
from zerodr.errors import ArtifactError
from zerodr.operations.cli import CALLED_IN, Words, app, plan_of

if TYPE_CHECKING:
    from zerodr.lookup.desk import Desk


@app.command(rich_help_panel="Plan and run")
def rehearse(
    target: Annotated[str, typer.Argument(help="Target for snakemake.")] = "results/beir/all.tsv",
    methods: Annotated[str, typer.Option(help="Rows, separated by commas; default: those of the scale.")] = "",
    collections: Annotated[str, typer.Option(help="Columns, separated by commas; default: the scale's.")] = "",
    substitutes: Annotated[
        bool, typer.Option("--stand-ins", help="Tiny random models and archives, where no hub can be reached.")
    ] = False,
    within: Annotated[str, typer.Option(help="Stop after a time such as 60m; the same command resumes.")] = "",
    profile: Annotated[str, typer.Option(help="Profile of snakemake.")] = "slurm",
    cores: Annotated[int | None, typer.Option(min=1, help="Run on this machine with so many cores.")] = None,
    config: Words = None,
) -> None:
    """Run each job of a target with few steps, documents and questions; then say what failed, and what a run costs."""
    from zerodr.config.load import with_scale
    from zerodr.operations.adapt import gpus_here, seconds_of
    from zerodr.operations.rehearse import rehearse as run

    named = {"methods": methods, "collections": collections}
    limit = seconds_of(within, "--within") if within else None
    words = [*(config or []), *(f"{key}=[{value.strip(', ')}]" for key, value in named.items() if value)]
    words = with_scale(words, profile)
    if cores and not gpus_here() and not any(word.startswith("gpus=") for word in words):
        words.append("gpus=0")
    here = ["--executor", "local", "--cores", str(cores)] if cores else []
    options = [target, "--profile", profile, "--keep-going", "--retries", "0", *here]
    options += ["--config", *words, "rehearse=true"]
    raise typer.Exit(run(options, plan_of(words), substitutes, limit))


SCHEMA, DOCS = Path("config/schema.json"), Path("docs")


KINDS = ("method", "loss", "objective", "collection", "measure")
KindName = Annotated[
    str, typer.Argument(help="What to add.", metavar="|".join(KINDS), autocompletion=lambda: list(KINDS))
]


@app.command(rich_help_panel="Extend and set up")
def new(
    kind: KindName,
    name: Annotated[str, typer.Argument(help="Its name.")],
    archive: Annotated[Path | None, typer.Option(help="ZIP of a collection, in BEIR's layout.")] = None,
    hub: Annotated[str, typer.Option(help="Data set of the hub, or a task of MTEB, in place of --archive.")] = "",
    ir_datasets: Annotated[str, typer.Option(help="Name of ir_datasets, in place of --archive.")] = "",
) -> None:
    """Write a recipe, loss, objective, collection or measure of yours into config/my, filled in; it plans at once."""
    from zerodr.config.files import known
    from zerodr.operations.scaffold import write_new

    known("zerodr new: kind", kind, KINDS)
    require_checkout("zerodr new")
    written = write_new(kind, name, CALLED_IN[0] / archive if archive else None, hub, ir_datasets)
    typer.echo("\n".join([*(f"wrote {path}" for path in written.files), f"next: {written.next}"]))


@app.command(rich_help_panel="Extend and set up")
def schema(write: Annotated[bool, typer.Option("--write", help=f"Write it to {SCHEMA}.")] = False) -> None:
    """Print the JSON schema of config/config.yaml."""
    from zerodr.config.load import config_schema

    if write:
        SCHEMA.write_text(config_schema(), encoding="utf-8")
    else:
        typer.echo(config_schema(), nl=False)


@app.command(rich_help_panel="Look at methods")
def settings(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the Markdown itself.")] = False,
    write: Annotated[
        bool, typer.Option("--write", help=f"Write it to {DOCS}/settings.md and {DOCS}/settings/.")
    ] = False,
) -> None:
    """Print the reference of all settings: key, value, default, meaning."""
    from zerodr.operations.reference import render, render_pages

    os.environ["ZERODR_MY"] = ""  # which keys are advanced is said by the shipped files
    if write:
        (DOCS / "settings").mkdir(exist_ok=True)
        for name, text in render_pages().items():
            (DOCS / name).write_text(text, encoding="utf-8")
    elif markdown:
        typer.echo(render(), nl=False)
    else:
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(render()))


Result = Annotated[
    str,
    typer.Argument(help="METHOD/COLLECTION, or a run, embeddings, an index, a model folder."),
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
