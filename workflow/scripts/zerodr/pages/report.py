"""Write the report of a main table: results, figures, curves, statistics, warnings and cost in one file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from zerodr.artifacts.record import Record, read_record
from zerodr.config.base import validate
from zerodr.errors import ArtifactError
from zerodr.lineage.explain import outdated
from zerodr.lineage.graph import Graph
from zerodr.pages import costs, drawing, html
from zerodr.pages.costs import jobs_above
from zerodr.pages.leaderboard import LeaderboardSettings, leaderboard
from zerodr.plan import Plan, paths
from zerodr.plan.reporting import leaderboard_inputs, leaderboard_params, table_params
from zerodr.plan.targets import command
from zerodr.reporting.table import show

log = logging.getLogger("zerodr")
REPORT = Path("results/report.html")


def write_report(plan: Plan, target: Path = REPORT) -> Path:
    """Write the report of the plan's main table to `target`, and return it.

    Raises:
        ArtifactError: the table is not there, or of other settings.
    """
    files = _files(plan)
    missing = [path for listed in files.values() for path in listed if not path.exists()]
    if missing:
        problem = f"is missing: the report needs a finished main table ({len(missing)} files are missing)"
        raise ArtifactError(missing[0], problem, f"run: make mini, or {_command(plan)}")
    refuse_other_settings(plan)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(html.fill("report.html", **report(plan, files, Graph())), encoding="utf-8")
    log.info("%s: %.1f MB", target, target.stat().st_size / 1e6)
    return target


def show_table(plan: Plan, words: Sequence[str]) -> str:
    """Return the plan's main table as text; before it is whole, what is finished of it.

    Args:
        plan: of the words.
        words: of `--config`.

    Raises:
        ArtifactError: nothing is finished, or the table is of other settings than words say.
    """
    if words:
        refuse_other_settings(plan)
    summaries = plan.evaluations("summary")
    old = outdated(filter(os.path.exists, summaries), plan)
    return show(plan.selection, list(map(Path, summaries)), table_params(plan), words, old)


def refuse_other_settings(plan: Plan) -> None:
    """Refuse to show the plan's main table where it was made with other settings: its numbers would bear their names.

    Raises:
        ArtifactError: names what differs.
    """
    wildcards = SimpleNamespace(selection=plan.selection)
    for ending in ("tsv", "html"):
        table = paths.beir(f"{plan.selection}.{ending}")
        if (record := read_record(table)) is None:
            continue
        now, then = json.loads(plan.settings(record["rule"])(wildcards))["settings"], record["spec"]["params"]
        if differ := sorted(key for key in {*now, *then} if now.get(key) != then.get(key)):
            problem = f"was made with other settings ({', '.join(differ)})"
            raise ArtifactError(table, problem, f"make it anew: {_command(plan)}")


def _settings(plan: Plan) -> LeaderboardSettings:
    return validate(LeaderboardSettings, leaderboard_params(plan, None), "report")


def _command(plan: Plan) -> str:
    settings = _settings(plan)
    return command(paths.beir(f"{plan.selection}.html"), (*settings.words, *settings.choice))


def _files(plan: Plan) -> dict[str, list[Path]]:
    inputs = leaderboard_inputs(plan, None)
    return {name: [Path(p) for p in ([v] if isinstance(v, str) else v)] for name, v in inputs.items()}


def report(plan: Plan, files: dict[str, list[Path]], graph: Graph) -> dict[str, Any]:
    """Collect what the template shows."""
    context = leaderboard(files, _settings(plan), graph, folder="beir/")
    jobs = jobs_above(graph, map(str, files["summaries"]))
    return context | {
        "title": f"zerodr: report on {plan.selection}",
        "figures": _figures(plan),
        "trainings": _trainings(jobs),
        "mined": costs.rows_of(jobs, "mine", costs.MINED),
        "mined_columns": list(costs.MINED),
        "spans": costs.rows_of(jobs, "cut", costs.SPANS),
        "spans_columns": list(costs.SPANS),
        "dropped": costs.dropped(jobs),
        "warnings": costs.warnings(jobs),
        "costs": costs.cost_by_rule(jobs),
        "versions": _versions(jobs),
        "command": _command(plan),
    }


def _figures(plan: Plan) -> list[tuple[str, Any]]:
    """List the figures of papers' items that were made at the plan's scale, with their titles."""
    pictures = []
    for paper, settings in plan.bench.papers.items():
        for name, item in settings.items.items():
            path = Path(paths.item(paper, name, "svg"))
            record = read_record(path)
            if path.exists() and (record is None or record["spec"]["params"].get("scale") == plan.config.scale):
                pictures.append((f"{settings.label}, {name}: {item.title}", html.inline_svg(path)))
    return pictures


def _trainings(jobs: Iterable[Record]) -> list[tuple[str, str, Any]]:
    """Name, facts and curves of every training job that logged drawing."""
    shown = []
    for record in jobs:
        picture = drawing.draw_curves(record)
        if picture is not None:
            seconds = html.duration(record["seconds"])
            shown.append((costs.name_of(record), f"{record['rule']}, {seconds}", picture))
    return shown


def _versions(jobs: list[Record]) -> list[tuple[str, str]]:
    """List packages, lock and platform of the newest job."""
    newest = max(jobs, key=lambda record: record["started_unix_s"])["environment"]
    named = [("python", newest["python"]), ("platform", newest["platform"]), ("lock", newest["lock_sha256"] or "none")]
    return [*named, *sorted(newest["versions"].items())]
