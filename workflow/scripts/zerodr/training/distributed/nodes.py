"""Training on several nodes of one Slurm job: torch.distributed.run is started on each by `srun`.

The stage itself runs on the job's first node, which is also where the processes meet.
"""

import os
import socket
from collections.abc import Mapping

from zerodr.errors import MachineError

JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_CONF")


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
