"""The check of a GPU: the same script on the CPU with tiny models, where all runs and no figure counts; its parts."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.forked import trainers

ROOT = Path(__file__).resolve().parents[2]
OBJECTIVES = ("queries", "coco", "mlm", "modir", "berm", "idro", "ddr", "moma")
RIGHT = (
    *(f"one step of {name}" for name in OBJECTIVES),
    *("killed and resumed", "exact search", "encode, fp32", "encode, bf16"),
)
FACTS = {
    "texts": {"source", "texts"},
    "matrix product, bf16": {"tera_flops"},
    "one step of modir": {"cpu_loss", "device_loss", "gradients_apart", "state_apart"},
    "one step of idro": {"gradients_apart", "state_apart"},
    "killed and resumed": {"repeats", "resumed_at"},
    "exact search": {"queries_per_second", "questions_per_second", "tokens_per_second", "peak_gib"},
    "encode, bf16": {"tokens_per_second", "share_of_peak", "peak_gib", "times_sentence_transformers"},
    "train queries": {"tokens_per_second", "share_of_peak", "waited_for_data", "peak_gib"},
    "train queries, LAMB": {"optimizer_share", "waited_for_data"},
    "train coco": {"share_of_peak", "waited_for_data"},
    "train mlm": {"share_of_peak", "waited_for_data"},
    "train moma": {"tokens_per_second", "share_of_peak", "waited_for_data", "peak_gib"},
    "trainer of sentence-transformers": {"times_sentence_transformers", "seconds_a_step"},
}
NO_NETWORK = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the check."""
    environment = os.environ | NO_NETWORK | {"PYTHONPATH": str(ROOT / "benchmarks")}
    return trainers().run("gpu", *words, cwd=folder, env=environment)


def run_script(folder: Path, *more: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the check on the CPU with tiny models; its JSON."""
    done = check(folder, "--device", "cpu", "--tiny", "--json", "gpu.json", *more)
    path = folder / "gpu.json"
    return done, json.loads(path.read_text()) if path.exists() else {}


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def part(name: str) -> Any:
    return importlib.import_module(f"gpu_check.{name}")


# ---- the script ----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    return run_script(tmp_path_factory.mktemp("gpu"), "--seconds", "3600")


def test_every_row_runs_on_the_cpu_and_every_result_is_right(whole):
    done, found = whole
    assert done.returncode == 0, done.stderr
    assert not found["wrong"] + found["failed"] + found["not_run"]
    rows = {row["what"]: row["facts"] for row in found["rows"]}
    assert {what for what, facts in rows.items() if facts.get("right")} == set(RIGHT)
    assert {what: facts - set(rows[what]) for what, facts in FACTS.items()} == dict.fromkeys(FACTS, set())


def test_a_training_that_was_killed_continues_from_a_checkpoint(whole):
    facts = next(row["facts"] for row in whole[1]["rows"] if row["what"] == "killed and resumed")
    assert facts["repeats"] and facts["resumed_at"] in (2, 4) and facts["killed_in_step"] == 5


def test_the_report_has_date_device_and_a_table_without_verdicts_on_figures_of_tiny_models(whole):
    done, found = whole
    assert found["date"].endswith("UTC") and found["device"].startswith("CPU") and found["sizes"] == "tiny"
    assert {goal["verdict"] for goal in found["goals"]} == {"not measured"} and len(found["goals"]) == 10
    assert found["table"] in done.stdout
    lines = found["table"].splitlines()
    assert lines[0].startswith(f"date {found['date']}, device CPU")
    assert lines[2:4] == ["| line | result | figures | goals |", "|---|---|---|---|"]
    assert len(lines) == 4 + len(found["rows"]) and all(line.count("|") == 5 for line in lines[2:])


def test_rows_that_no_longer_fit_are_not_run_and_the_report_is_written(tmp_path):
    done, found = run_script(tmp_path, "--seconds", "0")
    assert done.returncode == 0, done.stderr
    assert {(row["state"], row["why"]) for row in found["rows"]} == {("not run", "time")}
    assert len(found["not_run"]) == len(found["rows"]) > 20
    assert "one step of moma: not run: time" in done.stdout


def test_there_is_nothing_to_measure_without_a_gpu(tmp_path):
    done = check(tmp_path, "--device", "cpu")
    assert done.returncode == 2 and "there is no GPU here: give --device cpu --tiny" in done.stdout


# ---- its parts -----------------------------------------------------------------------------------------------------
def test_a_row_that_raises_does_not_end_the_others_and_all_are_written(tmp_path):
    report = part("report")
    made = report.Report({"device": "x"}, 60.0, tmp_path / "gpu.json", True)

    def broken() -> dict[str, Any]:
        raise ValueError("no such thing\nmore")

    def without() -> dict[str, Any]:
        raise ModuleNotFoundError("No module named 'peft'", name="peft")

    for what, work in (("a", broken), ("c", without), ("d", lambda: {"right": False, "cosine": 0.5})):
        made.run(what, work)
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["failed"] == ["a (ValueError: no such thing)"] and found["wrong"] == ["d"]
    assert found["not_run"] == ["c (package peft is missing)"]
    assert "| d | wrong | cosine 0.5 |  |" in found["table"]


def test_an_error_in_the_projects_imports_is_a_failure(tmp_path):
    report = part("report")

    def broken() -> dict[str, Any]:
        importlib.import_module("zerodr.nothing")
        return {}

    made = report.Report({}, 60.0, None, True)
    made.run("a", broken)
    assert made.named("failed") == ["a (ModuleNotFoundError: No module named 'zerodr.nothing')"]


def test_a_row_that_runs_at_the_limit_is_interrupted():
    report = part("report")
    made = report.Report({}, 0.2, None, True)

    def endless() -> dict[str, Any]:
        while True:
            time.sleep(0.01)

    made.run("endless", endless)
    made.run("next", dict)
    assert made.named("not run") == ["endless (time)", "next (time)"]


def test_goals_are_met_missed_or_not_measured():
    goals = part("goals")
    rows = {
        "encode, bf16": {"times_sentence_transformers": 2.5, "share_of_peak": 0.44},
        "train queries": {"share_of_peak": None, "waited_for_data": 0.05},
        "train queries, LAMB": {"optimizer_share": 0.06},
    }
    found = {(one.row, one.fact): one.verdict for one in goals.judge(rows)}
    assert found["encode, bf16", "times_sentence_transformers"] == "met"
    assert found["encode, bf16", "share_of_peak"] == "missed"
    assert found["train queries", "share_of_peak"] == "not measured"
    assert found["train queries", "waited_for_data"] == "met"
    assert found["train queries, LAMB", "optimizer_share"] == "missed"
    assert found["train coco", "share_of_peak"] == "not measured"
    made = part("report").Report({}, 60.0, None, True)
    made.run("train coco", lambda: {"share_of_peak": 0.41, "waited_for_data": 0.2})
    assert "| 41 % of the measured peak, 20 % waited for data | of the measured peak >= 40 %: met; " in made.table()


def test_a_device_with_other_gradients_is_wrong(tmp_path, monkeypatch):
    check, correct = part("check"), part("correct")
    tiny = check.Check("cpu", True, tmp_path, part("texts").made_up(256, 32))
    made = correct.engine

    def skewed(check: Any, lesson: Any, batch: int, *, device: str | None = None, **more: Any) -> Any:
        engine = made(check, lesson, batch, device=device, **more)
        if len(engines) == 1:  # the second one is the device's
            loss = engine.objective.__call__
            engine.objective = Scaled(engine.objective, loss)
        engines.append(engine)
        return engine

    engines: list[Any] = []
    assert correct.one_step(tiny, "queries")["right"]
    monkeypatch.setattr(correct, "engine", skewed)
    found = correct.one_step(tiny, "queries")
    assert not found["right"] and found["gradients_apart"] == pytest.approx(0.1, rel=1e-3)


def test_a_device_whose_steps_do_not_repeat_is_wrong(tmp_path, monkeypatch):
    check, correct = part("check"), part("correct")
    tiny = check.Check("cpu", True, tmp_path, part("texts").made_up(256, 32))
    steps = iter((torch.ones(3), torch.ones(3) + 1e-7))
    monkeypatch.setattr(correct, "_trained_gradients", lambda *_: next(steps))
    found = correct.one_step(tiny, "queries")
    assert not found["right"] and not found["repeats"] and found["gradients_apart"] < 1e-3


class Scaled:
    """An objective whose terms are a tenth too large."""

    def __init__(self, plain: Any, loss: Any) -> None:
        self.plain, self.loss = plain, loss

    def __call__(self, batch: Any) -> dict[str, torch.Tensor]:
        return {name: 1.1 * value for name, value in self.loss(batch).items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


def test_apart_is_relative_and_infinite_where_a_number_is_missing():
    apart = part("correct").apart
    assert apart(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5])) == pytest.approx(0.1)
    assert apart(torch.zeros(2), torch.zeros(2)) == 0
    assert (
        apart(torch.ones(2), torch.tensor([1.0, float("nan")])) == float("inf") == apart(torch.ones(1), torch.ones(2))
    )


def test_texts_are_those_of_a_small_archive_or_are_said_to_be_made_up(tmp_path):
    texts = part("texts")
    assert all((ROOT / "config").exists() and isinstance(folder, Path) for folder in texts.mirrors())
    lines = [json.dumps({"_id": str(n), "text": f"word{n} " * n}) for n in range(40)]
    with zipfile.ZipFile(tmp_path / "nfcorpus.zip", "w") as archive:
        archive.writestr("nfcorpus/corpus.jsonl", "\n".join(lines))
    found, source = texts.read_texts(3, 30, [tmp_path / "none", tmp_path])
    assert source.startswith("nfcorpus.zip, ") and found[0] == " ".join(["word30"] * 30) and len(found) == 3
    for count in (3, 11):  # none has so many long texts
        made, source = texts.read_texts(count, 30, [tmp_path] if count == 11 else [])
        assert source.startswith("words made from the seed, as no mirror folder holds scifact.zip, ")
        assert {len(text.split()) for text in made} == {30} and len(made) == count


def test_missing_packages_are_named_with_the_way_their_wheels_come():
    packages = part("packages")
    wanted = {"no_such_module": ("pydantic", "all rows"), "json": ("json", "none")}
    assert packages.missing(wanted) == {"pydantic": "all rows"}
    assert not packages.missing(packages.NEEDED)
    lines = packages.advice(["pydantic"])
    version = packages.pins()["pydantic"]
    assert lines[1].strip().endswith(f"--dest wheels pydantic=={version}")
    assert lines[3].strip().endswith(f"--no-index --find-links wheels pydantic=={version}")
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/gpu.py"), "--packages"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and done.stdout == "the check can run\n"
