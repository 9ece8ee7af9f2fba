"""The stage that trains: runs, resumes after kill -9 with the same bits, and says what is wrong with bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.forked import Program, trainers
from tests.unit.training_helpers import (
    QUERIES,
    alone,
    cut_off,
    finetune_spec,
    fork_ranks,
    lay_out,
    make_mined,
    seal,
    weights_in,
)

from zerodr.artifacts import processor
from zerodr.artifacts.processor import kinds
from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.config.training import ObjectiveSettings
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.errors import ArtifactError, CollectionError, ConfigError, MachineError, ModelError, NonFiniteLoss
from zerodr.training.distributed import worker
from zerodr.training.distributed.processes import RETRY, SPARE_OUTCOME
from zerodr.training.loop.checkpoint import checkpoints
from zerodr.training.loop.speed import why_not_fast

WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return lay_out(tmp_path)


def curve(name: str, output: str = "results/ep0/manifest.json") -> list[tuple[int, float]]:
    record = read_record(output)
    return [(point["step"], point["value"]) for point in record["metrics"] if point["name"] == name]


def test_training_lowers_the_loss_and_the_model_loads(project):
    run_spec(finetune_spec(steps=120, total_steps=120, learning_rate=3e-3, evaluate_steps=60, dropout=0.0))
    losses = [value for _, value in curve("loss")]
    assert np.mean(losses[-15:]) < 0.5 * np.mean(losses[:15])
    assert [step for step, _ in curve("dev.ndcg_cut_10")] == [60, 120]
    notes = read_record("results/ep0/manifest.json")["notes"]
    assert (notes["training_queries"], notes["dev_queries"]) == (QUERIES - 4, 4)
    vectors = load_encoder(project / "results/ep0", device="cpu")
    assert vectors.dimension == 32
    assert not list(project.glob("results/.state/*/work"))


@pytest.mark.parametrize(("warmup", "first", "warned"), [(20, 0, True), (12, 0, True), (11, 0, False), (20, 12, False)])
def test_a_warm_up_that_outlasts_the_stage_is_warned_of(project, caplog, warmup, first, warned):
    run_spec(finetune_spec(warmup_steps=warmup, first_step=first, total_steps=first + 12))
    lines = [line for line in caplog.messages if "steps of warm-up do" in line]
    assert len(lines) == warned and all("finetune tiny ep0: ends at step 12 of the schedule" in line for line in lines)


def test_the_same_spec_gives_the_same_bytes(project):
    run_spec(finetune_spec("a"))
    run_spec(finetune_spec("b"))
    assert weights_in(project / "results/a") == weights_in(project / "results/b")


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "pairwise_nll", "optimizer": "lamb"},
        {"cache_chunk": 3},
        {"accumulation": 2},
        {"precision": "bf16"},
        {"negatives_per_query": 0},
        {"name": "info_nce", "in_batch": False},
        {"dropout": 0.0},
    ],
    ids=str,
)
def test_every_setting_trains(project, changes):
    run_spec(finetune_spec(**changes))
    assert np.isfinite([value for _, value in curve("loss")]).all()
    assert weights_in(project / "results/ep0") != weights_in(project / "results/init")


@pytest.mark.parametrize("name", ["margin_mse", "kl"])
def test_distillation_reads_the_scored_file(project, name):
    make_mined(project / "results/scored", scored=True)
    run_spec(finetune_spec(inputs={"scored": "results/scored/manifest.json"}, name=name, negatives_per_query=2))
    assert len(curve(name)) > 0


def test_a_chain_continues_schedule_and_moments(project):
    run_spec(finetune_spec("ep0", total_steps=24, save_optimizer=True))
    run_spec(
        finetune_spec(
            "ep1",
            inputs={"model": "results/ep0/manifest.json"},
            stage_index=1,
            first_step=12,
            total_steps=24,
            keep_optimizer=True,
        )
    )
    rates = curve("learning_rate", "results/ep0/manifest.json") + curve("learning_rate", "results/ep1/manifest.json")
    expected = [1e-3 * min((step - 1) / 2, (24 - (step - 1)) / 22) for step in range(1, 25)]
    assert [step for step, _ in rates] == list(range(1, 25))
    np.testing.assert_allclose([rate for _, rate in rates], expected, rtol=1e-6)


def test_models_of_save_steps_can_be_taken(project):
    run_spec(finetune_spec("ep0", save_steps=[5]))
    run_spec(finetune_spec("short", steps=5))

    def take(step: int) -> StageSpec:
        return StageSpec(
            "take_step",
            1,
            {"step": str(step)},
            {"model": "results/ep0/manifest.json"},
            {"model": f"results/ep0.{step}/manifest.json"},
            {"step": step},
        )

    run_spec(take(5))
    assert weights_in(project / "results/ep0.5") == weights_in(project / "results/short")
    assert BiEncoder.load(project / "results/ep0.5")
    with pytest.raises(ModelError, match="has no step 6: name it in training.save_steps"):
        run_spec(take(6))


def become(monkeypatch, kind: str) -> None:
    """Make this a machine of another kind."""
    monkeypatch.setattr(processor, "kind_of_machine", lambda: kinds()[kind])


def test_a_training_goes_on_as_its_first_kind_of_processor(project, monkeypatch):
    """Also where a later attempt runs on a machine of another kind."""
    if why_not_fast():
        pytest.skip("torch has no such operator here")
    changes = {"checkpoint_steps": 2, "dev_queries": 0}
    become(monkeypatch, "intel-amx")
    with cut_off(monkeypatch, 6):
        run_spec(finetune_spec("cut", **changes))
    run_spec(finetune_spec("whole", **changes))
    become(monkeypatch, "avx2")
    (file,) = project.glob("results/.state/*/work/processor.json")
    taken = file.read_text()
    file.unlink()
    with pytest.raises(ArtifactError, match="is of another run .*take back what you changed"):
        run_spec(finetune_spec("cut", **changes))
    file.write_text(taken)
    run_spec(finetune_spec("cut", **changes))
    run_spec(finetune_spec("fast", **changes))
    assert weights_in(project / "results/cut") == weights_in(project / "results/whole")
    notes = {name: read_record(f"results/{name}/manifest.json")["notes"] for name in ("cut", "whole", "fast")}
    assert [notes[name]["processor_kind"] for name in notes] == ["intel-amx", "intel-amx", "avx2"]
    assert [notes[name]["kernels"].split(",")[0] for name in ("cut", "fast")] == ["fp32 by torch", "fp32 by oneDNN"]


def start(spec: StageSpec, tmp_path: Path) -> Program:
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(asdict(spec)))
    return trainers().start("zerodr.run", str(file), cwd=tmp_path, env=alone(), session=True)


def wait_for_checkpoint(root: Path, process: Program, after: int = 0) -> None:
    while process.poll() is None:
        if any(int(path.name[-8:]) > after for path in root.glob("results/.state/*/work/checkpoint-*")):
            return
        time.sleep(0.005)


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_kill_and_resume_ends_with_the_same_bits(project, kills):
    """kill -9 at random moments, in or between steps and checkpoints."""
    changes = {"steps": 30 * kills, "total_steps": 30 * kills, "checkpoint_steps": 4, "evaluate_steps": 20}
    run_spec(finetune_spec("whole", **changes))
    generator, killed = np.random.default_rng(0), 0
    for number in range(kills):
        process = start(finetune_spec("killed", **changes), project)
        wait_for_checkpoint(project, process, 28 * number)
        time.sleep(float(generator.uniform(0, 0.1)))
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
    assert killed >= max(1, kills - 2)
    process = start(finetune_spec("killed", **changes), project)
    _, said = process.communicate()
    assert process.returncode == 0 and "resumed at" in said, said
    assert weights_in(project / "results/killed") == weights_in(project / "results/whole")
    for name in ("loss", "dev.ndcg_cut_10", "gradient_norm"):
        assert curve(name, "results/killed/manifest.json") == curve(name, "results/whole/manifest.json")


def test_sigterm_checkpoints_and_asks_for_another_try(project):
    changes = {"steps": 400, "total_steps": 400, "checkpoint_steps": 2, "dev_queries": 0}
    process = start(finetune_spec(**changes), project)
    wait_for_checkpoint(project, process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == RETRY, said
    assert "a checkpoint is kept" in said
    assert list(project.glob("results/.state/*/work/checkpoint-*"))
    assert not (project / "results/ep0/manifest.json").exists()


def test_nan_stops_keeps_good_weights_and_names_the_queries(project):
    path = project / "results/init/model.safetensors"
    weights = load_file(path)
    name = next(key for key in weights if key.endswith("word_embeddings.weight"))
    weights[name] = weights[name] * 1e30
    save_file(weights, path)
    seal(project / "results/init")
    with pytest.raises(NonFiniteLoss, match=r"step \d+: .* is (nan|inf); queries of the batch: q\d+, "):
        run_spec(finetune_spec(learning_rate=1e30, max_grad_norm=None, optimizer="adamw", warmup_steps=0))
    (kept,) = project.glob("results/.state/*/work/checkpoint-*")
    assert all(bool(torch.isfinite(value).all()) for value in load_file(kept / "model.safetensors").values())


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"source_split": "none"}, CollectionError, "no positive judgement"),
        ({"source_split": "nowhere"}, CollectionError, "no judgements for this split"),
        ({"batch_queries": 64}, ConfigError, "larger than the 44 queries"),
        ({"learning_rate": 0.0}, ConfigError, "learning_rate"),
        ({"gpus": 3}, MachineError, "asks for 3 GPUs"),
        ({"keep_optimizer": True}, ArtifactError, "no optimiser moments"),
        ({"name": "pairwise_nll", "negatives_per_query": 0}, ConfigError, "hard negatives"),
        ({"name": "kl"}, ConfigError, "needs a teacher"),
        ({"accumulation": 3}, ConfigError, "can't be shared equally"),
        pytest.param({"precision": "fp16"}, Exception, "fp16 needs a GPU", marks=WITHOUT_GPU),
    ],
    ids=str,
)
def test_bad_settings(project, changes, error, message):
    if "gpus" in changes and torch.cuda.device_count() >= 3:
        pytest.skip("has the GPUs")
    with pytest.raises(error, match=message):
        run_spec(finetune_spec(**changes))
    assert not (project / "results/ep0/manifest.json").exists()


@pytest.mark.parametrize(
    "rows, message",
    [
        ([], "holds no query"),
        ([("q0", ["d0"], ["zz9"])], "1 of its 2 documents are not in collection source, the first is zz9"),
        ([("other", ["d0"], ["d1"])], "1 of its 1 queries are not in collection source, the first is other"),
        ([("q0", [], ["d1"])], "queries_without_positive"),
        ([("q0", ["d0"], [])], "queries_without_negative"),
    ],
    ids=str,
)
def test_bad_mined_files(project, rows, message):
    make_mined(project / "results/bad", rows=rows)
    with pytest.raises((ArtifactError, CollectionError), match=message):
        run_spec(finetune_spec(inputs={"mined": "results/bad/manifest.json"}))


def test_queries_that_cannot_be_trained_on_are_counted(project):
    rows = [(f"q{i}", [f"d{i}"] if i else [], ["d55"] if i != 1 else []) for i in range(20)]
    make_mined(project / "results/partly", rows=rows)
    run_spec(finetune_spec(inputs={"mined": "results/partly/manifest.json"}, dev_queries=0))
    notes = read_record("results/ep0/manifest.json")["notes"]
    assert (notes["queries_without_positive"], notes["queries_without_negative"]) == (1, 1)
    assert notes["training_queries"] == 18


def test_an_error_in_ones_own_loss_is_said_by_several_processes_too(project, monkeypatch):
    monkeypatch.delenv("ZERODR_MY")
    fork_ranks(monkeypatch)
    (project / "config/my").mkdir(parents=True)
    (project / "config/my/losses.py").write_text("def mine(scores):\n    return scores[:, 9].mean()\n")
    spec = finetune_spec("two", processes=2)
    objective = ObjectiveSettings(name="mine", negatives_per_query=1)
    spec.params["settings"]["objective"] = objective.model_dump(mode="json")
    with pytest.raises(ConfigError, match="config/my/losses.py:2 in mine: IndexError: .*: correct it, and run"):
        run_spec(spec)


@pytest.mark.slow
def test_two_processes_run_as_a_stage(project):
    run_spec(finetune_spec("one", dropout=0.0))
    run_spec(finetune_spec("two", dropout=0.0, processes=2))
    one, two = (load_file(project / f"results/{name}/model.safetensors") for name in ("one", "two"))
    assert max(float((one[key] - two[key]).abs().max()) for key in one) < 1e-3
    assert read_record("results/two/manifest.json")["notes"]["processes"] == 2


@pytest.fixture
def small_state(project) -> Iterator[Path]:
    """A file system of 128 KiB for checkpoints; tests are skipped where mounting is refused."""
    state = project / "results/.state"
    state.mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(state)], capture_output=True)
    if done.returncode:
        pytest.skip(f"mounting a tmpfs is refused: {done.stderr.decode().strip()}")
    yield state
    subprocess.run(["umount", "-l", str(state)], check=True)


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_disk_too_small_for_a_checkpoint_is_said(small_state, processes):
    """Weights or moments don't fit: one sentence, also from a process of its own, and no checkpoint that counts."""
    with pytest.raises(MachineError, match=r"the disk is full \(0 MiB free\); nothing was published: free space"):
        run_spec(finetune_spec(checkpoint_steps=5, dev_queries=0, processes=processes))
    works = list(small_state.glob("*/work"))
    assert works and not any(checkpoints(work) for work in works)
    assert not Path("results/ep0/manifest.json").exists()


def test_a_process_that_can_not_write_beside_its_job_speaks_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(SPARE_OUTCOME, str(tmp_path / "spare.json"))
    worker._leave(tmp_path / "file/outcome.json", {"kind": "done"})
    assert json.loads((tmp_path / "spare.json").read_text()) == {"kind": "done"}


@pytest.mark.slow
@pytest.mark.parametrize("everyone", [False, True])
def test_sigterm_reaches_the_ranks(project, everyone):
    """A scheduler signals the stage alone, or all its processes."""
    changes = {"steps": 2000, "total_steps": 2000, "checkpoint_steps": 1000, "processes": 2, "dev_queries": 0}
    process = start(finetune_spec(**changes), project)
    while not ranks_in(project):
        time.sleep(0.05)
    time.sleep(30)
    if everyone:
        os.killpg(process.pid, signal.SIGTERM)
    else:
        process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == RETRY, said
    (kept,) = project.glob("results/.state/*/work/checkpoint-*")
    assert 0 < int(kept.name[-8:]) < 1000


@pytest.mark.slow
def test_a_dying_rank_stops_all_and_the_run_continues(project):
    changes = {"steps": 300, "total_steps": 300, "checkpoint_steps": 10, "processes": 2, "dev_queries": 0}
    process = start(finetune_spec(**changes), project)
    wait_for_checkpoint(project, process)
    os.kill(ranks_in(project)[-1], signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode == 1
    assert "MachineError" in said and "one of its 2 processes died" in said
    assert "continues from the last checkpoint" in said
    process = start(finetune_spec(**changes), project)
    _, said = process.communicate()
    assert process.returncode == 0 and "resumed at" in said, said


def ranks_in(project: Path) -> list[int]:
    """Process ids of the ranks at work in a project."""
    return [
        int(path.name)
        for path in Path("/proc").glob("[0-9]*")
        if b"worker\0rank" in _read(path / "cmdline") and _cwd(path) == str(project)
    ]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _cwd(process: Path) -> str:
    try:
        return os.readlink(process / "cwd")
    except OSError:
        return ""
