"""Commands of `zerodr` that set up and extend a checkout: scaffolds, completion, schema and reference of settings."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from zerodr.checkout import require_checkout
from zerodr.operations.cli import CALLED_IN, COMPLETES, app

SCHEMA, DOCS = Path("config/schema.json"), Path("docs")


class Shell(StrEnum):
    """Shells that completion knows."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


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
def completion(
    shell: Annotated[Shell, typer.Argument(help="Shell that reads the script.")] = Shell.bash,
) -> None:
    """Print a script that completes commands and options. For bash: source <(zerodr completion bash)"""
    from typer.completion import get_completion_script

    words = {"prog_name": "zerodr", "complete_var": COMPLETES, "shell": shell.value}
    typer.echo(get_completion_script(**words))


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
