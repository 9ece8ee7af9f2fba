"""R1 beside pretraining: units of what is left of a text, the value and its gradient, resume, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.unit.pretraining_helpers import (
    SIZES,
    TOPICS,
    Gradients,
    batch_of,
    curve,
    forward,
    gradient,
    lay_out,
    padded,
    passages,
    pretrain_spec,
)
from tests.unit.training_helpers import cut_and_resumed, seal

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.encoders.pretraining.condenser import masked_tokens
from zerodr.encoders.pretraining.prediction import token_words
from zerodr.errors import ConfigError, ModelError
from zerodr.losses.spans import span_contrastive
from zerodr.mining.spans import SCHEMA
from zerodr.papers.berm.losses import r1
from zerodr.papers.berm.pretraining import R1, Balance
from zerodr.papers.berm.settings import BalanceSettings
from zerodr.training.pretraining.masking import Words

HALF = {"w_r1": 0.5}
ROUGH = {"max_tokens": 30}


def sentence(generator: np.random.Generator, topic: list[str]) -> str:
    return " ".join(generator.choice(topic, generator.integers(2, 5))).capitalize() + "."


def give_sentences(root: Path, least: int = 1) -> None:
    """Spans of `least` to three sentences instead of those that are there."""
    for name, size in SIZES.items():
        generator, rows = np.random.default_rng(size), []
        for _ in range(size):
            topic = TOPICS[int(generator.integers(len(TOPICS)))]
            rows.append(
                [" ".join(sentence(generator, topic) for _ in range(generator.integers(least, 4))) for _ in range(2)]
            )
        columns = {"id": [f"{name}{number}" for number in range(size)], "spans": rows}
        folder = root / f"results/spans/{name}"
        pq.write_table(pa.table(columns, schema=SCHEMA), folder / "spans.parquet")
        seal(folder)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    torch.set_num_threads(1)
    root = lay_out(tmp_path_factory.mktemp("balance"))
    give_sentences(root)
    passages(root)
    return root


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    root = lay_out(tmp_path)
    give_sentences(root)
    return root


def near(a: Gradients, b: Gradients, tolerance: float = 1e-5) -> bool:
    top = max(float(value.abs().max()) for value in a.values())
    return set(a) == set(b) and all(float((a[key] - b[key]).abs().max()) <= tolerance * top for key in a)


# ---- which units a text has ------------------------------------------------------------------------------------


def balance_of(root: Path, lowercase: bool = False, **settings: Any) -> Balance:
    encoder = forward(root, "mlm").model.encoder
    encoder.contract = encoder.contract.model_copy(update={"lowercase": lowercase})
    return Balance(BalanceSettings.model_validate(settings), encoder)


def units_in(balance: Balance, text: str, left: slice = slice(None)) -> list[str]:
    """Text of each unit of a stretch of a text's tokens, as the tokenizer writes it."""
    ((ids, words, characters),) = token_words(balance.tokenizer, [text], balance.lowercase, True)
    numbers = balance.marks(text, Words(ids[left], words[left], characters[left]))
    assert len(numbers) == len(ids[left])
    return [balance.tokenizer.decode(ids[left][numbers == number]) for number in range(numbers.max(initial=-1) + 1)]


def test_units_are_the_sentences_of_what_is_left(world):
    balance, text = balance_of(world), "Water boat. River fish bridge. Stream."
    whole = units_in(balance, text)
    assert len(whole) == 3 and [unit.replace(" ", "") for unit in whole] == [
        "waterboat.",
        "riverfishbridge.",
        "stream.",
    ]
    size = len(token_words(balance.tokenizer, [text])[0][0])
    cut = units_in(balance, text, slice(1, size - 3))
    assert len(cut) == 2 and whole[0].endswith(cut[0]) and whole[1].startswith(cut[1]) and whole[0] != cut[0]
    assert units_in(balance, "River water") == ["river water"] and units_in(balance, "") == []


def test_units_follow_their_settings(world):
    text = "Water boat. River fish bridge. Stream. Water."
    assert len(units_in(balance_of(world, cut={"max_units": 2}), text)) == 2
    assert units_in(balance_of(world, cut={"max_units": 2}), text)[1].endswith("water.".replace(".", " ."))
    several = units_in(balance_of(world, cut={"min_tokens": 4}), text)
    assert 0 < len(several) < 4
    threes = units_in(balance_of(world, cut={"segmenter": "fixed_tokens", "tokens_per_unit": 3}), text)
    assert len(threes) > 2
    stops = units_in(balance_of(world, cut={"segmenter": "full_stop"}), text)
    assert len(stops) == 4 and not any("." in unit for unit in stops)


def test_lower_case_does_not_move_units(world):
    """Lower-cased, the first letter is two characters; the rules see sentences in the text as it was."""
    text = "\u0130\u0130\u0130 river. Water boat. Fish."
    assert units_in(balance_of(world, lowercase=True), text)[1:] == units_in(balance_of(world), text)[1:]


def test_special_tokens_belong_to_no_unit_and_masks_to_theirs(world):
    used = forward(world, "mlm", balance=HALF, **ROUGH)
    views = used.maker.make(batch_of())
    bare = forward(world, "mlm", **ROUGH).maker.make(batch_of())
    assert not bare.marks and all(np.array_equal(a, b) for a, b in zip(bare.tokens, views.tokens, strict=True))
    assert [len(own) for own in views.marks] == [len(own) for own in views.tokens]
    assert all(own[0] == own[-1] == -1 and (own[1:-1] >= 0).all() for own in views.marks)
    assert 0 < used.maker.extra.count(views.marks) < len(views.marks)


# ---- the loss --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlm", "coco"])
@pytest.mark.parametrize("how", [{}, {"similarity": "cosine", "temperature": 0.05}], ids=["dot", "cosine"])
def test_the_value_and_gradient_are_those_of_the_pure_loss(world, name, how):
    """One padded batch by hand: units are means of their tokens' states, text by text."""
    used = forward(world, name, balance=HALF | how, **ROUGH)
    ours, terms = gradient(used, batch_of())
    model, views = used.model, used.maker.make(batch_of())
    model.zero_grad(set_to_none=True)
    features, labels = padded(model, views)
    vectors, last, early = model.states(features)
    units, valid = torch.zeros(len(vectors), 3, vectors.shape[1]), torch.zeros(len(vectors), 3, dtype=torch.bool)
    for line, own in enumerate(views.marks):
        for number in range(own.max() + 1):
            units[line, number] = last[line, : len(own)][torch.from_numpy(own == number)].mean(0)
            valid[line, number] = True
    losses = {R1: 0.5 * r1(vectors, units, valid, "sum", **how)}
    sums = model.masked_losses(last, early, features["attention_mask"], *masked_tokens(labels))
    losses |= {key: value / int((labels >= 0).sum()) for key, value in sums.items()}
    losses |= {"contrastive": span_contrastive(vectors)} if name == "coco" else {}
    sum(losses.values()).backward()
    plain = {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}
    assert near(plain, ours)
    assert terms == pytest.approx({key: float(value.detach()) for key, value in losses.items()}, rel=1e-5)
    assert terms[R1] > 1e-4


def test_the_gradient_reaches_the_encoder(world):
    """All of it that R1 adds: the difference of the gradients with and without it, first layer included."""
    for name in ("mlm", "coco"):
        balanced, _ = gradient(forward(world, name, balance=HALF, **ROUGH), batch_of())
        alone, terms = gradient(forward(world, name, **ROUGH), batch_of())
        twice, _ = gradient(forward(world, name, balance={"w_r1": 1.0}, **ROUGH), batch_of())
        assert R1 not in terms
        first = next(key for key in alone if "layer.0.attention" in key and key.endswith("weight"))
        added, doubled = balanced[first] - alone[first], twice[first] - alone[first]
        assert added.abs().max() > 1e-6
        torch.testing.assert_close(doubled, 2 * added, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["mlm", "coco"])
def test_caching_gives_the_same_gradient(world, name):
    """Groups of three with dropout; with all activations kept, or made again."""
    cached = forward(world, name, 3, dropout=0.3, balance=HALF, **ROUGH)
    kept = forward(world, name, 3, dropout=0.3, balance=HALF, **ROUGH)
    kept.chunk = None
    (a, terms), (b, expected) = gradient(cached, batch_of(1)), gradient(kept, batch_of(1))
    assert near(b, a) and terms == pytest.approx(expected, rel=1e-5)
    whole = forward(world, name, None, waste=10**6, balance=HALF, **ROUGH)
    single = forward(world, name, 1, balance=HALF, **ROUGH)
    assert near(gradient(whole, batch_of(1))[0], gradient(single, batch_of(1))[0])


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_layers_after_pooling_learn_where_something_reads_vectors(tmp_path, family):
    root = lay_out(tmp_path, family, head="ance")
    give_sentences(root)
    for space in ("raw", "head"):
        used = forward(root, "mlm", 3, balance=HALF | {"unit_space": space}, **ROUGH)
        found, terms = gradient(used, batch_of())
        assert terms[R1] > 0 and float(found["encoder.towers.shared.projections.0.linear.weight"].abs().max()) > 0
    for balance in (None, {"w_r1": 0.0}):
        found, _ = gradient(forward(root, "mlm", 3, balance=balance, **ROUGH), batch_of())
        assert not any("projections" in key for key in found)


def test_texts_of_one_unit_add_nothing(tmp_path):
    """None has two: the term is 0 and the gradient is that without it. Some have: the others don't change the mean."""
    root = lay_out(tmp_path)  # spans without a full stop
    balanced, terms = gradient(forward(root, "mlm", balance=HALF), batch_of())
    alone, _ = gradient(forward(root, "mlm"), batch_of())
    assert terms[R1] == 0.0 and near(alone, balanced, 1e-7)


def test_the_mean_is_over_texts_of_two_units(world):
    used = forward(world, "mlm", balance={"w_r1": 1.0}, **ROUGH)
    views = used.maker.make(batch_of())
    several = [place for place, own in enumerate(views.marks) if own.max() > 0]
    assert used.maker.extra.count(views.marks) == len(several) < len(views.marks)
    with torch.no_grad():
        features = used.features(replace(views, groups=[("document", several)]), 0)
        only = float(used.measure(features)[1][R1]) / len(several)
    assert gradient(used, batch_of())[1][R1] == pytest.approx(only, rel=1e-5)


# ---- as a stage ------------------------------------------------------------------------------------------------


def spec(place: str = "coco", name: str = "coco", **changes: Any) -> StageSpec:
    return pretrain_spec(place, name, objective=ROUGH, **({"balance": HALF} | changes))


@pytest.mark.parametrize(
    "name, changes",
    [
        ("mlm", {}),
        ("coco", {"accumulation": 2}),
        ("coco", {"cache_chunk": 5, "precision": "bf16"}),
        ("mlm", {"balance": {"unit_space": "head", "similarity": "cosine", "temperature": 0.05}}),
        ("mlm", {"inputs": {"collections": ["results/collections/sea/manifest.json"]}}),
    ],
    ids=str,
)
def test_settings_train_and_tell_their_curves(project, name, changes):
    run_spec(spec(name=name, **changes))
    assert np.isfinite([value for _, value in curve("loss")]).all() and curve(R1)
    own = "sea" if "inputs" in changes else "land"
    assert curve(f"dev.{R1}.{own}") and all(0 <= value <= 1 for _, value in curve(f"dev.balance.share.{own}"))


def test_training_lowers_r1_of_held_out_texts(project):
    changes = {"steps": 80, "learning_rate": 2e-3, "dropout": 0.0}
    run_spec(spec(balance={"w_r1": 2.0}, **changes))
    before, after = read_record("results/coco/manifest.json")["notes"]["before_and_after"][R1]
    values = [value for _, value in curve(R1)]
    assert after < before and np.mean(values[-10:]) < 0.6 * np.mean(values[:10])


def test_weight_0_leaves_the_bits_as_they_are(project):
    for place, balance in (("none", None), ("zero", {"w_r1": 0.0}), ("some", HALF)):
        run_spec(spec(place, "mlm", balance=balance))
    none, zero, some = (
        (project / f"results/{place}/model.safetensors").read_bytes() for place in ("none", "zero", "some")
    )
    assert none == zero != some and not curve(R1, "zero")


def test_a_run_that_was_cut_off_ends_with_the_same_bits(project, monkeypatch):
    changes = {"steps": 12, "checkpoint_steps": 4, "cache_chunk": 6, "accumulation": 2}
    cut_and_resumed(spec, monkeypatch, **changes)
    one, two = ((project / f"results/{place}/model.safetensors").read_bytes() for place in ("whole", "cut"))
    assert one == two and curve(R1, "cut") == curve(R1, "whole")


@pytest.mark.parametrize("name", ["condenser", "ict", "simcse", "tsdae"])
def test_other_objectives_are_refused(project, name):
    with pytest.raises(ConfigError, match=f"balance joins the objectives coco and mlm, found {name}"):
        run_spec(pretrain_spec(name=name, balance=HALF))


def test_what_can_not_be_compared_or_cut_is_refused(world):
    encoder = forward(world, "mlm").model.encoder
    encoder.contract = encoder.contract.model_copy(update={"dimension": 16})
    with pytest.raises(ModelError, match="set balance.unit_space: head"):
        Balance(BalanceSettings(), encoder)
    Balance(BalanceSettings(unit_space="head"), encoder)
