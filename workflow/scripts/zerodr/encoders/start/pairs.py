"""Import two published models, one of queries and one of documents, as one bi-encoder with two towers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zerodr.encoders.folder.checkpoint import model_files
from zerodr.encoders.folder.contract import (
    SIDES,
    EncoderContract,
    Side,
    read_contract,
    read_json,
    write_model_json,
)
from zerodr.encoders.folder.foreign import check_files
from zerodr.encoders.folder.layout import write_layout
from zerodr.errors import ModelError

DPR = "dpr"  # model_type of transformers' DPR classes, each one tower around a BERT
DPR_PREFIX: dict[Side, str] = {"query": "question_encoder.bert_model.", "document": "ctx_encoder.bert_model."}
ALIKE = ("pooling", "normalize", "similarity", "dimension", "projections")
Copy = Callable[[Path, Path, Side], EncoderContract]


def copy_pair(sources: dict[Side, Path], target: Path, names: dict[Side, str], copy: Copy) -> EncoderContract:
    """Write the models of queries and of documents below `target`, and the contract of both.

    Args:
        sources: folder of each side; a tower of transformers' DPR is written as the BERT that it is.
        target: empty folder.
        names: hub name or folder of each side, for the contract.
        copy: imports a folder as a model of one tower and returns its contract.

    Returns:
        the contract: the first side's, with the shorter length of the two.

    Raises:
        ModelError: the sides pool, compare or size their vectors differently.
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
    shared |= {"max_tokens": min(query.max_tokens, document.max_tokens), "document_prefix": document.document_prefix}
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
