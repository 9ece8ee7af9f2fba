"""Commands of `zerodr` that set up and extend a checkout: scaffolds, schema and reference.

The command `rehearse` runs every job small, and tells what the run will cost.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from zerodr.checkout import require_checkout
from zerodr.operations.cli import CALLED_IN, Words, app, plan_of


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
