"""Join several processes: gather vectors, add gradients, and start the processes of a stage."""

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

import zerodr
from zerodr import errors
from zerodr.errors import MachineError, ZerodrError
from zerodr.training.distributed.nodes import across_nodes
from zerodr.training.distributed.termination import Preempted, Termination
from zerodr.training.optimization.lamb import portions

log = logging.getLogger("zerodr")
OUTCOME = "outcome.json"
SPARE_OUTCOME = "ZERODR_SPARE_OUTCOME"  # variable: where it goes when the job's folder can't be written


class Group:
    """The processes of a training run. Without a process group: one, and every method does nothing."""

    def __init__(self) -> None:
        joined = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if joined else 0
        self.world = dist.get_world_size() if joined else 1

    def gather(self, x: Tensor) -> Tensor:
        """Gather rows of all processes by rank; gradients flow into this process's rows. (b, ...) -> (W b, ...)."""
        if self.world == 1:
            return x
        gathered = [torch.empty_like(x, requires_grad=False) for _ in range(self.world)]
        dist.all_gather(gathered, x.detach().contiguous())
        gathered[self.rank] = x
        return torch.cat(gathered)

    def add_gradients(self, gradients: list[Tensor]) -> None:
        """Replace each gradient by its sum over processes: objectives are of the union batch, so no mean is taken."""
        if self.world == 1:
            return
        for bucket in portions(gradients):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            dist.all_reduce(flat)
            for gradient, total in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
                gradient.copy_(total.view_as(gradient))

    def total(self, value: Tensor) -> Tensor:
        """Sum a detached tensor over processes."""
        if self.world > 1:
            dist.all_reduce(value)
        return value

    def flag(self, flag: bool, like: Tensor) -> Tensor:
        """Return 1 on all processes when `flag` is true on one, else 0, as a scalar of `like`'s type and device."""
        seen = like.new_zeros(()) if not flag else like.new_ones(())
        if self.world > 1:
            dist.all_reduce(seen, op=dist.ReduceOp.MAX)
        return seen

    def from_first(self, make: Callable[[], list[float]], count: int) -> list[float]:
        """Return on all processes the `count` numbers that `make` gives on the first one, where alone it is called."""
        if self.world == 1:
            return make()
        numbers = torch.zeros(count, dtype=torch.float64)
        if self.rank == 0:
            numbers.copy_(torch.tensor(make(), dtype=torch.float64))
        dist.broadcast(numbers, 0)
        return numbers.tolist()

    def any(self, flag: bool, device: str = "cpu") -> bool:
        """Return true on all processes when it is true on one."""
        if self.world == 1:
            return flag
        seen = torch.tensor([int(flag)], device=device)
        dist.all_reduce(seen, op=dist.ReduceOp.MAX)
        return bool(seen.item())


def check_gpus(wanted: int, name: str) -> None:
    """Check that there are as many GPUs as a stage asks for.

    Raises:
        MachineError: there are fewer.
    """
    visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if visible < wanted:
        raise MachineError(
            name,
            f"asks for {wanted} GPUs, this machine shows {visible}",
            "train on what there is with --config gpus=0, or run it where they are (CUDA_VISIBLE_DEVICES?)",
        )


def launch(job: Path, processes: int, threads: int, name: str, nodes: int = 1, gpus: int = 0) -> dict:
    """Run a worker job (training/distributed/worker.py) in `processes` processes under torch.distributed.run, and wait.

    Args:
        job: the job's JSON file; the workers leave `outcome.json` next to it.
        processes: processes to start on each node.
        threads: cores of a node, that all of its processes share.
        name: the stage, for messages.
        nodes: machines; more than one are those of the Slurm job that this runs in.
        gpus: GPUs of each.

    Returns:
        what the first worker left in `outcome.json`.

    Raises:
        Preempted: the run was asked to stop and has checkpointed.
        ZerodrError: what a worker reported.
        MachineError: a process died without a word.
    """
    outcome = job.with_name(OUTCOME)
    outcome.unlink(missing_ok=True)
    environment = dict(os.environ)
    environment["OMP_NUM_THREADS"] = str(max(1, threads // processes))
    library = str(Path(zerodr.__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [library, environment.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "zerodr.training.distributed.worker", "agent", str(job), str(processes)]
    if nodes == 1:
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    else:
        environment, command = across_nodes(environment, command, nodes, threads, gpus, name)
    log.info("%s: starting %d processes on %d nodes", name, processes * nodes, nodes)
    with tempfile.TemporaryDirectory() as folder:
        spare = Path(folder) / OUTCOME
        environment[SPARE_OUTCOME] = str(spare)
        with Termination() as asked, subprocess.Popen(command, env=environment) as agent:
            asked.forward(agent)
            status = agent.wait()
        return _judge(spare if spare.exists() else outcome, status, asked.requested, processes * nodes, name)


def _judge(outcome: Path, status: int, asked: bool, processes: int, name: str) -> dict:
    report = json.loads(outcome.read_text()) if outcome.exists() else {}
    if report.get("kind") == "error":
        kind = getattr(errors, report["error"], ZerodrError)
        raise kind(report["where"], report["what"], report["next_step"])
    if asked or report.get("kind") == "preempted":
        raise Preempted(name)
    if status != 0:
        raise MachineError(
            name,
            f"one of its {processes} processes died, the others were stopped (status {status})",
            "run the same command again: it continues from the last checkpoint",
        )
    return report
