"""Join several processes: gather vectors, add gradients, start the processes of a stage, stop them.

On several nodes of one Slurm job `srun` starts torch.distributed.run on each; the stage itself runs on the job's first
node, which is also where the processes meet. SIGTERM (preemption, time limit) lets the step finish, writes a
checkpoint, and asks the scheduler for another try.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import zerodr
from zerodr import errors
from zerodr.errors import MachineError, ZerodrError
from zerodr.training.optimizers import portions

log = logging.getLogger("zerodr")
RETRY = 75  # EX_TEMPFAIL of <sysexits.h>: try again later
JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_CONF")
OUTCOME = "outcome.json"
SPARE_OUTCOME = "ZERODR_SPARE_OUTCOME"  # variable: where it goes when the job's folder can't be written


class Preempted(SystemExit):
    """The stage was asked to stop and wrote a checkpoint. Exit status 75."""

    def __init__(self, name: str) -> None:
        super().__init__(RETRY)
        log.warning("%s: asked to stop; a checkpoint is kept, the same command continues from it", name)


class Termination:
    """While entered, SIGTERM only sets `requested`. Outside the main thread, where Python takes no handler, never."""

    def __init__(self) -> None:
        self.requested = False
        self._children: list[subprocess.Popen] = []
        self._before: Any = None

    def __enter__(self) -> Termination:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def forward(self, child: subprocess.Popen) -> None:
        """Send the signal on to `child`, too."""
        self._children.append(child)
        if self.requested:
            child.terminate()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:
            self.requested = True
            for child in self._children:
                child.terminate()


def across_nodes(
    environment: dict[str, str], agent: list[str], nodes: int, threads: int, gpus: int, name: str
) -> tuple[dict[str, str], list[str]]:
    """Return environment and command that start `agent` once on each node of the Slurm job.

    Args:
        environment: of this process; variables of Slurm's batch step are left out: `srun` would read them as options.
        agent: command; the number of nodes and the port where they meet are appended.
        nodes: machines of the job.
        threads: cores of each.
        gpus: GPUs of each.
        name: the stage, for messages.

    Raises:
        MachineError: this is no Slurm job.
    """
    if "SLURM_JOB_ID" not in environment:
        raise MachineError(
            name,
            f"asks for {nodes} nodes, and this is no Slurm job",
            "run it with --profile slurm, or train on one: --config nodes=1",
        )
    variables = {key: value for key, value in environment.items() if not key.startswith(("SLURM_", "SRUN_", "SBATCH_"))}
    variables |= {key: environment[key] for key in JOB_VARIABLES if key in environment}
    words = [
        "srun",
        "--overlap",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        # All memory of the job on each node: a step has no default that would fit.
        "--mem=0",
        f"--cpus-per-task={threads}",
        "--kill-on-bad-exit=1",
    ]
    words += [f"--gpus-per-node={gpus}"] if gpus else []
    return variables, [*words, *agent, str(nodes), str(_free_port())]


def _free_port() -> int:
    """Choose a port that nobody on this node listens on."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def rendezvous(nodes: str, port: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return options of torch.distributed.run for one of the agents that `srun` started."""
    return [
        f"--nnodes={nodes}",
        f"--node-rank={environment['SLURM_NODEID']}",
        f"--master-addr={environment['SLURM_LAUNCH_NODE_IPADDR']}",
        f"--master-port={port}",
    ]


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
        # all_gather gives copies without gradient; this process's rows need theirs.
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
        # float64 passes Python's floats without rounding, so all processes hold equal bits.
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
        # On one node gloo resolves the host name, which fails on machines without an entry for it.
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
    report = json.loads(outcome.read_text(encoding="utf-8")) if outcome.exists() else {}
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
