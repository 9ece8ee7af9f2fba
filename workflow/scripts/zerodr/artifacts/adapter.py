"""Run the stage of a Snakemake job: from the `snakemake` object of `run_stage.py` to published outputs."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from zerodr.artifacts.guard import QUIET_STAGES
from zerodr.artifacts.machine import MachineErrors
from zerodr.artifacts.record import STATE
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.config.custom import raised_by
from zerodr.config.load import site_of
from zerodr.errors import ZerodrError
from zerodr.plan.rules import facts_of

log = logging.getLogger("zerodr")
INTERRUPTED = 130  # as shells report Ctrl-C


def spec_of(snakemake: Any) -> StageSpec:
    """The spec of a job. The rule's one param `settings` is canonical JSON with `version`, `seed` and `settings`."""
    settings = json.loads(snakemake.params.settings)
    return StageSpec(
        rule=snakemake.rule,
        version=settings["version"],
        wildcards={k: str(v) for k, v in snakemake.wildcards.items()},
        inputs={k: _plain(v) for k, v in snakemake.input.items()},
        outputs={k: str(v) for k, v in snakemake.output.items()},
        params=settings["settings"],
        seed=settings["seed"],
        threads=snakemake.threads,
        site=site_of(snakemake.config),
        rehearsal=settings.get("rehearsal", {}),
    )


def _plain(value: Any) -> str | list[str]:
    return str(value) if isinstance(value, str) else [str(v) for v in value]


class _LogFile(logging.FileHandler):
    """A log file that a full disk ends without a traceback for each line; standard error has the lines, too."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def configure_logging(name: str, logfile: str | None = None) -> None:
    """Log lines with time and stage name to a job's log file, and to standard error unless QUIET_STAGES is set."""
    silent = logfile is not None and QUIET_STAGES in os.environ
    handlers: list[logging.Handler] = [] if silent else [logging.StreamHandler(sys.stderr)]
    if logfile:
        Path(logfile).parent.mkdir(parents=True, exist_ok=True)
        handlers.append(_LogFile(logfile, mode="w", encoding="utf-8"))
    form = logging.Formatter(f"%(asctime)s [{name}] %(message)s", "%H:%M:%S")
    log.handlers.clear()
    for handler in handlers:
        handler.setFormatter(form)
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def stay_offline(rule: str) -> None:
    """Keep this process and its children from asking the model hub, unless the rule is one that downloads."""
    if facts_of(rule).downloads:
        return
    os.environ["HF_HUB_OFFLINE"] = "1"
    hub = sys.modules.get("huggingface_hub.constants")
    if hub is not None:  # it read the environment when it was imported
        hub.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]


def run_rule(snakemake: Any) -> None:
    """Run the stage of a Snakemake job. A user's mistake and Ctrl-C end as one message, without a traceback.

    An error in the user's own code, or a fault of ours, has both: the traceback here, a line at the end of the run.
    """
    spec = spec_of(snakemake)
    stay_offline(spec.rule)
    try:
        with MachineErrors(spec.name()):
            configure_logging(spec.name(), snakemake.log[0] if snakemake.log else None)
        with _Unexpected(spec.name()):
            run_spec(spec)
    except ZerodrError as error:
        log.error("%s", error)
        report_error(spec.name(), str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        log.info("stopped; the same command resumes")
        sys.exit(INTERRUPTED)


class _Unexpected:
    """Leave a line for the end of the run on an error that ends a stage with its traceback."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ZerodrError):
            report_error(self.name, raised_by(error) or f"{type(error).__name__}: {error} (traceback above)")


def report_error(name: str, message: str) -> None:
    """Leave the message where the Snakefile's `onerror` finds it, to repeat it as the last thing on the screen."""
    try:
        with open(STATE / "errors.txt", "a", encoding="utf-8") as stream:
            stream.write(f"{name}\n    {message}\n\n")
    except OSError:
        log.error("the results folder can't be written")
