"""The stage that pretrains: every objective, COCO's falling loss, resumed runs with the same bits, bad input."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.unit.encoder_helpers import make_collection
from tests.unit.pretraining_helpers import curve, lay_out, pretrain_spec
from tests.unit.test_finetune import start, wait_for_checkpoint
from tests.unit.training_helpers import seal, weights_in

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.errors import ArtifactError, CollectionError, ConfigError, MachineError, ModelError, NonFiniteLoss
from zerodr.training.distributed.processes import RETRY

COLLECTION = {"collections": ["results/collections/sea/manifest.json"]}


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    return lay_out(tmp_path)


def test_coco_brings_spans_of_a_document_together(project):
    """On documents that were held out, in both corpora; the model loads and its head is kept beside it."""
    run_spec(pretrain_spec(steps=150, learning_rate=3e-3, evaluate_steps=75, batch_queries=16))
    for corpus in ("sea", "land"):
        points = curve(f"dev.contrastive.{corpus}")
        assert [step for step, _ in points] == [0, 75, 150]
        assert points[-1][1] < 0.9 * points[0][1]
    losses = [value for _, value in curve("contrastive")]
    assert np.mean(losses[-20:]) < 0.8 * np.mean(losses[:20])
    late = [value for _, value in curve("late_mlm")]
    assert np.mean(late[-20:]) < 0.8 * np.mean(late[:20])
    notes = read_record("results/coco/manifest.json")["notes"]
    assert notes["corpora"] == {"sea": 60, "land": 30} and notes["dev_documents"] == 6
    assert notes["from"] == {"prediction": "fresh", "layers": "fresh"}
    before, after = notes["before_and_after"]["contrastive"]
    assert before == pytest.approx(curve("dev.contrastive")[0][1]) and after == curve("dev.contrastive")[-1][1]
    assert load_encoder(project / "results/coco", device="cpu").dimension == 32
    assert (project / "results/coco/pretraining/head.safetensors").exists()
    assert not list(project.glob("results/.state/*/work"))


@pytest.mark.parametrize(
    "name, terms, measures",
    [
        ("coco", {"contrastive", "late_mlm", "head_mlm"}, {"masked_contrastive", "late_mlm", "head_mlm"}),
        ("condenser", {"late_mlm", "head_mlm"}, {"masked_contrastive", "late_mlm", "head_mlm"}),
        ("mlm", {"late_mlm"}, {"masked_contrastive", "late_mlm"}),
        ("ict", {"contrastive"}, set()),
        ("simcse", {"contrastive"}, set()),
        ("tsdae", {"reconstruction"}, {"reconstruction"}),
    ],
)
def test_every_objective_runs_and_tells_its_curves(project, name, terms, measures):
    run_spec(pretrain_spec(name=name, cache_chunk=5))
    names = {point["name"] for point in read_record("results/coco/manifest.json")["metrics"]}
    assert {n for n in names if "dev" not in n} == terms | {"loss", "gradient_norm", "learning_rate"}
    plain = {"contrastive", "alignment", "uniformity"}
    assert {n for n in names if n.startswith("dev.")} == {
        f"dev.{measure}{corpus}" for measure in plain | measures for corpus in ("", ".sea", ".land")
    }
    assert weights_in(project / "results/coco") != weights_in(project / "results/init")


@pytest.mark.parametrize("name", ["mlm", "condenser", "simcse", "tsdae"])
def test_whole_documents_can_be_learned_from(project, name):
    run_spec(pretrain_spec(name=name, inputs=COLLECTION, title_join=None))
    names = {point["name"] for point in read_record("results/coco/manifest.json")["metrics"]}
    assert "dev.uniformity.sea" in names and not any("contrastive." in name for name in names)
    assert read_record("results/coco/manifest.json")["notes"]["corpora"] == {"sea": 60}


@pytest.mark.parametrize(
    "changes",
    [{"accumulation": 2}, {"precision": "bf16"}, {"dropout": 0.0}, {"optimizer": "lamb"}, {"dev_queries": 0}],
    ids=str,
)
def test_settings_train(project, changes):
    run_spec(pretrain_spec(**changes))
    assert np.isfinite([value for _, value in curve("loss")]).all()


def test_the_same_spec_gives_the_same_bytes_and_step_0_stands_in_the_chain(project):
    run_spec(pretrain_spec("a", first_step=100))
    run_spec(pretrain_spec("b", first_step=100))
    for file in ("model.safetensors", "pretraining/head.safetensors"):
        assert (project / "results/a" / file).read_bytes() == (project / "results/b" / file).read_bytes()
    assert [step for step, _ in curve("dev.contrastive", "a")] == [100, 112]
    assert curve("loss", "a")[0][0] == 101


def test_a_next_pretraining_continues_with_the_head(project):
    run_spec(pretrain_spec("condenser", "condenser"))
    model = {"model": "results/condenser/manifest.json", "spans": ["results/spans/sea/manifest.json"]}
    run_spec(pretrain_spec("on", "coco", model, {"head": "from_model"}))
    notes = read_record("results/on/manifest.json")["notes"]
    assert notes["from"] == {"prediction": "pretraining", "layers": "model"} and notes["corpora"] == {"sea": 60}
    last = curve("dev.head_mlm.sea", "condenser")[-1][1]
    assert curve("dev.head_mlm.sea", "on")[0][1] == pytest.approx(last, rel=1e-5)
    run_spec(pretrain_spec("off", "coco", model))
    assert curve("dev.head_mlm.sea", "off")[0][1] != pytest.approx(last, rel=1e-5)
    assert read_record("results/off/manifest.json")["notes"]["from"] == {"prediction": "pretraining", "layers": "fresh"}


def test_models_of_save_steps_can_be_taken(project):
    run_spec(pretrain_spec("coco", save_steps=[5]))
    taken = StageSpec(
        "take_step",
        1,
        {"step": "5"},
        {"model": "results/coco/manifest.json"},
        {"model": "results/coco.5/manifest.json"},
        {"step": 5},
    )
    run_spec(taken)
    assert BiEncoder.load(project / "results/coco.5")
    assert weights_in(project / "results/coco.5") != weights_in(project / "results/coco")
    begin = pretrain_spec().inputs | {"model": "results/coco.5/manifest.json"}
    run_spec(pretrain_spec("on", inputs=begin, steps=1))
    assert read_record("results/on/manifest.json")["notes"]["from"]["prediction"] == "pretraining"


@pytest.mark.parametrize("kills", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_kill_and_resume_ends_with_the_same_bits(project, kills):
    """kill -9 at random moments, in or between steps and checkpoints, with gradient caching and dropout."""
    changes = {"steps": 20 * kills, "checkpoint_steps": 4, "evaluate_steps": 10, "cache_chunk": 6}
    run_spec(pretrain_spec("whole", **changes))
    generator, killed = np.random.default_rng(0), 0
    for number in range(kills):
        process = start(pretrain_spec("killed", **changes), project)
        wait_for_checkpoint(project, process, 18 * number)
        time.sleep(float(generator.uniform(0, 0.1)))
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
    assert killed >= max(1, kills - 2)
    process = start(pretrain_spec("killed", **changes), project)
    _, said = process.communicate()
    assert process.returncode == 0 and "resumed at" in said, said
    for file in ("model.safetensors", "pretraining/head.safetensors"):
        assert (project / "results/killed" / file).read_bytes() == (project / "results/whole" / file).read_bytes()
    for name in ("loss", "dev.contrastive", "dev.masked_contrastive.sea", "gradient_norm"):
        assert curve(name, "killed") == curve(name, "whole") and curve(name, "whole")


def test_sigterm_checkpoints_and_asks_for_another_try(project):
    process = start(pretrain_spec(steps=2000, checkpoint_steps=2, dev_queries=0), project)
    wait_for_checkpoint(project, process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == RETRY, said
    assert "a checkpoint is kept" in said and list(project.glob("results/.state/*/work/checkpoint-*"))
    assert not (project / "results/coco/manifest.json").exists()


@pytest.mark.slow
def test_two_processes_run_as_a_stage(project):
    run_spec(pretrain_spec("one", dropout=0.0))
    run_spec(pretrain_spec("two", dropout=0.0, processes=2))
    one, two = (load_file(project / f"results/{name}/model.safetensors") for name in ("one", "two"))
    assert max(float((one[key] - two[key]).abs().max()) for key in one) < 1e-3
    for name in ("dev.contrastive", "loss"):
        assert curve(name, "two") == [(step, pytest.approx(value, rel=1e-3)) for step, value in curve(name, "one")]


def test_nan_stops_and_names_the_documents(project):
    path = project / "results/init/model.safetensors"
    weights = load_file(path)
    name = next(key for key in weights if key.endswith("word_embeddings.weight"))
    weights[name] = weights[name] * 1e38
    save_file(weights, path)
    seal(project / "results/init")
    with pytest.raises(NonFiniteLoss, match=r"step 0: .* is (nan|inf); documents of the batch: (sea|land)/\w+, "):
        run_spec(pretrain_spec(dev_queries=0))


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"batch_queries": 88}, ConfigError, "larger than the 84 that there are"),
        ({"lora_rank": 3}, ConfigError, "lora_rank is not for pretraining"),
        ({"keep_optimizer": True}, ConfigError, "keep_optimizer is not for pretraining"),
        ({"name": "simcse", "dropout": 0.0}, ConfigError, "other dropout"),
        ({"accumulation": 3}, ConfigError, "can't be shared equally"),
        ({"gpus": 99}, MachineError, "asks for 99 GPUs"),
        ({"objective": {"max_tokens": 600}}, ModelError, "takes 512 tokens, max_tokens asks for 600"),
        ({"objective": {"skip_layer": 2}}, ModelError, "skip_layer 2 is not below"),
        ({"objective": {"head": "from_model"}}, ModelError, "head: from_model continues with"),
        ({"objective": {"keep_rate": 0.5}}, ConfigError, "keep_rate is not for coco"),
        ({"inputs": COLLECTION}, ConfigError, "coco needs documents of several spans"),
        (
            {"inputs": COLLECTION | {"spans": ["results/spans/sea/manifest.json"]}},
            ConfigError,
            "has both of the inputs",
        ),
        ({"inputs": {"model": "results/init/manifest.json"}}, ConfigError, "has neither of the inputs"),
        ({"inputs": {"spans": ["results/spans/sea/manifest.json"] * 2}}, ConfigError, "collection sea is given twice"),
    ],
    ids=str,
)
def test_bad_settings(project, changes, error, message):
    with pytest.raises(error, match=message):
        run_spec(pretrain_spec(**changes))
    assert not (project / "results/coco/manifest.json").exists()


def test_models_that_cannot_be_pretrained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place, model, name, message in (
        ("t5", {"family": "t5", "pooling": "mean"}, "mlm", "is of family t5"),
        ("mean", {"pooling": "mean"}, "coco", "has pooling mean; Condenser's head teaches .CLS. alone"),
        ("two", {"towers": "separate"}, "simcse", "has two towers"),
    ):
        monkeypatch.chdir(lay_out(tmp_path / place, **model))
        with pytest.raises(ModelError, match=message):
            run_spec(pretrain_spec(name=name))
    monkeypatch.chdir(tmp_path / "mean")
    run_spec(pretrain_spec(objective={"head_layers": 0}))  # without a head any pooling learns


def test_damaged_spans_are_told(project):
    folder = project / "results/spans/sea"
    (folder / "spans.parquet").write_bytes(b"no parquet")
    seal(folder)
    with pytest.raises(ArtifactError, match="can't be read as parquet"):
        run_spec(pretrain_spec())


def test_a_corpus_without_a_text_is_told(project):
    make_collection(project / "results/collections/bare", [("a", "", " ")])
    inputs = {"collections": [*COLLECTION["collections"], "results/collections/bare/manifest.json"]}
    with pytest.raises(CollectionError, match="bare: has no document of at least 3 tokens"):
        run_spec(pretrain_spec(name="mlm", inputs=inputs))


def test_a_target_goes_on_from_the_source(project):
    """Sequential initialisation: backbone and prediction layer are those that the first corpus left."""
    run_spec(pretrain_spec("dam", "mlm", COLLECTION, {"mask_unit": "token"}, steps=3))
    begin = {"model": "results/dam/manifest.json"} | COLLECTION
    run_spec(pretrain_spec("target", "mlm", begin, {"mask_unit": "token"}, steps=1, learning_rate=1e-30))
    assert read_record("results/dam/manifest.json")["notes"]["from"] == {"prediction": "fresh"}
    assert read_record("results/target/manifest.json")["notes"]["from"] == {"prediction": "pretraining"}
    for name in ("model.safetensors", "pretraining/head.safetensors"):
        first, second = (load_file(project / "results" / place / name) for place in ("dam", "target"))
        assert all(torch.equal(first[key], second[key]) for key in first)


def test_small_corpora_get_fewer_steps(project):
    """59 documents to train on (60 less one of held-out), batches of 8: 7 steps an epoch."""
    run_spec(pretrain_spec(name="mlm", inputs=COLLECTION, steps=40, max_epochs=2, dev_queries=1))
    notes = read_record("results/coco/manifest.json")["notes"]
    assert (notes["steps"], notes["epochs"]) == (14, 2.0)
    assert notes["left_out"]["sea"].get("too_short", 0) == 0
    with pytest.raises(ConfigError, match="keeps step 20, but max_epochs 2 ends training after 14"):
        run_spec(pretrain_spec("kept", "mlm", COLLECTION, steps=40, max_epochs=2, dev_queries=1, save_steps=[20]))
    # a rehearsal has fewer steps than that
    run_spec(pretrain_spec("rehearsed", "mlm", COLLECTION, steps=1, max_epochs=2, dev_queries=1, save_steps=[10]))
    assert (project / "results/rehearsed/steps/10/model.safetensors").exists()


def test_an_encoder_of_another_family_learns_to_predict(tmp_path):
    """Any encoder that is no part of an encoder-decoder; ALBERT's embeddings are narrower than its states."""
    from tests.unit.encoder_helpers import SIZES, save_tokenizer
    from transformers import AlbertConfig, AlbertModel

    from zerodr.config.training import InitSettings
    from zerodr.encoders.pretraining.condenser import HeadedEncoder, real_tokens
    from zerodr.encoders.start.initial import from_checkpoint

    AlbertModel(AlbertConfig(**SIZES, embedding_size=16)).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    wanted = InitSettings(init=str(tmp_path), pooling="mean", query_tokens=12, document_tokens=12)
    model = HeadedEncoder(from_checkpoint(wanted, tmp_path, None, 1)[0], "none").train()
    features = model.encoder.pad(model.encoder.tokenize(["a b c d"], "document"))
    _, last, early = model.states(features)
    loss = model.masked_losses(last, early, features["attention_mask"], *real_tokens(features))["late_mlm"]
    loss.backward()
    assert model.prediction.dense.weight.shape == (16, 32) and loss.isfinite()
    assert model.backbone.get_input_embeddings().weight.grad.abs().sum() > 0
