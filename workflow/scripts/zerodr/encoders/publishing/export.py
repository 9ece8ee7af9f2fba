"""Stage `export_model`: a finished model as a folder for sentence-transformers, with a model card made from lineage."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.config.trained import ExportParams
from zerodr.encoders.folder.additions import papers
from zerodr.encoders.folder.checkpoint import copy_files, whole_model
from zerodr.encoders.folder.contract import SIDES, EncoderContract, read_contract
from zerodr.encoders.folder.layout import check_layout
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.publishing.card import read_chain, write_card
from zerodr.errors import ModelError

log = logging.getLogger("zerodr")
STEPS = "steps"  # where training keeps models on the way
NEEDED_COSINE = 0.99999
PROBES = (
    "",
    "dense retrieval",
    "What does a bi-encoder compare?",
    "A text that is longer than most. " * 40,
    "Grüße, 你好, naïve",
    "1 + 1 = 2 </s> [SEP] <s>",
)


def export_model(stage: Stage) -> None:
    """Stage: input `model`, optional `table` (the method's results, TSV); output `exported`.

    Raises:
        ModelError: sentence-transformers gives other vectors than we do.
    """
    params = validate(ExportParams, stage.params, stage.spec.name())
    source, target = stage.path("model"), stage.output("exported")
    contract = copy_whole(source, target)
    for paper in papers():
        if paper.export is not None:
            paper.export(source, target, params)
    cosine = agreement(target)
    chain = read_chain(str(stage.spec.inputs["model"]))
    table = stage.path("table") if "table" in stage.spec.inputs else None
    described = [paper.describe(params) for paper in papers() if paper.describe is not None]
    sections = [section for section in described if section is not None]
    write_card(target, params.model, params.scope, contract, chain, params.licences, table, sections)
    stage.metric("sentence_transformers_min_cosine", cosine)
    stage.note(contract=contract.model_dump(mode="json"), stages=[entry.name for entry in chain.stages])


class StepSettings(Settings):
    """Params of rule take_step."""

    step: int
    """A step that training kept."""


def take_step(stage: Stage) -> None:
    """Stage: input `model`, the end of a training that kept steps; output `model`, its weights at one of them."""
    settings = validate(StepSettings, stage.params, stage.spec.name())
    kept = stage.path("model") / STEPS / str(settings.step)
    if not kept.is_dir():
        raise ModelError(stage.path("model"), f"kept no step {settings.step}", "name it in training.save_steps")
    target, contract = stage.output("model"), read_contract(kept)
    if contract.modules is not None:
        shutil.copytree(kept, target, dirs_exist_ok=True)
    else:
        copy_whole(kept, target)
        for name in [name for paper in papers() for name in paper.subfolders if (kept / name).is_dir()]:
            shutil.copytree(kept / name, target / name)
    stage.note(contract=contract.model_dump(mode="json"))


def copy_whole(source: Path, target: Path) -> EncoderContract:
    """Copy what a model is made of, and nothing that training left beside it; the files keep their bytes."""
    contract = read_contract(source)
    if contract.modules is not None:
        raise ModelError(
            source,
            "is a modular form, which sentence-transformers would load without its inserted modules",
            "make the plain form: rem.fold: true, and fold: true on the stage of kind assemble;"
            " gated feed-forward blocks have one with rem.shape: lora alone",
        )
    check_layout(source, contract)
    copy_files(whole_model(source, contract), source, target)
    return contract


def agreement(folder: Path, texts: Sequence[str] = PROBES) -> float:
    """Smallest cosine between our vectors and those of sentence-transformers, over texts and sides.

    Raises:
        ModelError: it is below .99999, or sentence-transformers can't load the folder.
    """
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer

    ours = BiEncoder.load(folder)
    try:
        theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, ImportError, TypeError) as error:
        raise ModelError(folder, f"sentence-transformers can't load it ({error})", "report it") from error
    found = []
    for side in SIDES:
        with torch.inference_mode():
            own = ours.encode(ours.pad(ours.tokenize(texts, side)), side).numpy().astype(np.float64)
        encode: Any = theirs.encode_query if side == "query" else theirs.encode_document
        other = encode(list(texts), show_progress_bar=False).astype(np.float64)
        found.append((own * other).sum(1) / (np.linalg.norm(own, axis=1) * np.linalg.norm(other, axis=1)))
    smallest = float(np.min(found))
    if not smallest >= NEEDED_COSINE:
        raise ModelError(
            folder,
            f"sentence-transformers gives other vectors (cosine {smallest:.7f}, expected at least {NEEDED_COSINE})",
            "compare its version with the pinned one",
        )
    return smallest
