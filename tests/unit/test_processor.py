"""What a processor can do: its flags, those that are hidden from oneDNN, and the arithmetic that it gets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from encoder_helpers import import_settings, tiny_bert

from zerodr.encoders.inference import processor
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.inference.processor import flags, usable_precision
from zerodr.encoders.start.importing import copy_model

AVX2 = "fpu sse4_2 avx avx2 fma"
XEON = f"{AVX2} avx512f avx512bw avx512vl avx512dq avx512_bf16 avx512_fp16"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Become a processor with these flags."""
    caches = processor.flags, processor.processor, processor._warn_once

    def become(named: str) -> None:
        (tmp_path / "cpuinfo").write_text(f"processor : 0\nmodel name : A Processor\nflags : {named}\n\n" * 2)
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
    assert ("avx512_bf16" in flags()) == wide and "avx2" in flags()


def test_bf16_is_computed_in_fp32_without_instructions_for_it(machine, caplog):
    assert usable_precision("bf16", "cpu") == "bf16" and not caplog.text
    machine(AVX2)
    assert [usable_precision("bf16", "cpu") for _ in range(3)] == ["fp32"] * 3
    assert caplog.text.count("fp32 in place of bf16: this processor has no instructions for bf16") == 1
    assert (usable_precision("bf16", "cuda"), usable_precision("fp32", "cpu")) == ("bf16", "fp32")


def test_an_encoder_on_such_a_processor_is_the_one_in_fp32(machine, tmp_path):
    copy_model(tiny_bert(tmp_path / "plain"), tmp_path / "model", import_settings("tiny"), None)
    machine(AVX2)
    made = [load_encoder(tmp_path / "model", precision, "cpu") for precision in ("fp32", "bf16")]
    assert [encoder.precision for encoder in made] == ["fp32", "fp32"]
    rows = [np.arange(2, 9)]
    assert np.array_equal(*(encoder.encode_batch(rows) for encoder in made))


def test_a_system_without_the_file_has_no_flags(machine, monkeypatch):
    monkeypatch.setattr(processor, "CPUINFO", Path("/there/is/no/such/file"))
    flags.cache_clear()
    assert flags() == frozenset()
