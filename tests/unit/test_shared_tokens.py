"""Texts of every kind of training are tokenised once, and what a step needs is ready before the step."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import moma_helpers
import numpy as np
import pytest
import torch
from cross_helpers import tiny_teacher, train_spec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit import adversary_helpers, test_frozen_index, test_reader
from tests.unit.training_helpers import (
    QUERIES,
    finetune_spec,
    lay_out,
    load_tiny,
    make_mined,
    make_source,
    ragged,
    seal,
    tiny_examples,
    tiny_model,
)
from torch import Tensor

from zerodr.artifacts.stage import run_spec
from zerodr.encoders.network.moving import on_device, pinned
from zerodr.encoders.network.tokenizing import Call
from zerodr.papers.berm.reader import AnswerReader
from zerodr.training.data.batches import Stream
from zerodr.training.data.examples import Examples, known_positives
from zerodr.training.data.tokens import SharedTokens
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import Forward


@pytest.fixture
def tokenised(monkeypatch) -> Counter:
    """Count how often each text was tokenised, by the way of calling."""
    counts: Counter = Counter()
    ids, offsets = Call.ids, AnswerReader._with_offsets

    def counted(call: Call, tokenizer: Any, texts: list[str]) -> Any:
        counts.update((call, text) for text in texts)
        return ids(call, tokenizer, texts)

    def with_offsets(reader: AnswerReader, texts: list[str]) -> Any:
        counts.update(("offsets", text) for text in texts)
        return offsets(reader, texts)

    monkeypatch.setattr(Call, "ids", counted)
    monkeypatch.setattr(AnswerReader, "_with_offsets", with_offsets)
    return counts


def finetuning(root: Path) -> None:
    lay_out(root)
    run_spec(finetune_spec(evaluate_steps=4))


def queries_alone(root: Path) -> None:
    make_source(root / "results/source"), make_mined(root / "results/mined")
    make_mined(root / "results/scored", scored=True)
    seal(tiny_model(root / "results/init", towers="separate"))
    shards = np.split(test_frozen_index.embedded(root), [25])
    for path, rows in zip(test_frozen_index.SHARDS, shards, strict=True):
        np.save(root / path, rows)
    run_spec(test_frozen_index.frozen_spec(list(test_frozen_index.SHARDS)))


def two_domains(root: Path) -> None:
    lay_out(root)
    adversary_helpers.make_target(root / "results/target")
    run_spec(adversary_helpers.spec(evaluate_steps=4))


def fused_queries(root: Path) -> None:
    moma_helpers.lay_out()
    moma_helpers.train_main(training={"steps": 6, "evaluate_steps": 2})


def pairs(root: Path) -> None:
    make_source(root / "results/source"), make_mined(root / "results/mined")
    tiny_teacher(root / "results/init", trained=False)
    run_spec(train_spec(evaluate_steps=4))


def answers(root: Path) -> None:
    test_reader.lay_out(root)
    test_reader.init()
    test_reader.train(evaluate_steps=4)


KINDS = [finetuning, queries_alone, two_domains, fused_queries, pairs, answers]


@pytest.mark.parametrize("kind", KINDS)
def test_no_step_and_no_evaluation_tokenises_a_text_again(tmp_path, monkeypatch, tokenised, kind: Callable):
    monkeypatch.chdir(tmp_path)
    kind(tmp_path)
    again = {key: count for key, count in tokenised.items() if count > 1}
    if kind is queries_alone:  # it probes a few documents' vectors, and its world is embedded text by text
        again = {key: count for key, count in again.items() if key[0].limit == 12}
    assert tokenised and not again


def test_threads_wait_for_a_text_that_another_one_tokenises():
    entered, go, calls = threading.Event(), threading.Event(), []

    def slow(texts: list[str]) -> list[list[int]]:
        calls.append(texts)
        entered.set()
        assert go.wait(60)
        return [[len(text)] for text in texts]

    shared, seen = SharedTokens(), []
    work = [threading.Thread(target=lambda: seen.append(shared.of(None, Call(), ["abc"], slow))) for _ in range(3)]
    for thread in work:
        thread.start()
    assert entered.wait(60)
    go.set()
    for thread in work:
        thread.join()
    assert calls == [["abc"]] and [rows[0].tolist() for rows in seen] == [[3]] * 3


def test_sides_that_call_the_tokenizer_alike_share_tokens(tmp_path, tokenised):
    model = load_tiny(tiny_model(tmp_path / "model"))
    forward = Forward(model, None, "cpu")
    model.contract = model.contract.model_copy(update={"query_tokens": None})
    first, second = forward.tokens(["ab cd"], "query")[0], forward.tokens(["ab cd"], "document")[0]
    assert first is second and first.dtype == np.int32 and sum(tokenised.values()) == 1


# ---- masks of known positives ------------------------------------------------------------------------------------
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), count=st.integers(1, 6), width=st.integers(1, 4), documents=st.integers(1, 9))
def test_known_positives_are_found_by_number(seed, count, width, documents):
    draw = np.random.default_rng(seed)
    lists = [draw.permutation(documents)[: draw.integers(0, 4)].tolist() for _ in range(8)]
    examples = Examples(*[None] * 4, ragged(lists), ragged([[]] * 8))
    rows, drawn = draw.integers(0, 8, count), draw.integers(0, documents, (count, width))
    expected = {
        (line, place)
        for line, row in enumerate(rows)
        for place, number in enumerate(drawn.ravel().tolist())
        if number in lists[row]
    }
    found = known_positives(examples, rows, drawn)
    assert found.shape == (len(expected), 2) and set(map(tuple, found.tolist())) == expected


def test_preparation_looks_up_no_name(tmp_path):
    examples, model = tiny_examples(tmp_path), load_tiny(tiny_model(tmp_path / "model"))
    batch = Stream(examples, np.arange(QUERIES), 8, 2, [0]).batch(0)
    nameless = replace(examples, queries=None)
    group = Group()
    group.world, group.rank = 2, 1
    share = Forward(model, nameless, "cpu").prepare(batch, group)
    assert len(share.texts.documents) == 4 and len(share.numbers["known"]) >= 8
    names = Forward(model, examples, "cpu").names(batch, 3)
    assert names == [f"q{row}" for row in batch.rows[:3]]


# ---- padded and pinned ahead -------------------------------------------------------------------------------------
def test_a_step_is_padded_and_pinned_before_it(tmp_path, monkeypatch):
    """As for a GPU, without one: every tensor of a share is in pinned memory when `prepare` ends."""
    examples, model = tiny_examples(tmp_path, scored=True), load_tiny(tiny_model(tmp_path / "model"))
    batch, ready = Stream(examples, np.arange(QUERIES), 8, 2, [0]).batch(0), set[int]()

    def pin(tensor: Tensor) -> Tensor:
        copy = tensor.clone()
        ready.add(id(copy))
        return copy

    monkeypatch.setattr(Tensor, "pin_memory", pin)
    share = Forward(model, examples, "cuda", 5).prepare(batch, Group())
    tensors = [*share.numbers.values(), *share.texts.rows]
    tensors += [tensor for features in share.texts.features for tensor in features.values()]
    assert set(share.numbers) == {"documents", "known", "teacher"} and len(tensors) > 9
    assert {id(tensor) for tensor in tensors} <= ready
    for number, (_, positions) in enumerate(share.texts.groups):
        expected = model.pad([share.texts.tokens[position] for position in positions])
        assert all(torch.equal(share.texts.features[number][name], tensor) for name, tensor in expected.items())
        assert share.texts.rows[number].tolist() == positions


def test_on_the_cpu_nothing_is_pinned_or_copied():
    tensor = torch.ones(3)
    assert pinned(tensor, "cpu") is tensor and on_device(tensor, "cpu") is tensor
