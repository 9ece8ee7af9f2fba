"""A processor's kind: its flags, those that are hidden from oneDNN, its row of the table, and what that decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from encoder_helpers import import_settings, tiny_bert
from torch import nn

from zerodr.artifacts import processor
from zerodr.artifacts.processor import (
    job_kind,
    kind_of_job,
    kind_of_machine,
    kinds,
    nearest_kind,
    recorded_kind,
    vendor_and_flags,
)
from zerodr.encoders.inference import processor as inference
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.inference.processor import usable_precision
from zerodr.encoders.start.importing import copy_model
from zerodr.training.loop import speed

AVX2 = "fpu sse4_2 avx avx2 fma"
XEON = f"{AVX2} avx512f avx512bw avx512vl avx512dq avx512_bf16 avx512_fp16"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Become a processor with these flags."""
    caches = processor.vendor_and_flags, processor.kind_of_machine, inference._warn_once

    def become(named: str, vendor: str = "GenuineIntel") -> None:
        (tmp_path / "cpuinfo").write_text(f"processor : 0\nvendor_id : {vendor}\nflags : {named}\n\n" * 2)
        for cache in caches:
            cache.cache_clear()

    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.delenv(processor.HIDING, raising=False)
    become(XEON)
    yield become
    for cache in caches:
        cache.cache_clear()


@pytest.mark.parametrize(
    ("hiding", "wide"), [("", True), ("AVX512_CORE_BF16", True), ("AVX2", False), ("sse41", False)]
)
def test_hidden_instructions_are_no_flags(machine, monkeypatch, hiding, wide):
    monkeypatch.setenv(processor.HIDING, hiding)
    vendor, flags = vendor_and_flags()
    assert vendor == "GenuineIntel" and ("avx512_bf16" in flags) == wide and "avx2" in flags
    assert kind_of_machine().name == ("intel-avx512-bf16" if wide else "avx2")


def test_bf16_is_computed_in_fp32_without_instructions_for_it(machine, caplog):
    assert usable_precision("bf16", "cpu") == "bf16" and not caplog.text
    machine(AVX2)
    assert [usable_precision("bf16", "cpu") for _ in range(3)] == ["fp32"] * 3
    assert caplog.text.count("fp32 in place of bf16: no bf16 instructions") == 1
    assert (usable_precision("bf16", "cuda"), usable_precision("fp32", "cpu")) == ("bf16", "fp32")


def test_an_encoder_on_such_a_processor_is_the_one_in_fp32(machine, tmp_path):
    copy_model(tiny_bert(tmp_path / "plain"), tmp_path / "model", import_settings("tiny"), None)
    machine(AVX2)
    made = [load_encoder(tmp_path / "model", precision, "cpu") for precision in ("fp32", "bf16")]
    assert [encoder.precision for encoder in made] == ["fp32", "fp32"]
    rows = [np.arange(2, 9)]
    assert np.array_equal(*(encoder.encode_batch(rows) for encoder in made))


def test_a_system_without_the_file_gets_the_safe_row(machine, monkeypatch):
    monkeypatch.setattr(processor, "CPUINFO", Path("/there/is/no/such/file"))
    vendor_and_flags.cache_clear()
    assert vendor_and_flags() == ("", frozenset()) and kind_of_machine().name == "avx2"


@pytest.mark.parametrize(
    ("vendor", "flags", "name"),
    [
        ("GenuineIntel", XEON, "intel-avx512-bf16"),
        ("GenuineIntel", f"{XEON} amx_bf16 amx_tile", "intel-amx"),
        ("GenuineIntel", XEON.replace(" avx512_bf16", ""), "avx2"),
        ("AuthenticAMD", XEON, "amd-avx512-bf16"),
        ("AuthenticAMD", AVX2, "avx2"),
        ("HygonGenuine", XEON, "avx2"),
        ("", "fp asimd bf16", "avx2"),
    ],
)
def test_the_row_with_the_most_flags_of_the_vendor_is_taken(vendor, flags, name):
    assert nearest_kind(vendor, frozenset(flags.split())).name == name


def test_one_row_fits_every_processor_and_names_differ():
    assert [kind.name for kind in kinds().values() if kind.vendor is None and not kind.flags] == ["avx2"]
    assert all(kind.bf16 == "absent" for kind in kinds().values() if not {"avx512_bf16", "amx_bf16"} & {*kind.flags})
    keys = [(kind.vendor, kind.flags) for kind in kinds().values()]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(("vendor", "flags", "said"), [("HygonGenuine", XEON, 1), ("AuthenticAMD", AVX2, 0)])
def test_a_kind_that_is_not_listed_is_logged_once(machine, caplog, vendor, flags, said):
    machine(flags, vendor)
    with caplog.at_level("INFO", "zerodr"):
        assert {kind_of_machine().name for _ in range(3)} == {"avx2"}
    assert caplog.text.count("HygonGenuine) is not in the table of kernels: it computes as 'avx2'") == said


def test_a_job_computes_as_the_kind_of_its_first_attempt(machine, tmp_path):
    with job_kind(tmp_path):
        assert recorded_kind(tmp_path) == "" and kind_of_job().name == "intel-avx512-bf16"
        machine(AVX2)
        assert kind_of_job().name == recorded_kind(tmp_path) == "intel-avx512-bf16"
    assert kind_of_job().name == "avx2"
    (tmp_path / processor.FILE).write_text('{"kind": "a row that is gone"}')
    with job_kind(tmp_path):
        assert kind_of_job().name == recorded_kind(tmp_path) == "avx2"


@pytest.mark.parametrize(
    ("kind", "arithmetic", "layer"),
    [
        ("amd-avx512-bf16", "bf16", speed.FastLinear),
        ("intel-amx", "bf16", nn.Linear),
        ("intel-avx512-bf16", "fp32", nn.Linear),
        ("avx2", "fp32", speed.FastLinear),
    ],
)
def test_ways_to_multiply_follow_from_the_kind(monkeypatch, kind, arithmetic, layer):
    monkeypatch.setattr(processor, "kind_of_machine", lambda: kinds()[kind])
    assert speed.arithmetic("bf16", "cpu") == arithmetic
    assert [speed.arithmetic(*given) for given in (("bf16", "cuda"), ("fp16", "cuda"))] == ["bf16", "fp16"]
    if speed.why_not_fast():
        pytest.skip("torch has no such operator here")
    model = nn.Sequential(nn.Linear(8, 8))
    kernels = speed.speed_up(model, "cpu", "fp32", "bf16")
    assert type(model[0]) is layer and kernels.words.startswith("fp32 in place of bf16; ")
    assert kernels.identity == {"kernels": {"arithmetic": "fp32"} | ({"linear": "torch"} if layer is nn.Linear else {})}
    assert speed.speed_up(model, "cpu", "bf16", "bf16") == ("bf16 by oneDNN, plain attention", {})


class FirstSays:
    """A process group whose first process has these numbers."""

    def __init__(self, number: float, lacking: bool = False) -> None:
        self.number, self.lacking = number, lacking

    def from_first(self, make: Callable[[], list[float]], count: int) -> list[float]:
        assert count == 1
        return [self.number]

    def any(self, flag: bool) -> bool:
        return flag or self.lacking


def test_the_first_process_decides_for_all(monkeypatch):
    if speed.why_not_fast():
        pytest.skip("torch has no such operator here")
    assert [speed.arithmetic("bf16", "cpu", FirstSays(number)) for number in (1.0, 0.0)] == ["bf16", "fp32"]
    for number, layer in ((1.0, nn.Linear), (0.0, speed.FastLinear)):
        model = nn.Sequential(nn.Linear(8, 8))
        speed.speed_up(model, "cpu", "fp32", group=FirstSays(number))
        assert type(model[0]) is layer
    lacking = speed.speed_up(nn.Sequential(nn.Linear(8, 8)), "cpu", "fp32", group=FirstSays(0.0, lacking=True))
    assert lacking == ("torch (another process lacks oneDNN's)", {"linear": "torch"})
