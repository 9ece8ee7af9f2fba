"""Several nodes: how agents are started, where they meet, and what rules ask for."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from snakemake.resources import Resources
from snakemake_executor_plugin_slurm.submit_string import get_submit_command

from zerodr.config.base import validate
from zerodr.config.params import Workers
from zerodr.errors import ConfigError, MachineError
from zerodr.operations.loading import options_of_jobs
from zerodr.plan.resources import OF_ALL_JOBS, Machines
from zerodr.training.distributed.processes import across_nodes, rendezvous

JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_NTASKS": "1",
    "SLURM_CPU_BIND": "quiet",
    "SBATCH_X": "1",
    "PATH": "/bin",
    "HOME": "/h",
}


def test_an_agent_on_each_node():
    environment, command = across_nodes(JOB, ["python", "-m", "agent"], 2, 4, 8, "finetune")
    assert environment == {"SLURM_JOB_ID": "7", "PATH": "/bin", "HOME": "/h"}, "srun would take the rest for options"
    at = command.index("python")
    assert {
        "srun",
        "--overlap",
        "--nodes=2",
        "--ntasks=2",
        "--ntasks-per-node=1",
        "--cpus-per-task=4",
        "--gpus-per-node=8",
        "--kill-on-bad-exit=1",
    } <= set(command[:at])
    assert command[at : at + 4] == ["python", "-m", "agent", "2"] and 1024 < int(command[-1]) < 65536
    assert not [word for word in across_nodes(JOB, [], 2, 4, 0, "x")[1] if "gpu" in word]


def test_nodes_are_only_to_be_had_from_slurm():
    with pytest.raises(MachineError, match="asks for 2 nodes, and this is no Slurm job.*--config nodes=1"):
        across_nodes({"PATH": "/bin"}, [], 2, 1, 0, "finetune")


def test_agents_meet_where_srun_was_called():
    told = rendezvous("2", "4711", {"SLURM_NODEID": "1", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.5"})
    assert told == ["--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.5", "--master-port=4711"]


@pytest.mark.parametrize(
    "given, each, all_of_them",
    [({}, 1, 1), ({"gpus": 8, "nodes": 2}, 4, 8), ({"nodes": 3}, 1, 3), ({"processes": 2, "nodes": 2}, 2, 4)],
)
def test_processes_of_a_node_and_of_all(given, each, all_of_them):
    workers = Workers(**given)
    assert (workers.workers_of_a_node, workers.workers) == (each, all_of_them)


def test_gpus_are_shared_equally():
    with pytest.raises(ConfigError, match="3 gpus can't be shared equally by 2 nodes"):
        validate(Workers, {"gpus": 3, "nodes": 2}, "finetune")


def submitted(resources: dict) -> list[str]:
    """Words with which the plugin submits a job of these resources."""
    job = SimpleNamespace(resources=SimpleNamespace(get=resources.get, **resources), threads=8)
    names = ("run_uuid", "slurm_logfile", "comment_str", "account", "partition", "workdir")
    return get_submit_command(job, dict.fromkeys(names, "")).split()


def written(gpus: int, nodes: int, options: str | None = None) -> Machines:
    """The machines of a configuration that is written down."""
    bench: Any = SimpleNamespace(config=SimpleNamespace(gpus=gpus, nodes=nodes), scale=None)
    return Machines(bench, options=options)


def test_jobs_of_several_nodes_keep_what_the_profile_asks_of_all(root, monkeypatch):
    profile = yaml.safe_load((root / "config/profiles/slurm/config.yaml").read_text())
    assert profile["default-resources"]["slurm_extra"] == f"'{OF_ALL_JOBS}'"
    monkeypatch.setenv("NODE", "n8")
    for defaults, options in (
        (["slurm_extra='--exclude=n7 --signal=TERM@60'"], "--exclude=n7 --signal=TERM@60"),
        (["slurm_extra=--exclude=n7 --signal=TERM@60"], "--exclude=n7 --signal=TERM@60"),  # not quoted
        (["slurm_extra='--exclude=$NODE'"], "--exclude=n8"),
        (["slurm_partition=cpu"], ""),
        (["mem_mb=2000"], None),
    ):
        parsed = Resources.parse(defaults, allow_expressions=True, defaults="bare")
        settings = SimpleNamespace(default_resources=parsed)
        workflow = SimpleNamespace(resource_settings=settings, is_main_process=True)
        monkeypatch.setattr(sys, "argv", ["snakemake", "--profile", "slurm"])
        assert options_of_jobs(workflow) == options
        monkeypatch.setattr(sys, "argv", ["snakemake", "--profile", "slurm", "--executor", "local"])
        assert options_of_jobs(workflow) is None, "they share the cores of this machine"
    extra = written(8, 2, "--exclude=n7").placement("finetune")["slurm_extra"]
    assert extra == "--exclude=n7 --gpus-per-node=4"


def test_rules_ask_for_nodes_only_where_they_train_on_them():
    one, two, cpu = written(8, 1), written(8, 2), written(0, 2)
    assert one.placement("finetune") == two.placement("embed_corpus") == {"nodes": 1}
    assert two.placement("finetune") == {
        "nodes": 2,
        "mpi": "srun",
        "tasks": 2,
        "tasks_per_gpu": 0,
        "slurm_extra": f"{OF_ALL_JOBS} --gpus-per-node=4",
    }
    assert cpu.placement("pretrain") == {"nodes": 2, "mpi": "srun", "tasks": 2}
    assert (two.gpus("finetune"), two.gpus("embed_corpus"), two.gpus("evaluate_run")) == (8, 1, 0)
    assert (one.gpus("finetune"), one.gpus("score_pairs"), cpu.gpus("embed_corpus")) == (8, 1, 0)


def test_what_the_plugin_makes_of_it():
    one, two = written(8, 1), written(8, 2)
    words = submitted(one.placement("finetune") | {"gpu": one.gpus("finetune")})
    assert "--nodes=1" in words, "eight GPUs of several nodes would not see each other"
    assert not [word for word in words if word.startswith("--ntasks")]
    words = submitted({"nodes": 1} | two.placement("finetune") | {"gpu": two.gpus("finetune")})
    assert "--nodes=2" in words and "--gpus-per-node=4" in words and "--nodes=1" not in words
    assert {"--nodes=1", "--ntasks=1", "--cpus-per-task=8"} <= set(submitted(written(0, 1).placement("finetune")))
