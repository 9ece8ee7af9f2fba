"""Find finished artifacts whose records differ from the plan, where Snakemake's own memory of them is missing.

Snakemake compares settings with what `.snakemake/` remembers. A copy of `results/` to another machine leaves that
behind, so a changed learning rate would plan a new table over old models. The record of each artifact has its settings.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zerodr.artifacts.record import read_record
from zerodr.config.quantities import counted, first_names
from zerodr.errors import ArtifactError
from zerodr.lineage.explain import changed_settings
from zerodr.operations.slurm.submission import start_again

FORCED = ("--forcerun", "-R")
DRY_RUN = "dryrun"
EXECUTORS = (DRY_RUN, "local", "slurm")


def outdated(workflow: Any) -> list[str]:
    """List finished outputs, in the order of the graph, that other settings, versions or seeds made than planned.

    Args:
        workflow: Snakemake's, whose graph of jobs is complete. Jobs that run anyway are left out.
    """
    running = set(workflow.dag.needrun_jobs(exclude_finished=False))  # a dry run finishes all
    idle = [job for job in workflow.dag.jobs if job not in running and "settings" in job.params.keys()]
    return [output for job in idle for output in map(str, job.output[:1]) if _differs(output, job.params.settings)]


def _differs(output: str, settings: str) -> bool:
    """Compare the record of an output with a job's canonical settings; without a record it is not ours."""
    try:
        record = read_record(output)
    except ArtifactError:  # `zerodr verify` names it
        return False
    return record is not None and bool(changed_settings(record, settings))


def sentence(outputs: list[str]) -> str:
    """Say what is made anew, and why Snakemake alone would not."""
    verb = "is" if len(outputs) == 1 else "are"
    return (
        f"{counted(len(outputs), 'finished artifact')} {verb} of other settings than planned, by the record of "
        f"each, and made anew: {first_names(outputs)}. (Snakemake does not remember these settings: results were "
        "copied here, or .snakemake/ was deleted.)"
    )


def forced_words(outputs: Iterable[str], argv: list[str]) -> list[str]:
    """Return the words that make Snakemake run these outputs' jobs again, joined with those of the command line.

    >>> forced_words(["b"], ["snakemake", "x", "--forcerun", "a", "--cores", "1"])
    ['snakemake', 'x', '--cores', '1', '--forcerun', 'a', 'b']
    """
    words, named = list[str](), list[str]()
    taking = False
    for word in argv:
        taking = word in FORCED or (taking and not word.startswith("-"))
        (named if taking else words).append(word)
    return [*words, FORCED[0], *dict.fromkeys([word for word in named if word not in FORCED] + list(outputs))]


def finish(workflow: Any, started: bool) -> bool:
    """Check a graph for which Snakemake called no `onstart`: of a dry run, or with nothing to be done.

    Where there is more to do than Snakemake knows of, it starts again: a run does it, a dry run prints all jobs.

    Returns:
        whether it was a dry run.
    """
    called = Path(sys.argv[0]).stem == "snakemake" or sys.argv[0].endswith("snakemake/__main__.py")
    executor = workflow.executor_plugin
    if started or not called or executor is None or executor.name not in EXECUTORS or workflow.dag is None:
        return False
    if outputs := outdated(workflow):
        sys.stderr.write(f"{sentence(outputs)}\n")
        start_again(forced_words(outputs, sys.orig_argv[1:]))
    return bool(executor.name == DRY_RUN)
