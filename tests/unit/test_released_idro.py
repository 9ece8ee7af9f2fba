"""iDRO over several steps: the released code's answers, and the paper's equations by plain autograd."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests.unit.encoder_helpers import VOCABULARY, save_tokenizer, tiny_bert
from tests.unit.released import answers
from tests.unit.training_helpers import load_tiny, ragged
from tests.unit.weighting_helpers import one_step

from zerodr.config.training import ObjectiveSettings
from zerodr.encoders.folder.contract import EncoderContract
from zerodr.encoders.network.tokenizing import load_tokenizer
from zerodr.encoders.network.towers import Tower, load_transformer
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.papers.coco_dr.settings import GroupSettings
from zerodr.papers.coco_dr.training import ClusterWeighted, weigh_clusters
from zerodr.training.data.batches import Batch
from zerodr.training.data.examples import Examples
from zerodr.training.objectives.ranking import make_objective

GROUPS, EVERY = 6, 16  # gradients are stored at every 16th weight
ONE = ObjectiveSettings(name="pairwise_nll", negatives_per_query=1)
SIZES = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 32}
RUNS = {
    "dot_all_current": {"similarity": "dot", "layers": "all", "timing": "current", "temperature": 50.0},
    "dot_3_current": {"similarity": "dot", "layers": 3, "timing": "current", "temperature": 5.0},
    "cosine_3_lagged": {"similarity": "cosine", "layers": 3, "timing": "lagged", "temperature": 1.0},
}


@pytest.fixture(scope="module")
def released():
    return answers("idro")


@pytest.fixture(scope="module")
def model(released, tmp_path_factory) -> Path:
    """The 12-layer BERT of the answers, as a folder."""
    folder = tmp_path_factory.mktemp("idro")
    bert = tiny_bert(folder / "bert", tokenizer=False, num_hidden_layers=12, **SIZES)
    save_tokenizer(bert)
    contract = EncoderContract(
        pooling="mean",
        normalize=False,
        similarity="dot",
        max_tokens=32,
        query_tokens=12,
        dimension=8,
        towers="tied",
        architecture="BertModel",
        source="test",
    )
    tower = Tower(load_transformer(bert, "mean"), contract, {})
    torch.nn.utils.vector_to_parameters(released["weights"], [value for _, value in trained(tower.named_parameters())])
    BiEncoder(contract, load_tokenizer(bert), {"shared": tower}).save(folder / "model")
    return folder / "model"


def trained(parameters):
    """Those that the answers list: all but a pooler, which mean pooling never reads."""
    return [(name, value) for name, value in parameters if "pooler" not in name]


def text(ids) -> str:
    """Words of token ids between [CLS] and [SEP]."""
    return " ".join(VOCABULARY[i] for i in ids.tolist() if i > 4).replace(" ##", "")


@pytest.fixture(scope="module")
def examples(released) -> Examples:
    queries, documents = ([text(row) for row in released[f"{kind}_ids"]] for kind in ("query", "document"))
    return Examples(
        pa.array([f"q{i}" for i in range(len(queries))]),
        pa.array(queries),
        pa.array([f"d{i}" for i in range(len(documents))]),
        pa.array(documents),
        ragged([[int(i)] for i in released["positives"]]),
        ragged([[int(i)] for i in released["negatives"]]),
        groups=released["groups"].numpy().astype(np.int32),
    )


def steps(model, examples, batches, **settings):
    """Yield weights, loss and gradient of each step; the network stays as it is."""
    network = load_tiny(model)
    made = weigh_clusters(make_objective(ONE), GroupSettings(**settings), ONE, network, list(range(GROUPS)))
    assert isinstance(made, ClusterWeighted)
    for step, rows in enumerate(batches.numpy().astype(np.int64)):
        documents = np.stack([[examples.positives[row][0], examples.negatives[row][0]] for row in rows])
        found = one_step(network, examples, made, Batch(step, rows, documents, None, examples.groups[rows]))
        loss = sum(float(value) for name, value in found.items() if name.startswith("term."))
        order = [name for name, _ in trained(network.named_parameters())]
        gradient = torch.cat([found[name].ravel() for name in order])
        made.on_step(step + 1)
        yield made.state.omega, loss, gradient


def distance(ours, theirs) -> float:
    return float((ours - theirs).norm() / theirs.norm())


def test_six_steps_are_those_of_the_released_code(released, model, examples):
    """Seen: weights 5e-9, loss 2e-7, gradient 3e-6 relative; two layers instead of three give 4e-4 and 1e-4."""
    run = list(steps(model, examples, released["official.batches"], mode="official"))
    for (weights, loss, _), h, expected in zip(run, released["official.h"], released["official.loss"], strict=True):
        torch.testing.assert_close(weights.double(), h, rtol=0, atol=1e-7)
        assert loss == pytest.approx(float(expected), rel=2e-6)
    for row, step in enumerate((0, 2, 5)):
        gradient = run[step][2]
        assert distance(gradient[::EVERY], released["official.gradient"][row]) < 1e-5
        assert float(gradient.norm()) == pytest.approx(float(released["official.norm"][row]), rel=1e-5)


@pytest.mark.parametrize("name", RUNS)
def test_four_steps_are_those_of_the_equations(released, model, examples, name):
    """Equations 5, 11 and 12. Seen: weights 4e-7, loss 8e-8, gradient 2e-6 relative."""
    normalised = name == "cosine_3_lagged"
    settings = RUNS[name] | {"mode": "idro", "kappa": 1.0, "normalise_present": normalised}
    run = list(steps(model, examples, released["equations.batches"], **settings))
    for (weights, loss, _), omega, expected in zip(
        run, released[f"{name}.omega"], released[f"{name}.loss"], strict=True
    ):
        torch.testing.assert_close(weights.double(), omega, rtol=0, atol=2e-6)
        assert loss == pytest.approx(float(expected), rel=2e-6)
    for row, step in enumerate((0, 3)):
        assert distance(run[step][2][::EVERY], released[f"{name}.gradient"][row]) < 1e-5
