"""Import a bi-encoder from a folder, the hub or a Python package as a checked model folder."""

import importlib
import logging
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, metadata, packages_distributions, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zerodr.artifacts.manifest import file_digest
from zerodr.artifacts.stage import Stage
from zerodr.config.base import validate
from zerodr.config.starts import PACKAGE
from zerodr.config.training import StartSettings
from zerodr.encoders.folder import checkpoint
from zerodr.encoders.folder.checkpoint import model_files
from zerodr.encoders.folder.contract import (
    CONTRACT,
    SIDES,
    EncoderContract,
    Side,
    read_contract,
    read_json,
    write_contract,
    write_model_json,
)
from zerodr.encoders.folder.foreign import ModelFolder, check_files
from zerodr.encoders.folder.layout import check_layout, write_layout
from zerodr.encoders.folder.statements import ignored_prompt, position_limit
from zerodr.encoders.start.hub import fetch_model
from zerodr.encoders.start.reading import OVERRIDES, ImportSettings, read_source
from zerodr.errors import ModelError

DPR = "dpr"  # model_type of transformers' DPR classes, each one tower around a BERT
DPR_PREFIX: dict[Side, str] = {"query": "question_encoder.bert_model.", "document": "ctx_encoder.bert_model."}
ALIKE = ("pooling", "normalize", "similarity", "dimension", "projections", "lowercase")
Copy = Callable[[Path, Path, Side], EncoderContract]


def copy_pair(sources: dict[Side, Path], target: Path, names: dict[Side, str], copy: Copy) -> EncoderContract:
    """Write the models of queries and of documents below `target`, and the contract of both.

    Args:
        sources: folder of each side; a tower of transformers' DPR is written as the BERT that it is.
        target: empty folder.
        names: hub name or folder of each side, for the contract.
        copy: imports a folder as a model of one tower and returns its contract.

    Returns:
        the contract: the first side's, with the length and prefix of each, as far as both position tables reach.

    Raises:
        ModelError: the sides pool, compare or size their vectors differently, or one alone lowers texts.
    """
    with TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        for side in SIDES:
            (target / side).mkdir()
            copy(plain_bert(sources[side], Path(folder) / side, side), target / side, side)
    query, document = (read_contract(target / side) for side in SIDES)
    for key in ALIKE:
        if getattr(query, key) != getattr(document, key):
            problem = f"{key} of queries is {getattr(query, key)!r}, of documents {getattr(document, key)!r}"
            raise ModelError(sources["document"], problem, "name two models that were trained together")
    shared: dict[str, Any] = {"source": " + ".join(names[side] for side in SIDES), "revision": None}
    limits = [limit for side in SIDES if (limit := position_limit(ModelFolder(target / side))) is not None]
    longest = min([max(query.max_tokens, document.max_tokens), *limits])
    lengths = {"query_tokens": query.tokens("query"), "document_tokens": document.tokens("document")}
    shared |= {key: length if length < longest else None for key, length in lengths.items()}
    shared |= {"max_tokens": longest, "document_prefix": document.document_prefix}
    contract = query.model_copy(update=shared)
    for side in SIDES:
        hidden = read_json(target / side / "config.json")["hidden_size"]
        write_layout(target / side, contract, hidden)
    contract = contract.model_copy(update={"towers": "separate"})
    write_layout(target, contract, hidden)
    return contract


def plain_bert(source: Path, target: Path, side: Side) -> Path:
    """Return `source`, or where it is a tower of transformers' DPR, `target` with the BERT inside it.

    Raises:
        ModelError: the other side's tower, or one with a projection, which this bench does not run.
    """
    from safetensors.torch import load_file, save_file

    config = check_files(source).config
    if config.get("model_type") != DPR:
        return source
    if config.get("projection_dim"):
        raise ModelError(source, f"projects its vectors to {config['projection_dim']}", "choose a DPR without")
    weights = {name: value for path in source.glob("*.safetensors") for name, value in load_file(path).items()}
    prefix = DPR_PREFIX[side]
    inside = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    if not inside:
        problem = f"holds no weights {prefix}*, so it is no tower of {side} texts"
        raise ModelError(source, problem, "name the question encoder as model, the context encoder as document_model")
    target.mkdir()
    for path in model_files(source):
        if path.suffix != ".safetensors" and not path.name.endswith(".index.json"):
            shutil.copyfile(path, target / path.name)
    tokenizer = target / "tokenizer_config.json"
    if tokenizer.exists():  # its class is one of DPR's, which are BERT's under other names
        values = {key: value for key, value in read_json(tokenizer).items() if key != "tokenizer_class"}
        write_model_json(tokenizer, values | {"tokenizer_class": "BertTokenizer"})
    write_model_json(target / "config.json", config | {"model_type": "bert", "architectures": ["BertModel"]})
    save_file(inside, target / "model.safetensors", metadata={"format": "pt"})
    return target


log = logging.getLogger("zerodr")
PROBE = ("", "A text to try the model with.")
MINIMUM_COSINE = 0.9999


def import_model(stage: Stage) -> None:
    """Write `model`, a folder that load_encoder and sentence-transformers load alike; no inputs."""
    site = {key: value for key, value in stage.spec.site.items() if key == "offline"}
    settings = validate(ImportSettings, stage.params | site, stage.spec.name())
    source, revision = resolve(settings.model, settings.revision, settings.offline)
    if settings.document_model is None:
        contract, assumed = copy_model(source, stage.output("model"), settings, revision)
        origin = describe_origin(settings.model, source)
    else:
        document, _ = resolve(settings.document_model, settings.document_revision, settings.offline)
        contract, assumed = _copy_both(source, document, stage.output("model"), settings)
        origin = {
            "query": describe_origin(settings.model, source),
            "document": describe_origin(settings.document_model, document),
        }
    stage.note(contract=contract.model_dump(mode="json"), assumed=assumed, origin=origin)


def describe_origin(model: str, folder: Path) -> dict[str, Any]:
    """Describe a checkpoint for lineage: SHA-256 of its weights, and name and version of the package that ships it."""
    weights = {path.relative_to(folder).as_posix(): file_digest(path) for path in sorted(folder.rglob("*.safetensors"))}
    if not model.startswith(PACKAGE):
        return {"weights": weights}
    module = model.removeprefix(PACKAGE).partition(".")[0]
    try:
        names = [metadata(module)["Name"]]  # the usual case: asking all packages takes seconds
    except PackageNotFoundError:
        names = sorted(set(packages_distributions().get(module, ())))
    return {"packages": {name: version(name) for name in names}, "weights": weights}


def _copy_both(
    source: Path, document_source: Path, target: Path, settings: ImportSettings
) -> tuple[EncoderContract, list[str]]:
    """Copy a model of queries and one of documents; return their contract and what was assumed."""
    document = settings.document_model or ""
    folders: dict[Side, Path] = {"query": source, "document": document_source}
    names: dict[Side, str] = {"query": settings.model, "document": document}
    assumed: list[str] = []

    def copy(folder: Path, tower: Path, side: Side) -> EncoderContract:
        contract, sentences = copy_model(folder, tower, settings.model_copy(update={"model": names[side]}), None)
        assumed.extend(f"{side}: {sentence}" for sentence in sentences)
        return contract

    contract = copy_pair(folders, target, names, copy)
    check_model(target)
    return contract, assumed


def start_folder(stage: Stage, settings: StartSettings) -> tuple[Path, str | None]:
    """Return the folder of the start (input `parent`, or `init`, whose origin is noted), and its hub commit."""
    if "parent" in stage.spec.inputs:
        return stage.path("parent"), None
    folder, revision = resolve(settings.init, settings.revision, bool(stage.spec.site.get("offline", False)))
    stage.note(origin=describe_origin(settings.init, folder))
    return folder, revision


def resolve(model: str, revision: str | None, offline: bool) -> tuple[Path, str | None]:
    """Find the local folder of a model, and its hub commit where it has one.

    Raises:
        ModelError: no such folder, package or hub model, or the hub can't be asked.
    """
    if model.startswith(PACKAGE):
        return _package(model.removeprefix(PACKAGE)), revision
    if Path(model).is_dir():
        return Path(model), revision
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise ModelError(model, "is no folder", "give a folder, organisation/name on the hub, or package:<module>")
    return fetch_model(model, revision, offline)


def _package(module: str) -> Path:
    try:
        package = importlib.import_module(module)
    except ImportError as error:
        raise ModelError(PACKAGE + module, f"the package can't be imported ({error})", f"install {module}") from None
    folder = getattr(package, "MODEL_DIR", None)
    if folder is None or not Path(folder).is_dir():
        raise ModelError(PACKAGE + module, "has no folder MODEL_DIR", "name a package that ships a model")
    return Path(folder)


def copy_model(
    source: Path, target: Path, settings: ImportSettings, revision: str | None, linked: bool = False
) -> tuple[EncoderContract, list[str]]:
    """Copy the model's files, write contract and layout, then load the copy and check it.

    Args:
        source: folder of the model.
        target: empty folder.
        settings: what is read otherwise than the folder says.
        revision: the hub's commit.
        linked: link the weights, which takes no time and no disk.

    Returns:
        the contract, and sentences about assumptions where the source states nothing.

    Raises:
        ModelError: one clear reason why the folder is no bi-encoder of this bench.
    """
    stated = read_contract(source) if (source / CONTRACT).exists() else None
    if stated is not None and stated.towers == "separate":
        return _copy_towers(source, stated, target, settings, revision), []
    files, contract, width, assumed = read_source(source, settings, revision)
    checkpoint.check_weights(source)
    assumed += checkpoint.spare_layers(source, files.config)
    checkpoint.copy_files(checkpoint.model_files(source, contract.projections), source, target, linked)
    write_layout(target, contract, width)
    try:
        check_model(target)
    except ModelError as error:  # names the folder that the user has, not the copy
        raise ModelError(error.where.replace(str(target), str(source)), error.what, error.next_step) from None
    assumed += compare_source(files, target, settings)
    for sentence in assumed:
        log.info("%s: %s", settings.model, sentence)
    return contract, assumed


def _copy_towers(
    source: Path, contract: EncoderContract, target: Path, settings: ImportSettings, revision: str | None
) -> EncoderContract:
    """Copy a model of this bench with two towers, unchanged."""
    changed = [key for key in OVERRIDES if getattr(settings, key) is not None]
    if changed:
        raise ModelError(source, f"has two towers, whose {', '.join(changed)} can't be overridden", "remove it")
    check_layout(source, contract)
    checkpoint.check_weights(source)
    checkpoint.copy_files(checkpoint.all_model_files(source, contract), source, target)
    contract = contract.model_copy(update={"source": settings.model, "revision": revision})
    for side in SIDES:
        write_contract(target / side, contract.model_copy(update={"towers": "tied"}))
    write_contract(target, contract)
    check_model(target)
    return contract


def compare_source(files: ModelFolder, folder: Path, settings: ImportSettings) -> list[str]:
    """Compare vectors of an imported folder with sentence-transformers' vectors of its source.

    Not where the method overrides the pooling, or where there is no `modules.json`: then the source states no vectors.

    Returns:
        a sentence where sentence-transformers can't load the source.

    Raises:
        ModelError: they differ.
    """
    if settings.pooling is not None or not files.listed:
        return []
    import numpy as np

    from zerodr.encoders.inference.encoder import load_encoder
    from zerodr.encoders.inference.peer import PROBES, TOGETHER, load_peer, smallest_cosine

    contract, encoder = read_contract(folder), load_encoder(folder, "fp32", "cpu", graph=False)
    ours = {}
    for side in SIDES:
        tokens = encoder.tokenize(PROBES, contract.prefix(side), contract.tokens(side))
        pairs = [(tokens[row], tokens[row + 1]) for row in range(0, len(tokens), TOGETHER)]
        ours[side] = np.concatenate([encoder.encode_batch(pair) for pair in pairs])
    del encoder  # not next to the other one: both may be large
    try:
        peer = load_peer(files.path)
    except ModelError as error:
        return [f"vectors are not compared with those of the source: {error.what}"]
    if settings.max_tokens is not None:
        peer.max_seq_length = contract.max_tokens
    stated = settings.query_prefix is None and settings.document_prefix is None and not ignored_prompt(files)
    cosine = smallest_cosine(peer, lambda texts, side: ours[side], None if stated else contract)
    if not cosine >= MINIMUM_COSINE:
        problem = f"gives other vectors here than in sentence-transformers (cosine {cosine:.5f})"
        raise ModelError(files.path, problem, "compare its json files with the list in docs/models.md, or report it")
    return []


def check_model(folder: Path) -> EncoderContract:
    """Load the folder and encode two texts, one of them empty.

    Raises:
        ModelError: contract and layout differ, it can't be loaded, or it gives no finite vectors of the promised size.
    """
    import numpy as np

    from zerodr.encoders.inference.encoder import load_encoder

    contract = read_contract(folder)
    check_layout(folder, contract)
    for side in SIDES if contract.towers == "separate" else SIDES[1:]:
        encoder = load_encoder(folder, "fp32", "cpu", graph=False, side=side)
        tokens = encoder.tokenize(PROBE, contract.prefix(side))
        vectors = encoder.encode_batch([tokens[row] for row in range(len(tokens))])
        finite = bool(np.isfinite(vectors).all())
        if vectors.shape != (len(PROBE), contract.dimension) or not finite:
            expected = f"expected finite ones of {contract.dimension} components"
            problem = f"gave vectors of shape {vectors.shape}, finite: {finite}; {expected}"
            raise ModelError(folder, problem, "choose another model")
    return contract
