"""The bi-encoder before any training of ours, as a model folder: stage `init_model`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.config.training import InitSettings
from zerodr.encoders.folder.checkpoint import check_files, check_weights, position_limit, tokenizer_limit
from zerodr.encoders.folder.contract import CONTRACT, SIDES, EncoderContract, make_contract, read_contract
from zerodr.encoders.folder.layout import read_layout
from zerodr.encoders.inference.encoder import load_tokenizer
from zerodr.encoders.network.heads import Dense, LayerNorm, Projection, ance_head, load_projection
from zerodr.encoders.network.towers import T5_FAMILY, Tower, check_vocabulary, hidden_size, load_transformer
from zerodr.encoders.network.trainable import SHARED, BiEncoder, parameter_count
from zerodr.encoders.pretraining.additions import carry_additions
from zerodr.encoders.start.importing import check_model, resolve, start_folder
from zerodr.encoders.start.scratch import POSITIONS, random_transformer
from zerodr.encoders.start.vocabulary import corpus_texts, one_end, train_tokenizer
from zerodr.errors import ModelError

log = logging.getLogger("zerodr")
SCRATCH, TRAIN = "scratch", "train"
KEPT_FROM_SOURCE = ("query_prefix", "document_prefix", "lowercase")


def init_bi_encoder(stage: Stage) -> None:
    """Stage: input `parent` (another recipe's model) or `source` (texts for a tokenizer) or none; output `model`."""
    settings, target = validate(InitSettings, stage.params, stage.spec.name()), stage.output("model")
    if settings.init == SCRATCH:
        source = stage.path("source") if "source" in stage.spec.inputs else None
        model, facts = from_scratch(settings, source, stage.seed, bool(stage.spec.site.get("offline", False)))
        model.save(target)
    else:
        folder, revision = start_folder(stage, settings)
        model, facts = from_checkpoint(settings, folder, revision, stage.seed)
        model.save(target)
        if settings.layers is None and settings.towers == "tied":
            facts["additions"] = carry_additions(folder, target)
    check_model(target)
    stage.note(contract=model.contract.model_dump(mode="json"), parameters=parameter_count(model), **facts)


def from_scratch(
    settings: InitSettings, source: Path | None, seed: int, offline: bool = False
) -> tuple[BiEncoder, dict[str, Any]]:
    """Random weights, with a tokenizer that is taken or trained.

    Args:
        settings: `architecture` and `tokenizer` count.
        source: collection folder; needed to train a tokenizer.
        seed: of weights and head.
        offline: never ask the hub for a tokenizer.

    Returns:
        the model, and facts for lineage.

    Raises:
        ModelError: a tokenizer is to be trained without a collection, or can't be used.
    """
    architecture = settings.architecture
    if settings.tokenizer == TRAIN:
        if source is None:
            raise ModelError("tokenizer: train", "there is no collection to train it on", "give the input `source`")
        tokenizer = train_tokenizer(architecture.family, lambda: corpus_texts(source), architecture.vocabulary)
    else:
        tokenizer = load_tokenizer(resolve(settings.tokenizer, settings.revision, offline)[0])
    transformers = [random_transformer(architecture, tokenizer, settings.pooling, seed)]
    if settings.towers == "separate":
        transformers.append(random_transformer(architecture, tokenizer, settings.pooling, seed))
    facts = {"tokens": len(tokenizer), "tokenizer": settings.tokenizer}
    return _assemble(settings, tokenizer, transformers, [{}] * len(transformers), {}, POSITIONS, seed), facts


def from_checkpoint(
    settings: InitSettings, folder: Path, revision: str | None, seed: int
) -> tuple[BiEncoder, dict[str, Any]]:
    """The weights of a folder: a model of this bench, of sentence-transformers, or a plain transformers checkpoint.

    Args:
        settings: what the model shall be; where the folder says otherwise, they hold and the difference is told.
        folder: the checkpoint.
        revision: its hub commit, for the contract.
        seed: of a new head.

    Returns:
        the model, and facts for lineage.

    Raises:
        ModelError: no fit checkpoint, too few layers, or trained weights (head, second tower) that would be lost.
    """
    said = _said(folder)
    separate = said.get("towers") == "separate"
    places = [folder / side for side in SIDES] if separate else [folder]
    if separate:
        said = _said(places[0]) | {"towers": "separate"}
        if settings.towers == "tied":
            raise ModelError(folder, "has two towers, towers: tied would lose one", "set towers: separate")
    for place in places:
        check_files(place)
        check_weights(place)
    tokenizer = load_tokenizer(places[0])
    transformers = [load_transformer(place, settings.pooling, settings.layers) for place in places]
    if settings.towers == "separate" and not separate:
        transformers.append(load_transformer(folder, settings.pooling, settings.layers))
    check_vocabulary(folder, tokenizer, transformers[0].config)
    heads = [_known_head(settings, place, said) for place in places] * (len(transformers) // len(places))
    limits = [limit for limit in (position_limit(places[0]), tokenizer_limit(places[0])) if limit]
    model = _assemble(settings, tokenizer, transformers, heads, said, min(limits, default=POSITIONS), seed, revision)
    return model, {"changed": _changed(said, model.contract, folder)}


def _said(folder: Path) -> dict[str, Any]:
    if (folder / CONTRACT).exists():
        return read_contract(folder).model_dump(mode="json")
    return read_layout(folder)


def _known_head(settings: InitSettings, folder: Path, said: dict[str, Any]) -> dict[str, Projection]:
    """The checkpoint's head, {} where there is none.

    Raises:
        ModelError: it has one, and the settings ask for none or for another.
    """
    found = {name: load_projection(folder / name) for name in said.get("projections") or ()}
    is_ance = [type(module) for module in found.values()] == [Dense, LayerNorm]
    if found and not (is_ance and settings.head == "ance"):
        asked = f"head: {settings.head}"
        raise ModelError(
            folder,
            f"has a head ({', '.join(found)}) that {asked} would lose",
            "set head: ance" if is_ance else "start from a checkpoint without one",
        )
    return found


def _assemble(
    settings: InitSettings,
    tokenizer: Any,
    transformers: list[Any],
    heads: list[dict[str, Projection]],
    said: dict[str, Any],
    limit: int,
    seed: int,
    revision: str | None = None,
) -> BiEncoder:
    """One tower a transformer; new heads of two towers start equal."""
    config = transformers[0].config
    if config.model_type in T5_FAMILY and settings.pooling == "cls":
        raise ModelError(settings.init, "T5 has no [CLS] token", "set pooling: decoder_first or mean")
    if config.is_encoder_decoder and config.model_type not in T5_FAMILY:
        raise ModelError(settings.init, f"{config.model_type} can't be trained", "choose a BERT-like model or T5")
    if settings.pooling == "decoder_first" and not tokenizer.split_special_tokens:
        tokenizer = one_end(tokenizer)
    if settings.head == "ance":
        heads = [head or ance_head(hidden_size(config), torch.Generator().manual_seed(seed)) for head in heads]
    contract = _contract(settings, config, said, tuple(heads[0]), limit, type(transformers[0]).__name__, revision)
    towers = [Tower(t, contract, head).eval() for t, head in zip(transformers, heads, strict=True)]
    names = [SHARED] if len(towers) == 1 else list(SIDES)
    return BiEncoder(contract, tokenizer, dict(zip(names, towers, strict=True)))


def _contract(
    settings: InitSettings,
    config: Any,
    said: dict[str, Any],
    projections: tuple[str, ...],
    limit: int,
    architecture: str,
    revision: str | None,
) -> EncoderContract:
    longest = max(settings.query_tokens, settings.document_tokens)
    if longest > limit:
        raise ModelError(
            settings.init,
            f"takes {limit} tokens, query_tokens or document_tokens asks for {longest}",
            f"lower it to {limit}",
        )
    values = {key: said[key] for key in KEPT_FROM_SOURCE if key in said}
    values |= settings.model_dump(include={"pooling", "similarity", "towers", "query_tokens", "document_tokens"})
    values |= {
        "normalize": settings.similarity == "cosine",
        "max_tokens": limit,
        "dimension": hidden_size(config),
        "projections": projections,
        "architecture": architecture,
        "source": settings.init,
        "revision": revision,
    }
    return make_contract(settings.init, values)


def _changed(said: dict[str, Any], contract: EncoderContract, folder: Path) -> dict[str, list[Any]]:
    """What the folder said and is another way now: key -> [then, now]."""
    now = contract.model_dump(mode="json")
    keys = ("pooling", "normalize", "similarity", "towers")
    found = {key: [said[key], now[key]] for key in keys if key in said and said[key] != now[key]}
    for key, (then, later) in found.items():
        log.info("%s: the checkpoint says %s: %s, the settings %s", folder.name, key, then, later)
    return found
