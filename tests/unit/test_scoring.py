"""Scores of mined pairs: those of the teacher, once for each pair, resumable, and followed by students."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from cross_helpers import score_spec, tiny_teacher
from test_finetune import curve
from training_helpers import QUERIES, finetune_spec, load_tiny, make_mined, make_source, seal, tiny_model

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import run_spec
from zerodr.encoders.cross_encoder.network import CrossEncoder
from zerodr.errors import ArtifactError, ModelError
from zerodr.losses.distillation import kl_distillation, margin_mse
from zerodr.training.data.batches import Stream, usable_rows
from zerodr.training.data.examples import load_examples
from zerodr.training.teaching import scoring
from zerodr.training.teaching.scoring import ScoreStore, pairs_of, score_statistics, warn_of_guessing


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A source, mined data, and a teacher."""
    monkeypatch.chdir(tmp_path)
    make_source(tmp_path / "results/source")
    make_mined(tmp_path / "results/mined")
    tiny_teacher(tmp_path / "results/teacher")
    return tmp_path


def test_scores_are_those_of_sentence_transformers(project):
    from sentence_transformers import CrossEncoder as Theirs

    run_spec(score_spec(batch_pairs=7))
    mined, scored = (pq.read_table(f"results/{name}/{name}.parquet") for name in ("mined", "scored"))
    assert scored.drop_columns("scores").equals(mined)
    examples = load_examples(project / "results/mined", project / "results/source", " ")
    queries = examples.texts_of_queries(np.arange(QUERIES))
    named = [np.r_[examples.positives[row][:1], examples.negatives[row]] for row in range(QUERIES)]
    pairs = [
        (query, text) for query, own in zip(queries, named, strict=True) for text in examples.texts_of_documents(own)
    ]
    expected = Theirs("results/teacher", device="cpu").predict(pairs).reshape(QUERIES, 5)
    np.testing.assert_allclose(np.array(scored["scores"].to_pylist()), expected, atol=1e-5)
    record = read_record("results/scored/manifest.json")
    metrics = {point["name"]: point["value"] for point in record["metrics"]}
    margins = expected[:, :1] - expected[:, 1:]
    assert metrics["mean_margin"] == pytest.approx(margins.mean(), abs=1e-5)
    assert metrics["margin_deviation"] == pytest.approx(margins.std(), abs=1e-5)
    assert metrics["teacher_accuracy"] == pytest.approx((margins > 0).all(1).mean())
    assert record["notes"]["pairs"] == record["notes"]["distinct_pairs"] == 5 * QUERIES
    assert 0 < record["notes"]["pairs_at_length_limit"] <= 5 * QUERIES
    assert 0 <= record["notes"]["waited_for_data"] < 1


def test_titles_reach_the_teacher(project):
    run_spec(score_spec("with"))
    run_spec(score_spec("without", title_join=None))
    one, other = (pq.read_table(f"results/{name}/scored.parquet")["scores"].to_pylist() for name in ("with", "without"))
    untitled = [i for i in range(QUERIES) if i % 3 == 0]
    assert all(one[i][0] == pytest.approx(other[i][0], abs=1e-5) for i in untitled)
    assert any(abs(one[i][0] - other[i][0]) > 1e-3 for i in range(QUERIES) if i not in untitled)


def test_pairs_are_scored_once_and_queries_without_a_positive_keep_their_row(project):
    rows = [("q0", ["d0", "d50"], ["d1", "d1", "d2"]), ("q1", [], ["d3"]), ("q2", ["d2"], []), ("q0", ["d0"], ["d2"])]
    make_mined(project / "results/odd", rows=rows)
    run_spec(score_spec(inputs={"mined": "results/odd/manifest.json"}))
    scores = pq.read_table("results/scored/scored.parquet")["scores"].to_pylist()
    assert [len(row) for row in scores] == [4, 2, 1, 2]
    assert scores[0][1] == scores[0][2] and scores[3] == [scores[0][0], scores[0][3]]
    assert scores[1][0] is None and scores[1][1] is not None
    notes = read_record("results/scored/manifest.json")["notes"]
    assert (notes["pairs"], notes["distinct_pairs"]) == (8, 5)
    assert (notes["queries_without_positive"], notes["queries_without_negative"]) == (1, 1)
    examples = load_examples(project / "results/odd", project / "results/source", " ", project / "results/scored")
    assert len(usable_rows(examples, 1)[0]) == 2


def test_statistics_of_scores(tmp_path):
    make_source(tmp_path / "source")
    make_mined(tmp_path / "mined", rows=[("q0", ["d0"], ["d1", "d2"]), ("q1", [], ["d3"]), ("q2", ["d2"], ["d4"])])
    pairs = pairs_of(load_examples(tmp_path / "mined", tmp_path / "source", " "))
    slots = np.array([3, 1, 4, np.nan, 9, 2, 0], np.float32)
    found = score_statistics(slots, pairs)
    assert found == pytest.approx(
        {
            "mean_margin": 1.0,
            "margin_deviation": np.std([2, -1, 2]),
            "teacher_accuracy": 0.5,
            "chance_accuracy": (1 / 3 + 1 / 2) / 2,
        }
    )


@pytest.mark.parametrize(
    ("accuracy", "chance", "told"),
    [(0.19, 1 / 6, True), (0.34, 1 / 6, False), (0.52, 0.5, True), (0.78, 0.5, False), (0.4, 0.5, True)],
)
def test_a_teacher_that_guesses_is_told_of(caplog, accuracy, chance, told):
    facts = {"teacher_accuracy": accuracy, "chance_accuracy": chance, "margin_deviation": 0.0013}
    warn_of_guessing("score_pairs kd", facts)
    says = f"first for {100 * accuracy:.1f} % of queries, scores drawn at random for {100 * chance:.1f} %"
    assert (says in caplog.text) is told
    warn_of_guessing("score_pairs nothing", {})
    assert "nothing:" not in caplog.text


def test_scoring_continues_where_it_was_stopped(project, monkeypatch):
    monkeypatch.setattr(scoring, "BLOCK", 50)
    run_spec(score_spec("whole", batch_pairs=8))
    add, calls = ScoreStore.add, []

    def stopping(store, scores, counts):
        calls.append(len(scores))
        if len(calls) == 3:
            store.path.open("ab").write(b"half a block")
            raise KeyboardInterrupt
        add(store, scores, counts)

    monkeypatch.setattr(ScoreStore, "add", stopping)
    with pytest.raises(KeyboardInterrupt):
        run_spec(score_spec("stopped", batch_pairs=8))
    monkeypatch.setattr(ScoreStore, "add", add)
    run_spec(score_spec("stopped", batch_pairs=8))
    whole, stopped = (Path(f"results/{name}") for name in ("whole", "stopped"))
    assert (whole / "scored.parquet").read_bytes() == (stopped / "scored.parquet").read_bytes()
    facts = [read_record(f"{place}/manifest.json")["notes"] for place in (whole, stopped)]
    assert [fact["resumed_at"] for fact in facts] == [0, 100]
    assert facts[0]["tokens"] == facts[1]["tokens"]


def test_a_store_of_another_machine_is_not_continued(tmp_path):
    ScoreStore(tmp_path, {"device": "cpu"}).add(np.ones(3, np.float32), {"tokens": 3})
    assert ScoreStore(tmp_path, {"device": "cpu"}).done == 3
    fresh = ScoreStore(tmp_path, {"device": "cuda"})
    assert (fresh.done, fresh.totals, len(fresh.scores())) == (0, {}, 0)


@pytest.mark.parametrize("name", ["margin_mse", "kl"])
def test_students_follow_the_scores_of_the_first_positive(project, name):
    """From the teacher through scored.parquet to the loss of a student's first step; q0 and q1 have two positives."""
    run_spec(score_spec())
    seal(tiny_model(project / "results/student"))
    named = {"model": "results/student/manifest.json", "scored": "results/scored/manifest.json"}
    changes = {"name": name, "negatives_per_query": 2, "batch_queries": QUERIES, "dev_queries": 0, "dropout": 0.0}
    run_spec(finetune_spec(inputs=named, steps=60, total_steps=60, learning_rate=3e-3, **changes))
    losses = curve(name)
    expected = first_loss(project, name)
    assert losses[0][1] == pytest.approx(expected, rel=1e-4)
    assert np.mean([value for _, value in losses[-10:]]) < 0.8 * expected


def first_loss(project: Path, name: str) -> float:
    """The loss by the definition: student scores and teacher logits of the same texts, by id."""
    examples = load_examples(project / "results/mined", project / "results/source", " ", project / "results/scored")
    batch = Stream(examples, np.arange(QUERIES), QUERIES, 2, [13, 0]).batch(0)
    teacher, student = CrossEncoder.load(project / "results/teacher"), load_tiny(project / "results/student")
    queries, documents = examples.texts_of_queries(batch.rows), batch.documents
    assert (documents[:, 0] == [examples.positives[int(row)][0] for row in batch.rows]).all()
    texts = examples.texts_of_documents(documents.ravel())
    with torch.no_grad():
        pairs = teacher.tokenize_pairs(np.repeat(np.array(queries, object), 3).tolist(), texts)
        wanted = teacher.score(teacher.pad(pairs)).view(-1, 3)
        left = student.encode(student.pad(student.tokenize(queries, "query")), "query")
        right = student.encode(student.pad(student.tokenize(texts, "document")), "document").view(len(left), 3, -1)
    torch.testing.assert_close(torch.from_numpy(batch.teacher), wanted, atol=1e-5, rtol=1e-5)
    loss = margin_mse if name == "margin_mse" else kl_distillation
    return loss(torch.einsum("bd,bkd->bk", left, right), wanted).item()


def test_scores_that_are_not_finite_are_refused_before_training(project):
    path = make_mined(project / "results/scored", scored=True) / "scored.parquet"
    table = pq.read_table(path)
    values = table["scores"].to_pylist()
    values[7][2] = None
    pq.write_table(table.set_column(3, "scores", [values]), path)
    with pytest.raises(ArtifactError, match="query q7 has a score that is missing"):
        load_examples(project / "results/mined", project / "results/source", " ", path)


def test_a_teacher_that_was_never_trained_does_not_score(project):
    tiny_teacher(project / "results/init", trained=False)
    with pytest.raises(ModelError, match="never trained"):
        run_spec(score_spec(inputs={"teacher": "results/init/manifest.json"}))
