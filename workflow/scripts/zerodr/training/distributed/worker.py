"""The processes of a distributed stage.

`python -m zerodr.training.distributed.worker agent JOB PROCESSES [NODES PORT]` starts
`python -m zerodr.training.distributed.worker rank JOB` in each process under torch.distributed.run. Rank 0, or a rank
with a reported error, writes its outcome to `outcome.json` next to the job.
"""

import importlib
import json
import logging
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from zerodr.artifacts.adapter import configure_logging
from zerodr.artifacts.machine import MachineErrors, die_with_parent
from zerodr.artifacts.processor import job_kind
from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage, StageSpec
from zerodr.config.custom import raised_by
from zerodr.errors import ConfigError, ZerodrError
from zerodr.training.distributed.processes import OUTCOME, RETRY, SPARE_OUTCOME, Preempted, rendezvous

log = logging.getLogger("zerodr")


def agent(job: str, processes: str, nodes: str = "1", port: str = "") -> None:
    """Start and watch this node's ranks; when one dies, the others are stopped."""
    from torch.distributed.run import main

    where = rendezvous(nodes, port) if port else ["--standalone"]
    main([*where, f"--nproc-per-node={processes}", "-m", "zerodr.training.distributed.worker", "rank", job])


class OwnCodeErrors:
    """Report an error in the user's own code, a loss say, as a mistake that a second try does not mend."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ZerodrError) and (what := raised_by(error)):
            log.error("%s: %s", self.name, what, exc_info=error)
            raise ConfigError(self.name, what, "correct it, and run the same command again") from error


def rank(path: str) -> int:
    """Train as one rank; 0 when done, 1 after a reported error, 75 after SIGTERM."""
    file = Path(path)
    facts = json.loads(file.read_text(encoding="utf-8"))
    stage = Stage(StageSpec(**facts["spec"]), Path(facts["state"]))
    module, _, function = facts["work"].partition(":")
    work = getattr(importlib.import_module(module), function)
    number, name = int(os.environ["RANK"]), stage.spec.name()
    configure_logging(name)
    log.setLevel(logging.INFO if number == 0 else logging.WARNING)
    gpu = bool(stage.params.get("gpus"))
    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if gpu else "gloo")
    try:
        with MachineErrors(name, [path]), OwnCodeErrors(name), job_kind(stage.state):
            outcome = {"kind": "done", **work(stage)}
        status = 0
    except Preempted:
        outcome, status = {"kind": "preempted"}, RETRY
    except ZerodrError as error:
        outcome = {
            "kind": "error",
            "error": type(error).__name__,
            "where": error.where,
            "what": error.what,
            "next_step": error.next_step,
        }
        status = 1
    if number == 0 or outcome["kind"] == "error":
        _leave(file.with_name(OUTCOME), outcome)
    if status == 0:
        dist.barrier()
    dist.destroy_process_group()
    return status


def _leave(path: Path, outcome: dict) -> None:
    """Write what the launcher reads; on its machine's disk where the results folder takes nothing any more."""
    try:
        write_json(path, outcome)
    except OSError as error:
        log.warning("%s can't be written (%s)", path, error)
        write_json(Path(os.environ[SPARE_OUTCOME]), outcome)


def main(arguments: list[str]) -> int:
    """Exit status of the process."""
    die_with_parent()
    if arguments[:1] == ["agent"]:
        agent(*arguments[1:])
        return 0
    return rank(arguments[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
