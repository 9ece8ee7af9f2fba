"""Allow one run at a time in a checkout, without stale locks; print errors as sentences, repeated at the end."""

import logging
import re
import sys
from pathlib import Path
from typing import IO

from zerodr.artifacts.machine import MachineErrors, take_lock
from zerodr.errors import MachineError, ZerodrError

STATE = Path("results/.state")
_HELD: list[IO[str]] = []
_KINDS = "|".join(kind.__name__ for kind in ZerodrError.__subclasses__())
OURS = re.compile(rf"\b({_KINDS}): ")
_DOUBLED = re.compile(rf"\b({_KINDS}): \1: ")
_TRACEBACK = re.compile(r"\nTraceback:(?:\n  File [^\n]*)+")


def ask_for_single_run() -> None:
    """Take the checkout's lock, which the kernel releases when the process ends, in any way.

    Exits with one message when another run holds it or the results folder can't be written.
    """
    try:
        with MachineErrors("results", [str(STATE)]):
            STATE.mkdir(parents=True, exist_ok=True)
            (STATE / "errors.txt").write_text("")
            stream = open(STATE / "run.lock", "a")
            free = take_lock(stream, wait=False)
    except MachineError as error:
        refuse_run(str(error))
    if not free:
        refuse_run("MachineError: another snakemake is running in this folder: wait for it, or stop it, and run again")
    _HELD.append(stream)


def refuse_run(message: str) -> None:
    """End the run with a message before its first job; with an empty message, continue."""
    if message:
        sys.stderr.write(f"\n{message}\n")
        sys.stderr.flush()
        raise SystemExit(1)


def plainly(text: str) -> str:
    """Shorten Snakemake's report of a zerodr error in a rule's function: its name once, no traceback."""
    return _TRACEBACK.sub("", _DOUBLED.sub(r"\1: ", text)) if _DOUBLED.search(text) else text


def _format_record(record: logging.LogRecord) -> bool:
    record.msg = plainly(record.msg) if isinstance(record.msg, str) else record.msg
    return True


def spare_tracebacks() -> None:
    """Let Snakemake report errors of rules' functions, such as an unknown item, as `plainly` does."""
    logging.getLogger("snakemake.logging").addFilter(_format_record)


def repeat_errors() -> None:
    """Print the messages of the failed stages, after Snakemake's report."""
    path = STATE / "errors.txt"
    blocks = path.read_text().split("\n\n") if path.exists() else []
    text = "\n".join(dict.fromkeys(block for block in blocks if block))  # a retried stage repeats its message
    if text:
        sys.stderr.write(f"\nErrors of this run:\n{text}\nTo resume after the last finished job, repeat the command.\n")
