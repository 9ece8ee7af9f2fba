"""Pretraining's forward pass: gradients against plain formulas, cached against uncached, two processes against one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests.unit import span_probe
from tests.unit.pretraining_helpers import Gradients, batch_of, forward, gradient, lay_out, padded, passages
from tests.unit.training_helpers import run_two_processes, tiny_model

from zerodr.config.pretraining import PretrainSettings
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.pretraining.condenser import masked_tokens
from zerodr.losses.spans import span_contrastive
from zerodr.mining.spans import SCHEMA
from zerodr.training.loop.speed import set_dropout
from zerodr.training.pretraining.masking import NOT_MASKED
from zerodr.training.pretraining.passages import PassageBatch, Passages, write_passages
from zerodr.training.pretraining.views import ViewMaker

CLOSE = 1e-5
ALL = (*span_probe.NAMES, "simcse")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    torch.set_num_threads(1)
    root = lay_out(tmp_path_factory.mktemp("spans"))
    passages(root)
    return root


def difference(a: Gradients, b: Gradients) -> float:
    """Largest difference relative to the largest entry of all gradients."""
    assert set(a) == set(b) and a
    return max(float((a[k] - b[k]).abs().max()) for k in a) / max(float(value.abs().max()) for value in a.values())


def test_coco_is_the_plain_formula(world):
    """Autograd through one padded batch: L_co of masked [CLS] vectors + head MLM + late MLM, all weight 1."""
    used, batch = forward(world, "coco"), batch_of()
    ours, terms = gradient(used, batch)
    model, views = used.model, used.maker.make(batch)
    model.zero_grad(set_to_none=True)
    features, labels = padded(model, views)
    vectors, last, early = model.states(features)
    sums = model.masked_losses(last, early, features["attention_mask"], *masked_tokens(labels))
    count = int((labels >= 0).sum())
    losses = {"contrastive": span_contrastive(last[:, 0])} | {name: value / count for name, value in sums.items()}
    assert vectors.shape == (16, 32)
    sum(losses.values()).backward()
    plain = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert difference(plain, ours) < CLOSE
    assert terms == pytest.approx({name: float(value.detach()) for name, value in losses.items()}, rel=1e-5)
    assert set(terms) == {"contrastive", "late_mlm", "head_mlm"}


@pytest.mark.parametrize("name, dropout", [*((name, 0.0) for name in span_probe.NAMES), *((name, 0.3) for name in ALL)])
def test_caching_gives_the_same_gradient(world, name, dropout):
    """With dropout: the same groups with their activations kept, since random numbers belong to groups."""
    used = forward(world, name, 3, dropout=dropout)
    kept = forward(world, name, 3, dropout=dropout)
    kept.chunk = None  # groups of three, all activations kept
    (cached, terms), (whole, expected) = gradient(used, batch_of(1)), gradient(kept, batch_of(1))
    assert difference(whole, cached) < CLOSE and terms == pytest.approx(expected, rel=1e-5)
    if not dropout:
        assert difference(gradient(forward(world, name, None, waste=10**6), batch_of(1))[0], cached) < CLOSE
        assert difference(gradient(forward(world, name, 1), batch_of(1))[0], cached) < CLOSE


def test_dropout_matters_and_can_be_the_heads_alone(world):
    with_dropout = [
        gradient(forward(world, "coco", dropout=None, backbone_dropout=on), batch_of())[1] for on in (True, False)
    ]
    without = gradient(forward(world, "coco"), batch_of())[1]
    assert with_dropout[0]["contrastive"] != pytest.approx(without["contrastive"], rel=1e-4)
    assert with_dropout[1]["contrastive"] == pytest.approx(without["contrastive"], rel=1e-5)
    assert with_dropout[1]["head_mlm"] != pytest.approx(without["head_mlm"], rel=1e-5)
    assert with_dropout[1]["late_mlm"] == pytest.approx(without["late_mlm"], rel=1e-5)


@pytest.mark.parametrize("unit", ["word", "token"])
@pytest.mark.parametrize("name", ["mlm", "condenser", "coco"])
def test_special_tokens_and_padding_are_never_predicted(world, monkeypatch, name, unit):
    """On the views of whole batches and on the labels that the loss gets."""
    used, seen = forward(world, name, waste=10**6, mask_unit=unit, mask_rate=0.999), []
    losses = used.model.masked_losses
    monkeypatch.setattr(used.model, "masked_losses", lambda *given: (seen.append(given[2:]), losses(*given))[1])
    gradient(used, batch_of())
    padded = 0
    for mask, positions, targets in seen:
        labels = torch.full(mask.shape, NOT_MASKED).flatten().index_copy(0, positions, targets).view(mask.shape)
        ends = mask.sum(1) - 1
        assert (labels[:, 0] == NOT_MASKED).all() and (labels[torch.arange(len(ends)), ends] == NOT_MASKED).all()
        assert (labels[mask == 0] == NOT_MASKED).all()
        padded += int((mask == 0).sum())
        inner = int(mask.sum()) - 2 * len(mask)
        assert int((labels != NOT_MASKED).sum()) > 0.95 * inner, "nearly all else is predicted at this rate"
    assert padded > 0
    special = set(used.model.encoder.tokenizer.all_special_ids)
    for views in (used.maker.make(batch_of(step)) for step in range(4)):
        for ids, labels in zip(views.tokens, views.targets, strict=True):
            assert {int(ids[0]), int(ids[-1])} <= special and labels[0] == labels[-1] == NOT_MASKED
            assert not special & set(labels.tolist())


@pytest.mark.parametrize("unit", ["word", "token"])
def test_special_tokens_within_a_text_are_never_predicted(tmp_path, unit):
    """What a tokenizer takes for a special token, and letters that it does not know, are no words to learn."""
    encoder = BiEncoder.load(tiny_model(tmp_path / "model"))
    texts = ["ab [SEP] cd [MASK] \u6771 ef [CLS] gh", "\u6771 [UNK] [PAD]", "ab cd ef"]
    spans = pa.table({"id": ["a", "b", "c"], "spans": [[text] for text in texts]}, schema=SCHEMA)
    write_passages(tmp_path / "passages", {"own": spans.to_batches()})
    held = Passages(tmp_path / "passages")
    settings = PretrainSettings(name="mlm", max_tokens=32, mask_unit=unit, mask_rate=0.9)
    maker, special = ViewMaker(encoder, settings, held, False, [1], 16), encoder.tokenizer.all_special_ids
    asked = 0
    for step in range(30):
        batch = PassageBatch(step, np.arange(3), np.zeros((3, 3)))
        views = maker.make(batch)
        for ids, labels, whole in zip(views.tokens, views.targets, maker.plain(batch).tokens, strict=True):
            assert (labels[np.isin(whole, special)] == NOT_MASKED).all()
            assert (ids[np.isin(whole, special)] == whole[np.isin(whole, special)]).all()
        assert (views.targets[1] == NOT_MASKED).all() and views.asked == sum((t >= 0).sum() for t in views.targets)
        asked += views.asked
    assert asked > 30 * 8


def test_simcse_needs_dropout_to_have_two_views(world):
    used = forward(world, "simcse", dropout=None)
    views = used.maker.make(batch_of())
    assert all(np.array_equal(a, b) for a, b in zip(views.tokens[0::2], views.tokens[1::2], strict=True))
    assert gradient(used, batch_of())[1]["contrastive"] > 1e-4
    set_dropout(used.model, 0.0)
    assert (
        gradient(used, batch_of())[1]["contrastive"]
        < gradient(forward(world, "simcse", dropout=0.3), batch_of())[1]["contrastive"]
    )


def test_families_and_objectives_run(tmp_path):
    for family in ("roberta", "distilbert"):
        root = lay_out(tmp_path / family, family)
        for name in ALL:
            found, terms = gradient(forward(root, name, 3, dropout=None), batch_of())
            assert all(np.isfinite(value) for value in terms.values()) and len(found) > 20, (family, name)


def test_t5_learns_by_contrast_only(tmp_path):
    root = lay_out(tmp_path, "t5", pooling="mean")
    assert gradient(forward(root, "ict", 3), batch_of())[1]["contrastive"] > 0


@pytest.fixture(scope="module")
def both(world, root):
    return span_probe.gradients(world), run_two_processes(root, "span_probe", world)


@pytest.mark.parametrize("name", span_probe.CASES)
def test_two_processes_give_the_gradient_of_one(both, name):
    one, (two, other) = both[0], both[1]
    for part in ("None", "3", "dev"):
        mine = {key: value for key, value in one.items() if key.startswith(f"{name}/{part}/")}
        assert len(mine) > (20 if part != "dev" else 5)
        top = max(float(value.abs().max()) for value in mine.values())
        for key, value in mine.items():
            assert float((value - two[key]).abs().max()) < CLOSE * top, key
            assert torch.equal(two[key], other[key]), key
            if "/term." in key or part == "dev":
                assert float(value) == pytest.approx(float(two[key]), rel=CLOSE, abs=1e-6), key
