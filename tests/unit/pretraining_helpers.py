"""A tiny world for the tests of pretraining: corpora whose documents have topics, their spans, and models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tests.unit.encoder_helpers import make_collection
from tests.unit.model_helpers import tiny_settings as init_settings
from tests.unit.training_helpers import seal

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec
from zerodr.config.params import PretrainParams
from zerodr.encoders.pretraining.condenser import HeadedEncoder
from zerodr.encoders.start.initial import from_scratch
from zerodr.mining.spans import SCHEMA
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import add_gradients, prepare
from zerodr.training.pretrain import load_headed
from zerodr.training.pretraining.masking import token_loss
from zerodr.training.pretraining.passages import PassageBatch, Passages, PassageStream, spans_of, write_passages
from zerodr.training.pretraining.span_forward import SpanForward, make_span_objective
from zerodr.training.pretraining.views import ViewMaker

TOPICS = [
    word.split()
    for word in (
        "river water bridge boat fish stream",
        "stone mountain rock cliff sand slope",
        "engine wheel motor gear oil fuel",
        "garden flower rose seed leaf soil",
        "market price trade coin shop sale",
        "winter snow ice frost cold wind",
        "harbour ship sail captain anchor port",
        "candle light lamp flame wax glow",
    )
]
SIZES = {"sea": 60, "land": 30}
Gradients = dict[str, torch.Tensor]


def documents(name: str, seed: int) -> list[tuple[str, list[str]]]:
    """Documents of two to four spans, all of one topic."""
    generator, made = np.random.default_rng(seed), []
    for number in range(SIZES[name]):
        topic = TOPICS[int(generator.integers(len(TOPICS)))]
        made.append(
            (
                f"{name}{number}",
                [" ".join(generator.choice(topic, generator.integers(3, 9))) for _ in range(generator.integers(2, 5))],
            )
        )
    return made


def make_spans(folder: Path, name: str, seed: int = 1) -> Path:
    rows = documents(name, seed)
    folder.mkdir(parents=True)
    columns = {"id": [row[0] for row in rows], "spans": [row[1] for row in rows]}
    pq.write_table(pa.table(columns, schema=SCHEMA), folder / "spans.parquet")
    (folder / "statistics.json").write_text(json.dumps({"collection": name}))
    seal(folder)
    return folder


def lay_out(root: Path, family: str = "bert", **model: Any) -> Path:
    """A project folder with a model, spans of two corpora and one corpus; tests `chdir` into it."""
    for name in SIZES:
        make_spans(root / f"results/spans/{name}", name)
    texts = [(name, "", " . ".join(spans)) for name, spans in documents("sea", 1)]
    make_collection(root / "results/collections/sea", [*texts, ("blank", "", " ")])
    seal(root / "results/collections/sea")
    settings = init_settings(family, **({"query_tokens": 12, "document_tokens": 40} | model))
    made = from_scratch(settings, root / "results/collections/sea", 3)[0]
    made.save(root / "results/init")
    seal(root / "results/init")
    return root


def params(name: str = "coco", objective: dict | None = None, **changes: Any) -> dict[str, Any]:
    training = {
        "steps": 12,
        "batch_queries": 8,
        "learning_rate": 1e-3,
        "checkpoint_steps": 5,
        "dev_queries": 3,
        "warmup_steps": 2,
    } | changes

    def taken(*keys: str) -> dict[str, Any]:
        return {key: training.pop(key) for key in keys if key in training}

    place = {"stage": "coco", "stage_index": 0} | taken("stage_index", "first_step", "total_steps")
    whole, own = taken("processes", "gpus", "title_join"), taken("max_epochs", "balance")
    own |= {"kind": "pretrain", "objective": {"name": name, "max_tokens": 16} | (objective or {}), "training": training}
    return {"settings": own, "schedule": {"total_steps": training["steps"]} | place} | whole


def pretrain_spec(
    place: str = "coco",
    name: str = "coco",
    inputs: dict[str, Any] | None = None,
    objective: dict | None = None,
    **changes: Any,
) -> StageSpec:
    named = inputs or {"spans": [f"results/spans/{corpus}/manifest.json" for corpus in SIZES]}
    named = {"model": "results/init/manifest.json"} | named
    made = {"model": f"results/{place}/manifest.json"}
    return StageSpec(
        "pretrain",
        1,
        {"model": "tiny", "stage": place},
        named,
        made,
        params(name, objective, **changes),
        13,
        1,
    )


def curve(name: str, place: str = "coco") -> list[tuple[int, float]]:
    record = read_record(f"results/{place}/manifest.json")
    return [(point["step"], point["value"]) for point in record["metrics"] if point["name"] == name]


def passages(root: Path) -> Passages:
    path = root / "passages.arrow"
    if not path.exists():
        write_passages(path, {name: spans_of(root / f"results/spans/{name}") for name in SIZES})
    return Passages(path)


def forward(
    root: Path,
    name: str,
    chunk: int | None = None,
    waste: int = 16,
    dropout: float | None = 0.0,
    balance: dict | None = None,
    **objective: Any,
) -> SpanForward:
    """A forward pass over the tiny world, weights spread so that texts differ."""
    written = params(name, objective, balance=balance)
    written["settings"]["training"] = {"dropout": dropout}
    settings = PretrainParams.model_validate(written).settings
    model, _ = load_headed(root / "results/init", settings, [13, 0])
    spread(model)
    held = passages(root)
    extra = token_loss(settings, model.encoder)
    maker = ViewMaker(model.encoder, settings.objective, held, True, [13, 0], waste, chunk, extra)
    return SpanForward(model.train(), held, "cpu", chunk, maker=maker)


def spread(model: HeadedEncoder) -> None:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # at their start all texts have nearly the same vector, and gradients cancel
        for weight in (p for p in model.parameters() if p.ndim > 1):
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.15)


def batch_of(step: int = 0) -> PassageBatch:
    return PassageStream(np.arange(sum(SIZES.values())), 8, [13, 0]).batch(step)


def gradient(used: SpanForward, batch: PassageBatch) -> tuple[Gradients, dict[str, float]]:
    """Gradients of a batch by parameter, and the values of its losses."""
    used.model.zero_grad(set_to_none=True)
    objective = make_span_objective(used.maker.settings)
    terms = add_gradients(used, objective, prepare(used, batch, Group()), Group(), [3, 1])
    made = {name: p.grad.clone() for name, p in used.model.named_parameters() if p.grad is not None}
    return made, {name: float(value) for name, value in terms.items()}


def padded(model: Any, views: Any) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Features of all views as one padded batch, and the targets of masked tokens, -100 elsewhere."""
    features = model.encoder.pad(views.tokens)
    labels = torch.full_like(features["input_ids"], -100)
    for line, target in enumerate(views.targets):
        labels[line, : len(target)] = torch.from_numpy(target)
    return features, labels
