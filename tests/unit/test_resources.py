"""What attempts ask for: more memory and time where that helps, within what the cluster has."""

from __future__ import annotations

import os
from dataclasses import FrozenInstanceError
from types import SimpleNamespace

import pytest

from zerodr.config.load import load_bench
from zerodr.plan import Plan
from zerodr.plan.resources import Ceiling, need

NOTHING = SimpleNamespace()


@pytest.fixture
def plan(root):
    return Plan(load_bench(root, {"scale": "lab"}))


def attempts(amount) -> list[int]:
    return [amount(NOTHING, attempt=number) for number in (1, 2, 3, 4)]


def test_memory_grows_and_stops_at_three_times(plan):
    assert attempts(plan.machines.memory_mib("finetune")) == [12000, 24000, 36000, 36000]


def test_processes_of_a_training_bring_memory_and_cores(root):
    machines = [Plan(load_bench(root, {"scale": "lab", "gpus": 8, "nodes": n})).machines for n in (1, 2)]
    assert [m.processes("finetune") for m in machines] == [8, 4]
    assert [m.memory_mib("finetune")(NOTHING) for m in machines] == [26000, 18000]
    assert [m.threads("pretrain") for m in machines] == [32, 16]
    assert machines[0].processes("embed_corpus") == 1 and machines[0].threads("embed_corpus") == 8


def test_search_takes_one_gpu_where_there_are_some(root):
    for gpus, expected in ((0, 0), (8, 1)):
        machines = Plan(load_bench(root, {"scale": "lab", "gpus": gpus})).machines
        assert machines.gpus("search_shard") == machines.gpus("search_candidates") == expected


@pytest.mark.parametrize("rule", ["finetune", "pretrain", "train_main", "embed_queries", "score_pairs"])
def test_what_goes_on_where_it_stopped_asks_for_the_same_time_again(plan, rule):
    first = need(rule).base_minutes
    assert attempts(plan.machines.minutes(rule)) == [first] * 4


def test_what_starts_anew_gets_more_time(plan):
    assert attempts(plan.machines.minutes("mine_negatives")) == [60, 120, 180, 180]


def test_no_attempt_asks_for_more_than_the_cluster_has(root):
    ceilings: dict[str, Ceiling] = {}
    plan = Plan(load_bench(root, {"scale": "lab"}), ceilings=ceilings)
    memory, minutes = plan.machines.memory_mib("mine_negatives"), plan.machines.minutes("mine_negatives")
    ceilings["mine_negatives"] = Ceiling(20000, 100)
    assert attempts(memory) == [8000, 16000, 20000, 20000] and attempts(minutes) == [60, 100, 100, 100]
    ceilings["mine_negatives"] = Ceiling(5000, None)
    assert attempts(memory) == [8000] * 4, "a first attempt that does not fit is refused, not made smaller"
    assert attempts(minutes) == [60, 120, 180, 180]
    assert attempts(plan.machines.memory_mib("finetune"))[2] == 36000


def test_nobody_changes_what_a_plan_asks_for(plan):
    with pytest.raises(FrozenInstanceError):
        plan.machines.estimate = None


def test_a_memory_that_is_searched_counts_and_not_the_queries_collection(plan):
    wildcards = SimpleNamespace(collection="scifact", memory="memory-msmarco", shard="00000-of-00177")
    assert plan.machines.memory_mib("search_memory")(wildcards) == 4000 + int(6500 * plan.machines.shard_size / 1e6)
    assert plan.machines.memory_mib("export_memory")(SimpleNamespace(memory="memory-msmarco")) == int(
        4000 + 7000 * 8.841823
    )
    small = SimpleNamespace(collection="memory-msmarco", memory="scifact", shard="00000-of-00001")
    assert plan.machines.memory_mib("search_memory")(small) == int(4000 + 6500 * 5183 / 1e6)


@pytest.mark.parametrize(("rule", "mib"), [("embed_fused_queries", 20000), ("measure_attention", 40000)])
def test_augmented_queries_count_and_not_their_collections_documents(plan, rule, mib):
    few, many = (SimpleNamespace(collection="msmarco", split=split) for split in ("dev", "train"))
    assert plan.machines.minutes(rule)(few) == 240 + 6 and plan.machines.minutes(rule)(many) == 240 + 502
    assert plan.machines.memory_mib(rule)(many) == 12000 + int(mib * 0.502939)
    assert plan.machines.minutes(rule)(SimpleNamespace(collection="msmarco", split="none")) == 240
    assert plan.machines.minutes(rule)(many, attempt=2) == 742 * (1 if need(rule).resumes else 2)


def test_jobs_of_mini_share_the_cores(root, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    mini, lab = (Plan(load_bench(root, {"scale": scale})) for scale in ("mini", "lab"))
    assert (mini.threads("embed_corpus"), lab.threads("embed_corpus"), mini.threads("evaluate_run")) == (2, 8, 1)


def test_jobs_of_mini_that_go_to_slurm_share_no_cores_of_the_login_node(root, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    mini = Plan(load_bench(root, {"scale": "mini"}), options="")
    assert (mini.threads("finetune"), mini.threads("embed_corpus"), mini.threads("evaluate_run")) == (8, 8, 1)
