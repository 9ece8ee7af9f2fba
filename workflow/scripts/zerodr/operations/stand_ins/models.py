"""Write the repositories of hub models: tiny networks with random weights, in the layout that each is published in."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file

from zerodr.config.training import Architecture
from zerodr.encoders.folder.contract import write_model_json
from zerodr.encoders.start.scratch import random_transformer, train_tokenizer
from zerodr.operations.stand_ins.archives import CHINESE, make_texts

HIDDEN, LAYERS, VOCABULARY, TEXTS = 32, 2, 3000, 400
MODULE = "sentence_transformers.models"


class Form(NamedTuple):
    """Form of a published model.

    Attributes:
        family: kind of network.
        head: class of transformers with a head over the network, after the family's name; empty: none.
        modules: of sentence-transformers after the transformer; none: a plain folder.
        side: of a tower of transformers' DPR.
        language: of its vocabulary.
    """

    family: str = "bert"
    head: str = ""
    modules: tuple[str, ...] = ()
    side: str = ""
    language: str = "en"


FORMS = {
    "BeIR/query-gen-msmarco-t5-base-v1": Form("t5", "ForConditionalGeneration"),
    "FacebookAI/roberta-base": Form("roberta", "ForMaskedLM"),
    "Luyu/co-condenser-marco-retriever": Form(),
    "Luyu/condenser": Form(head="ForMaskedLM"),
    "GPL/msmarco-distilbert-margin-mse": Form("distilbert"),
    "OpenMatch/cocodr-base-msmarco": Form(),
    "OpenMatch/condenser-large": Form(head="ForMaskedLM"),
    "castorini/tct_colbert-v2-hnp-msmarco": Form(),
    "cross-encoder/ms-marco-MiniLM-L6-v2": Form(head="ForSequenceClassification"),
    "distilbert/distilbert-base-uncased": Form("distilbert", "ForMaskedLM"),
    "facebook/contriever": Form(),
    "facebook/contriever-msmarco": Form(),
    "facebook/dpr-ctx_encoder-multiset-base": Form(side="ctx_encoder"),
    "facebook/dpr-question_encoder-multiset-base": Form(side="question_encoder"),
    "google-bert/bert-base-chinese": Form(head="ForMaskedLM", language=CHINESE),
    "google-bert/bert-base-uncased": Form(head="ForMaskedLM"),
    "google-t5/t5-base": Form("t5", "ForConditionalGeneration"),
    "sentence-transformers/gtr-t5-base": Form("t5", modules=("Pooling", "Dense", "Normalize")),
    "sentence-transformers/gtr-t5-large": Form("t5", modules=("Pooling", "Dense", "Normalize")),
    "sentence-transformers/msmarco-MiniLM-L-6-v3": Form(modules=("Pooling",)),
    "sentence-transformers/msmarco-distilbert-base-tas-b": Form("distilbert", modules=("Pooling",)),
    "sentence-transformers/msmarco-distilbert-base-v3": Form("distilbert", modules=("Pooling",)),
    "sentence-transformers/msmarco-roberta-base-ance-firstp": Form(
        "roberta", modules=("Pooling", "Dense", "LayerNorm")
    ),
}
"""Published models that recipes name; another one stands in as a plain BERT."""
MEAN = tuple(
    f"sentence-transformers/{name}"
    for name in ("gtr-t5-base", "gtr-t5-large", "msmarco-MiniLM-L-6-v3", "msmarco-distilbert-base-v3")
)
"""They pool by the mean, others by the first token."""


def write_models(names: Iterable[str], folder: Path) -> None:
    """Write the repository of each model that the folder does not hold yet."""
    for name in names:
        if not (folder / name).exists():
            write_model(name, FORMS.get(name, Form()), folder / name)


@cache
def _tokenizer(family: str, language: str) -> Any:
    def texts() -> list[str]:
        """Make English texts, too: the published Chinese vocabulary has Latin words, else all of them were unknown."""
        every = [one for kind in dict.fromkeys([language, "en"]) for one in make_texts("tokenizer", TEXTS, kind)]
        return [f"{one.title} {one.text} {one.question}" for one in every]

    return train_tokenizer(family, texts, VOCABULARY)


def write_model(name: str, form: Form, target: Path) -> None:
    """Write a model's repository, whole or not at all."""
    import transformers

    draft = target.with_name(f".{target.name}.making")
    tokenizer = _tokenizer(form.family, form.language)
    architecture = Architecture(family=form.family, hidden=HIDDEN, layers=LAYERS, heads=2)  # type: ignore[arg-type]
    pooling = "decoder_first" if form.head else "mean"
    network = random_transformer(architecture, tokenizer, pooling, seed=len(name))
    if form.head:
        kind = getattr(transformers, type(network).__name__.removesuffix("Model") + form.head)
        network.config.num_labels = 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(len(name))
            network = kind(network.config)
    transformers.logging.disable_progress_bar()
    network.save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    if form.side:
        _as_tower(draft, form.side)
    if form.modules:
        _as_modules(draft, form.modules, "mean_tokens" if name in MEAN else "cls_token")
    draft.replace(target)


def _as_tower(folder: Path, side: str) -> None:
    """Turn a BERT into a tower of transformers' DPR."""
    from safetensors.torch import load_file

    weights = load_file(folder / "model.safetensors")
    renamed = {f"{side}.bert_model.{name}": value for name, value in weights.items()}
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kind = "DPRQuestionEncoder" if side.startswith("question") else "DPRContextEncoder"
    write_model_json(
        folder / "config.json", config | {"model_type": "dpr", "architectures": [kind], "projection_dim": 0}
    )


def _as_modules(folder: Path, modules: tuple[str, ...], pooling: str) -> None:
    """Add the files of sentence-transformers."""
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(modules, start=1))]
    listed = zip(paths, ("Transformer", *modules), strict=True)
    rows = [{"idx": n, "name": str(n), "path": path, "type": f"{MODULE}.{k}"} for n, (path, k) in enumerate(listed)]
    (folder / "modules.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    drawn = torch.Generator().manual_seed(7)
    sizes = {"in_features": HIDDEN, "out_features": HIDDEN, "bias": True}
    facts: dict[str, dict[str, Any]] = {
        "Pooling": {"word_embedding_dimension": HIDDEN, f"pooling_mode_{pooling}": True},
        "Dense": sizes | {"activation_function": "torch.nn.modules.linear.Identity"},
        "LayerNorm": {"dimension": HIDDEN},
        "Normalize": {},
    }
    weights = {
        "Dense": {"linear.weight": torch.randn((HIDDEN, HIDDEN), generator=drawn), "linear.bias": torch.zeros(HIDDEN)},
        "LayerNorm": {"norm.weight": torch.ones(HIDDEN), "norm.bias": torch.zeros(HIDDEN)},
    }
    for path, kind in zip(paths[1:], modules, strict=True):
        (folder / path).mkdir()
        if facts[kind]:
            (folder / path / "config.json").write_text(json.dumps(facts[kind], indent=1), encoding="utf-8")
        if kind in weights:
            save_file(weights[kind], folder / path / "model.safetensors", metadata={"format": "pt"})
