"""The reader: spans and scores, exact match and F1, training that resumes, scores of units, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.unit.training_helpers import cut_off, seal
from tests.unit.unit_helpers import QUERIES, label, lay_out, segment

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.errors import CollectionError, ConfigError, ModelError
from zerodr.papers.berm.answers import load_questions
from zerodr.papers.berm.reader import AnswerReader, ReadTokens, unit_shares
from zerodr.papers.berm.train_reader import IGNORED, ReadForward, best_spans, evaluate_reader, exact_match, f1, plain
from zerodr.training.distributed.processes import Group


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return lay_out(tmp_path_factory.mktemp("reader"))


@pytest.fixture
def project(built, tmp_path, monkeypatch) -> Path:
    shutil.copytree(built / "results", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(max_tokens: int = 64, **changes: Any) -> None:
    params = {"type": "reader", "init": "tiny/init", "max_tokens": max_tokens, "answer_tokens": 12} | changes
    run_spec(
        StageSpec(
            "init_model",
            2,
            {"model": "reader"},
            {"parent": "results/init/manifest.json"},
            {"model": "results/reader0/manifest.json"},
            params,
            5,
            1,
        )
    )


def train(place: str = "reader", dev_split: str = "train", **changes: Any) -> None:
    training = {"steps": 12, "batch_queries": 8, "learning_rate": 2e-3, "checkpoint_steps": 4, "dev_queries": 20}
    training |= changes
    params = {
        "encoder": "reader",
        "settings": {"kind": "answers", "training": training, "dev_split": dev_split},
        "schedule": {"stage": "squad", "stage_index": 0, "total_steps": training["steps"]},
        "source_split": "train",
    }
    run_spec(
        StageSpec(
            "finetune",
            1,
            {"model": "reader", "stage": place},
            {"model": "results/reader0/manifest.json", "source": "results/source/manifest.json"},
            {"model": f"results/{place}/manifest.json"},
            params,
            13,
            1,
        )
    )


def read(place: str = "read", reader: str = "reader", **changes: Any) -> Path:
    run_spec(
        StageSpec(
            "read_units",
            1,
            {"model": place},
            {
                "reader": f"results/{reader}/manifest.json",
                "source": "results/source/manifest.json",
                "units": "results/units/manifest.json",
            },
            {"read": f"results/{place}/manifest.json"},
            {"split": "train"} | changes,
            0,
            1,
        )
    )
    return Path(f"results/{place}")


def curve(name: str, place: str = "reader") -> list[float]:
    return [p["value"] for p in read_record(f"results/{place}/manifest.json")["metrics"] if p["name"] == name]


@pytest.mark.parametrize(
    "answer, gold, match, overlap",
    [
        ("The  Eiffel Tower!", ["eiffel tower"], 1.0, 1.0),
        ("the red tower", ["a tower", "blue"], 0.0, 2 / 3),
        ("", ["x"], 0.0, 0.0),
        ("the", ["a"], 1.0, 1.0),
        ("one two two", ["two two three three"], 0.0, 4 / 7),
    ],
    ids=str,
)
def test_exact_match_and_f1(answer, gold, match, overlap):
    assert exact_match(answer, gold) == match and f1(answer, gold) == pytest.approx(overlap)
    assert plain("A cat's  tail.") == "cats tail"


def test_best_spans_are_ordered_short_and_inside():
    start = torch.tensor([[0.0, 5.0, 0.0, 1.0], [9.0, 0.0, 0.0, -torch.inf]])
    end = torch.tensor([[8.0, 0.0, 0.0, 4.0], [0.0, 0.0, 3.0, -torch.inf]])
    both = torch.stack([start, end])
    assert best_spans(both, 4).tolist() == [[1, 3], [0, 2]]
    assert best_spans(both, 1).tolist() == [[0, 0], [0, 0]]


def test_shares_of_units():
    pair = ReadTokens(np.array([1, 5, 6, 7, 2]), 1, np.array([(0, 3), (3, 8), (9, 12)]))
    places = np.array([[0, 9], [9, 12], [12, 20]])
    probabilities = np.array([0.5, 0.2, 0.3, 9.0])
    assert unit_shares(probabilities, pair, "abc defg hij", places).tolist() == pytest.approx([0.7, 0.3, 0.0])
    assert unit_shares(probabilities, pair, "abc defg hij", places, "max").tolist() == pytest.approx([0.5, 0.3, 0.0])
    assert unit_shares(probabilities, pair, "abc defg hij", places, "mean").tolist() == pytest.approx([0.35, 0.3, 0.0])


def test_targets_are_the_tokens_of_the_answer(project):
    init()
    reader, (questions, displaced) = (
        AnswerReader.load(Path("results/reader0")),
        load_questions(Path("results/source"), "train", " "),
    )
    assert len(questions) == QUERIES - displaced
    for row, pair in enumerate(questions.tokens(reader, range(len(questions)))):
        first, last = questions.targets(row, pair)
        text = questions.passages[questions.owner[row]]
        assert text[pair.offsets[first][0] : pair.offsets[last][1]] == questions.answers[row][0]
        assert len(pair.ids) == pair.document + len(pair.offsets) + 1


def test_logits_are_the_networks_own_and_padding_changes_nothing(project):
    init()
    reader, (questions, _) = (
        AnswerReader.load(Path("results/reader0")),
        load_questions(Path("results/source"), "train", " "),
    )
    pairs = questions.tokens(reader, range(4))
    together = reader.logits(reader.features(pairs))
    for row, pair in enumerate(pairs):
        alone = reader.logits(reader.features([pair]))
        found = reader.network(**reader.pad([pair])).start_logits[0, pair.document :][: len(pair.offsets)]
        torch.testing.assert_close(alone[0, 0], found)
        torch.testing.assert_close(together[:, row, : len(pair.offsets)], alone[:, 0])
        assert (together[:, row, len(pair.offsets) :] == -torch.inf).all()


def test_answers_that_truncation_cuts_off_are_ignored(project):
    init(max_tokens=24)
    reader, (questions, _) = (
        AnswerReader.load(Path("results/reader0")),
        load_questions(Path("results/source"), "train", " "),
    )
    found = [questions.targets(row, pair) for row, pair in enumerate(questions.tokens(reader, range(len(questions))))]
    cut = sum(first == IGNORED for first, _ in found) / len(found)
    assert 0 < cut < 1
    forward = ReadForward(reader, questions, "cpu")
    assert evaluate_reader(forward, questions, range(len(questions)), 0, Group())["cut_off"] == pytest.approx(cut)


def test_a_reader_learns_and_its_scores_find_answers(project):
    segment()
    init()
    train(steps=160, learning_rate=3e-3, dropout=0.0, warmup_steps=10, max_grad_norm=1.0)
    losses = curve("loss")
    assert np.mean(losses[-10:]) < 0.6 * np.mean(losses[:10])
    questions, _ = load_questions(Path("results/source"), "train", " ")
    start = ReadForward(AnswerReader.load(Path("results/reader0")), questions, "cpu")
    before = evaluate_reader(start, questions, range(20), 0, Group())
    assert curve("dev.f1")[-1] > before["f1"] and curve("dev.exact_match")[-1] > before["exact_match"]
    rows = pq.read_table(read() / "reader_scores.parquet").to_pylist()
    assert all(0 < sum(row["scores"]) < 1 + 1e-4 for row in rows), "a title belongs to no unit"
    right = [int(np.argmax(row["scores"])) == int(row["query"][1:]) % 3 for row in rows[: QUERIES - 1]]
    assert np.mean(right) > 0.5
    table = pq.read_table(label(read="read") / "labels.parquet")
    assert table["reader"].null_count == 0


def test_a_run_that_was_cut_off_ends_with_the_same_bits(project, monkeypatch):
    init()
    train("whole")
    with cut_off(monkeypatch, 6):
        train("cut")
    train("cut")
    assert Path("results/cut/model.safetensors").read_bytes() == Path("results/whole/model.safetensors").read_bytes()
    assert curve("loss", "cut") == curve("loss", "whole")


def test_an_untrained_reader_scores_nothing(project):
    segment()
    init()
    with pytest.raises(ModelError, match="never trained"):
        read(reader="reader0")


def test_a_checkpoint_without_a_head_does_not_come_trained(project):
    with pytest.raises(ModelError, match="no trained head for question answering"):
        init(trained=True)


def test_sources_without_answers_are_refused(project):
    init()
    with pytest.raises(CollectionError, match=r"has no answers \(have: train\)"):
        train(dev_split="dev")
    Path("results/source/answers.parquet").unlink()
    seal(Path("results/source"))
    with pytest.raises(CollectionError, match=r"has no answers.parquet"):
        train()


def test_settings_that_a_reader_would_not_read_are_refused(project):
    init()
    with pytest.raises(ConfigError, match="training.cache_chunk is not for a reader"):
        train(cache_chunk=4)
    with pytest.raises(ConfigError, match="a batch of 64 questions is larger than the 40"):
        train(batch_queries=64)


def test_displaced_answers_are_counted(project):
    path = Path("results/source/answers.parquet")
    rows = pq.read_table(path).to_pylist()
    rows[0]["answers"][0]["start"] += 3
    pq.write_table(pa.Table.from_pylist(rows, pq.read_schema(path)), path)
    seal(path.parent)
    init()
    train()
    notes = read_record("results/reader/manifest.json")["notes"]
    assert (notes["displaced_answers"], notes["training_questions"]) == (1, QUERIES - 1)
