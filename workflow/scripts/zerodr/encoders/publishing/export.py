"""Stage `export_model`: a folder for sentence-transformers, with a model card from lineage; steps of a training."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.config.params import ExportParams
from zerodr.encoders.folder.checkpoint import all_model_files, copy_files
from zerodr.encoders.folder.contract import EncoderContract, Side, papers, read_contract
from zerodr.encoders.folder.layout import check_layout
from zerodr.encoders.inference.peer import PROBES, load_peer, smallest_cosine
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.pretraining.additions import SUBFOLDER
from zerodr.encoders.publishing.card import read_chain, write_card
from zerodr.errors import ModelError

STEPS = "steps"  # subfolder with models of intermediate steps of training
MINIMUM_COSINE = 0.99999


def export_model(stage: Stage) -> None:
    """Read input `model` and optional `table` (the method's results, TSV); write `exported`.

    Raises:
        ModelError: sentence-transformers gives other vectors than this library.
    """
    params = validate(ExportParams, stage.params, stage.spec.name())
    source, target = stage.path("model"), stage.output("exported")
    contract = copy_plain_model(source, target)
    for paper in papers():
        if paper.export is not None:
            paper.export(source, target, params)
    cosine = agreement(target)
    chain = read_chain(str(stage.spec.inputs["model"]))
    table = stage.path("table") if "table" in stage.spec.inputs else None
    described = [paper.describe(params) for paper in papers() if paper.describe is not None]
    sections = [section for section in described if section is not None]
    write_card(target, params, contract, chain, table, sections)
    stage.metric("sentence_transformers_min_cosine", cosine)
    stage.note(contract=contract.model_dump(mode="json"), stages=[entry.name for entry in chain.stages])


class StepSettings(Settings):
    """Params of rule take_step."""

    step: int
    """A step in training.save_steps."""


def take_step(stage: Stage) -> None:
    """Read input `model`, the end of a training with saved steps; write `model`, its weights at one of them."""
    settings = validate(StepSettings, stage.params, stage.spec.name())
    source = stage.path("model") / STEPS / str(settings.step)
    if not source.is_dir():
        raise ModelError(stage.path("model"), f"has no step {settings.step}", "name it in training.save_steps")
    target, contract = stage.output("model"), read_contract(source)
    if contract.modules is not None:
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        copy_plain_model(source, target)
        for name in (SUBFOLDER, *(name for paper in papers() for name in paper.subfolders)):
            if (source / name).is_dir():
                shutil.copytree(source / name, target / name)
    stage.note(contract=contract.model_dump(mode="json"))


def copy_plain_model(source: Path, target: Path) -> EncoderContract:
    """Copy a plain model's files unchanged, without other files of its training."""
    contract = read_contract(source)
    if contract.modules is not None:
        problem = "is a modular form, which sentence-transformers would load without its inserted modules"
        step = "make the plain form: rem.fold: true, and fold: true on the stage of kind assemble;"
        raise ModelError(source, problem, f"{step} gated feed-forward blocks have one with rem.shape: lora only")
    check_layout(source, contract)
    copy_files(all_model_files(source, contract), source, target)
    return contract


def agreement(folder: Path, texts: Sequence[str] = PROBES) -> float:
    """Compute the smallest cosine between our vectors and those of sentence-transformers, over texts and sides.

    Raises:
        ModelError: it is below .99999, or sentence-transformers can't load the folder.
    """
    import torch

    model, known = BiEncoder.load(folder), list[tuple[Any, Any, np.ndarray]]()

    def ours(texts: Sequence[str], side: Side) -> np.ndarray:
        tower, rows = model.tower(side), model.tokenize(texts, side)
        for other, ids, vectors in known:
            if other is tower and ids == rows:  # both sides of a model without prefixes: computed once
                return vectors
        with torch.inference_mode():
            known.append((tower, rows, model.encode(model.pad(rows), side).numpy()))
        return known[-1][2]

    smallest = smallest_cosine(load_peer(folder), ours, texts=texts)
    if not smallest >= MINIMUM_COSINE:
        problem = f"gives other vectors (cosine {smallest:.7f}, expected at least {MINIMUM_COSINE})"
        raise ModelError(folder, f"sentence-transformers {problem}", "compare its version with the pinned one")
    return smallest
