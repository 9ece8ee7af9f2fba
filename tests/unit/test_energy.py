"""Energy: counters of processors and GPUs, readings that wrap, what is not measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zerodr.artifacts import spent
from zerodr.artifacts.record import STATE, read_record
from zerodr.artifacts.spent import Counter, counters, spent_between, sum_joules
from zerodr.artifacts.stage import Stage, StageSpec, run_spec

OUT = "results/x.txt"


def write_zone(folder: Path, name: str, microjoules: int) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "energy_uj").write_text(f"{microjoules}\n")
    (folder / name / "max_energy_range_uj").write_text("262143328850\n")


def test_packages_count_and_their_parts_do_not(tmp_path, monkeypatch):
    monkeypatch.setattr(spent, "_gpus", dict)
    write_zone(tmp_path, "intel-rapl:0", 5_000_000)
    write_zone(tmp_path, "intel-rapl:0:0", 1_000_000)
    write_zone(tmp_path, "intel-rapl:1", 7_000_000)
    (tmp_path / "intel-rapl:2").mkdir()  # unreadable
    found = counters(tmp_path)
    assert {name: counter.joules for name, counter in found.items()} == {"intel-rapl:0": 5.0, "intel-rapl:1": 7.0}
    assert counters(tmp_path / "absent") == {}


def test_a_counter_that_wrapped():
    before = {"a": Counter("RAPL", 90.0, 100.0), "b": Counter("RAPL", 1.0, 100.0), "c": Counter("NVML", 5.0)}
    after = {"a": Counter("RAPL", 10.0, 100.0), "b": Counter("RAPL", 3.5, 100.0), "d": Counter("NVML", 9.0)}
    assert spent_between(before, after) == {"RAPL": pytest.approx(22.5)}


@pytest.mark.parametrize(
    "joules, gpus, expected",
    [
        ({}, False, (None, "not measured")),
        ({"RAPL": 2.0, "NVML": 3.0}, False, (2.0, "RAPL")),
        ({"RAPL": 2.0, "NVML": 3.0}, True, (5.0, "NVML + RAPL")),
        ({"RAPL": 2.0}, True, (None, "not measured")),
        ({"NVML": 3.0}, False, (None, "not measured")),
    ],
)
def test_what_counts(joules, gpus, expected):
    assert sum_joules(joules, gpus) == expected


@pytest.mark.parametrize("killed, expected", [(False, (7.0, "RAPL")), (True, (None, "not measured"))])
def test_attempts_are_added_and_a_killed_one_is_not_known(tmp_path, monkeypatch, killed, expected):
    monkeypatch.chdir(tmp_path)
    reading = [0.0]
    monkeypatch.setattr(spent, "counters", lambda: {"a": Counter("RAPL", reading[0], 100.0)})

    def work(stage: Stage) -> None:
        reading[0] += 4.0 if not Path("again").exists() else 3.0
        stage.output("out").write_text("x")
        if not Path("again").exists():
            Path("again").write_text("")
            raise KeyboardInterrupt

    spec = StageSpec("make", 1, {}, {}, {"out": OUT}, {})
    with pytest.raises(KeyboardInterrupt):
        run_spec(spec, work)
    if killed:
        (kept,) = STATE.glob(f"*/{spent.FILE}")
        kept.write_text(json.dumps(json.loads(kept.read_text()) | {"running_since": 1.0}))
    run_spec(spec, work)
    record = read_record(OUT)
    assert (record["energy_joules"], record["energy_source"]) == expected


def test_a_machine_without_counters_is_not_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spent, "counters", dict)
    run_spec(StageSpec("make", 1, {}, {}, {"out": OUT}, {}), lambda stage: stage.output("out").write_text("x") and None)
    record = read_record(OUT)
    assert (record["energy_joules"], record["energy_source"]) == (None, "not measured")


@pytest.mark.parametrize(("visible", "expected"), [("0, 1", [0, 1]), ("0", [0]), ("GPU-1", [1]), ("", [])])
def test_energy_is_of_the_gpus_that_a_job_sees(monkeypatch, visible, expected):
    import pynvml

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    answers = {"Init": None, "DeviceGetCount": 2, "DeviceGetTotalEnergyConsumption": 1000}
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, f"nvml{name}", lambda *_, answer=answer: answer)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda number: number)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", "GPU-{}".format)
    assert list(counters(Path("nowhere"))) == [f"GPU-{number}" for number in expected]
