"""What is asked of Slurm before the first job, with a cluster that is written down instead of running."""

from __future__ import annotations

from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest

from zerodr.config.load import load_bench
from zerodr.errors import MachineError
from zerodr.operations.slurm import cluster
from zerodr.operations.slurm.cluster import (
    ClusterNode,
    JobRequest,
    check_fit,
    minutes_of,
    parse_partitions,
    request_of,
    submitting,
)
from zerodr.plan import Plan
from zerodr.plan.resources import Ceiling, need
from zerodr.plan.rules import RULES

SINFO = """cpu*|1-00:00:00|64|250000|(null)
cpu*|1-00:00:00|128+|500000|(null)
gpu|04:00:00|32|500000|gpu:a100:4(S:0-1)
gpu|04:00:00|32|500000|gpu:h200:2,gpu:l4:6,shard:8
long|infinite|16|64000|gpu:1
"""
PARTITIONS = parse_partitions(SINFO)


def test_lines_about_clusters_are_left_out_and_nodes_that_start_no_job_do_not_count():
    several = parse_partitions("CLUSTER: cm2\n" + SINFO + "\n")
    assert several == PARTITIONS
    text = "gpu*|infinite|32|9000|gpu:a100:no_consume:4|mixed\ngpu*|infinite|64|99000|gpu:8|drained*\n"
    partition = parse_partitions(text + "old|infinite|8|9000|(null)|down*\n")["gpu"]
    assert partition.nodes == (ClusterNode(32, 9000, 4),) and partition.away == 1
    with pytest.raises(MachineError, match=r"old, which is down, or its nodes are all down or drained \(1\): wait, or"):
        check_fit([JobRequest("a", partition="old")], parse_partitions("old|infinite|8|9000|(null)|down*\n"))
    stopped = parse_partitions("gpu*|infinite|32|9000|(null)|idle|down\nold|infinite|8|9000|(null)|idle|inactive\n")
    assert [(part.nodes, part.away) for part in stopped.values()] == [((), 1), ((), 1)], "jobs would wait in vain"
    assert parse_partitions("gpu*|infinite|32|9000|(null)|mixed|up\n")["gpu"].nodes
    assert [
        sum(map(int, cluster.GPUS.findall(gres))) for gres in ("gpu:1g.10gb:2", "gpu:12", "shard:3,gpu:a:b:3(S:0)")
    ] == [2, 12, 3]


def test_partitions_are_read():
    assert PARTITIONS["cpu"].default and not PARTITIONS["gpu"].default
    assert PARTITIONS["cpu"].nodes == (ClusterNode(64, 250000, 0), ClusterNode(128, 500000, 0))
    assert [node.gpus for node in PARTITIONS["gpu"].nodes] == [4, 8]
    assert [PARTITIONS[name].minutes for name in ("cpu", "gpu", "long")] == [1440, 240, None]


def test_one_node_has_all_that_a_job_asks_for(monkeypatch):
    uneven = parse_partitions("cpu*|infinite|64|100000|(null)\ncpu*|infinite|8|900000|(null)\n")
    check_fit([JobRequest("a", cores=64, memory_mib=100000), JobRequest("b", cores=8, memory_mib=900000)], uneven)
    told = "requests 500000 MiB of memory, the largest node of partition cpu with 16 cores has 100000"
    with pytest.raises(MachineError, match=told):
        check_fit([JobRequest("finetune", cores=16, memory_mib=500000)], uneven)
    with pytest.raises(MachineError, match="requests 2 nodes of that size, partition cpu has 1: lower nodes"):
        check_fit([JobRequest("finetune", nodes=2, cores=16, memory_mib=9000)], uneven)
    monkeypatch.setattr(cluster, "read_partitions", lambda: uneven)
    assert cluster.ceilings([JobRequest("finetune", cores=16)])["finetune"].memory_mib == 100000


@pytest.mark.parametrize(
    "text, minutes",
    [("30:00", 30), ("2:30:00", 150), ("7-12:00:00", 10800), ("45", 45), ("infinite", None), ("n/a", None)],
)
def test_walltimes(text, minutes):
    assert minutes_of(text) == minutes


@pytest.mark.parametrize(
    "ask, told",
    [
        (
            JobRequest("finetune", gpus=16, partition="gpu"),
            "requests 16 GPUs on a node, the largest node of partition gpu has 8",
        ),
        (JobRequest("finetune", gpus=1), "requests 1 GPUs on a node, the largest node of partition cpu has 0"),
        (JobRequest("finetune", gpus=16, nodes=3, partition="gpu"), "requests 3 nodes, partition gpu has 2"),
        (
            JobRequest("finetune", gpus=16, nodes=2, partition="gpu"),
            "requests 2 nodes of that size, partition gpu has 1",
        ),
        (JobRequest("embed_corpus", cores=256), "requests 256 cores, the largest node of partition cpu has 128"),
        (
            JobRequest("index_bm25", memory_mib=600000),
            "requests 600000 MiB of memory, the largest node of partition cpu has",
        ),
        (
            JobRequest("finetune", gpus=8, minutes=1440, partition="gpu"),
            "requests 1440 minutes, partition gpu allows 240",
        ),
        (JobRequest("finetune", partition="gpus"), "did you mean gpu or cpu?"),
    ],
)
def test_what_can_not_run_is_refused(ask, told):
    with pytest.raises(MachineError) as error:
        check_fit([ask], PARTITIONS)
    assert told in str(error.value)


@pytest.mark.parametrize(
    "ask",
    [
        JobRequest("a"),
        JobRequest("a", gpus=8, nodes=2, cores=32, partition="gpu"),
        JobRequest("a", minutes=10**6, partition="long"),
        JobRequest("a", memory_mib=500000),
    ],
)
def test_what_fits_is_let_through(ask):
    check_fit([ask], PARTITIONS)


def test_all_rules_that_do_not_fit_are_named_at_once():
    asks = [
        JobRequest("embed_corpus", gpus=1, cores=8, memory_mib=9000),
        JobRequest("embed_corpus", gpus=1),
        JobRequest("finetune", gpus=1),
        JobRequest("train_main", minutes=2000),
        JobRequest("pretrain", minutes=2000),
        JobRequest("merge_run"),
        JobRequest("index_bm25", memory_mib=600000),
        JobRequest("index_bm25", memory_mib=550000),
    ]
    with pytest.raises(MachineError) as error:
        check_fit(asks, PARTITIONS)
    told = str(error.value)
    assert "embed_corpus, finetune: each requests 1 GPUs on a node, the largest node of partition cpu has 0" in told
    assert "set slurm_partition of these rules to gpu or long in config/profiles/slurm/config.yaml" in told
    assert "pretrain, train_main: each requests 2000 minutes" in told and "merge_run" not in told
    assert "--set-resources pretrain:runtime=1440 train_main:runtime=1440;" in told
    assert (
        "index_bm25: requests 600000 MiB" in told
        and told.count("index_bm25") == 2
        and "--set-resources index_bm25:mem_mb=500000" in told
    )


def test_several_partitions_are_enough_when_one_of_them_fits():
    check_fit(
        [
            JobRequest("finetune", gpus=8, partition="cpu,gpu"),
            JobRequest("merge_run", minutes=9000, partition="cpu,long"),
        ],
        PARTITIONS,
    )
    with pytest.raises(MachineError, match="requests 8 GPUs on a node, the largest node of partition cpu has 0"):
        check_fit([JobRequest("finetune", gpus=8, partition="cpu,long")], PARTITIONS)


def test_a_cluster_without_a_default_partition_wants_one():
    with pytest.raises(MachineError, match="set slurm_partition"):
        check_fit([JobRequest("a")], parse_partitions("x|infinite|1|1|(null)"))


def test_resources_of_a_job_become_an_ask():
    resources = {"mem_mb": 2000, "runtime": 30, "gpu": 4, "nodes": 2, "slurm_partition": "gpu", "tmpdir": "<TBD>"}
    shape = ("--gpus=4", "--nodes=2")
    assert request_of("finetune", resources, 8) == JobRequest("finetune", 4, 2, 8, 2000, 30, "gpu", "", shape=shape)
    assert request_of("evaluate_run", {"mem_mb": "<TBD>"}, 1) == JobRequest("evaluate_run")


def test_cores_and_memory_by_task_gpu_or_core_are_what_the_plugin_submits_with():
    for resources, cores, memory in (
        ({"mem_mb": 9000, "cpus_per_task": 4}, 4, 9000),
        ({"mem_mb": 90000, "mem_mb_per_cpu": 2000}, 8, 16000),
        ({"cpus_per_gpu": 6, "gpu": 4, "nodes": 2, "mem_mb_per_cpu": 1000}, 12, 12000),
        ({"cpus_per_gpu": 6, "mem_mb": 1}, 8, 1),
        ({"cpus_per_task": -1}, 1, 0),
    ):
        asked = request_of("finetune", resources, 8)
        assert (asked.cores, asked.memory_mib) == (cores, memory), resources


def test_options_of_a_job_are_those_that_the_plugin_submits_with():
    settings = SimpleNamespace(qos="fast", reservation="monday", partition_config=None)
    resources = {
        "slurm_account": 123,
        "qos": "slow",
        "constraint": "a100",
        "clusters": "big",
        "gpu_model": "h200",
        "gpu": 2,
        "slurm_extra": "--open-mode=append --exclude='n1,n2'",
    }
    ask = request_of("finetune", resources, 8, submitting(settings))
    assert ask.account == "123" and not ask.chosen_later
    assert ask.queue == ("--clusters=big", "--constraint=a100", "--qos=fast", "--reservation=monday")
    assert ask.shape == ("--gpus=h200:2", "--open-mode=append", "--exclude=n1,n2")
    by_gres = request_of("finetune", {"gres": "gpu:a100:4", "qos": "slow"}, 8)
    assert (by_gres.gpus, by_gres.queue, by_gres.shape) == (4, ("--qos=slow",), ("--gres=gpu:a100:4",))


def test_partitions_that_are_chosen_elsewhere_are_not_checked(monkeypatch):
    settings = SimpleNamespace(qos=None, reservation=None, partition_config="partitions.yaml")
    ask = request_of("finetune", {"gpu": 8}, 8, submitting(settings))
    assert ask.chosen_later and ask.elsewhere
    check_fit([ask, request_of("finetune", {"clusters": "big", "slurm_partition": "theirs"}, 8)], PARTITIONS)
    named = request_of("finetune", {"gpu": 16, "slurm_partition": "gpu"}, 8, submitting(settings))
    with pytest.raises(MachineError, match="requests 16 GPUs"):
        check_fit([named], PARTITIONS)
    settings.partition_config = None
    assert not submitting(settings).partition_file
    monkeypatch.setenv("SNAKEMAKE_SLURM_PARTITIONS", "partitions.yaml")
    assert submitting(settings).partition_file


def test_later_attempts_are_held_to_what_nodes_and_partitions_have(monkeypatch):
    monkeypatch.setattr(cluster, "read_partitions", lambda: PARTITIONS)
    asks = [
        JobRequest("evaluate_run"),
        JobRequest("finetune", gpus=8, partition="gpu"),
        JobRequest("index_bm25", partition="cpu,long"),
        JobRequest("embed_corpus", gpus=1, partition="long,gpu"),
    ]
    assert cluster.ceilings(asks) == {
        "evaluate_run": Ceiling(500000, 1440),
        "finetune": Ceiling(500000, 240),
        "index_bm25": Ceiling(500000, None),
        "embed_corpus": Ceiling(500000, None),
    }
    assert cluster.ceilings([]) == {}


def test_a_partition_of_gpus_takes_the_jobs_that_ask_for_one(root):
    for config in ({"gpus": 1, "gpu_partition": "fast"}, {"gpus": 0, "gpu_partition": "fast"}, {"gpus": 1}):
        machines = Plan(load_bench(root, config)).machines
        placed = {rule for rule in RULES if machines.resources(rule).get("slurm_partition") == "fast"}
        assert placed == {rule for rule in RULES if need(rule).gpu and len(config) == 2 and config["gpus"]}


def test_a_plan_is_checked_for_its_own_rules(monkeypatch):
    monkeypatch.setattr(cluster.shutil, "which", lambda name: f"/usr/bin/{name}")
    told = "cpu*|infinite|8|64000|(null)"
    monkeypatch.setattr(cluster, "ask_slurm", lambda words: CompletedProcess(words, 0, told, ""))
    machines = SimpleNamespace(gpus=lambda rule: need(rule).gpu * 2, nodes=lambda rule: 1)
    plan = SimpleNamespace(machines=machines)
    cluster.check_planned(plan, ["index_bm25", "search_bm25"])
    with pytest.raises(MachineError, match=r"finetune: requests 2 GPUs on a node, .* has 0: .*\(--config gpus=0\)$"):
        cluster.check_planned(plan, ["index_bm25", "finetune"])


def test_a_plan_on_several_nodes_is_told_what_all_of_them_have(monkeypatch):
    monkeypatch.setattr(cluster.shutil, "which", lambda name: f"/usr/bin/{name}")
    told = "gpu*|infinite|8|64000|gpu:4\ngpu*|infinite|8|64000|gpu:2"
    monkeypatch.setattr(cluster, "ask_slurm", lambda words: CompletedProcess(words, 0, told, ""))
    plan = SimpleNamespace(machines=SimpleNamespace(gpus=lambda rule: gpus, nodes=lambda rule: 2))
    gpus = 16
    with pytest.raises(MachineError, match=r"requests 8 GPUs on a node, .* has 4: .*\(--config gpus=8\)"):
        cluster.check_planned(plan, ["finetune"])
    gpus = 8
    cluster.check_planned(plan, ["finetune"])
