"""Masked words next to a stage's loss: the weighted sum, its gradient, weight 0, resume, composition, refusals."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.unit import word_probe
from tests.unit.training_helpers import (
    cut_and_resumed,
    finetune_spec,
    fork_ranks,
    lay_out,
    run_two_processes,
    seal,
    tiny_model,
    tiny_settings,
    weights_in,
)
from tests.unit.word_probe import TARGET, TEXTS, WEIGHT, gradient, joint, lay_out_both, make_target, parts

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.config.trained import STAGES
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.errors import CollectionError, ConfigError, ModelError
from zerodr.papers.udalm.settings import MaskedWordsSettings
from zerodr.training.data.tokens import SharedTokens
from zerodr.training.distributed.processes import Group
from zerodr.training.objectives.ranking import InfoNCE
from zerodr.training.pretraining.span_forward import OwnLosses

CLOSE = 1e-6
SMALL = {"max_tokens": 24}
HEAD = "pretraining/head.safetensors"
CORPORA = {"corpora": [f"{TARGET}/manifest.json"]}


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    return lay_out_both(tmp_path)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return lay_out_both(tmp_path_factory.mktemp("words"))


def spec(
    place: str = "ep0",
    masked_words: dict[str, Any] | None = None,
    inputs: dict[str, Any] | None = None,
    scope: str = "target",
    further: dict[str, Any] | None = None,
    **changes: Any,
) -> StageSpec:
    """A stage with masked words; `further` are settings, or params where these have no such key."""
    made = finetune_spec(place, CORPORA | (inputs or {}), **changes)
    made.params["settings"] |= {"scope": scope, "masked_words": SMALL | (masked_words or {})} | (further or {})
    return made


def curve(name: str, place: str = "ep0") -> list[float]:
    return [p["value"] for p in read_record(f"results/{place}/manifest.json")["metrics"] if p["name"] == name]


def notes(place: str = "ep0") -> dict[str, Any]:
    return read_record(f"results/{place}/manifest.json")["notes"]


# ---- loss and gradient ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("chunk", [None, 3])
def test_the_loss_is_the_weighted_sum_and_its_gradient_that_of_both_alone(world, chunk):
    forward, stream = parts(world, chunk)
    batch, group = stream.batch(2), Group()
    together, terms = gradient(forward, joint(), batch, group)
    stage, ranking = gradient(forward.main, InfoNCE(), batch.main, group)
    words, masked = gradient(forward.words, OwnLosses(), batch.documents, group)
    assert set(terms) == {"main.info_nce", "masked_words"}
    assert float(terms["main.info_nce"]) == pytest.approx((1 - WEIGHT) * float(ranking["info_nce"]), rel=CLOSE)
    assert float(terms["masked_words"]) == pytest.approx(WEIGHT * float(masked["late_mlm"]), rel=CLOSE)
    zero = torch.zeros(1)
    for name, value in together.items():
        alone = (1 - WEIGHT) * stage.get(name, zero) + WEIGHT * words.get(name, zero)
        assert float((value - alone).abs().max()) < CLOSE * float(alone.abs().max().clamp(min=1)), name
    assert "prediction.dense.weight" in together and "prediction.dense.weight" not in stage


def test_masks_do_not_change_what_queries_see(world):
    """Dropout of the stage's passes is the same with and without masked documents."""
    forward, stream = parts(world)
    forward.model.train()
    for module in forward.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.2
    batch = stream.batch(0)
    _, terms = gradient(forward, joint(), batch, Group())
    _, alone = gradient(forward.main, InfoNCE(), batch.main, Group())
    assert float(terms["main.info_nce"]) == pytest.approx((1 - WEIGHT) * float(alone["info_nce"]), rel=CLOSE)


def test_a_stages_tokens_are_those_that_other_jobs_share(world):
    forward, stream = parts(world)
    forward.shared = SharedTokens(world / "tokens")
    forward.prepare(stream.batch(0), Group())
    assert forward.shared.stores and forward.main.shared is forward.shared


def test_two_processes_give_the_gradient_of_one(world, root):
    one, (two, other) = word_probe.gradients(world), run_two_processes(root, "word_probe", world)
    top = max(float(value.abs().max()) for value in one.values())
    for name, value in one.items():
        assert float((value - two[name]).abs().max()) < 1e-5 * top and torch.equal(two[name], other[name]), name


def test_weights_are_shares_of_a_steps_texts():
    training = STAGES["finetune"].model_validate(tiny_settings()["settings"]).training
    published, fewer, given = (MaskedWordsSettings(**v) for v in ({}, {"texts": 2}, {"weight": 0.3}))
    assert published.weight_of(training) == 0.5 and published.texts_of(training) == 8
    assert fewer.weight_of(training) == pytest.approx(0.2) and given.weight_of(training) == 0.3


# ---- a stage -------------------------------------------------------------------------------------------------------
def test_a_stage_learns_both(project, caplog):
    with caplog.at_level(logging.WARNING):
        run_spec(spec(masked_words={"texts": TEXTS}, steps=60, total_steps=60, learning_rate=3e-3, dropout=0.0))
    assert "its start has no layer that predicts masked words, a fresh one learns from here on" in caplog.text
    names = {point["name"] for point in read_record("results/ep0/manifest.json")["metrics"]}
    assert {"loss", "main.info_nce", "masked_words"} <= names
    sums = np.add(curve("main.info_nce"), curve("masked_words"))
    assert np.allclose(curve("loss"), sums)
    for name in ("main.info_nce", "masked_words"):
        assert np.mean(curve(name)[-10:]) < 0.9 * np.mean(curve(name)[:10]), name
    facts = notes()
    assert facts["masked_words"] == {"weight": 0.6, "texts": 12, "prediction": "fresh", "corpora": {"target": 39}}
    assert facts["left_out"] == {"target": {"repeated": 0, "too_short": 0}}
    assert load_encoder(project / "results/ep0", device="cpu").dimension == 32
    assert (project / "results/ep0" / HEAD).exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"accumulation": 2},
        {"cache_chunk": 3, "accumulation": 2},
        {"precision": "bf16"},
        {"optimizer": "lamb"},
        {"name": "pairwise_nll"},
        {"masked_words": {"mask_unit": "token", "mask_rate": 0.3, "weight": 0.9}},
    ],
    ids=str,
)
def test_every_setting_trains(project, changes):
    run_spec(spec(**changes))
    assert np.isfinite(curve("loss")).all() and min(curve("masked_words")) > 0
    assert weights_in(Path("results/ep0")) != weights_in(Path("results/init"))


def test_weight_0_is_the_plain_stage_bit_for_bit(project):
    run_spec(spec("none", {"weight": 0.0}))
    run_spec(finetune_spec("plain"))
    assert weights_in(Path("results/none")) == weights_in(Path("results/plain"))
    assert curve("loss", "none") == curve("loss", "plain") and not (project / "results/none" / HEAD).exists()


def test_the_same_spec_gives_the_same_bytes_and_another_seed_others(project):
    run_spec(spec("a"))
    run_spec(spec("b"))
    other = spec("c")
    other.params["schedule"]["stage_index"] = 1
    run_spec(other)
    for file in ("model.safetensors", HEAD):
        a, b, c = ((project / "results" / place / file).read_bytes() for place in "abc")
        assert a == b != c


@pytest.mark.parametrize("changes", [{}, {"cache_chunk": 3, "masked_words": {"texts": 4}}], ids=str)
def test_a_killed_training_ends_with_the_same_bits(project, monkeypatch, changes):
    cut_and_resumed(spec, monkeypatch, checkpoint_steps=4, **changes)
    for file in ("model.safetensors", HEAD):
        assert (project / "results/whole" / file).read_bytes() == (project / "results/cut" / file).read_bytes()
    assert curve("masked_words", "whole") == curve("masked_words", "cut")


def test_several_processes_train_as_one(project, monkeypatch):
    fork_ranks(monkeypatch)
    run_spec(spec("one", dropout=0.0, steps=4, total_steps=4))
    run_spec(spec("two", dropout=0.0, steps=4, total_steps=4, processes=2))
    one, two = (load_file(project / "results" / place / "model.safetensors") for place in ("one", "two"))
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < 1e-3
    assert curve("masked_words", "two") == pytest.approx(curve("masked_words", "one"), rel=1e-4)


def test_the_layer_of_masked_words_goes_on(project):
    """From pretraining to the joint stage, in its kept steps, and to the stage after it."""
    training = {"steps": 3, "batch_queries": 8}
    objective = {"name": "mlm", "max_tokens": 24}
    words = {"kind": "pretrain", "corpora": ["target"], "scope": "target", "objective": objective, "training": training}
    params = {"settings": words, "schedule": {"stage": "words", "stage_index": 0, "total_steps": 3}}
    inputs = {"model": "results/init/manifest.json", "collections": CORPORA["corpora"]}
    made = {"model": "results/words/manifest.json"}
    run_spec(StageSpec("pretrain", 1, {"model": "tiny", "stage": "words"}, inputs, made, params, 13, 1))
    tiny_step = {"steps": 2, "total_steps": 2, "learning_rate": 1e-9, "warmup_steps": 0, "save_steps": [1]}
    run_spec(spec("ep0", inputs={"model": "results/words/manifest.json"}, **tiny_step))
    run_spec(spec("ep1", inputs={"model": "results/ep0/manifest.json"}, steps=2, total_steps=2))
    assert notes()["masked_words"]["prediction"] == notes("ep1")["masked_words"]["prediction"] == "pretraining"
    first, second = (load_file(project / "results" / place / HEAD) for place in ("words", "ep0"))
    assert all(torch.allclose(first[name], second[name], atol=1e-6) for name in first)
    assert (project / "results/ep0/steps/1" / HEAD).exists()


# ---- next to other additions ---------------------------------------------------------------------------------------
def test_an_adversary_and_masked_words_learn_in_one_step(project):
    adversary = {"queue_length": 4, "updates": 2, "minibatch": 8, "optimizer": "adamw", "queries": "none"}
    made = spec(inputs={"targets": CORPORA["corpora"]}, further={"adversary": adversary}, cache_chunk=3)
    made.params["targets"] = {"target": {"split": None}}
    run_spec(made)
    loss = np.add(np.add(curve("main.ranking.info_nce"), curve("main.adversary.confusion")), curve("masked_words"))
    assert np.allclose(curve("loss"), loss, rtol=1e-4)
    assert (project / "results/ep0" / HEAD).exists() and (project / "results/ep0/adversary").exists()


def test_groups_without_gradients_and_masked_words_learn_in_one_step(project):
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = project / "results/clusters"
    folder.mkdir()
    columns = {"query": [f"q{i}" for i in range(48)], "cluster": pa.array([i % 4 for i in range(48)], pa.int32())}
    pq.write_table(pa.table(columns), folder / "clusters.parquet")
    seal(folder)
    groups = {"groups": {"mode": "group_dro"}, "clusters": {}}
    run_spec(spec(inputs={"clusters": "results/clusters/manifest.json"}, further=groups))
    assert curve("main.omega_max") and np.isfinite(curve("loss")).all()


# ---- refusals ------------------------------------------------------------------------------------------------------
STAGE = {"objective": {"name": "info_nce", "negatives_per_query": 1}, "scope": "target"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"scope": "shared", "masked_words": {}}, "names the target, which a shared stage does not have"),
        ({"masked_words": {"corpora": []}}, "at least 1 item"),
        ({"masked_words": {"weight": 1.0}}, "less than 1"),
        ({"masked_words": {"texts": 0}}, "greater than or equal to 1"),
        ({"masked_words": {"mask_rate": 0}}, "greater than 0"),
        ({"masked_words": {"rate": 0.3}}, "rate"),
        ({"masked_words": {}, "rem": {}}, "masked_words teaches the weights that rem leaves frozen"),
        ({"masked_words": {}, "training": {"lora_rank": 4}}, "lora_rank is for models without masked_words"),
        ({"masked_words": {"texts": 9}, "training": {"accumulation": 2}}, "texts 9 can't be shared equally"),
        (
            {"masked_words": {}, "groups": {"mode": "idro", "similarity": "dot"}, "clusters": {}},
            "masked_words: groups compare gradients of a step that holds queries and their documents alone",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, problem):
    with pytest.raises(ValueError, match=problem):
        STAGES["finetune"].model_validate(STAGE | changes)


def test_a_module_that_is_none_leaves_weights_to_learn():
    STAGES["finetune"].model_validate(STAGE | {"masked_words": {}, "rem": {"shape": "full"}})


def test_stages_that_cannot_learn_masked_words(project):
    with pytest.raises(ConfigError, match="no params.settings.masked_words and the inputs \\['corpora'\\]"):
        run_spec(finetune_spec("a", CORPORA))
    with pytest.raises(ConfigError, match=r"masked_words.texts: .* larger than the 39 .*: set texts to at most 39"):
        run_spec(spec("b", {"texts": 64}))
    with pytest.raises(ConfigError, match="9 documents can't be shared equally by 1 micro-batches x 2 processes"):
        run_spec(spec("c", {"texts": 9}, processes=2))
    with pytest.raises(ModelError, match="takes 32 tokens, max_tokens asks for 128: lower it"):
        run_spec(spec("d", {"max_tokens": 128}))
    shutil.rmtree(project / TARGET)
    make_target(project / TARGET, documents=1)
    with pytest.raises(CollectionError, match="has no document of at least 3 tokens"):
        run_spec(spec("e"))


def test_two_towers_cannot_learn_masked_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lay_out(tmp_path)
    make_target(tmp_path / TARGET)
    tiny_model(tmp_path / "results/two", towers="separate")
    seal(tmp_path / "results/two")
    with pytest.raises(ModelError, match="has two towers; pretraining is for one network: set towers: tied"):
        run_spec(spec(inputs={"model": "results/two/manifest.json"}))


def test_params_hold_gated_corpora_that_are_missing(project, caplog):
    made = spec()
    made.params["left_out"] = ["bioasq"]
    with caplog.at_level(logging.WARNING):
        run_spec(made)
    assert "bioasq gated and left out" in caplog.text and json.dumps(notes()["left_out"])
