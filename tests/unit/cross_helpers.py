"""Tiny random cross-encoders and specs of the teacher's stages for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from encoder_helpers import tiny_bert
from model_helpers import SMALL, tiny_collection
from training_helpers import TWELVE_STEPS, seal

from zerodr.artifacts.stage import StageSpec
from zerodr.config.training import Architecture, CrossEncoderSettings
from zerodr.encoders.cross_encoder.initial import pair_from_checkpoint
from zerodr.encoders.cross_encoder.network import CrossEncoder
from zerodr.encoders.folder.layout import save_tokenizer
from zerodr.encoders.start.scratch import _config, corpus_texts, train_tokenizer

TOKENS = 24
QUESTIONS = ["a river", "", "what is copper?", "market garden signal " * 20, "sea [SEP] stone"]
PASSAGES = ["silver meadow", "harbour " * 60, "", "paper engine candle " * 30, "Straße, naïve, 東京"]


def classifier(folder: Path, family: str = "bert", labels: int = 1, seed: int = 3, **config: Any) -> Path:
    """A sequence classifier with random weights as somebody would bring it, and a tokenizer of its family."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    kind = "roberta" if "roberta" in family else "bert"
    texts = tiny_collection(folder.with_name("tiny-collection"))
    tokenizer = train_tokenizer(kind, lambda: corpus_texts(texts), SMALL["vocabulary"])
    base = Architecture(family="distilbert" if family == "distilbert" else kind, **SMALL)
    shape = _config(base, tokenizer).to_dict()
    shape = {key: value for key, value in shape.items() if key not in ("model_type", "architectures")}
    if family == "electra":
        shape |= {"embedding_size": 32}
    made = AutoConfig.for_model(family, **(shape | {"num_labels": labels, "initializer_range": 0.3} | config))
    torch.manual_seed(seed)
    AutoModelForSequenceClassification.from_config(made).save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    if family in ("bert", "electra"):
        path = folder / "tokenizer_config.json"
        names = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
        path.write_text(json.dumps(json.loads(path.read_text()) | names))
    return folder


def settings_of(folder: Path | str, **changes: Any) -> CrossEncoderSettings:
    return CrossEncoderSettings(**({"type": "cross_encoder", "init": str(folder), "max_tokens": TOKENS} | changes))


def from_folder(folder: Path, seed: int = 5, **changes: Any) -> CrossEncoder:
    return pair_from_checkpoint(CrossEncoder, settings_of(folder, **changes), folder, None, seed)[0]


def tiny_teacher(folder: Path, trained: bool = True, max_tokens: int = TOKENS, **config: Any) -> Path:
    """A sealed folder of a random teacher whose tokenizer knows the letters of training_helpers' texts."""
    plain = tiny_bert(folder.with_name(f"{folder.name}-bert"), **config)
    model = from_folder(plain, max_tokens=max_tokens)
    model.contract = model.contract.model_copy(update={"trained": trained})
    model.save(folder)
    seal(folder)
    return folder


def scores_of(model: CrossEncoder, queries: list[str], documents: list[str]) -> torch.Tensor:
    """Logits as one batch, without gradients."""
    with torch.no_grad():
        return model.score(model.pad(model.tokenize_pairs(queries, documents)))


def init_spec(init: str | Path, place: str = "init", seed: int = 5, **changes: Any) -> StageSpec:
    inputs = changes.pop("inputs", {})
    params = settings_of(init, **changes).model_dump(mode="json")
    return StageSpec(
        "init_model",
        2,
        {"model": place},
        inputs,
        {"model": f"results/{place}/manifest.json"},
        params,
        seed,
        1,
        {"offline": True},
    )


def train_spec(place: str = "teacher", inputs: dict[str, str] | None = None, **changes: Any) -> StageSpec:
    training = dict(TWELVE_STEPS)
    own = ("negatives_per_query", "source_split", "title_join", "gpus", "processes")
    params: dict[str, Any] = {"negatives_per_query": 2, "source_split": "train"}
    params |= {key: value for key, value in changes.items() if key in own}
    training |= {key: value for key, value in changes.items() if key not in own}
    objective = {"name": "info_nce", "in_batch": False, "negatives_per_query": params.pop("negatives_per_query")}
    params["settings"] = {"objective": objective, "training": training}
    params["encoder"] = "cross_encoder"
    params["schedule"] = {"stage": "ep0", "stage_index": 0, "total_steps": training["steps"]}
    named = {
        "model": "results/init/manifest.json",
        "mined": "results/mined/manifest.json",
        "source": "results/source/manifest.json",
    } | (inputs or {})
    return StageSpec(
        "finetune",
        1,
        {"model": place},
        named,
        {"model": f"results/{place}/manifest.json"},
        params,
        13,
        1,
    )


def score_spec(place: str = "scored", inputs: dict[str, str] | None = None, **params: Any) -> StageSpec:
    named = {
        "teacher": "results/teacher/manifest.json",
        "mined": "results/mined/manifest.json",
        "source": "results/source/manifest.json",
    } | (inputs or {})
    return StageSpec(
        "score_pairs",
        1,
        {"model": place},
        named,
        {"scored": f"results/{place}/manifest.json"},
        params,
        0,
        1,
    )
