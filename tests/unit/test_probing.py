"""The choice between two kernels: clear, remembered, one for all processes, without a trace in random numbers."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from zerodr.encoders.inference import packed, probing
from zerodr.encoders.inference.probing import USUAL, Choice, choose, judge
from zerodr.training.loop import speed


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/zerodr/kernels"


def timed(monkeypatch, usual: list[float], other: list[float]) -> list[str]:
    """Fake the times; returns a list that grows with each measurement."""
    seen: list[str] = []
    monkeypatch.setattr(probing, "measure", lambda *_: (seen.append("measured"), (usual, other))[1])
    return seen


def nothing() -> tuple:
    return (lambda: None), (lambda: None)


@pytest.mark.parametrize(
    ("usual", "other", "chosen"),
    [
        ([1.0] * 5, [1.0] * 5, False),
        ([1.14] * 5, [1.0] * 5, False),
        ([1.2] * 5, [1.0] * 5, True),
        ([9.0, 9.0, 1.0, 1.0, 1.0], [1.0] * 5, False),
        ([9.0, 9.0, 9.0, 9.0, 1.0], [1.0] * 5, False),
        ([1.3, 1.3, 1.3, 1.3, 1.3], [1.0, 9.0, 1.0, 9.0, 1.0], True),
    ],
)
def test_the_usual_way_stays_unless_median_and_best_say_otherwise(usual, other, chosen):
    assert judge(usual, other).other is chosen


def test_a_choice_is_measured_once_and_stays_when_times_turn(monkeypatch, folder):
    seen = timed(monkeypatch, [2.0] * 5, [1.0] * 5)
    assert choose("a", (3, 4), nothing) == Choice(True, 2.0)
    timed(monkeypatch, [1.0] * 5, [2.0] * 5)
    assert choose("a", (3, 4), nothing) == Choice(True, 2.0) and len(seen) == 1
    assert choose("a", (3, 5), nothing) == Choice(False, 0.5), "another shape"
    monkeypatch.setattr(probing, "processor", lambda: "another")
    assert not choose("a", (3, 4), nothing).other, "another processor"
    (value,) = (v for v in map(json.loads, (p.read_text() for p in folder.glob("*.json"))) if v["times"] == 2.0)
    assert value["shape"] == [3, 4] and value["torch"] == torch.__version__ and value["seconds"][0] == [2.0] * 5
    assert {path.suffix for path in folder.iterdir()} == {".json"}


def test_of_several_processes_the_first_one_decides(monkeypatch):
    def interrupted(*_):
        timed(monkeypatch, [1.0] * 5, [1.0] * 5)
        assert choose("a", (1,), nothing) == Choice(False, 1.0)
        return [9.0] * 5, [1.0] * 5

    monkeypatch.setattr(probing, "measure", interrupted)
    assert choose("a", (1,), nothing) == Choice(False, 1.0)


def test_nothing_is_measured_where_nothing_can_be_remembered(monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    seen = timed(monkeypatch, [2.0] * 5, [1.0] * 5)
    assert choose("a", (1,), nothing) == USUAL and not seen


def test_layers_for_which_torch_is_faster_stay_plain_and_lineage_says_so(monkeypatch):
    if speed.why_not_fast():
        pytest.skip("torch has no such operator here")
    kinds = {(256, 512): Choice(True, 1.3), (512, 256): Choice(False, 0.7)}
    monkeypatch.setattr(speed, "choose", lambda what, shape, ways: kinds[shape])
    model = nn.Sequential(nn.Linear(256, 512), nn.Linear(512, 256), nn.Linear(8, 8))
    assert speed.speed_up(model, "cpu", "fp32") == (
        "fp32 by oneDNN (but torch where it is faster: 256 x 512 1.30 times faster), plain attention"
    )
    assert [type(layer) for layer in model] == [nn.Linear, speed.FastLinear, speed.FastLinear]
    kinds[256, 512] = USUAL
    assert speed.speed_up(nn.Sequential(nn.Linear(256, 512)), "cpu", "fp32") == "fp32 by oneDNN, plain attention"


def test_a_forward_pass_that_is_slower_is_not_taken(monkeypatch):
    model = BertModel(BertConfig(hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512))
    if packed.why_not(model, torch.float32):
        pytest.skip("torch has no such operator here")
    monkeypatch.setattr(packed, "choose", lambda *_: Choice(True, 1.25))
    assert packed.why_not(model, torch.float32) == "transformers' is 1.25 times faster on this processor"


def test_probes_leave_random_numbers_and_the_model_as_they_are(folder):
    """Both probes run in earnest, and write what they saw."""
    model = BertModel(BertConfig(hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512))
    state, weights = torch.get_rng_state(), {name: p.clone() for name, p in model.named_parameters()}
    for dtype in (torch.float32, torch.bfloat16):
        packed.why_not(model, dtype)
    speed.compare(256, 256)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(p, weights[name]) and p.dtype == torch.float32 for name, p in model.named_parameters())
    assert model.config.num_hidden_layers == 2
    if speed.why_not_fast() is None:
        assert len(list(folder.glob("*.json"))) == 3


def test_bf16_gives_way_where_the_processor_is_slower_in_it(monkeypatch, caplog):
    choices = {"training's arithmetic: bf16 or fp32": Choice(True, 1.8)}
    monkeypatch.setattr(speed, "choose", lambda what, shape, ways: choices.get(what, USUAL))
    with caplog.at_level("INFO", logger="zerodr"):
        assert speed.arithmetic("bf16", "cpu") == "fp32"
    assert "fp32 in place of bf16, which this processor multiplies 1.80 times as slowly" in caplog.text
    assert [speed.arithmetic(*given) for given in (("bf16", "cuda"), ("fp32", "cpu"), ("fp16", "cuda"))] == [
        "bf16",
        "fp32",
        "fp16",
    ]
    told = speed.speed_up(nn.Sequential(nn.Linear(8, 8)), "cpu", "fp32", "bf16")
    assert told.startswith("fp32 in place of bf16, which is slower on this processor; ")
    choices.clear()
    assert speed.arithmetic("bf16", "cpu") == "bf16"
    assert speed.speed_up(nn.Sequential(nn.Linear(8, 8)), "cpu", "bf16", "bf16") == "bf16 by oneDNN, plain attention"


def test_the_probe_of_arithmetic_runs_in_earnest(folder):
    state = torch.get_rng_state()
    assert speed.arithmetic("bf16", "cpu") in ("bf16", "fp32")
    (written,) = folder.glob("*.json")
    assert "bf16 or fp32" in written.read_text() and torch.equal(state, torch.get_rng_state())
