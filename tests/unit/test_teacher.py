"""The teacher's stages: it learns, resumes with the same bits, scores what was mined, and its scores reach students."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from cross_helpers import from_folder, init_spec, score_spec, tiny_teacher, train_spec
from encoder_helpers import tiny_bert
from test_finetune import curve, start, wait_for_checkpoint
from torch.nn import functional
from training_helpers import (
    QUERIES,
    make_mined,
    make_source,
    seal,
    tiny_model,
    weights_in,
)

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import run_spec
from zerodr.config.base import validate
from zerodr.config.trained import TrainedSettings
from zerodr.config.training import ObjectiveSettings
from zerodr.encoders.cross_encoder.network import CrossEncoder
from zerodr.errors import ArtifactError, CollectionError, ConfigError, ModelError, NonFiniteLoss, NonFiniteScore
from zerodr.training.data.batches import Stream, usable_rows
from zerodr.training.data.examples import load_examples
from zerodr.training.distributed.processes import RETRY, Group
from zerodr.training.loop.gradcache import add_gradients, prepare
from zerodr.training.loop.speed import set_dropout
from zerodr.training.objectives.ranking import make_objective
from zerodr.training.teaching.pairs import PairForward, evaluate_pairs

RECORD = "results/teacher/manifest.json"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A source, mined data, and an untrained teacher in results/init."""
    monkeypatch.chdir(tmp_path)
    make_source(tmp_path / "results/source")
    make_mined(tmp_path / "results/mined")
    tiny_teacher(tmp_path / "results/init", trained=False)
    return tmp_path


def test_from_a_checkpoint_to_a_teacher_that_learned(project):
    run_spec(init_spec(tiny_bert(project / "plain", initializer_range=0.1), "start"))
    assert not CrossEncoder.load(project / "results/start").contract.trained
    inputs = {"model": "results/start/manifest.json"}
    run_spec(
        train_spec(inputs=inputs, steps=150, learning_rate=3e-3, evaluate_steps=75, dropout=0.0, checkpoint_steps=100)
    )
    losses = [value for _, value in curve("loss", RECORD)]
    assert losses[0] == pytest.approx(np.log(3), rel=0.2)
    assert np.mean(losses[-15:]) < 0.6 * np.mean(losses[:15])
    assert [step for step, _ in curve("dev.accuracy", RECORD)] == [75, 150]
    notes = read_record(RECORD)["notes"]
    assert (notes["training_queries"], notes["dev_queries"]) == (QUERIES - 4, 4)
    assert CrossEncoder.load(project / "results/teacher").contract.trained
    run_spec(score_spec())
    metrics = {point["name"]: point["value"] for point in read_record("results/scored/manifest.json")["metrics"]}
    assert metrics["teacher_accuracy"] > 0.5 and metrics["mean_margin"] > 0


def pair_training(project: Path, negatives: int = 2, chunk: int | None = None) -> tuple:
    """Model, forward, stream and objective of a teacher's training without dropout."""
    model = CrossEncoder.load(project / "results/init")
    set_dropout(model, 0.0)
    examples = load_examples(project / "results/mined", project / "results/source", " ")
    stream = Stream(examples, usable_rows(examples, negatives)[0], 8, negatives, [1])
    objective = make_objective(ObjectiveSettings(name="info_nce", in_batch=False, negatives_per_query=negatives))
    return model.train(), PairForward(model, examples, "cpu", chunk), stream, objective


def gradients(project: Path, chunk: int | None) -> tuple[float, dict[str, torch.Tensor]]:
    model, forward, stream, objective = pair_training(project, chunk=chunk)
    terms = add_gradients(forward, objective, prepare(forward, stream.batch(0), Group()), Group(), [1])
    return float(sum(terms.values())), {name: weight.grad for name, weight in model.named_parameters()}


def test_the_loss_is_the_cross_entropy_of_the_positive_among_its_own_documents(project):
    model, forward, stream, _ = pair_training(project)
    batch, examples = stream.batch(0), forward.examples
    rows = np.repeat(batch.rows, 3)
    pairs = model.tokenize_pairs(examples.texts_of_queries(rows), examples.texts_of_documents(batch.documents.ravel()))
    logits = model.score(model.pad(pairs)).view(8, 3)
    expected = functional.cross_entropy(logits, torch.zeros(8, dtype=torch.long))
    expected.backward()
    loss, made = gradients(project, None)
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(made[name], weight.grad, atol=1e-5, rtol=1e-4, msg=name)
    # The last bias moves all scores alike, so its gradient is 0 but for rounding, which differs by processor.
    learned = [name for name in made if "query.weight" in name or "classifier" in name and not name.endswith("bias")]
    assert learned and all(bool(made[name].any()) for name in learned)


def test_gradient_caching_is_exact(project):
    loss, plain = gradients(project, None)
    cached_loss, cached = gradients(project, 5)
    assert cached_loss == pytest.approx(loss, rel=1e-6)
    largest = max(float(value.abs().max()) for value in plain.values())
    assert max(float((plain[name] - cached[name]).abs().max()) for name in plain) < 1e-5 * largest


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "lamb"},
        {"cache_chunk": 3},
        {"accumulation": 2},
        {"precision": "bf16"},
        {"dropout": 0.0},
        {"dev_queries": 0},
        {"negatives_per_query": 9},
        {"title_join": None},
    ],
    ids=str,
)
def test_every_setting_trains(project, changes):
    run_spec(train_spec(**changes))
    assert np.isfinite([value for _, value in curve("loss", RECORD)]).all()
    assert weights_in(project / "results/teacher") != weights_in(project / "results/init")


def test_the_same_spec_gives_the_same_bytes(project):
    run_spec(train_spec("a"))
    run_spec(train_spec("b"))
    assert weights_in(project / "results/a") == weights_in(project / "results/b")


def test_kill_and_resume_ends_with_the_same_bits(project):
    changes = {"steps": 30, "checkpoint_steps": 4, "evaluate_steps": 20}
    run_spec(train_spec("whole", **changes))
    process = start(train_spec("killed", **changes), project)
    wait_for_checkpoint(project, process)
    time.sleep(0.03)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    process = start(train_spec("killed", **changes), project)
    _, said = process.communicate()
    assert process.returncode == 0 and "resumed at" in said, said
    assert weights_in(project / "results/killed") == weights_in(project / "results/whole")
    for name in ("loss", "dev.accuracy", "gradient_norm"):
        assert curve(name, "results/killed/manifest.json") == curve(name, "results/whole/manifest.json")


def test_sigterm_checkpoints_and_asks_for_another_try(project):
    process = start(train_spec(steps=400, checkpoint_steps=2, dev_queries=0), project)
    wait_for_checkpoint(project, process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == RETRY and "a checkpoint is kept" in said, said


@pytest.mark.slow
def test_two_processes_are_one(project):
    run_spec(train_spec("one", dropout=0.0))
    run_spec(train_spec("two", dropout=0.0, processes=2))
    name = "results/{}/manifest.json"
    for measure in ("loss", "dev.recip_rank_cut_10"):
        one, two = (dict(curve(measure, name.format(place))) for place in ("one", "two"))
        assert two == pytest.approx(one, abs=1e-4)


class Known:
    """Scores a pair of equal texts by 1, others by 0."""

    training = True

    def pad(self, pairs):
        return {"scores": torch.tensor(pairs)[:, 0]}

    def score(self, features):
        return features["scores"]

    def eval(self):
        self.training = False

    def train(self, mode):
        self.training = mode


def test_dev_measures_of_a_teacher_that_knows_one_query(tmp_path, monkeypatch):
    from encoder_helpers import make_collection

    make_collection(
        tmp_path / "c", [("a", "", "x"), ("b", "", "y"), ("c", "", "z")], [("1", "x"), ("2", "z"), ("3", "w")]
    )
    make_mined(tmp_path / "m", rows=[("1", ["a"], ["b", "c"]), ("2", ["a"], ["b", "c"]), ("3", ["b"], ["a"])])
    examples, model = load_examples(tmp_path / "m", tmp_path / "c", " "), Known()
    forward = PairForward(model, examples, "cpu")
    monkeypatch.setattr(
        forward, "pairs", lambda *texts: [[float(one == other.split()[-1])] for one, other in zip(*texts, strict=True)]
    )
    found = evaluate_pairs(forward, examples, np.arange(3), 2, Group())
    assert found["accuracy"] == pytest.approx(1 / 3)
    assert found["recip_rank_cut_10"] == pytest.approx((1 + 1 / 3 + 1 / 2) / 3)  # ties count against the teacher
    assert model.training


def spoil(folder: Path, factor: float) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights["bert.embeddings.word_embeddings.weight"][10:] *= factor
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    seal(folder)


def test_nan_is_told_with_the_first_pair_or_the_batch(project):
    tiny_teacher(project / "results/teacher")
    spoil(project / "results/teacher", float("nan"))
    with pytest.raises(NonFiniteScore, match=r"query q\d+, document d\d+: the teacher gave nan"):
        run_spec(score_spec())
    assert not Path("results/scored/manifest.json").exists()
    spoil(project / "results/init", float("nan"))
    with pytest.raises(NonFiniteLoss, match=r"queries of the batch: q\d+"):
        run_spec(train_spec())


@pytest.mark.parametrize(
    "rows, message",
    [
        ([], "holds no query"),
        ([("q0", ["d0"], ["zz9"])], "1 of its 2 documents are not in collection source, the first is zz9"),
        ([("other", ["d0"], ["d1"])], "1 of its 1 queries are not in collection source"),
    ],
    ids=str,
)
def test_mined_files_of_another_corpus(project, rows, message):
    make_mined(project / "results/bad", rows=rows)
    tiny_teacher(project / "results/teacher")
    for spec in (score_spec, train_spec):
        with pytest.raises(ArtifactError, match=message):
            run_spec(spec(inputs={"mined": "results/bad/manifest.json"}))


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"source_split": "none"}, CollectionError, "no positive judgement"),
        ({"batch_queries": 64}, ConfigError, "larger than the 44 queries"),
        ({"negatives_per_query": 0}, ConfigError, "negatives_per_query"),
        ({"keep_optimizer": True}, ArtifactError, "keep_optimizer"),
        ({"precision": "fp16"}, ModelError, "fp16 needs a GPU"),
    ],
    ids=str,
)
def test_bad_settings(project, changes, error, message):
    with pytest.raises(error, match=message):
        run_spec(train_spec(**changes))
    assert not Path(RECORD).exists()


def test_a_bi_encoder_is_no_teacher(project):
    seal(tiny_model(project / "results/bi"))
    with pytest.raises(ModelError, match="is a bi-encoder's folder"):
        run_spec(train_spec(inputs={"model": "results/bi/manifest.json"}))
    with pytest.raises(ModelError, match="is a bi-encoder's folder"):
        run_spec(score_spec(inputs={"teacher": "results/bi/manifest.json"}))
    with pytest.raises(ModelError, match="is a bi-encoder: it has no trained head"):
        run_spec(init_spec("dpr/ep0", "x", trained=True, inputs={"parent": "results/bi/manifest.json"}))
    run_spec(init_spec("dpr/ep0", "x", inputs={"parent": "results/bi/manifest.json"}))
    contract = read_record("results/x/manifest.json")["notes"]["contract"]
    assert contract["source"] == "dpr/ep0" and not contract["trained"]


def test_a_trained_cross_encoder_is_taken_as_it_is(project):
    model = from_folder(tiny_bert(project / "plain"))
    model.save(project / "brought")
    (project / "brought/zerodr_cross.json").unlink()
    run_spec(init_spec(project / "brought", "teacher", trained=True))
    assert weights_in(project / "results/teacher") == weights_in(project / "brought")
    assert read_record(RECORD)["notes"]["fresh_weights"] == []
    run_spec(score_spec())
    assert len(pq.read_table("results/scored/scored.parquet")) == QUERIES


FINETUNED = {
    "negatives": {"source": "bm25"},
    "objective": {"name": "info_nce", "in_batch": False},
}


def recipe(encoder: dict, stage: dict | None = None) -> TrainedSettings:
    value = {"encoder": {"type": "cross_encoder", "init": "package:x"} | encoder}
    return validate(TrainedSettings, value | ({} if stage is None else {"chain": {"ep0": FINETUNED | stage}}), "test")


@pytest.mark.parametrize(
    "encoder, stage, message",
    [
        ({"init": "scratch"}, None, "starts from a checkpoint"),
        ({"layers": 3}, None, "layers is for training"),
        ({"pooling": "mean"}, None, "pooling"),
        ({"type": "bi_encoder"}, None, "chain has no stage"),
        ({}, {"negatives": {"source": "previous"}}, "negatives.source previous"),
        ({}, {"objective": {"name": "info_nce"}}, "in_batch: false"),
        ({}, {"objective": {"name": "margin_mse"}, "teacher": "x"}, "teacher is not for a cross-encoder"),
        ({}, {"rem": {}}, "rem is not for a cross-encoder"),
        ({}, {"training": {"save_steps": [3]}}, "save_steps"),
        ({}, {"training": {"dev_negatives": 0}}, "dev_negatives"),
        ({}, {"training": {"lora_rank": 4}}, "lora_rank is not for a cross-encoder"),
        ({}, {"kind": "answers", "negatives": None}, "negatives"),
    ],
    ids=str,
)
def test_bad_recipes_of_teachers(encoder, stage, message):
    with pytest.raises(ConfigError, match=message):
        recipe(encoder, stage)


def test_recipes_of_teachers():
    assert recipe({}).chain == {} and not recipe({}).ranks
    trained = recipe({"layers": 3}, {})
    assert trained.encoder.layers == 3 and list(trained.chain) == ["ep0"]


def test_a_stage_trains_models_of_its_own_types():
    answers = {"squad": {"kind": "answers"}}
    validate(TrainedSettings, {"encoder": {"type": "reader", "init": "package:x"}, "chain": answers}, "test")
    for encoder in ("cross_encoder", "bi_encoder"):
        with pytest.raises(ConfigError, match=f"stage squad of kind answers trains a reader, not a {encoder}"):
            validate(TrainedSettings, {"encoder": {"type": encoder, "init": "package:x"}, "chain": answers}, "test")
    with pytest.raises(ConfigError, match="trains a bi_encoder or cross_encoder, not a reader"):
        validate(
            TrainedSettings, {"encoder": {"type": "reader", "init": "package:x"}, "chain": {"ep0": FINETUNED}}, "test"
        )
