"""Times of planned jobs: what the past says, how it is scaled, and what is added up."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_bench import make_bench

from zerodr.config.load import load_bench
from zerodr.config.speeds import read_speeds
from zerodr.operations.estimate import costs, work
from zerodr.operations.estimate.costs import START_S, Estimates, Past
from zerodr.operations.estimate.jobs import Job
from zerodr.operations.estimate.sizes import BERT_BASE
from zerodr.plan import Plan
from zerodr.plan.memory import Network

SPEEDS = read_speeds(Path(__file__).resolve().parents[2])
WHERE = {"model": "dense", "scope": "shared", "collection": "other", "protocol": "standard"}


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_bench(tmp_path)


def put(folder: Path, name: str, rule: str, seconds: float, wildcards: dict, params: dict, device: str = "cpu") -> None:
    record = {
        "rule": rule,
        "wildcards": wildcards,
        "spec": {"params": params},
        "spec_digest": name,
        "seconds": seconds,
        "notes": {"device": device},
    }
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.lineage.json").write_text(json.dumps(record))


def test_larger_jobs_take_longer_in_proportion_and_smaller_ones_no_less():
    past = [Past("dense", 1.0, 100.0)]
    assert costs.estimate(past, "dense", 3.0) == pytest.approx(300.0)
    assert costs.estimate(past, "dense", 0.1) == 100.0
    assert costs.estimate([Past("dense", 0.0, 5.0)], "dense", 0.0) == 5.0
    assert costs.estimate([], "dense", 3.0) is None


@pytest.mark.parametrize("text", [b"", b'{"spec_digest": "a', b'{"rule": "caf\xc3'])
def test_a_damaged_record_counts_in_no_estimate_and_is_named(plan, tmp_path, caplog, text):
    put(tmp_path / "past", "a", "merge_run", 9.0, WHERE, {})
    (tmp_path / "past/damaged.lineage.json").write_bytes(text)
    assert [len(past) for past in costs.history(plan, tmp_path / "past").values()] == [1]
    assert "damaged.lineage.json can't be read" in caplog.text


def test_finished_jobs_of_other_rules_say_how_fast_the_machine_is(plan, tmp_path):
    def reckoned(seconds: list[float]) -> float:
        for number, taken in enumerate(seconds):
            put(tmp_path / str(len(seconds)), f"{number}", "evaluate_run", taken, WHERE, {})
        return Estimates(plan, tmp_path / str(len(seconds))).seconds(Job("merge_run", WHERE))[0]

    assert reckoned([2.0] * 4) == pytest.approx(1.0), "too few"
    assert reckoned([2.0, 2.0, 2.0, 2.0, 900.0]) == pytest.approx(2.0), "config/speeds.yaml says 1 and 1"
    assert reckoned([0.5] * 6) == pytest.approx(0.5)


def test_the_same_model_comes_before_the_same_size():
    past = [Past("other", 3.0, 900.0), Past("dense", 1.0, 100.0), Past("dense", 2.0, 150.0)]
    assert costs.estimate(past, "dense", 3.0) == pytest.approx(225.0)


def test_a_smaller_job_takes_its_share_where_texts_are_read_and_as_much_elsewhere():
    past = [Past("dense", 2.0, 150.0)]
    assert costs.estimate(past, "dense", 0.2) == pytest.approx(150.0)
    assert costs.estimate(past, "dense", 0.2, least=3.0) == pytest.approx(15.0)
    assert costs.estimate(past, "dense", 0.002, least=3.0) == pytest.approx(3.0)
    assert costs.estimate(past, "dense", 4.0, least=3.0) == pytest.approx(300.0)


def test_times_add_up_along_the_longest_chain(plan, tmp_path):
    shard = WHERE | {"shard": "00000-of-00001"}
    put(tmp_path / "past", "a", "embed_corpus", 60.0, shard, {"shards": plan.shard_count("other")})
    put(tmp_path / "past", "b", "embed_corpus", 1.0, shard, {"shards": 1}, device="cuda:0")
    jobs = [Job("embed_corpus", shard, ("c",), ("e",)), Job("merge_run", WHERE, ("e",), ("r",)), Job("all", {}, ("r",))]
    jobs += [Job("read_units", {"annotator": "a"})]
    told = costs.costs(jobs, Estimates(plan, tmp_path / "past"))
    assert told.seconds[0] == pytest.approx(60 + START_S), "only the record of the planned device counts"
    assert told.seconds[1] == pytest.approx(1 + START_S), "config/speeds.yaml"
    assert (
        told.path == [0, 1, 2]
        and (len(told.reckoned), told.light) == (1, 1)
        and told.gpu_hours == 0
        and told.spans == {}
    )
    assert told.unknown == [3] and told.limits[3] == 60 * 720, "a limit is never part of the estimate"
    assert told.limits[:3] == [60 * 30, 60 * 30, 0.0]
    assert told.seconds[2:] == [START_S, START_S]
    here = costs.costs(jobs, Estimates(plan, tmp_path / "past"), costs.START_HERE_S)
    assert here.seconds == pytest.approx([seconds - 9 for seconds in told.seconds])
    text = costs.render(jobs, told)
    assert "about 2 min one after another, 0.00 GPU-hours\n" in text and "embed_corpus dense" in text
    assert "  1 job: estimated from finished jobs of this checkout\n" in text
    assert "  1 job: estimated from work and config/speeds.yaml\n" in text
    assert "  1 job: light, 10 s for the start\n" in text
    assert "  1 job: time unknown, at most 12.0 h in all:\n" in text
    assert "about 2 min, 3 jobs" in text and "00000-of-00001 (limit 30 min)" in text and "at least" not in text


def test_training_and_encoding_are_reckoned_from_tokens_and_parameters(plan, monkeypatch):
    """MiniLM's shape: 12 x 6 x 384^2 parameters, 2 operations a parameter and token, 180 tokens a document."""
    monkeypatch.setattr(work, "network_of", lambda *_: Network(384, 6, 12, 30522))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(work, "vendor_and_flags", lambda: ("", frozenset({"avx2", "avx512f", "avx512_bf16"})))
    speeds = read_speeds(Path("."))
    job = Job("embed_corpus", WHERE | {"shard": "00000-of-00300"})
    documents, forward = -(-3_000_000 // plan.shard_count("other")), 2 * 12 * 6 * 384**2
    assert work.reckon(job, plan, speeds, 0.01) == pytest.approx(documents * 180 * forward / 2 / 160e9)
    training = {"steps": 10, "batch_queries": 8, "precision": "bf16"}
    stage = {"training": training, "objective": {"name": "coco", "max_tokens": 128}}
    monkeypatch.setattr(
        type(plan), "settings", lambda self, rule: lambda _: json.dumps({"settings": {"settings": stage}})
    )
    monkeypatch.setattr(work, "views", lambda plan, link: 2)
    job = Job("pretrain", {"model": "dense", "scope": "shared", "stage": "coco"})
    assert work.reckon(job, plan, speeds, 0.0) == pytest.approx(10 * 8 * 2 * 128 * 3 * forward / 2 / 110e9)
    assert work.reckon(Job("read_units", {"annotator": "a"}), plan, speeds, 0.0) is None


def test_short_lines_of_a_table_of_yours_take_less_time_than_documents(root, tmp_path, monkeypatch):
    """5,000 lines of 40 bytes are 10 tokens each, not 180; what Cranfield took says so, too."""
    monkeypatch.chdir(root)
    folder = tmp_path / "titles"
    folder.mkdir()
    (folder / "corpus.tsv").write_text("".join(f"{number:05}\t{'words ' * 5}end\n" for number in range(5_000)))
    plan = Plan(load_bench(root, {"scale": "lab", "gpus": 0, "byo": str(folder)}))
    where = {"model": "all-minilm-l6-v2", "scope": "shared", "protocol": "standard", "shard": "00000-of-00001"}
    yours, cranfield = (Job("embed_corpus", where | {"collection": name}) for name in ("titles", "cranfield"))
    seconds = {job.wildcards["collection"]: work.reckon(job, plan, SPEEDS, 0.0) for job in (yours, cranfield)}
    assert seconds["titles"] / seconds["cranfield"] == pytest.approx(5_000 * 10 / (1400 * 180))
    put(tmp_path / "past", "a", "embed_corpus", 126.0, cranfield.wildcards, {"shards": 1})
    known, finished = Estimates(plan, tmp_path / "past").seconds(yours)
    assert finished and known == pytest.approx(126.0 * 5_000 * 10 / (1400 * 180), rel=0.01)
    monkeypatch.setattr(work, "LINES", ())
    known, _ = Estimates(plan, tmp_path / "past").seconds(yours)
    assert known == pytest.approx(126.0 * 5_000 / 1400)


def test_limits_are_a_multiple_of_the_estimate_and_have_a_floor(plan, tmp_path):
    """3 times what finished jobs took, 4 times another estimate (config/speeds.yaml)."""
    shard = WHERE | {"shard": "00000-of-00001"}
    put(tmp_path / "past", "a", "embed_corpus", 3600.0, shard, {"shards": 3})
    plan = Plan(plan.bench, partial(Estimates, folder=tmp_path / "past"))
    estimates = costs.estimates_of(plan)
    minutes = plan.machines.minutes("embed_corpus")
    assert minutes(SimpleNamespace(**shard)) == 181, "(3,600 s + the start) x 3"
    assert minutes(SimpleNamespace(**shard), attempt=3) == 181, "it resumes"
    assert plan.machines.minutes("merge_run")(SimpleNamespace(**WHERE)) == 30
    index = plan.machines.minutes("index_bm25")
    assert index(SimpleNamespace(collection="other")) == 31 and index(SimpleNamespace(collection="other"), 2) == 62
    assert estimates.seconds(Job("index_bm25", {"collection": "other"})) == (1 + 3 * 150, False)
    put(tmp_path / "past", "b", "index_bm25", 9.0, {"collection": "toy"}, {})
    estimates = Estimates(plan, tmp_path / "past")
    assert estimates.seconds(Job("index_bm25", {"collection": "toy"})) == (9.0, True)
    assert estimates.seconds(Job("index_bm25", {"collection": "other"})) == (451.0, False), "far larger than any other"
    assert plan.machines.minutes("read_units")(SimpleNamespace(annotator="a")) == 720, "unknown: the rule's"


def test_a_training_on_more_gpus_takes_less_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_bench(tmp_path)
    from zerodr.operations.cli import plan_of

    monkeypatch.setattr(costs, "units_of", lambda job, plan: 1.0)
    stage = {"settings": {"training": {"steps": 1000, "batch_queries": 1000}}, "gpus": 2}
    put(tmp_path / "past", "a", "finetune", 800.0, {"model": "m"}, stage, device="cuda:0")
    times = [
        Estimates(plan_of([f"gpus={n}"]), tmp_path / "past").seconds(Job("finetune", {"model": "m"})) for n in (1, 8)
    ]
    assert times == [(1600.0, True), (200.0, True)]


def test_a_finished_training_of_another_model_says_nothing(plan, tmp_path, monkeypatch):
    """`adapt` reads eight documents with each query, `adapt-query` none: a step takes many times as long."""
    monkeypatch.setattr(costs, "units_of", lambda job, plan: 1.0)
    put(tmp_path / "past", "a", "finetune", 170.0, {"model": "adapt-query"}, {"settings": {}})
    estimates = Estimates(plan, tmp_path / "past")
    monkeypatch.setattr(costs, "reckon", lambda *_: 5400.0)
    assert estimates.seconds(Job("finetune", {"model": "adapt"})) == (5400.0, False)
    assert estimates.seconds(Job("finetune", {"model": "adapt-query"})) == (170.0, True)
    monkeypatch.setattr(costs, "reckon", lambda *_: None)
    assert estimates.seconds(Job("finetune", {"model": "adapt"})) == (170.0, True), "better than nothing"


def test_pairs_and_augmented_queries_are_reckoned(root, monkeypatch):
    """31 pairs of 200 tokens for each of MS MARCO's training queries; ten memories of 128 tokens with each query."""
    monkeypatch.chdir(root)
    monkeypatch.setattr(work, "network_of", lambda *_: BERT_BASE)
    plan, speeds = Plan(load_bench(root, {"scale": "paper"})), read_speeds(root)
    forward = 2 * 12 * 12 * 768**2
    job = Job("score_pairs", {"model": "kd", "scope": "shared", "stage": "ep0"})
    assert work.reckon(job, plan, speeds, 0.0) == pytest.approx(502_939 * 31 * 200 * forward / 45e12)
    job = Job("train_main", {"model": "moma-t5ance", "scope": "shared", "stage": "moma1"})
    training = plan.chains.trained("moma-t5ance").chain["moma1"].training
    texts = 10 * (20 + 128) + 8 * min(180, plan.chains.encoder("moma-t5ance").document_tokens)
    tokens = training.steps * training.batch_queries * texts
    assert work.reckon(job, plan, speeds, 0.0) == pytest.approx(tokens * 3 * forward / 170e12)


def test_gpu_hours_and_schedules_of_a_scale_with_gpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_bench(tmp_path)
    from zerodr.operations.cli import plan_of

    lab = plan_of(["scale=lab", "gpus=2"])
    assert (lab.machines.gpus("embed_corpus"), lab.machines.gpus("finetune")) == (1, 2)
    put(tmp_path / "past", "a", "embed_corpus", 3600.0, WHERE, {"shards": 1}, device="cuda:0")
    size = lab.bench.collections["other"].planned_documents
    jobs = [Job("embed_corpus", WHERE | {"shard": f"{n:05d}-of-00003"}, (), (f"e{n}",)) for n in range(16)]
    told = costs.costs(jobs, Estimates(lab, tmp_path / "past"))
    each = 3600 * min(size, lab.machines.shard_size) / size + START_S
    assert told.gpu_hours == pytest.approx(16 * each / 3600)
    assert told.spans == {8: pytest.approx(2 * each), 64: pytest.approx(each)}


def test_a_search_in_a_memory_is_as_large_as_the_memory(plan):
    job = Job("search_memory", {"collection": "toy", "memory": "other", "shard": "00000-of-00003"})
    assert costs.units_of(job, plan) == plan.machines.shard_size / 1e6
    turned = Job("export_memory", {"collection": "toy", "memory": "other"})
    assert costs.units_of(turned, plan) == 3.0


def test_augmented_queries_are_counted_by_their_split(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_bench(tmp_path)
    from zerodr.operations.cli import plan_of

    plan = plan_of([])
    row = plan.bench.collections["other"]
    plan.bench.collections["other"] = row.model_copy(update={"splits": {"train": 4000, "dev": 1000}})
    jobs = [Job("embed_fused_queries", WHERE | {"collection": "other", "split": s}) for s in ("train", "dev")]
    assert [costs.units_of(job, plan) for job in jobs] == [4e-3, 1e-3]
    put(tmp_path / "past", "a", "embed_fused_queries", 60.0, WHERE | {"collection": "other", "split": "dev"}, {})
    (past,) = costs.history(plan, tmp_path / "past")["embed_fused_queries"]
    assert past.units == 1e-3


def test_farms_that_are_too_small_for_a_job_are_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_bench(tmp_path)
    from zerodr.operations.cli import plan_of

    monkeypatch.setattr(costs, "units_of", lambda job, plan: 1.0)
    monkeypatch.setattr(costs, "reckon", lambda *_: None)
    jobs = [Job("finetune", {"model": "m", "scope": "shared", "stage": "ep0"}, (), ("m",))]
    told = costs.costs(jobs, Estimates(plan_of(["gpus=16", "nodes=2"]), tmp_path / "past"))
    assert list(told.spans) == [64] and told.most_gpus == 16
    text = costs.render(jobs, told)
    assert "8 GPUs are too few: a job needs 16" in text and "  with 64 GPUs" in text
    told = costs.costs(jobs, Estimates(plan_of(["gpus=128"]), tmp_path / "past"))
    assert told.spans == {} and costs.render(jobs, told).count("GPUs are too few: a job needs 128") == 2


def test_slow_processors_are_expected_to_be_slow():
    speeds = read_speeds(Path(__file__).parents[2])
    kinds = [
        speeds.core(flags) for flags in ({"avx512f", "avx512_bf16", "avx2"}, {"avx512f", "avx2"}, {"avx2"}, {"sse"})
    ]
    rates = [[kind.rate(job, type) for kind in kinds] for job in ("encode", "train") for type in ("fp32", "bf16")]
    assert all(rate == sorted(rate, reverse=True) and rate[0] > rate[2] == rate[3] for rate in rates)


def test_the_limit_of_a_job_of_unknown_size_is_no_less_than_its_rules(plan, tmp_path):
    plan = Plan(plan.bench, partial(Estimates, folder=tmp_path / "past"))
    assert plan.machines.minutes("init_model")(SimpleNamespace(model="dense", scope="shared")) == 60
    assert plan.machines.minutes("merge_run")(SimpleNamespace(**WHERE)) == 30
