"""Command `rehearse` of `python -m zerodr`: run every job small, and tell what the run will cost."""

from __future__ import annotations

from typing import Annotated

import typer

from zerodr.operations.cli import Words, app, plan_of


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
    from zerodr.operations.adapt import gpus_here, seconds_of
    from zerodr.operations.rehearse import rehearse as run

    named = {"methods": methods, "collections": collections}
    words = [*(config or []), *(f"{key}=[{value}]" for key, value in named.items() if value)]
    if profile == "slurm" and not any(word.startswith("scale=") for word in words):
        words.append("scale=paper")
    if cores and not gpus_here() and not any(word.startswith("gpus=") for word in words):
        words.append("gpus=0")
    here = ["--executor", "local", "--cores", str(cores)] if cores else []
    options = [target, "--profile", profile, "--keep-going", "--retries", "0", *here]
    options += ["--config", *words, "rehearse=true"]
    raise typer.Exit(run(options, plan_of(words), substitutes, seconds_of(within) if within else None))
