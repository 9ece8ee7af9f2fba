"""The choice between two kernels: robust against load, remembered, pinned, and without a trace in random numbers."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from zerodr.artifacts import choices
from zerodr.artifacts.choices import current, job_choices
from zerodr.config.kernels import check_pins, pinned
from zerodr.config.settings import Config
from zerodr.encoders.inference import packed, probing
from zerodr.encoders.inference.probing import USUAL, Choice, choose, measure
from zerodr.training.loop import speed

WIDE = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}
LINEAR = ("onednn", "torch")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(choices, "PROJECT", tmp_path / "project")
    return tmp_path / "cache/zerodr/kernels"


class Clock:
    """A clock that two functions turn: each call takes the next of its times."""

    def __init__(self, monkeypatch, usual: Iterator[float], other: Iterator[float]) -> None:
        self.now, self.calls, self.times = 0.0, 0, (usual, other)
        monkeypatch.setattr(probing, "clock", lambda: self.now)

    def ways(self) -> tuple[Callable[[], None], Callable[[], None]]:
        return (lambda: self._spend(0)), (lambda: self._spend(1))

    def _spend(self, way: int) -> None:
        self.calls += 1
        self.now += next(self.times[way])


def steady(seconds: float) -> Iterator[float]:
    return itertools.repeat(seconds)


def noisy(seconds: float, spread: float, seed: int) -> Iterator[float]:
    """Times that other jobs lengthen: by up to `spread`, and one call in ten by five times."""
    draw = random.Random(seed)
    while True:
        yield seconds * (1 + spread * draw.random()) * (5 if draw.random() < 0.1 else 1)


def nothing() -> tuple:
    return (lambda: None), (lambda: None)


def unwanted() -> tuple:
    raise AssertionError("measured")


@pytest.mark.parametrize(("times", "chosen"), [(0.5, False), (1.0, False), (1.14, False), (1.16, True), (2.0, True)])
def test_the_usual_way_stays_unless_the_other_is_clearly_faster(monkeypatch, times, chosen):
    clock = Clock(monkeypatch, steady(times / 8), steady(1 / 8))
    rounds, other = measure(*clock.ways())
    assert other is chosen and len(rounds) == 7


@pytest.mark.parametrize(("times", "chosen"), [(0.8, False), (1.0, False), (1.6, True)])
def test_load_does_not_change_the_choice(monkeypatch, times, chosen):
    """Two hundred machines with other load choose the same."""
    for seed in range(200):
        clock = Clock(monkeypatch, noisy(times, 0.1, seed), noisy(1.0, 0.1, seed + 1000))
        assert measure(*clock.ways())[1] is chosen


def test_rounds_that_do_not_agree_are_followed_by_more_and_then_the_usual_way_stays(monkeypatch):
    clock = Clock(monkeypatch, itertools.cycle([1.0, 1.4]), steady(1.0))
    rounds, other = measure(*clock.ways())
    assert not other and len(rounds) == 31
    late = itertools.chain([1.0] * 4, steady(1.4))  # warm-up, calibration, then two rounds of load
    rounds, other = measure(*Clock(monkeypatch, late, steady(1.0)).ways())
    assert other and len(rounds) == 15


def test_short_calls_are_repeated_and_the_ways_take_turns(monkeypatch):
    clock = Clock(monkeypatch, steady(0.001), steady(0.002))
    rounds, _ = measure(*clock.ways())
    assert clock.calls == 3 + 7 * 2 * 8 and rounds == [(pytest.approx(0.001), pytest.approx(0.002))] * 7
    seen: list[str] = []
    monkeypatch.setattr(probing, "clock", lambda: float(len(seen)))
    measure(lambda: seen.append("a"), lambda: seen.append("b"))
    assert "".join(seen).startswith("aba" + "abba" * 3)


def test_time_is_the_processors_and_on_one_thread():
    assert probing.clock is time.thread_time
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    measure(lambda: seen.append(torch.get_num_threads()), lambda: None)
    assert set(seen) == {1} and torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_a_choice_is_measured_once_and_stays_when_times_turn(monkeypatch, folder):
    assert choose("linear", "3x4", LINEAR, Clock(monkeypatch, steady(2.0), steady(1.0)).ways) == Choice(True, 2.0)
    assert choose("linear", "3x4", LINEAR, unwanted) == Choice(True, 2.0)
    turned = Clock(monkeypatch, steady(1.0), steady(2.0))
    assert choose("linear", "3x5", LINEAR, turned.ways) == Choice(False, 0.5), "another shape"
    monkeypatch.setattr(probing, "processor", lambda: "another")
    assert not choose("linear", "3x4", LINEAR, turned.ways).other, "another processor"
    (value,) = (v for v in map(json.loads, (p.read_text() for p in folder.glob("*.json"))) if v["times"] == 2.0)
    assert value["choice"] == "linear 3x4" and value["way"] == "torch" and value["threads"] == 1
    assert value["torch"] == torch.__version__ and value["seconds"] == [[2.0] * 7, [1.0] * 7]
    assert {path.suffix for path in folder.iterdir()} == {".json"}


def test_of_several_processes_the_first_one_decides(monkeypatch):
    def interrupted(*_):
        monkeypatch.setattr(probing, "measure", lambda *_: ([(1.0, 1.0)] * 7, False))
        assert not choose("linear", "1x1", LINEAR, nothing).other
        return [(9.0, 1.0)] * 7, True

    monkeypatch.setattr(probing, "measure", interrupted)
    assert choose("linear", "1x1", LINEAR, nothing) == Choice(False, 1.0)


def test_nothing_is_measured_where_nothing_can_be_remembered(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert choose("linear", "1x1", LINEAR, unwanted) == USUAL


def test_a_file_that_is_no_json_is_measured_again(monkeypatch, folder):
    clock = Clock(monkeypatch, steady(2.0), steady(1.0))
    choose("linear", "1x1", LINEAR, clock.ways)
    (file,) = folder.iterdir()
    file.write_text("")
    assert choose("linear", "1x1", LINEAR, clock.ways).other and json.loads(file.read_text())["way"] == "torch"


def test_a_project_remembers_choices_in_a_new_home(monkeypatch, tmp_path, folder):
    clock = Clock(monkeypatch, steady(2.0), steady(1.0))
    choose("linear", "1x1", LINEAR, clock.ways)
    with job_choices(tmp_path / "a", {}):
        assert choose("linear", "1x1", LINEAR, unwanted).other, "the user's memory"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    with job_choices(tmp_path / "b", {}) as job:
        assert choose("linear", "1x1", LINEAR, unwanted).other, "the project's memory"
        assert job.facts() == {"linear 1x1": {"way": "torch", "times": 2.0, "by": "memory"}}
    (tmp_path / "new").write_text("a home that can't be written")
    with job_choices(tmp_path / "c", {}) as job:
        assert choose("linear", "2x2", LINEAR, clock.ways).other and job.facts()["linear 2x2"]["by"] == "probe"
    assert len(list((tmp_path / "project").iterdir())) == 2


def test_a_later_attempt_takes_what_the_first_one_took_on_any_machine(monkeypatch, tmp_path):
    with job_choices(tmp_path, {}):
        assert choose("linear", "1x1", LINEAR, Clock(monkeypatch, steady(2.0), steady(1.0)).ways).other
    monkeypatch.setattr(probing, "processor", lambda: "another")
    with job_choices(tmp_path, {}) as job:
        assert choose("linear", "1x1", LINEAR, unwanted) == Choice(True, 2.0)
        assert job.facts() == {"linear 1x1": {"way": "torch", "times": 2.0, "by": "probe"}}
    assert current().facts() == {}


def test_pins_win_and_are_recorded(tmp_path):
    pins = {"linear": "onednn", "linear 1x1": "torch", "attention fp32": "plain"}
    with job_choices(tmp_path, {"kernels": pins}) as job:
        assert choose("linear", "1x1", LINEAR, unwanted).other
        assert not choose("linear", "1x10", LINEAR, unwanted).other
        assert packed.choose_way(12, 32, torch.float32) == "plain"
        assert {taken["by"] for taken in job.facts().values()} == {"pin"} and len(job.facts()) == 3
    assert pinned(pins, "attention bf16 12x32") is None


@pytest.mark.parametrize(
    ("name", "way", "problem"),
    [
        ("linaer", "torch", "'linaer' is no choice of kernels: did you mean linear?"),
        ("linear 384 x 384", "torch", "'linear 384 x 384' names no linear: copy the name from kernel_choices"),
        ("attention bf16", "sdpa", "'attention bf16' is computed by fused or plain, found 'sdpa'"),
    ],
)
def test_pins_that_mean_nothing_are_refused(name, way, problem):
    with pytest.raises(ValueError, match="kernels|names|computed") as error:
        check_pins({name: way})
    assert problem in str(error.value)
    with pytest.raises(ValueError, match="kernels"):
        Config(kernels={name: way})


def test_layers_for_which_torch_is_faster_stay_plain_and_the_identity_says_so(monkeypatch):
    if speed.why_not_fast():
        pytest.skip("torch has no such operator here")
    kinds = {"256x512": Choice(True, 1.3), "512x256": Choice(False, 0.7)}
    monkeypatch.setattr(speed, "choose", lambda kind, shape, names, ways: kinds[shape])
    model = nn.Sequential(nn.Linear(256, 512), nn.Linear(512, 256), nn.Linear(8, 8))
    kernels = speed.speed_up(model, "cpu", "fp32")
    assert kernels.words == "fp32 by oneDNN (but torch: 256x512 1.30 times faster), plain attention"
    assert kernels.identity == {"kernels": {"linear 256x512": "torch"}}
    assert [type(layer) for layer in model] == [nn.Linear, speed.FastLinear, speed.FastLinear]
    kinds["256x512"] = USUAL
    assert speed.speed_up(nn.Sequential(nn.Linear(256, 512)), "cpu", "fp32") == (
        "fp32 by oneDNN, plain attention",
        {},
    )


class FirstSays:
    """Two processes, of which this is the second: the first one gives the numbers."""

    world, rank = 2, 1

    def __init__(self, numbers: list[float], lacking: bool = False) -> None:
        self.numbers, self.lacking = numbers, lacking

    def from_first(self, make: Callable[[], list[float]], count: int) -> list[float]:
        assert len(self.numbers) == count
        return self.numbers

    def any(self, flag: bool) -> bool:
        return flag or self.lacking


def test_the_first_process_decides_for_all(monkeypatch):
    if speed.why_not_fast():
        pytest.skip("torch has no such operator here")
    monkeypatch.setattr(speed, "choose", unwanted)
    model = nn.Sequential(nn.Linear(512, 256), nn.Linear(256, 512))
    kernels = speed.speed_up(model, "cpu", "fp32", group=FirstSays([1.0, 1.4, 0.0, 0.9]))
    assert kernels.unusual == {"linear 256x512": "torch"}
    assert [type(layer) for layer in model] == [speed.FastLinear, nn.Linear]
    assert speed.arithmetic("bf16", "cpu", FirstSays([1.0, 1.8])) == "fp32"
    lacking = speed.speed_up(nn.Sequential(nn.Linear(8, 8)), "cpu", "fp32", group=FirstSays([], lacking=True))
    assert lacking == ("torch (another process lacks oneDNN's)", {"linear": "torch"})


def test_a_forward_pass_that_is_slower_is_not_taken(monkeypatch):
    model = BertModel(BertConfig(**WIDE))
    if packed.why_not(model, torch.float32):
        pytest.skip("torch has no such operator here")
    monkeypatch.setattr(packed, "choose", lambda *_: Choice(True, 1.25))
    assert packed.why_not(model, torch.float32) == "transformers' is 1.25 times faster"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_faster_attention_is_taken_for_each_arithmetic(monkeypatch, dtype):
    name, usual, other = packed.USUAL[dtype]
    seen: list[tuple] = []
    for taken in (False, True):
        monkeypatch.setattr(packed, "choose", lambda *given, taken=taken: (seen.append(given), Choice(taken))[1])
        assert packed.choose_way(4, 64, dtype) == (other if taken else usual)
    assert seen[0][:3] == ("attention", f"{name} 4x64", (usual, other))
    assert packed.choose_way(4, 8, dtype) == usual and len(seen) == 2, "narrow models take no time"


def test_probes_leave_random_numbers_and_the_model_as_they_are(folder):
    """Both probes run in earnest, and write what they saw."""
    model, dtypes = BertModel(BertConfig(**WIDE)), (torch.float32, torch.bfloat16)
    state, weights = torch.get_rng_state(), {name: p.clone() for name, p in model.named_parameters()}
    for dtype in dtypes:
        packed.why_not(model, dtype)
    speed.compare(256, 256)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(p, weights[name]) and p.dtype == torch.float32 for name, p in model.named_parameters())
    assert model.config.num_hidden_layers == 2
    if speed.why_not_fast() is None:
        seen = {json.loads(path.read_text())["choice"] for path in folder.glob("*.json")}
        able = [packed.NAMES[dtype] for dtype in dtypes if packed._missing_operator(dtype) is None]
        assert "fp32" in able, "oneDNN multiplies bf16 on some processors only"
        compared = {f"{kind} 256x512x4 gelu" for kind in (f"forward {name}" for name in able)}
        assert seen == {"linear 256x256", *compared, *(f"attention {name} 4x64" for name in able)}


def test_bf16_gives_way_where_the_processor_is_slower_in_it(monkeypatch, caplog):
    taken = {"arithmetic": Choice(True, 1.8)}
    monkeypatch.setattr(speed, "choose", lambda kind, *_: taken.get(kind, USUAL))
    with caplog.at_level("INFO", logger="zerodr"):
        assert speed.arithmetic("bf16", "cpu") == "fp32"
    assert "fp32 in place of bf16: 1.80 times faster" in caplog.text
    assert [speed.arithmetic(*given) for given in (("bf16", "cuda"), ("fp32", "cpu"), ("fp16", "cuda"))] == [
        "bf16",
        "fp32",
        "fp16",
    ]
    kernels = speed.speed_up(nn.Sequential(nn.Linear(8, 8)), "cpu", "fp32", "bf16")
    assert kernels.words.startswith("fp32 in place of bf16; ")
    assert kernels.identity == {"kernels": {"arithmetic": "fp32"} | kernels.unusual}
    taken.clear()
    assert speed.arithmetic("bf16", "cpu") == "bf16"
    assert speed.speed_up(nn.Sequential(nn.Linear(8, 8)), "cpu", "bf16", "bf16") == (
        "bf16 by oneDNN, plain attention",
        {},
    )


def test_the_probe_of_arithmetic_runs_in_earnest(folder):
    state = torch.get_rng_state()
    assert speed.arithmetic("bf16", "cpu") in ("bf16", "fp32")
    (written,) = folder.glob("*.json")
    assert json.loads(written.read_text())["choice"] == "arithmetic" and torch.equal(state, torch.get_rng_state())
