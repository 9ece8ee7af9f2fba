"""What a stage took is counted over attempts: preempted, failed and killed ones."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from zerodr.artifacts import provenance, spent
from zerodr.artifacts.record import STATE, artifact_digest, read_record
from zerodr.artifacts.spent import FILE
from zerodr.artifacts.stage import Stage, StageSpec, run_spec
from zerodr.errors import ArtifactError
from zerodr.operations.estimate.costs import _records
from zerodr.retrieval.store import EmbeddingStore
from zerodr.training.distributed.processes import Preempted
from zerodr.training.teaching.scoring import ScoreStore

OUT = "results/x.txt"


class Clock:
    """A clock that goes on by hand."""

    def __init__(self) -> None:
        self.now = time.time() - 10_000

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.chdir(tmp_path)
    made = Clock()
    monkeypatch.setattr(spent, "time", made)
    return made


def attempt(clock: Clock, seconds: float, error: BaseException | None = None, **notes: object) -> None:
    def work(stage: Stage) -> None:
        clock.now += seconds
        if error:
            raise error
        stage.output("out").write_text("x")
        stage.note(**notes)

    run_spec(StageSpec("make", 1, {}, {}, {"out": OUT}, {}), work)


@pytest.mark.parametrize("error", [Preempted("make"), ArtifactError("x", "y"), KeyboardInterrupt(), RuntimeError()])
def test_attempts_that_ended_are_added(clock, error):
    first = clock.now
    for seconds in (100, 20):
        with pytest.raises(type(error)):
            attempt(clock, seconds, error)
        clock.now += 1000  # in the queue
    attempt(clock, 3)
    record = read_record(OUT)
    assert record["seconds"] == pytest.approx(123, abs=0.01)
    assert record["started_unix_s"] == pytest.approx(first, abs=0.01)
    assert not list(STATE.glob(f"*/{FILE}"))


def test_time_of_what_was_published_is_forgotten(clock):
    attempt(clock, 50)
    digest = artifact_digest(OUT)
    Path(OUT).unlink()
    attempt(clock, 7)
    assert read_record(OUT)["seconds"] == pytest.approx(7, abs=0.01)
    assert artifact_digest(OUT) == digest


@pytest.mark.parametrize("age, counted", [(None, 0), (60, 60), (-5, 0)])
def test_a_killed_attempt_counts_up_to_its_last_checkpoint(clock, age, counted):
    with pytest.raises(KeyboardInterrupt):
        attempt(clock, 30, KeyboardInterrupt())
    (kept,) = STATE.glob(f"*/{FILE}")
    said = json.loads(kept.read_text())
    assert said["running_since"] is None and said["seconds"] == pytest.approx(30, abs=0.01)
    kept.write_text(json.dumps(said | {"running_since": clock.now}))
    if age is not None:
        checkpoint = kept.parent / "work/checkpoint-1/model"
        checkpoint.parent.mkdir(parents=True)
        checkpoint.write_text("")
        os.utime(checkpoint, (clock.now + age, clock.now + age))
    clock.now += 500
    attempt(clock, 3)
    assert read_record(OUT)["seconds"] == pytest.approx(33 + counted, abs=0.01)


@pytest.mark.parametrize(
    "notes, gpus",
    [
        ({"device": "cuda:0"}, 1),
        ({"device": "cuda", "processes": 4}, 4),
        ({"device": "cpu", "processes": 4}, 0),
        ({}, 0),
    ],
)
def test_gpu_hours_are_those_of_all_processes(clock, notes, gpus):
    with pytest.raises(Preempted):
        attempt(clock, 1800, Preempted("make"))
    attempt(clock, 1800, **notes)
    assert read_record(OUT)["gpu_hours"] == pytest.approx(gpus, abs=1e-4)


@pytest.mark.parametrize("used", [False, True])
def test_a_stage_that_says_no_device_is_asked_of_torch(monkeypatch, used):
    class Torch:
        class cuda:
            @staticmethod
            def is_initialized() -> bool:
                return used

    monkeypatch.setitem(sys.modules, "torch", Torch)
    assert provenance.gpus_used({"processes": 2}) == 2 * used
    assert provenance.gpus_used({"device": "cpu"}) == 0


def test_files_that_a_loss_of_power_emptied_say_nothing(clock):
    folder = Path("state")
    folder.mkdir()
    with pytest.raises(RuntimeError):
        attempt(clock, 100, RuntimeError())
    EmbeddingStore(folder, 3, 2, {}).save(2, 0)
    (folder / "scores.f32").touch()
    for path in (*STATE.glob(f"*/{FILE}"), folder / "progress.json"):
        path.write_bytes(b"\0" * path.stat().st_size)
    for path in STATE.glob("*/work"):
        (path / "processor.json").touch()
    attempt(clock, 20)
    assert read_record(OUT)["seconds"] == 20
    assert EmbeddingStore(folder, 3, 2, {}).finished == 0
    (folder / "progress.json").write_text("")
    assert ScoreStore(folder, {}).done == 0
    Path("results/x.txt.lineage.json").write_text("")
    assert not list(_records(Path("results")))
