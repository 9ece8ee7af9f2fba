"""Tokens of an embedding batch: the setting on the CPU; on a GPU, here a made-up one, its memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoder_helpers import embed_spec, import_spec, make_collection, tiny_bert

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import run_spec
from zerodr.retrieval import embed
from zerodr.retrieval.budget import choose_tokens


class Encoder:
    """Holds `cost` bytes a token, and the square of a text's length on top."""

    def __init__(self, device: str = "cuda", cost: int = 50_000) -> None:
        self.device, self.cost, self.held = device, cost, 0
        self.seen: list[tuple[int, int]] = []

    def encode_batch(self, rows: Sequence[Any]) -> np.ndarray:
        self.seen.append((len(rows), len(rows[0])))
        self.held = sum(self.cost * len(row) + len(row) ** 2 for row in rows)
        return np.zeros((len(rows), 4), np.float32)


class Card:
    """A GPU with some free memory."""

    def __init__(self, encoder: Encoder, gib: float, name: str = "card") -> None:
        self.encoder, self.gib, self.name = encoder, gib, name

    def free(self) -> int:
        return int(self.gib * 2**30)

    def peak(self, work: Callable[[], Any]) -> int:
        work()
        return self.encoder.held


def choose(state: Path, gib: float, longest: int = 512, name: str = "card", **changes: Any) -> tuple[int, dict]:
    encoder = Encoder(**changes)
    return choose_tokens(encoder, longest, 4096, state, lambda: Card(encoder, gib, name))


@pytest.mark.parametrize(
    "gib, cost, tokens",
    [
        (80, 50_000, 65_536),
        (24, 50_000, 65_536),
        (16, 50_000, 65_536),
        (8, 50_000, 32_768),
        (2, 200_000, 2_048),
        (0, 1, 64),
    ],
)
def test_memory_decides_up_to_a_limit(tmp_path, gib, cost, tokens):
    assert choose(tmp_path, gib, cost=cost)[0] == tokens


def test_two_batches_at_once_take_half_of_free_memory_at_most(tmp_path):
    for number, gib in enumerate((0.3, 1, 3, 7)):
        tokens, facts = choose(tmp_path / str(number), gib)
        assert 2 * tokens * facts["bytes_a_token"] <= gib * 2**30 / 2 and facts["bytes_a_token"] == 50_512


def test_a_batch_of_the_longest_texts_is_measured(tmp_path):
    for longest, rows in ((512, 8), (64, 64), (8192, 1)):
        encoder = Encoder()
        choose_tokens(encoder, longest, 4096, tmp_path / str(longest), lambda encoder=encoder: Card(encoder, 40))
        assert encoder.seen == [(rows, longest)]


def test_a_resumed_job_keeps_its_choice_on_the_same_kind_of_gpu(tmp_path):
    first = choose(tmp_path, 8)
    assert choose(tmp_path, 80) == first
    assert json.loads((tmp_path / "batch_tokens.json").read_text()) == first[1]
    assert choose(tmp_path, 80, name="another")[0] == 65_536


def test_the_cpu_takes_the_setting_and_asks_nobody(tmp_path):
    encoder = Encoder("cpu")
    assert choose_tokens(encoder, 512, 300, tmp_path) == (300, {}) and not encoder.seen and not list(tmp_path.iterdir())


def test_lineage_has_the_choice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_spec(import_spec(str(tiny_bert(tmp_path / "source"))))
    make_collection(Path("results/collections/small"), [("d1", "", "a text")], [("q1", "words")])
    seen: list[int] = []
    monkeypatch.setattr(
        embed,
        "choose_tokens",
        lambda encoder, longest, setting, state: (seen.append(longest), (128, {"tokens": 128}))[1],
    )
    spec = embed_spec("small")
    run_spec(spec)
    record = read_record(spec.outputs["embeddings"])
    assert record is not None and record["notes"]["batch_tokens"] == {"tokens": 128} and len(seen) == 1
