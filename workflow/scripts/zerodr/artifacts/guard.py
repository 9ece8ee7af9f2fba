"""Allow one run at a time in a checkout, without stale locks; print errors as sentences, repeated at the end."""

import contextlib
import logging
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO

from zerodr.artifacts.machine import MachineErrors, take_lock
from zerodr.artifacts.record import STATE, read_record, record_path
from zerodr.errors import ArtifactError, ConfigError, MachineError, ZerodrError
from zerodr.plan.rules import facts_of

_HELD: list[IO[str]] = []
_KINDS = "|".join(kind.__name__ for kind in ZerodrError.__subclasses__())
OURS = re.compile(rf"\b({_KINDS}): ")
_DOUBLED = re.compile(rf"\b({_KINDS}): \1: ")
ON_REQUEST = "on user request"  # in Snakemake's line about Ctrl-C or SIGTERM
QUIET_STAGES = "ZERODR_QUIET_STAGES"  # in the environment of jobs whose run has a screen of its own
FAILED = "At least one job did not complete successfully."
STOPPED = "The run was stopped. To resume after the last finished job, repeat the command."
_NO_RULE = re.compile(r"(?:MissingRuleException:\s*)?No rule to produce (\S+) \(if you use input functions[^)]*\)\.")
_ABSENT = re.compile(
    r"(?:MissingInputException in .*\n)?"
    r"Missing input files for rule (\w+):\n((?s:.*?))affected files:((?:\n +\S+)+)"
)
_SLURM = re.compile(r" --profile[ =]\S*slurm")
_MODEL = re.compile(r"\bmodel=([^,\s]+)")
_TRACEBACK = re.compile(r"\nTraceback:(?:\n  File [^\n]*)+")


def ask_for_single_run() -> None:
    """Take the checkout's lock, which the kernel releases when the process ends, in any way.

    Exits with one message when another run holds it or the results folder can't be written.
    """
    lock = STATE / "run.lock"
    try:
        with MachineErrors("results", [str(STATE)]):
            STATE.mkdir(parents=True, exist_ok=True)
            # Append mode: truncating would touch the file of a run that holds the lock.
            stream = open(lock, "a", encoding="utf-8")
            free = take_lock(stream, wait=False)
            if free:  # the errors of a run that holds the lock stay
                (STATE / "errors.txt").write_text("", encoding="utf-8")
                holder = f"process {os.getpid()} on {platform.node()}, since {time.strftime('%F %T')}"
                lock.write_text(holder, encoding="utf-8")
    except MachineError as error:
        refuse_run(str(error))
    if not free:
        holder = ""
        with contextlib.suppress(OSError):  # the refusal matters, not who holds the lock
            holder = lock.read_text(encoding="utf-8", errors="replace")
        who = f" ({holder})" if holder else ""
        refuse_run(
            f"MachineError: another snakemake is running in this folder{who}: wait for it, or stop it, and run again"
        )
    # The lock lives as long as the open file; without a reference Python would close it at once.
    _HELD.append(stream)


def refuse_run(message: str) -> None:
    """End the run with a message before its first job; with an empty message, continue."""
    if message:
        sys.stderr.write(f"\n{message}\n")
        sys.stderr.flush()
        raise SystemExit(1)


Planned = Iterable[tuple[str, Iterable[str]]]


def withdraw_reports(planned: Planned) -> None:
    """Remove the tables and figures that this run builds again, so that those of an earlier one can't pass for them.

    Args:
        planned: rule and outputs of each planned job.
    """
    for path in _reports(planned):
        path.unlink(missing_ok=True)
        record_path(path).unlink(missing_ok=True)


def replaced_reports(planned: Planned, scale: str) -> str:
    """Say which tables and figures `withdraw_reports` will remove, and of which scale other than the run's they are.

    Args:
        planned: rule and outputs of each planned job.
        scale: of the run.
    """
    gone = [path for path in _reports(planned) if path.exists()]
    if not gone:
        return ""
    others = sorted({other for path in gone if (other := _scale_of(path)) not in (None, scale)})
    more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
    line = f"made anew, and gone until the run has ended: {gone[-1]}{more}"
    return f"{line}, of scale {' and '.join(others)}: a clone for each scale keeps both" if others else line


def _reports(planned: Planned) -> list[Path]:
    return [Path(path) for rule, outputs in planned if facts_of(rule).kind == "report" for path in outputs]


def _scale_of(path: Path) -> str | None:
    """Read the scale of a table from its record; None where that says nothing."""
    try:
        params = (read_record(path) or {}).get("spec", {}).get("params", {})
    except ArtifactError:
        return None
    groups = (params, params.get("table") or {}, params.get("settings") or {})
    return next((group["scale"] for group in groups if "scale" in group), None)


def plainly(text: str) -> str:
    """Shorten Snakemake's report of a zerodr error in a rule's function: its name once, no traceback."""
    return _TRACEBACK.sub("", _DOUBLED.sub(r"\1: ", text)) if _DOUBLED.search(text) else text


class _Plain(logging.Filter):
    """Change Snakemake's reports of errors as `plainly` does; a run that was stopped on request is no failed one."""

    def __init__(self, suggest: Callable[[str], str], remark: Callable[[str], str]) -> None:
        super().__init__()
        self.suggest, self.remark, self.stopped = suggest, remark, False

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):
            self.stopped |= ON_REQUEST in record.msg
            record.msg = _NO_RULE.sub(lambda match: _unknown_target(match[1], self.suggest), plainly(record.msg))
            record.msg = _ABSENT.sub(lambda match: _absent_files(match, self.remark), record.msg)
            if self.stopped and FAILED in record.msg:
                record.msg = STOPPED
        return True


def run_stopped() -> bool:
    """Test whether Snakemake said that this run was stopped on request."""
    return any(isinstance(one, _Plain) and one.stopped for one in logging.getLogger("snakemake.logging").filters)


def spare_tracebacks(suggest: Callable[[str], str], remark: Callable[[str], str] = lambda model: "") -> None:
    """Let Snakemake report errors of rules' functions as `plainly` does, and Ctrl-C before the first job as a line.

    Args:
        suggest: next step for a target that no rule makes.
        remark: of a model, which may name where a file that it reads is from.
    """
    logging.getLogger("snakemake.logging").addFilter(_Plain(suggest, remark))
    show = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.stderr.write(f"{STOPPED}\n")
        else:
            show(kind, error, trace)

    sys.excepthook = report


def _unknown_target(target: str, suggest: Callable[[str], str]) -> str:
    return str(ConfigError(target, "is no target", suggest(target)))


def _absent_files(match: re.Match[str], remark: Callable[[str], str]) -> str:
    rule, paths, model = match[1], match[3].split(), _MODEL.search(match[2])
    about = remark(model[1]) if model else ""
    one = len(paths) == 1
    step = "put it there, or name another" if one else "put them there, or name others"
    step += f"; {model[1]} {about}" if model and any(Path(path).name in about for path in paths) else ""
    return str(
        ConfigError(
            rule,
            f"reads {', '.join(paths)}, which {'is no file' if one else 'are no files'} and which no rule makes",
            step,
        )
    )


def require_defaults(scale: str) -> None:
    """Check that a Slurm profile means its scale: `--default-resources` leaves none of the profile's.

    Args:
        scale: the one that the remaining default resources mean.

    Raises:
        ConfigError: they mean another, so that the run would be a small one.
    """
    words = " ".join(sys.argv)
    if scale != "paper" and " --default-res" in words and _SLURM.search(words):
        problem = f"replaces those of the profile, by which it means scale paper: this would run {scale}"
        step = "name a scale (--config scale=paper), or change default-resources in the profile"
        raise ConfigError("--default-resources", problem, step)


def advise_profile(triggers: Iterable[object]) -> None:
    """Warn of a run without a profile of ours: Snakemake would repeat finished work when only code was edited."""
    if any(str(trigger).endswith("code") for trigger in triggers):
        sys.stderr.write(
            "\nNo profile is in use: finished jobs may run again after an update. "
            "Use: snakemake --profile config/profiles/local (or: mini, slurm)\n"
        )


def missing_gpus(asked: Iterable[tuple[str, int]]) -> str:
    """Return the reason against running jobs on this machine that ask for more GPUs than it has; empty without any.

    Args:
        asked: rule and GPUs of each planned job.
    """
    rule, wanted = max(asked, key=lambda job: job[::-1], default=("", 0))
    present = count_gpus() if wanted else 0
    if present >= wanted:
        return ""
    fewer = f"--config gpus={present} uses what there is" if present else "--config gpus=0 trains on the CPU, slowly"
    what = f"asks for {wanted} {'GPU' if wanted == 1 else 'GPUs'} (gpus, or the scale's), this machine shows {present}"
    return str(MachineError(rule, what, f"{fewer}; or run it where {wanted} are (--profile slurm)"))


def count_gpus() -> int:
    """Count the NVIDIA GPUs that jobs of this machine may use, by the driver and CUDA_VISIBLE_DEVICES."""
    import pynvml

    try:
        pynvml.nvmlInit()
        present = int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return present if visible is None else len([name for name in visible.split(",") if name.strip() not in ("", "-1")])


def repeat_errors() -> None:
    """Print the messages of the failed stages, after Snakemake's report."""
    path = STATE / "errors.txt"
    blocks = path.read_text(encoding="utf-8").split("\n\n") if path.exists() else []
    text = "\n".join(dict.fromkeys(block for block in blocks if block))  # a retried stage repeats its message
    if text:
        sys.stderr.write(f"\nErrors of this run:\n{text}\nTo resume after the last finished job, repeat the command.\n")
