"""Serve the Snakefile while it is parsed. Every submitted job parses it anew: what few need is imported where used."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerodr.artifacts.guard import QUIET_STAGES
from zerodr.config.bench import Bench
from zerodr.config.custom import leave_out
from zerodr.config.load import load_bench
from zerodr.errors import ConfigError
from zerodr.plan import Plan
from zerodr.plan.resources import Ceiling

if TYPE_CHECKING:
    from zerodr.operations.screen import Screen

LOG = logging.getLogger("zerodr")
LOGGER = logging.getLogger("snakemake.logging")
COLLECT = (200_000, 50, 1000)  # a graph of jobs has many objects and little garbage: looking for it took a tenth
LOCAL = {"local", "--executor=local"}  # words of a command that keep the jobs of a Slurm profile here
REPLACED = "DefaultStreamHandler"  # Snakemake's name of its handler


def default_scale(default_resources: Iterable[str] | None) -> str:
    """Choose the scale of a configuration that names none: `paper` where jobs go to Slurm, else `mini`.

    Args:
        default_resources: names of Snakemake's default resources. A profile that submits to Slurm has some that begin
            with `slurm_`; they are known in a dry run and in submitted jobs too, whatever `--config` words are given.
    """
    return "paper" if any(name.startswith("slurm_") for name in default_resources or ()) else "mini"


def enter_rehearsal(root: Path, config: Mapping[str, Any]) -> None:
    """Start again in the folder of a rehearsal, where `rehearse` asks for one and this is not its folder."""
    if not config.get("rehearse") or (root / "Snakefile").is_symlink():
        return
    from zerodr.operations.rehearse import make_folder, movable
    from zerodr.operations.slurm.submission import start_again

    words = list(map(movable, sys.orig_argv[1:]))
    os.chdir(make_folder(root, bool(config.get("substitutes"))))
    start_again(words)


def require_scheduler(workflow: Any) -> None:
    """Check before anything else that a run by a Slurm profile is on a host with Slurm.

    Raises:
        MachineError: it is not.
    """
    chosen = any(word.partition("=")[0] in ("--executor", "-e") for word in sys.argv)
    runs = workflow.is_main_process and not workflow.output_settings.dryrun
    if runs and not chosen and options_of_jobs(workflow) is not None:
        from zerodr.operations.slurm.cluster import require_slurm

        require_slurm()


def options_of_jobs(workflow: Any) -> str | None:
    """Return the options of sbatch that a profile gives all jobs; None where jobs run on this machine."""
    defaults = workflow.resource_settings.default_resources or {}
    here = workflow.is_main_process and not LOCAL.isdisjoint(sys.argv)
    if here or default_scale(defaults) != "paper":
        return None
    if "slurm_extra" not in defaults or not workflow.is_main_process:
        return ""  # a job knows already what it asked for
    from zerodr.operations.planning import text_of_all

    return text_of_all("slurm_extra", str(defaults["slurm_extra"].raw))


def finish_run(workflow: Any, started: list[bool], plan: Plan) -> None:
    """Say at the end of a dry run what a run here would be refused for; end a rehearsal with its report."""
    called = Path(sys.argv[0]).stem == "snakemake" or sys.argv[0].endswith("snakemake/__main__.py")
    executor = workflow.executor_plugin
    if called and executor is not None and executor.name == "dryrun" and workflow.dag is not None:
        from zerodr.operations.starting import foretell

        lines = foretell(workflow, plan, options_of_jobs(workflow) is not None)
        sys.stderr.write("".join(f"{line}\n" for line in lines))
    if plan.config.rehearse and started and workflow.dag is not None:
        from zerodr.operations.rehearsal_report import write_report

        sys.stderr.write("".join(f"{line}\n" for line in write_report(workflow, plan)))
    gc.freeze()  # the end of the process does not look for garbage in a graph of thousands of jobs


def load_plan(
    root: Path, config: dict[str, Any], main: bool, ceilings: Mapping[str, Ceiling], options: str | None = None
) -> Plan:
    """Load the plan of a configuration.

    Args:
        root: the checkout.
        config: Snakemake's configuration.
        main: this is the process that schedules. A job knows already what it asked for.
        ceilings: what the cluster has for each rule, filled in before the first job is submitted.
        options: of sbatch, which all jobs have; None: jobs run on this machine.

    Raises:
        ConfigError: the configuration is wrong.
    """
    bench = load_bench(root, config) if main else load_without_drafts(root, config)
    if bench.folders:
        from zerodr.operations.folders import examine

        bench = examine(bench)
    if not main:
        return Plan(bench, options=options)
    from zerodr.operations.estimate.costs import Estimates

    gc.set_threshold(*COLLECT)
    return Plan(bench, Estimates, ceilings, options)


def load_without_drafts(root: Path, config: dict[str, Any]) -> Bench:
    """Load a job's configuration; YAML files of the user's own that went wrong since the run began are left out.

    Who writes the next recipe while a run goes on must not end its jobs. A warning of each job names the file.

    Raises:
        ConfigError: something else is wrong.
    """
    while True:
        try:
            return load_bench(root, config)
        except ConfigError as error:
            if not leave_out(root / "config", error):
                raise
            LOG.warning("left out of this job, which began after the file changed: %s", error)


# Why no logger plugin (tried with Snakemake 9.27, interface 2.1 and `logger: zerodr` in a profile):
# * Where the environment that `snakemake` comes from lacks the package, each command ends with "argument --logger:
#   invalid choice" before the Snakefile can say how to set it up; a run without a profile has no screen.
# * The package is imported before the Snakefile: where two checkouts share an environment, the other one's is.
# * Plugins write from a thread behind a queue: "Errors of this run" of `onerror` came before lines that precede it.
def take_screen(settings: Any, main: bool) -> Screen | None:
    """Replace Snakemake's handler of the screen; None where its own output stays.

    Args:
        settings: Snakemake's output settings.
        main: this is the process that schedules, no job's.
    """
    handler = next((handler for handler in LOGGER.handlers if handler.name == REPLACED), None)
    if handler is None or settings.dryrun or settings.verbose or settings.quiet:
        return None
    if not main:
        if QUIET_STAGES in os.environ:
            LOGGER.removeHandler(handler)  # the process that schedules shows the job
        return None
    from zerodr.operations.screen import Screen

    stream = handler.stream  # type: ignore[attr-defined]
    screen = Screen(stream, stream.isatty() and os.environ.get("TERM") != "dumb")
    LOGGER.removeHandler(handler)
    LOGGER.addHandler(screen)
    return screen
