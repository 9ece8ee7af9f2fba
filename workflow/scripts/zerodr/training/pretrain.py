"""Stage `pretrain`: train a bi-encoder on texts alone. The work is `train(stage)`, in one process or in several."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.config.params import PretrainParams
from zerodr.config.stages import PretrainStage
from zerodr.config.training import TrainingSettings
from zerodr.encoders.folder.contract import Precision
from zerodr.encoders.inference.token_store import TOKENS
from zerodr.encoders.network.trainable import BiEncoder, parameter_count
from zerodr.encoders.pretraining.additions import load_additions
from zerodr.encoders.pretraining.condenser import HeadedEncoder, Kind
from zerodr.errors import ConfigError, ModelError
from zerodr.training.data.batches import WASTE
from zerodr.training.distributed.processes import Group, check_gpus
from zerodr.training.jobs import device_of, identity_of, keeper, publish_steps, run_work, warn_of_warm_up
from zerodr.training.loop.engine import Curve, Engine, Run
from zerodr.training.loop.speed import arithmetic, dropout_rates, set_dropout, speed_up
from zerodr.training.optimizers import make_optimizer, schedule
from zerodr.training.pretraining.corpora import PASSAGES, Counts, store_passages, warn_of_gated, whole_documents
from zerodr.training.pretraining.masking import token_loss
from zerodr.training.pretraining.passages import Passages, PassageStream, span_folders, spans_of, split_documents
from zerodr.training.pretraining.span_forward import SpanForward, evaluate_spans, make_span_objective
from zerodr.training.pretraining.views import ViewMaker

log = logging.getLogger("zerodr")
HEADS: dict[str, Kind] = {"coco": "condenser", "condenser": "condenser", "tsdae": "decoder"}


def pretrain(stage: Stage) -> None:
    """Pretrain: inputs `model`, and `spans` (folders of cut_spans) or `collections`; output `model`, in it `steps/<n>`.

    The output is a plain model folder; its subfolder `pretraining` holds extra layers for a next pretraining.

    Raises:
        ConfigError: both kinds of texts or none, an objective that needs spans, fewer documents than a batch.
        CollectionError: a corpus without a text.
        ModelError: a model that this objective, or R1, can't pretrain.
    """
    params = validate(PretrainParams, stage.params, stage.spec.name())
    check_gpus(params.gpus_of_a_node, stage.spec.name())
    warn_of_gated(stage.spec.name(), params.left_out)
    paired = "spans" in stage.spec.inputs
    if paired == ("collections" in stage.spec.inputs):
        raise ConfigError(
            stage.spec.name(),
            f"has {'both' if paired else 'neither'} of the inputs spans and collections",
            "give one of them",
        )
    stage.note(left_out=store_passages(stage.state, partial(_corpora, stage, paired, params.title_join)))
    training, _ = capped(params, Passages(stage.state / PASSAGES), stage.seed)
    warn_of_warm_up(stage, training, params.schedule.first_step)
    run_work(stage, params, train)
    publish_steps(stage, params.settings.training.save_steps)


def capped(params: PretrainParams, passages: Passages, seed: int) -> tuple[TrainingSettings, int]:
    """Optimisation with as many steps as max_epochs lets it have, and by how many steps it is shorter.

    Raises:
        ConfigError: a step of save_steps is never reached.
    """
    training, most_epochs = params.settings.training, params.settings.max_epochs
    rows = split_documents(passages, training.dev_queries, seed)[0]
    if most_epochs is None:
        return training, 0
    most = max(1, int(most_epochs * (len(rows) // training.batch_queries)))
    fewer = max(0, training.steps - most)
    # A rehearsal ends before the steps whose models it keeps.
    beyond = [step for step in training.save_steps if fewer and step > most]
    if beyond:
        raise ConfigError(
            "training.save_steps",
            f"keeps step {beyond[0]}, but max_epochs {most_epochs:g} ends training after {most}",
            "lower it, or raise max_epochs",
        )
    return training.model_copy(update={"steps": training.steps - fewer}), fewer


def _corpora(stage: Stage, paired: bool, title_join: str | None, left_out: Counts) -> dict[str, Any]:
    folders = [path.parent for path in stage.paths("spans" if paired else "collections")]
    if paired:
        return {name: spans_of(folder) for name, folder in span_folders(folders).items()}
    return whole_documents(folders, stage.path("model"), title_join, left_out)


def train(stage: Stage) -> dict[str, Any]:
    """Pretrain and save the model, as one of the processes of the group.

    Returns:
        `curves`: points (name, value, step); `notes`: facts for lineage.
    """
    passages, group = Passages(stage.state / PASSAGES), Group()
    params = validate(PretrainParams, stage.params, stage.spec.name())
    settings, position = params.settings, params.schedule
    training, fewer = capped(params, passages, stage.seed)
    torch.set_num_threads(max(1, stage.threads // params.workers_of_a_node))
    device, words = device_of(params.gpus, group), [stage.seed, position.stage_index]
    precision = arithmetic(training.precision, device, group)
    model, taken = load_headed(stage.path("model"), settings, words, precision)
    model.to(device)
    kernels = speed_up(model, device, precision, training.precision, group)
    rows, dev = split_documents(passages, training.dev_queries, stage.seed)
    maker = ViewMaker(
        model.encoder,
        settings.objective,
        passages,
        "spans" in stage.spec.inputs,
        words,
        WASTE[torch.device(device).type],
        training.cache_chunk,
        token_loss(settings, model.encoder),
    )
    forward = SpanForward(model, passages, device, training.cache_chunk, maker=maker)
    forward.shared.stores += filter(None, [maker.take_stored(TOKENS)])
    stream = PassageStream(rows, training.batch_queries, words)
    evaluate = (lambda: evaluate_spans(forward, dev, stage.seed, group)) if dev else None
    before = evaluate() if evaluate else {}
    keep = keeper(stage.state, model)
    identity = identity_of(stage, group, kernels)
    run = Run(stage.spec.name(), stage.state, identity, words, position.first_step, evaluate, keep)
    ends = training.schedule_steps or position.total_steps - fewer
    factor = schedule(training.schedule, training.warmup_steps, ends)
    objective, optimizer = make_span_objective(settings.objective), make_optimizer(model, training)
    engine = Engine(forward, objective, stream, optimizer, factor, training, run, group)
    curves = [(f"dev.{name}", value, position.first_step) for name, value in before.items()] + engine.fit()
    if group.rank == 0:
        model.save(stage.output("model"))
    facts = {
        "kernels": kernels.words,
        "device": device,
        "processes": group.world,
        "from": taken,
        "corpora": passages.corpora,
        "training_documents": len(rows),
        "dev_documents": sum(map(len, dev.values())),
        "steps": training.steps,
        "epochs": round(training.steps / stream.steps_per_epoch, 3),
        "parameters": parameter_count(model),
        "documents_per_second": round(engine.rate(), 2),
        "waited_for_data": round(engine.waiting(), 4),
        "before_and_after": _both(before, curves),
    }
    return {"curves": curves, "notes": facts}


def _both(before: dict[str, float], curves: Curve) -> dict[str, list[float]]:
    """Each measure on held-out documents before and after."""
    after = {name.removeprefix("dev."): value for name, value, _ in curves if name.startswith("dev.")}
    return {name: [value, after[name]] for name, value in before.items()}


def load_headed(
    folder: Path, settings: PretrainStage, seed: list[int], precision: Precision | None = None
) -> tuple[HeadedEncoder, dict[str, str]]:
    """The model with what its objective adds, and where that comes from.

    `precision` is its arithmetic. None: that of the settings.

    Raises:
        ModelError: Condenser's head on another pooling than [CLS], a decoder on vectors of another size, no dropout
            for simcse, or no head to continue with.
    """
    objective, training = settings.objective, settings.training
    encoder = BiEncoder.load(folder, precision or training.precision)
    kind: Kind = HEADS.get(objective.name, "none") if objective.head_layers else "none"
    layers = 0 if kind == "none" else objective.head_layers
    pooling, source = encoder.contract.pooling, encoder.contract.source
    if kind == "condenser" and pooling != "cls":
        raise ModelError(
            source,
            f"has pooling {pooling}; Condenser's head teaches [CLS] alone",
            "set the encoder's pooling: cls, or head_layers: 0 for coco",
        )
    word = int(np.random.SeedSequence(seed).generate_state(1)[0])
    model = HeadedEncoder(
        encoder,
        kind,
        layers,
        objective.masks or kind == "decoder",
        objective.skip_layer,
        objective.backbone_dropout,
        word,
    )
    if kind == "decoder" and encoder.contract.dimension != model.backbone.config.hidden_size:
        raise ModelError(
            source,
            f"makes vectors of {encoder.contract.dimension} components, tokens have "
            f"{model.backbone.config.hidden_size}",
            "take a model without a projection",
        )
    taken = load_additions(model, folder, objective.head)
    if objective.name == "t5_coco" and pooling != "decoder_first":
        raise ModelError(
            source,
            f"has pooling {pooling}; t5_coco is for a T5 encoder-decoder",
            "start from a T5 with pooling: decoder_first, or use coco",
        )
    if not objective.contrasts and kind != "decoder" and token_loss(settings, encoder) is None:
        model.tower.projections.requires_grad_(False)  # nothing reads vectors
    if training.dropout is not None:
        set_dropout(model, training.dropout)
    if objective.name == "simcse" and not any(dropout_rates(model.encoder)):
        raise ModelError(
            source, "has no dropout, under which simcse compares a text with itself", "set training.dropout: 0.1"
        )
    return model, taken
