"""COCO's step, DDR's modules and ANCE's choice of negatives against what the released code answered."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.unit.model_helpers import tiny_model
from tests.unit.released import answers
from torch import Tensor, nn

from zerodr.encoders.pretraining.condenser import HeadedEncoder, masked_tokens
from zerodr.losses.spans import span_contrastive
from zerodr.mining.negatives import choose, entries, words_of
from zerodr.papers.ddr.inserting import insert, take_weights, weights
from zerodr.papers.ddr.settings import RemSettings

SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "max_position_embeddings": 16}
SIZES |= {"vocab_size": 64, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def off(ours: Tensor, theirs: Tensor) -> float:
    return float((ours.detach() - theirs).norm() / theirs.norm())


def bert(layers: int) -> nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(num_hidden_layers=layers, **SIZES), add_pooling_layer=False).eval()


def filled(parameters: list[nn.Parameter], flat: Tensor) -> list[nn.Parameter]:
    """Copy one vector of weights into parameters, in their order, and return them."""
    assert sum(weight.numel() for weight in parameters) == len(flat)
    with torch.no_grad():
        for weight, values in zip(parameters, flat.split([weight.numel() for weight in parameters]), strict=True):
            weight.copy_(values.view_as(weight))
    return parameters


def test_a_step_of_coco(tmp_path):
    """12 spans, 27 masked tokens, a head of 2 layers on 4. Seen: parts 5e-7, gradient 2e-7.

    A temperature 1 % off gives 8e-5.
    """
    released, encoder = answers("coco_step"), tiny_model(tmp_path)
    encoder.towers["shared"].transformer = bert(4)
    model = HeadedEncoder(encoder, "condenser", 2).eval()
    layer = model.prediction
    assert layer is not None and model.skip == 2
    norm = [layer.norm.weight, layer.norm.bias]
    order = [*model.backbone.parameters(), layer.bias, layer.dense.weight, layer.dense.bias, *norm]
    order = filled([*order, *model.layers.parameters()], released["weights"])
    features = {"input_ids": released["ids"].long(), "attention_mask": released["mask"].long()}
    labels = released["labels"].long()
    vectors, last, early = model.states(features)
    assert off(vectors, released["vectors"]) < 2e-6
    sums = model.masked_losses(last, early, features["attention_mask"], *masked_tokens(labels))
    losses = {name: total / (labels >= 0).sum() for name, total in sums.items()}
    losses["contrastive"] = span_contrastive(vectors)
    for name, loss in losses.items():
        assert float(loss.detach()) == pytest.approx(float(released[name]), abs=2e-6)
    total = sum(losses.values())
    assert float(total.detach()) == pytest.approx(float(released["loss"]), abs=2e-6)
    total.backward()
    gradient = torch.cat([weight.grad.flatten() for weight in order])
    assert off(gradient[::16], released["gradient"]) < 2e-6
    assert float(gradient.norm()) == pytest.approx(float(released["gradient_norm"]), rel=2e-6)


FORMS = {
    "lora": RemSettings(shape="lora", rank=4),
    "pa": RemSettings(shape="pa", bottleneck=4),
    "both": RemSettings(rank=4, bottleneck=4),
}


@pytest.mark.parametrize("form", FORMS)
def test_modules_of_ddr(form):
    """LoRA and parallel adapters on 3 layers, adapters of factor 4. Seen: states 2e-7, gradients 5e-7.

    A factor of 4.1 gives 7e-2.
    """
    released, transformer = answers("ddr_modules"), bert(3)
    filled(list(transformer.parameters()), released["weights"])
    inputs = {"input_ids": released["ids"].long(), "attention_mask": released["mask"].long()}
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        plain = transformer(**inputs).last_hidden_state
    assert off(plain[real], released["plain.states"][real]) < 2e-6
    insert(transformer, FORMS[form], seed=0)
    lora, parallel = weights(transformer)
    parallel = {name: released[name.replace("layer.", "parallel.")] for name in parallel}
    take_weights(transformer, {name: released[lora_key(name)] for name in lora}, parallel, form)
    states = transformer(**inputs).last_hidden_state
    assert off(states[real], released[f"{form}.states"][real]) < 2e-6
    if form != "both":
        return
    (states * released["projection"]).sum().backward()
    learned = {name: weight.grad for name, weight in transformer.named_parameters() if weight.requires_grad}
    keys = {name: adapter_key(name) if "parallel" in name else lora_key(name) for name in learned}
    compared = {name: f"both.gradient.{key}" for name, key in keys.items() if ".1." not in key}
    assert len(learned) == 24 and len(compared) == 16
    for name, key in compared.items():
        assert off(learned[name], released[key]) < 5e-6, name


def lora_key(name: str) -> str:
    """`...layer.<i>.attention.self.query.lora_A...` -> `lora.<i>.query.A`"""
    parts = name.split(".")
    layer, target = parts[parts.index("layer") + 1], "query" if "query" in parts else "value"
    return f"lora.{layer}.{target}.{'A' if 'lora_A' in parts else 'B'}"


def adapter_key(name: str) -> str:
    """`...layer.<i>.output.parallel.down.weight` -> `parallel.<i>.down.weight`"""
    parts = name.split(".")
    return ".".join(["parallel", parts[parts.index("layer") + 1], *parts[-2:]])


def test_negatives_of_ance():
    """The first 10 that are not the positive, exactly; drawn ones by mean rank and by histogram of ranks.

    Seen: mean rank 30.51 against 30.42, standard error of each .07; chi-square 47 of 60 ranks.
    """
    released = answers("ance_negatives")
    rankings, histogram = released["rankings"].numpy(), released["rank_histogram"].numpy().astype(float)
    queries, depth = rankings.shape
    query, rank = entries(np.full(queries, depth))
    allowed = rankings.ravel() != released["positives"].numpy()[query]
    names, repetitions, ours = [str(number) for number in range(queries)], 40, np.zeros(depth)
    for seed in range(repetitions):
        words = words_of(names, "negatives", seed, 0)
        top = choose(query, rank, allowed, words, 10, "top")
        assert (rankings.ravel()[top].reshape(queries, 10) == released["top"].numpy()).all()
        drawn = choose(query, rank, allowed, words, 10, "uniform")
        assert len(drawn) == 10 * queries
        ours += np.bincount(rank[drawn], minlength=depth + 1)[1:]
    ranks = np.arange(1, depth + 1)
    error = math.sqrt(2) * 0.447 / math.sqrt(repetitions)  # 0.447: sd of a repetition of the released code
    assert abs((ours - histogram) @ ranks / histogram.sum()) < 4 * error
    chi_square = float(((ours - histogram) ** 2 / (ours + histogram)).sum())
    assert chi_square < depth + 4 * math.sqrt(2 * depth)
