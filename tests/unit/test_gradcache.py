"""Gradient caching gives the gradient of one big batch, dropout included; distinct texts are encoded once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from tests.unit.model_helpers import tiny_model as from_scratch_model
from tests.unit.training_helpers import QUERIES, load_tiny, tiny_examples, tiny_model
from tiny_networks import network

from zerodr.losses.contrastive import info_nce
from zerodr.training.data.batches import Batch, Stream
from zerodr.training.data.examples import Examples
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import Forward, add_gradients, prepare
from zerodr.training.loop.speed import FastLinear, dropout_rates, set_dropout, speed_up, why_not_fast
from zerodr.training.objectives.base import Encoded, Objective
from zerodr.training.objectives.ranking import InfoNCE, PairwiseNLL, ScoreLoss

CLOSE = 1e-5


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Examples:
    return tiny_examples(tmp_path_factory.mktemp("data"), scored=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {towers: tiny_model(root / towers, towers=towers, head=towers == "tied") for towers in ("tied", "separate")}


Gradients = dict[str, torch.Tensor]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def gradient(model, examples: Examples, batch: Batch, objective: Objective, chunk: int | None) -> Gradients:
    model.zero_grad(set_to_none=True)
    forward = Forward(model, examples, "cpu", chunk)
    add_gradients(forward, objective, prepare(forward, batch, Group()), Group(), [3, 1])
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def difference(a: Gradients, b: Gradients) -> float:
    """Largest difference relative to the largest entry of all gradients."""
    assert set(a) == set(b) and a
    return max(float((a[k] - b[k]).abs().max()) for k in a) / max(float(value.abs().max()) for value in a.values())


def worst(a: Gradients, b: Gradients) -> float:
    """Largest difference of a tensor relative to its own largest entry; tensors of pure rounding are left out."""
    top = max(float(value.abs().max()) for value in a.values())
    return max(float((a[k] - b[k]).abs().max() / a[k].abs().max()) for k in a if float(a[k].abs().max()) > 1e-4 * top)


@pytest.mark.parametrize("towers", ["tied", "separate"])
@pytest.mark.parametrize("make", [InfoNCE, PairwiseNLL, partial(ScoreLoss, "margin_mse")])
def test_caching_gives_the_gradient_of_one_big_batch(data, folder, towers, make: Callable[[], Objective]):
    model = load_tiny(folder[towers])
    batch = Stream(data, np.arange(QUERIES), 8, 2, [0]).batch(0)
    whole = gradient(model, data, batch, make(), None)
    for chunk in (1, 7):
        cached = gradient(model, data, batch, make(), chunk)
        assert difference(whole, cached) < CLOSE and worst(whole, cached) < CLOSE


def test_dropout_is_replayed(data, folder):
    """With dropout, the cached gradient is that of the same groups with their activations kept."""
    model = load_tiny(folder["tied"], dropout=0.3)
    batch = Stream(data, np.arange(QUERIES), 8, 1, [0]).batch(0)
    cached = gradient(model, data, batch, InfoNCE(), 4)
    forward = Forward(model, data, "cpu", 4)
    share = prepare(forward, batch, Group())
    kept = Forward(model, data, "cpu", None)
    model.zero_grad(set_to_none=True)
    add_gradients(kept, InfoNCE(), share, Group(), [3, 1])
    direct = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert difference(direct, cached) < CLOSE
    other = gradient(load_tiny(folder["tied"], dropout=0.0), data, batch, InfoNCE(), 4)
    assert difference(direct, other) > 1e-3


class Noisy(PairwiseNLL):
    """A loss that draws random numbers."""

    def __call__(self, batch: Encoded) -> dict[str, torch.Tensor]:
        return {"noisy": (self.per_query(batch) * torch.rand(len(batch.queries))).mean()}


def test_a_loss_that_draws_draws_alike_with_and_without_caching(data, folder):
    batch = Stream(data, np.arange(QUERIES), 16, 2, [5]).batch(0)
    model = load_tiny(folder["tied"], 0.0)
    whole, cached = (gradient(model, data, batch, Noisy(), chunk) for chunk in (None, 5))
    assert difference(whole, cached) < CLOSE


def test_the_gradient_is_that_of_the_plain_formula(data, folder):
    """Autograd through one padded batch, every document encoded for itself, no tricks."""
    model = load_tiny(folder["tied"])
    batch = Stream(data, np.arange(QUERIES), 8, 2, [0]).batch(0)
    ours = gradient(model, data, batch, InfoNCE(mask_known_positives=False), None)
    model.zero_grad(set_to_none=True)
    queries = model.encode(model.pad(model.tokenize(data.texts_of_queries(batch.rows), "query")), "query")
    order = np.r_[batch.documents[:, 0], batch.documents[:, 1:].ravel()]
    texts = [data.document_texts[int(number)].as_py() for number in order]
    documents = model.encode(model.pad(model.tokenize(texts, "document")), "document")
    info_nce(queries @ documents.T, torch.arange(8)).backward()
    plain = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert difference(plain, ours) < CLOSE


def test_each_distinct_text_is_encoded_once(data, folder):
    model = load_tiny(folder["tied"])
    batch = Batch(0, np.array([0, 1]), np.array([[5, 7, 7], [7, 5, 6]]), None)
    texts = Forward(model, data, "cpu").texts(batch)
    assert len(texts.tokens) == 2 + 3
    assert texts.documents.tolist() == [[0, 2, 2], [2, 0, 1]]
    assert sorted(place for _, group in texts.groups for place in group) == list(range(5))


def test_fast_linear_layers_give_the_same_gradient(data, folder):
    batch = Stream(data, np.arange(QUERIES), 8, 1, [0]).batch(0)
    plain = gradient(load_tiny(folder["tied"]), data, batch, InfoNCE(), None)
    model = load_tiny(folder["tied"])
    chosen = speed_up(model, "cpu", "fp32").words
    fast = [module for module in model.modules() if isinstance(module, FastLinear)]
    assert bool(fast) == ("oneDNN" in chosen) and not (fast and why_not_fast())
    assert difference(plain, gradient(model, data, batch, InfoNCE(), None)) < CLOSE


@pytest.mark.parametrize(
    "family, pooling", [("bert", "cls"), ("roberta", "cls"), ("distilbert", "mean"), ("t5", "decoder_first")]
)
def test_every_family_is_cached_and_sped_up(data, tmp_path, family, pooling):
    model = from_scratch_model(tmp_path, family, pooling=pooling).train()
    with torch.no_grad():  # at their start all texts have nearly the same vector, and gradients cancel
        generator = torch.Generator().manual_seed(1)
        for weight in (p for p in model.parameters() if p.ndim > 1):
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
    set_dropout(model, 0.0)
    batch = Stream(data, np.arange(QUERIES), 8, 1, [0]).batch(0)
    plain = gradient(model, data, batch, InfoNCE(), None)
    speed_up(model, "cpu", "fp32")
    assert difference(plain, gradient(model, data, batch, InfoNCE(), None)) < CLOSE
    assert difference(plain, gradient(model, data, batch, InfoNCE(), 5)) < CLOSE
    set_dropout(model, 0.4)
    assert difference(plain, gradient(model, data, batch, InfoNCE(), None)) > 1e-2
    set_dropout(model, 0.0)
    assert difference(plain, gradient(model, data, batch, InfoNCE(), None)) < CLOSE


@pytest.mark.parametrize("family", ["bert", "modernbert", "nomic_bert", "gte", "qwen3", "gemma3_text", "t5"])
def test_dropout_is_set_everywhere(family):
    """Newer networks keep the rate of attention's dropout as a number, some have no other dropout."""
    made, ids = network(family, 40, 0), torch.arange(5, 17)[None]
    for rate in (0.3, 0.0):
        set_dropout(made.train(), rate)
        states = [torch.manual_seed(seed) and made(input_ids=ids).last_hidden_state for seed in (1, 2)]
        assert set(dropout_rates(made)) == {rate} and torch.equal(*states) == (not rate)


class Terms(Objective):
    """A ranking loss, its half the other way round, and a term of no vector."""

    def __call__(self, batch: Encoded) -> dict[str, torch.Tensor]:
        loss = InfoNCE()(batch)["info_nce"]
        return {"one": loss, "back": -0.5 * loss, "none": torch.ones(())}


@pytest.mark.parametrize("chunk", [None, 4])
def test_gradients_of_terms_are_compared_and_not_changed(data, folder, chunk):
    model = load_tiny(folder["tied"])
    forward, batch = Forward(model, data, "cpu", chunk), Stream(data, np.arange(QUERIES), 8, 2, [0]).batch(0)
    share, facts = prepare(forward, batch, Group()), dict[str, torch.Tensor]()
    plain = gradient(model, data, batch, Terms(), chunk)
    model.zero_grad(set_to_none=True)
    terms = add_gradients(forward, Terms(), share, Group(), [3, 1], facts=facts)
    assert set(terms) == {"one", "back", "none"}
    assert all(torch.equal(weight.grad, plain[name]) for name, weight in model.named_parameters() if name in plain)
    assert {name: round(float(value), 4) for name, value in facts.items() if "cosine" in name} == {
        "vector_gradient_cosine.back": -1.0,
        "vector_gradient_cosine.none": 0.0,
    }
    whole = facts["vector_gradient.one"]
    assert whole > 0 and facts["vector_gradient.back"] == pytest.approx(float(whole) / 2)
    one = dict[str, torch.Tensor]()
    add_gradients(forward, InfoNCE(), share, Group(), [3, 1], facts=one)
    assert not one
