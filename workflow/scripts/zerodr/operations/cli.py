"""Commands of `zerodr`, for any folder of a checkout. Each command imports what it needs."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zerodr.checkout import enter_installed_root, enter_root, from_root, provide_caches, require_checkout
from zerodr.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from zerodr.plan import Plan


app = typer.Typer(
    help="Plan, inspect and compare the workflow's artifacts. Artifacts are paths or digests.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


SHOWN: set[str] = set()  # notices about folders, each once
CALLED_IN = [Path()]  # the folder of the call; commands run in the checkout's root


def _known_here(value: Any) -> Any:
    """Turn paths that are given from the folder of the call into paths from the root."""
    return from_root(value, CALLED_IN[0]) if isinstance(value, str) else [_known_here(text) for text in value or []]


Artifact = Annotated[
    str,
    typer.Argument(help="Path of an artifact, its folder, or the start of its digest.", callback=_known_here),
]
Artifacts = Annotated[list[str] | None, typer.Argument(help="Paths or digests.", callback=_known_here)]
Words = Annotated[list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="As for snakemake; may repeat.")]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="METHOD.KEY=VALUE", help="A variant with another setting, such as dpr.ep0.training.steps=9."
    ),
]


def _words(config: list[str] | None, sets: list[str] | None = None, scale: str | None = None) -> list[str]:
    """Join `--config` words with those that other options stand for."""
    changed = [f"set=[{','.join(map(json.dumps, sets))}]"] if sets else []
    return [*(config or []), *changed, *([f"scale={scale}"] if scale else [])]


def _version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        typer.echo(f"zerodr {importlib.metadata.version('zerodr')}")
        raise typer.Exit


@app.callback()
def _start(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Log progress to standard error; change to the checkout's root."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    CALLED_IN[0] = enter_root()
    provide_caches()


@app.command(rich_help_panel="Look at results")
def lineage(
    artifact: Artifact,
    down: Annotated[bool, typer.Option("--down/--up", help="Show its users, or its sources.")] = False,
    depth: Annotated[int | None, typer.Option(min=1, help="Levels to show; all when not given.")] = None,
) -> None:
    """Print the sources of an artifact, or its users, as a tree. Exit status 1 when something is missing or damaged."""
    from zerodr.lineage.graph import Graph, render_tree

    graph = Graph(lenient=True)
    path = graph.find(artifact)
    typer.echo(render_tree(graph, path, down, depth))
    if damaged := [source for source in graph.ancestors(path) if graph.is_damaged(source)]:
        problem = f"{len(damaged)} of its artifacts are missing or damaged, the first is {damaged[0]}"
        raise ArtifactError(path, problem, f"see: zerodr verify {path}")


@app.command(rich_help_panel="Look at results")
def explain(artifact: Artifact, config: Words = None, sets: Sets = None) -> None:
    """Explain an artifact: its origin, whether it is current, and the command that updates it."""
    from zerodr.lineage import explain as explanation
    from zerodr.lineage.graph import Graph

    graph = Graph()
    path, given = graph.find(artifact), _words(config, sets)
    words, adapted = explanation.recorded_config(graph, path, given), explanation.adapted_by(graph, path)
    plan = plan_with(adapted.values) if adapted and not given else plan_of(words)
    typer.echo(explanation.explain(graph, path, plan, words, adapted.command if adapted else None))


@app.command(rich_help_panel="Look at results")
def verify(
    artifacts: Artifacts = None,
    everything: Annotated[bool, typer.Option("--all", help="Every artifact with a record.")] = False,
) -> None:
    """Check sizes and SHA-256 of artifacts and of everything above them. Exit status 1 when something is wrong."""
    from zerodr.lineage.graph import Graph
    from zerodr.lineage.verify import imported, without_commit
    from zerodr.lineage.verify import verify as check

    if bool(artifacts) == everything:
        raise ConfigError("verify", "needs either artifacts or --all", "run: zerodr verify --all")
    graph = Graph(lenient=True)
    roots = _require(graph.artifacts()) if everything else [graph.find(artifact) for artifact in artifacts or []]
    findings = list(check(graph, roots))
    for line in (*imported(graph, roots), *without_commit(graph, roots), *findings):
        typer.echo(str(line))
    typer.echo(f"{len(graph.ancestors(*roots))} artifacts read; problems: {len(findings)}")
    raise typer.Exit(1 if findings else 0)


@app.command(rich_help_panel="Look at results")
def diff(
    left: Artifact,
    right: Artifact,
    metric: Annotated[str, typer.Option(help="Metric of the queries that gained or lost.")] = "ndcg_cut_10",
    queries: Annotated[int, typer.Option(min=0, help="How many of them to show.")] = 5,
) -> None:
    """Compare two artifacts: settings, inputs, code, environment, metrics, and queries that gained or lost."""
    from zerodr.lineage.diff import diff as compare
    from zerodr.lineage.graph import Graph

    graph = Graph()
    typer.echo(compare(graph, graph.find(left), graph.find(right), metric, queries))


@app.command(rich_help_panel="Look at results")
def publish(artifacts: Artifacts = None) -> None:
    """Publish lineage records, by default final ones, to the store of MLFLOW_TRACKING_URI; repeating adds nothing."""
    from zerodr.lineage import publish as publisher
    from zerodr.lineage.graph import Graph
    from zerodr.lineage.store import shown_uri, tracking_uri

    graph = Graph()
    roots = [graph.find(artifact) for artifact in artifacts] if artifacts else _require(graph.final())
    added = publisher.publish(graph, roots, tracking_uri(), plan_of([]).config.scale)
    typer.echo(f"{added} artifacts added to {shown_uri(tracking_uri())}")


@app.command(rich_help_panel="Plan and run")
def plan(
    target: Annotated[str, typer.Argument(help="Target for snakemake.")] = "all",
    scale: Annotated[str | None, typer.Option(help="A preset of config/scales.yaml.")] = None,
    profile: Annotated[
        str | None, typer.Option(help="Profile of snakemake; default: slurm at scale paper, else this machine.")
    ] = None,
    price: Annotated[float | None, typer.Option(min=0, help="Of a GPU-hour, in any currency.")] = None,
    config: Words = None,
    sets: Sets = None,
) -> None:
    """List what a target still needs: jobs by rule, downloads, disk, time, GPU-hours, critical path. Runs nothing."""
    from zerodr.artifacts.guard import replaced_reports
    from zerodr.config.load import with_scale
    from zerodr.config.pins import LOCK, require_repositories
    from zerodr.config.words import parse_words
    from zerodr.lineage.explain import rerun_reasons
    from zerodr.operations.estimate import costs, sizes
    from zerodr.operations.estimate.jobs import planned_jobs
    from zerodr.operations.slurm.cluster import check_planned
    from zerodr.operations.trust import changed_artifacts
    from zerodr.plan.pins import loose_models
    from zerodr.plan.targets import idle_variants
    from zerodr.plan.training import uneven_batches

    bench = plan_of(words := with_scale(_words(config, sets, scale), profile or ""))
    jobs = planned_jobs(target, parse_words(words), bench)
    check_planned(bench, (job.rule for job in jobs))
    if models := loose_models(bench, ((job.rule, job.wildcards.get("model", "")) for job in jobs)):
        require_repositories(models)
        typer.echo(f"revisions   the run asks the hub for the commit of {', '.join(models)}, and locks it in {LOCK}")
    typer.echo(sizes.render(target, sizes.sizes_of(jobs, bench)))
    if jobs:
        slurm = bench.bench.scale.as_published if profile is None else "slurm" in profile
        start = costs.START_S if slurm else costs.START_HERE_S
        typer.echo(costs.render(jobs, costs.costs(jobs, costs.estimates_of(bench), start), price))
    outputs = [(job.rule, job.outputs) for job in jobs]
    for line in rerun_reasons((files[0] for _, files in outputs if files), bench):
        typer.echo(f"again       {line}")
    written = [path for _, files in outputs for path in files]
    evaluated = [f"{folder}/" for folder in Path("results/evaluation").glob("*")]
    notes = [idle_variants([target], written + evaluated, bench), changed_artifacts(written)]
    notes += [replaced_reports(outputs, bench.config.scale), uneven_batches(bench, ((j.rule, j.asked) for j in jobs))]
    typer.echo("".join(f"note        {line}\n" for line in notes if line), nl=False)


@app.command(rich_help_panel="Plan and run")
def pin(
    models: Annotated[list[str] | None, typer.Argument(help="Names on the hub; default: all that are locked.")] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Lock what the hub calls main now.")] = False,
) -> None:
    """Compare config/revisions.yaml, the locked commits of hub models, with the hub."""
    from zerodr.operations.revisions import compare_lock

    for line in compare_lock(models or (), renew):
        typer.echo(line)


@app.command(rich_help_panel="Plan and run")
def adapt(
    folders: Annotated[
        list[Path], typer.Argument(help="Documents: a folder of files (txt, md, html, pdf, docx, csv, ...), or a file.")
    ],
    method: Annotated[str, typer.Option(help="`auto`, or the one recipe to adapt with.")] = "auto",
    budget: Annotated[str, typer.Option(help="Time that `auto` may plan, such as 20m or 2h.")] = "10m",
    name: Annotated[str | None, typer.Option(help="Name of the result; default: the folder's.")] = None,
    language: Annotated[str | None, typer.Option(help="Of the texts, such as de; default: guessed.")] = None,
    start: Annotated[
        str, typer.Option(metavar="MODEL", help="What you have: a folder, a hub name or package:<module>.")
    ] = "all-minilm-l6-v2",
    proxies: Annotated[
        bool, typer.Option("--proxies", help="Compare on known items, too, next to judgements.")
    ] = False,
    text: Annotated[str, typer.Option(help="Column of the text in tables; default: by name and length.")] = "",
    title: Annotated[str, typer.Option(help="Column of the title.")] = "",
    id: Annotated[str, typer.Option(help="Column of the id.")] = "",
    exclude_self: Annotated[
        bool, typer.Option("--exclude-self", help="Queries are documents: leave the one with the query's id out.")
    ] = False,
    afresh: Annotated[
        bool, typer.Option("--afresh", help="Documents changed: compare and train as the first time.")
    ] = False,
    profile: Annotated[str | None, typer.Option(help="Profile of snakemake, such as slurm.")] = None,
    config: Words = None,
) -> None:
    """Adapt a retriever to each folder of documents, with or without judgements, and say whether that helped."""
    from zerodr.config.words import parse_words
    from zerodr.operations.adapt import AdaptRequest, gpus_here, seconds_of
    from zerodr.operations.adapt import adapt as run

    enter_installed_root()
    require_checkout("zerodr adapt")
    outside = "" if CALLED_IN[0].is_relative_to(Path.cwd()) else str(Path.cwd())
    if outside:
        logging.getLogger("zerodr").info("runs in %s, and writes below its results/", outside)
    chosen = profile or f"config/profiles/{'local' if gpus_here() else 'mini'}"
    if name is not None and len(folders) > 1:
        raise ConfigError(f"--name {name}", f"names one folder, found {len(folders)}", "leave it out")
    named: dict[str, object] = {"byo_name": name, "byo_language": language, "byo_exclude_self": exclude_self or None}
    columns = {key: value for key, value in (("text", text), ("title", title), ("id", id)) if value}
    named |= {"byo_columns": columns} if columns else {}
    values = {key: value for key, value in named.items() if value is not None} | parse_words(config or [])
    here = CALLED_IN[0] / Path(start).expanduser()
    model = str(here.resolve()) if here.is_dir() else start
    for folder in folders:
        at = Path(os.path.abspath(CALLED_IN[0] / folder.expanduser()))
        path = os.path.relpath(at) if at.is_relative_to(Path.cwd()) else str(at)
        request = AdaptRequest(path, method, seconds_of(budget), chosen, proxies, model, values, outside, afresh)
        if status := run(request, plan_with, typer.echo):
            raise typer.Exit(status)


@app.command(rich_help_panel="Plan and run")
def targets(
    paths: Annotated[list[str] | None, typer.Argument(help="Targets to check.")] = None,
    config: Words = None,
    sets: Sets = None,
) -> None:
    """List the targets of snakemake, or check targets and suggest the nearest. Exit status 1 for a wrong one."""
    from zerodr.plan.targets import is_target, nearest_target, render

    bench = plan_of(_words(config, sets))
    wrong = [path for path in paths or [] if not is_target(path, bench)]
    for path in paths or []:
        typer.echo(f"{path}: {nearest_target(path, bench)}" if path in wrong else f"{path}: is a target")
    if not paths:
        typer.echo(render(bench))
    raise typer.Exit(1 if wrong else 0)


@app.command(rich_help_panel="Look at methods")
def recipe(
    name: Annotated[str, typer.Argument(help="A method, such as coco-dr or coco-dr+official.")],
    scale: Annotated[str | None, typer.Option(help="A preset of config/scales.yaml.")] = None,
    diff: Annotated[
        str | None,
        typer.Option(metavar="SCALE|METHOD", help="Print only what differs at this scale, or from this method."),
    ] = None,
    config: Words = None,
    sets: Sets = None,
) -> None:
    """Print every value of a method and the layer it comes from: recipe, scale, variant, start or default."""
    from zerodr.config.files import known
    from zerodr.config.load import read_table
    from zerodr.config.provenance import render, render_difference
    from zerodr.config.settings import Scale

    words = _words(config, sets, scale)
    bench = plan_of(words).bench
    if diff is None:
        typer.echo(render(name, bench))
    elif diff in bench.methods:
        typer.echo(render_difference(name, bench, bench, other=diff))
    else:
        scales = read_table(Path("config/scales.yaml"), Scale)
        known("--diff: scale or method", diff, [*scales, *(one for one in bench.methods if "@" not in one)])
        typer.echo(render_difference(name, bench, plan_of([*words, f"scale={diff}"]).bench))


@app.command(rich_help_panel="Plan and run")
def doctor(config: Words = None) -> None:
    """List what this machine lacks and how to provide it. Exit status 0 when the mini job can run."""
    from zerodr.operations.doctor_bench import examine_bench
    from zerodr.operations.doctor_machine import is_missing, render

    findings = examine_bench(plan_of(config or []))
    typer.echo(render(findings))
    raise typer.Exit(1 if is_missing(findings) else 0)


@app.command(rich_help_panel="Extend and set up")
def convert(
    source: Annotated[
        Path, typer.Argument(help="Folder of a checkpoint with pytorch_model.bin or Condenser's model.pt.")
    ],
    target: Annotated[Path, typer.Argument(help="Folder to make.")],
    skip_layer: Annotated[
        int | None, typer.Option(min=0, help="Layer that the head reads; default: the middle.")
    ] = None,
) -> None:
    """Convert pickled weights and a Condenser's head to safetensors; refuse files that hold more than tensors."""
    from zerodr.encoders.start.convert import convert_checkpoint

    facts = convert_checkpoint(source, target, skip_layer)
    typer.echo("\n".join(f"{name}: {value}" for name, value in facts.items()))


@app.command(rich_help_panel="Look at results")
def show(config: Words = None) -> None:
    """Print the main table, and the paths of plots, logs and lineage; before it is whole, what is finished of it."""
    from zerodr.pages.report import show_table

    typer.echo(show_table(plan_of(config or []), config or []))


@app.command(rich_help_panel="Look at results")
def report(
    output: Annotated[Path | None, typer.Option(help="The page to write; default: results/report.html.")] = None,
    config: Words = None,
) -> None:
    """Write a report of the main table as one page: results, figures, curves, warnings, cost."""
    from zerodr.pages.report import REPORT, write_report

    page = write_report(plan_of(config or []), CALLED_IN[0] / output if output else REPORT)
    typer.echo(f"open {page}")


def _require(artifacts: list[str]) -> list[str]:
    """Return the artifacts, unless there are none."""
    if not artifacts:
        step = "run: make mini, or change to a checkout with results"
        raise ArtifactError(Path.cwd(), "holds no artifact with a lineage record", step)
    return artifacts


def plan_of(words: list[str]) -> Plan:
    """Load the plan of the checkout in the working directory, with `key=value` words over config/config.yaml.

    Raises:
        ConfigError: a word without `=`, or a wrong configuration.
    """
    from zerodr.config.words import parse_words

    return plan_with(parse_words(words))


def plan_with(values: Mapping[str, Any]) -> Plan:
    """Load the plan of the checkout in the working directory, with `values` over config/config.yaml.

    Raises:
        ConfigError: the configuration is wrong, or the working directory is in no checkout.
    """
    require_checkout("zerodr")
    from zerodr.config.load import read_config
    from zerodr.operations.folders import notices
    from zerodr.operations.loading import load_plan

    plan = load_plan(Path("."), read_config(Path("config"), values), True, {})
    for line in (line for line in notices(plan.bench) if line not in SHOWN):
        SHOWN.add(line)
        logging.getLogger("zerodr").info("%s", line)
    return plan
