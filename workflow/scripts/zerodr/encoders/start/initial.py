"""Write the first bi-encoder of a chain, before any training of ours: stage `init_model`."""

import logging
from pathlib import Path
from typing import Any

import torch

from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.config.training import InitSettings
from zerodr.encoders.folder.checkpoint import check_weights
from zerodr.encoders.folder.contract import CONTRACT, SIDES, EncoderContract, make_contract, read_contract
from zerodr.encoders.folder.foreign import ModelFolder, check_files
from zerodr.encoders.folder.statements import length_limit, position_limit, read_layout
from zerodr.encoders.network.heads import Dense, LayerNorm, Projection, ance_head, load_projection
from zerodr.encoders.network.loading import T5_FAMILY
from zerodr.encoders.network.tokenizing import load_tokenizer
from zerodr.encoders.network.towers import Tower, check_vocabulary, load_transformer
from zerodr.encoders.network.trainable import SHARED, BiEncoder, common_tokenizer, parameter_count
from zerodr.encoders.pretraining.additions import carry_additions
from zerodr.encoders.start.importing import check_model, resolve, start_folder
from zerodr.encoders.start.scratch import POSITIONS, corpus_texts, one_end, random_transformer, train_tokenizer
from zerodr.errors import ModelError

log = logging.getLogger("zerodr")
SCRATCH, TRAIN = "scratch", "train"
Head = dict[str, Projection]
INHERITED = ("query_prefix", "document_prefix", "lowercase")


def init_bi_encoder(stage: Stage) -> None:
    """Read `parent` (another recipe's model) or `source` (texts for a tokenizer) or nothing; write `model`."""
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
    """Create a model with random weights, and load or train its tokenizer.

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
    towers = range(2 if settings.towers == "separate" else 1)
    transformers = [random_transformer(architecture, tokenizer, settings.pooling, seed) for _ in towers]
    facts = {"tokens": len(tokenizer), "tokenizer": settings.tokenizer}
    heads: list[Head] = [{}] * len(transformers)
    return _assemble(settings, tokenizer, transformers, heads, {"max_tokens": POSITIONS}, seed), facts


def from_checkpoint(
    settings: InitSettings, folder: Path, revision: str | None, seed: int
) -> tuple[BiEncoder, dict[str, Any]]:
    """Create a model from a folder: of this bench, of sentence-transformers, or a plain transformers checkpoint.

    Args:
        settings: of the model; they override the folder's contract, and the log reports each difference.
        folder: the checkpoint.
        revision: its hub commit, for the contract.
        seed: of a new head.

    Returns:
        the model, and facts for lineage.

    Raises:
        ModelError: no usable checkpoint, too few layers, or trained weights (head, second tower, inserted modules) that
            would be lost.
    """
    origin = _contract_of(folder)
    if origin.get("modules") is not None:
        problem = "is a modular form, a backbone with inserted modules, which a start would leave out"
        raise ModelError(folder, problem, "start from the plain form: set rem.fold: true in the stage that trained it")
    separate = origin.get("towers") == "separate"
    folders = [folder / side for side in SIDES] if separate else [folder]
    if separate:
        origin = _contract_of(folders[0]) | {"towers": "separate"}
        if settings.towers == "tied":
            raise ModelError(folder, "has two towers, towers: tied would lose one", "set towers: separate")
    for path in folders:
        check_files(path)
        check_weights(path)
    tokenizer = common_tokenizer(folder, folders)
    copies = 2 if settings.towers == "separate" and not separate else 1
    transformers = [load_transformer(path, settings.pooling, settings.layers) for path in folders * copies]
    check_vocabulary(folder, tokenizer, transformers[0].config)
    heads = [_load_head(settings, path, origin) for path in folders * copies]
    files = ModelFolder(folders[0])
    longest = settings.max_tokens or length_limit(files, POSITIONS)
    contract = {"max_tokens": min(longest, position_limit(files) or longest), "revision": revision}
    contract |= {key: origin[key] for key in INHERITED if key in origin}
    model = _assemble(settings, tokenizer, transformers, heads, contract, seed)
    return model, {"changed": _changes(origin, model.contract, folder)}


def _contract_of(folder: Path) -> dict[str, Any]:
    if (folder / CONTRACT).exists():
        return read_contract(folder).model_dump(mode="json")
    return read_layout(ModelFolder(folder))


def _load_head(settings: InitSettings, folder: Path, origin: dict[str, Any]) -> dict[str, Projection]:
    """Load the checkpoint's head, {} where there is none.

    Raises:
        ModelError: it has one, and the settings require none or another.
    """
    head = {name: load_projection(folder / name) for name in origin.get("projections") or ()}
    is_ance = [type(module) for module in head.values()] == [Dense, LayerNorm]
    if head and settings.head != "kept" and not (is_ance and settings.head == "ance"):
        step = "set head: ance" if is_ance else "set head: kept"
        raise ModelError(folder, f"has a head ({', '.join(head)}) that head: {settings.head} would lose", step)
    return head


def _assemble(
    settings: InitSettings, tokenizer: Any, transformers: list[Any], heads: list[Head], facts: dict[str, Any], seed: int
) -> BiEncoder:
    """Build one tower a transformer; new heads of two towers start equal. `facts`: values of the contract."""
    config = transformers[0].config
    if config.model_type in T5_FAMILY and settings.pooling == "cls":
        raise ModelError(settings.init, "T5 has no [CLS] token", "set pooling: decoder_first or mean")
    if config.is_encoder_decoder and config.model_type not in T5_FAMILY:
        raise ModelError(settings.init, f"{config.model_type} can't be trained", "choose a BERT-like model or T5")
    if settings.pooling == "decoder_first" and not tokenizer.split_special_tokens:
        tokenizer = one_end(tokenizer)
    if settings.head == "ance":
        heads = [head or ance_head(config.hidden_size, torch.Generator().manual_seed(seed)) for head in heads]
    size = list(heads[0].values())[-1].size if heads[0] else config.hidden_size
    facts |= {"dimension": size, "architecture": type(transformers[0]).__name__}
    contract = _contract(settings, facts | {"projections": tuple(heads[0])})
    towers = [Tower(t, contract, head).eval() for t, head in zip(transformers, heads, strict=True)]
    names = [SHARED] if len(towers) == 1 else list(SIDES)
    return BiEncoder(contract, tokenizer, dict(zip(names, towers, strict=True)))


def _contract(settings: InitSettings, facts: dict[str, Any]) -> EncoderContract:
    longest, limit = max(settings.query_tokens, settings.document_tokens), facts["max_tokens"]
    if longest > limit:
        problem = f"its limit is {limit} tokens, query_tokens or document_tokens is {longest}"
        raise ModelError(settings.init, problem, f"lower it to {limit}")
    values = settings.model_dump(include={"pooling", "similarity", "towers", "query_tokens", "document_tokens"})
    values |= {"normalize": settings.similarity == "cosine", "source": settings.init}
    values |= {} if settings.lowercase is None else {"lowercase": settings.lowercase}
    return make_contract(settings.init, facts | values)


def _changes(origin: dict[str, Any], contract: EncoderContract, folder: Path) -> dict[str, list[Any]]:
    """List the keys of the folder's contract that changed: key -> [before, after]."""
    current = contract.model_dump(mode="json")
    keys = [key for key in ("pooling", "normalize", "similarity", "towers") if key in origin]
    changes: dict[str, list[Any]] = {k: [origin[k], current[k]] for k in keys if origin[k] != current[k]}
    for key, (before, after) in changes.items():
        log.info("%s: the checkpoint states %s: %s, the settings %s", folder.name, key, before, after)
    return changes
