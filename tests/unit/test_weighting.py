"""Group weights in training: engines agree with the loop and with plain autograd, gradients with the loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.training_helpers import load_tiny, tiny_examples, tiny_model
from tests.unit.weighting_helpers import (
    IN_BATCH,
    KINDS,
    OWN,
    PAIRWISE,
    batch_of,
    clusters_of,
    one_step,
    tiny,
    weighted,
    with_groups,
)

from zerodr.config.training import ObjectiveSettings
from zerodr.errors import ConfigError, ModelError
from zerodr.losses.contrastive import pairwise_nll
from zerodr.papers.coco_dr import losses as dro
from zerodr.papers.coco_dr.settings import GroupSettings
from zerodr.papers.coco_dr.training import weigh_clusters
from zerodr.training.data import batches
from zerodr.training.data.batches import Batch
from zerodr.training.data.examples import Examples
from zerodr.training.loop import gradcache
from zerodr.training.loop.speed import speed_up
from zerodr.training.objectives.base import Objective, Stack
from zerodr.training.objectives.ranking import make_objective

CLOSE = 1e-4


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Examples:
    torch.set_num_threads(1)
    return with_groups(tiny_examples(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {towers: tiny_model(root / towers, towers=towers, head=towers == "tied") for towers in ("tied", "separate")}


@pytest.fixture
def many_passes(monkeypatch):
    """Texts of nearly each length pass the encoder for themselves."""
    monkeypatch.setitem(batches.WASTE, "cpu", 8)


def near(a: torch.Tensor, b: torch.Tensor, close: float = CLOSE) -> None:
    assert len(a) == len(b) and float((a - b).abs().max()) <= close * float(b.abs().max())


def same_gradients(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], close: float = 1e-5) -> None:
    assert set(a) == set(b)
    top = max(float(value.abs().max()) for value in b.values())
    assert all(float((a[name] - b[name]).abs().max()) <= close * top for name in b)


def plain_gram(model: Any, examples: Examples, batch: Batch, layers: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Group losses and inner products by one plain backward pass for each group; no code of ours but the encoder."""
    chosen = [
        p
        for name, p in model.named_parameters()
        if p.requires_grad and "encoder.layer." in name and int(name.split("encoder.layer.")[1][0]) >= 2 - layers
    ]

    def encoded(texts: list[str], side: str) -> torch.Tensor:
        return model.encode(model.pad(model.tokenize(texts, side)), side)

    queries = encoded(examples.texts_of_queries(batch.rows), "query")
    documents = encoded(examples.texts_of_documents(batch.documents.ravel()), "document")
    documents = documents.view(*batch.documents.shape, -1)
    negatives = documents[:, 1:]
    each = pairwise_nll(queries[:, None].expand_as(negatives), documents[:, :1].expand_as(negatives), negatives, "none")
    losses = torch.stack([each.mean(1)[batch.groups == kind].mean() for kind in np.unique(batch.groups)])
    flat = [torch.cat([g.ravel() for g in torch.autograd.grad(loss, chosen, retain_graph=True)]) for loss in losses]
    return losses.detach(), torch.stack(flat) @ torch.stack(flat).T


@pytest.mark.parametrize("engine", ["loop", "segment", "jvp"])
@pytest.mark.parametrize("towers", ["tied", "separate"])
@pytest.mark.parametrize("timing", ["lagged", "current"])
def test_engines_give_the_similarities_of_plain_autograd(data, folders, many_passes, engine, towers, timing):
    model, batch = tiny(folders[towers]), batch_of(data)
    losses, gram = plain_gram(model, data, batch, 1)
    alpha = dro.loss_powers(losses.double(), torch.ones(len(losses), dtype=torch.bool), 0.25)
    expected = dro.row_sums(dro.similarities(gram.double(), alpha))
    objective = weighted(model, data, engine=engine, timing=timing)
    found = one_step(model, data, objective, batch)
    near(objective.sums, expected)
    present = torch.tensor([cluster in batch.groups for cluster in clusters_of(data)])
    assert 2 < present.sum() == len(losses)
    omega = torch.full((KINDS,), 1 / KINDS, dtype=torch.float64)
    spread = torch.zeros(KINDS, dtype=torch.float64)
    spread[present] = expected
    new = dro.update_weights(omega, spread, present)
    assert objective.state.omega.equal(omega)  # taken at the end of the step, not before
    facts = objective.on_step(1)
    near(objective.state.omega, new)
    assert facts["present_groups"] == present.sum() and facts["skipped_updates"] == 0
    used = omega if timing == "lagged" else new
    weights = dro.loss_weights(used[present], alpha, torch.ones(len(losses), dtype=torch.bool))
    assert found["term.pairwise_nll"].item() == pytest.approx((weights * losses).sum().item(), rel=1e-4)


@pytest.mark.parametrize("towers", ["tied", "separate"])
@pytest.mark.parametrize("engine, timing", [("segment", "lagged"), ("segment", "current"), ("jvp", "lagged")])
def test_gradients_are_those_of_the_weighted_loss(data, folders, many_passes, towers, engine, timing):
    """Of all weights, the compared ones included; `loop` leaves the backward pass of training alone."""
    model, batch = tiny(folders[towers]), batch_of(data)
    by_loop = weighted(model, data, engine="loop", timing=timing)
    expected = one_step(model, data, by_loop, batch)
    same_gradients(one_step(model, data, weighted(model, data, engine=engine, timing=timing), batch), expected)
    assert all(p.requires_grad for p in by_loop.engine.weights)


@pytest.mark.parametrize(
    "settings",
    [
        {"similarity": "cosine"},
        {"exclude_self": True},
        {"similarity": "cosine", "exclude_self": True},
        {"layers": 2},
        {"layers": 5},
        {"beta": 1.0},
        {"mode": "official", "similarity": "cosine", "temperature": 1000.0},
    ],
)
def test_segment_has_every_option_of_the_loop(data, folders, settings):
    model, batch = tiny(folders["tied"]), batch_of(data)
    made = [weighted(model, data, OWN, engine=engine, **settings) for engine in ("loop", "segment")]
    first, second = (one_step(model, data, objective, batch) for objective in made)
    near(made[1].sums, made[0].sums)
    same_gradients(second, first)


def test_dropout_is_the_same_in_every_pass(data, folders):
    model, batch = tiny(folders["tied"], 0.3), batch_of(data)
    made = {name: weighted(model, data, engine=name) for name in ("loop", "segment", "jvp")}
    found = {name: one_step(model, data, objective, batch, by_group=True) for name, objective in made.items()}
    for name in ("segment", "jvp"):
        near(made[name].sums, made["loop"].sums)
        same_gradients(found[name], found["loop"])


@pytest.mark.parametrize("layers", [1, "all"])
@pytest.mark.parametrize("objective", [IN_BATCH, PAIRWISE], ids=["in_batch", "pairwise"])
@pytest.mark.parametrize("chunk", [None, 5])
def test_jvp_takes_in_batch_negatives_all_weights_and_caching(data, folders, many_passes, layers, objective, chunk):
    model, batch = tiny(folders["tied"], 0.2), batch_of(data, 12, objective.negatives_per_query)
    slow = weighted(model, data, objective, engine="loop", layers=layers)
    fast = weighted(model, data, objective, engine="jvp", layers=layers, timing="current")
    if chunk:  # the same groups of texts, with and without their activations
        real = gradcache.length_groups
        gradcache.length_groups = lambda lengths, waste, texts=None: real(lengths, waste, 5)
    try:
        one_step(model, data, slow, batch)
        one_step(model, data, fast, batch, chunk)
    finally:
        if chunk:
            gradcache.length_groups = real
    near(fast.sums, slow.sums)


@pytest.mark.parametrize("engine", ["segment", "jvp", "loop"])
def test_the_scale_of_the_loss_does_not_count(data, folders, engine):
    model, batch = tiny(folders["tied"]), batch_of(data)
    one, other = (weighted(model, data, engine=engine) for _ in range(2))
    expected = one_step(model, data, one, batch)
    same_gradients(one_step(model, data, other, batch, scale=1024.0), expected)
    near(other.sums, one.sums)


@pytest.mark.parametrize("engine", ["segment", "jvp"])
def test_kernels_of_training_give_the_same(data, folders, engine):
    batch = batch_of(data)
    plain, fast = tiny(folders["tied"]), tiny(folders["tied"])
    speed_up(fast, "cpu", "fp32")
    made = [weighted(model, data, engine=engine) for model in (plain, fast)]
    first, second = (
        one_step(model, data, objective, batch) for model, objective in zip((plain, fast), made, strict=True)
    )
    near(made[1].sums, made[0].sums)
    same_gradients(second, first)


@pytest.mark.parametrize("engine", ["segment", "jvp"])
def test_bf16_is_near(data, folders, engine):
    batch, model = batch_of(data), load_tiny(folders["tied"], precision="bf16")
    objective, slow = (weighted(model, data, engine=name) for name in (engine, "loop"))
    expected = one_step(model, data, slow, batch, by_group=objective.by_group)
    found = one_step(model, data, objective, batch)
    assert all(value.dtype == torch.float32 for value in found.values())
    same_gradients(found, expected, 0.02)
    near(objective.sums, slow.sums, 0.02)


def test_a_group_that_lost_its_weight_is_still_compared(data, folders):
    """The backward pass of training can't be scaled back, so a pass of its own is taken."""
    model, batch = tiny(folders["tied"]), batch_of(data)
    slow, fast = (weighted(model, data, engine=engine) for engine in ("loop", "segment"))
    omega = torch.full((KINDS,), 1e-30, dtype=torch.float64)
    omega[clusters_of(data).index(int(batch.groups[0]))] = 1.0
    for objective in (slow, fast):
        objective.state.omega = omega.clone()
    expected = one_step(model, data, slow, batch)
    same_gradients(one_step(model, data, fast, batch), expected)
    near(fast.sums, slow.sums)


class Pull(Objective):
    """A second loss on the same vectors."""

    def __call__(self, batch):
        return {"pull": batch.queries.square().mean()}


def test_another_loss_does_not_count_as_a_group(data, folders):
    model, batch = tiny(folders["tied"]), batch_of(data)
    alone = weighted(model, data, engine="segment")
    one_step(model, data, alone, batch)
    slow = Stack({"rank": (0.5, weighted(model, data, engine="loop")), "pull": (2.0, Pull())})
    fast = Stack({"rank": (0.5, weighted(model, data, engine="segment")), "pull": (2.0, Pull())})
    assert fast.by_group and not slow.by_group
    same_gradients(one_step(model, data, fast, batch), one_step(model, data, slow, batch))
    near(fast.objectives["rank"][1].sums, alone.sums)


def test_a_gradient_that_is_no_number_skips_the_update_and_is_counted(data, folders, monkeypatch):
    model, batch = tiny(folders["tied"]), batch_of(data)
    objective = weighted(model, data, engine="segment")
    one_step(model, data, objective, batch)
    objective.on_step(1)
    before, take = objective.state.omega.clone(), type(objective.engine)._take

    def broken(self, *arguments, **more):
        products = take(self, *arguments, **more)
        products.gram[1, 1] = float("nan")
        return products

    monkeypatch.setattr(type(objective.engine), "_take", broken)
    found = one_step(model, data, objective, batch_of(data, step=1))
    assert all(bool(value.isfinite().all()) for value in found.values())
    assert objective.on_step(2)["skipped_updates"] == 1 and objective.state.omega.equal(before)
    monkeypatch.undo()
    one_step(model, data, objective, batch_of(data, step=2))
    assert objective.on_step(3)["skipped_updates"] == 1 and not objective.state.omega.equal(before)


def test_layers_of_another_kind_are_named(tmp_path):
    from tests.unit.model_helpers import tiny_model as from_scratch_model

    model = from_scratch_model(tmp_path, "t5", pooling="decoder_first")
    settings = GroupSettings(mode="idro", layers=1)
    with pytest.raises(ModelError, match="T5LayerNorm, engine segment reads linear layers.*set similarity: dot"):
        weigh_clusters(make_objective(PAIRWISE), settings, PAIRWISE, model, [0, 1])


def test_t5_goes_by_jvp(data, tmp_path):
    from tests.unit.model_helpers import tiny_model as from_scratch_model

    model, batch = from_scratch_model(tmp_path, "t5", pooling="decoder_first").eval(), batch_of(data)
    slow, fast = (weighted(model, data, engine=engine) for engine in ("loop", "jvp"))
    one_step(model, data, slow, batch)
    one_step(model, data, fast, batch)
    near(fast.sums, slow.sums, 1e-3)


def test_losses_must_be_of_queries(folders):
    distil = ObjectiveSettings(name="kl")
    with pytest.raises(ConfigError, match="objective kl is none"):
        weigh_clusters(make_objective(distil), GroupSettings(mode="balanced"), distil, tiny(folders["tied"]), [0])
