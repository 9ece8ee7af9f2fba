"""Look things up in a folder of documents with a model folder, without a run: both may come from anywhere.

The documents' vectors are kept in `results/.state/lookup`, so a second query of the same folder and model is quick.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from zerodr.artifacts.digest import file_digest, object_digest
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.record import STATE
from zerodr.collections.access import corpus_size
from zerodr.collections.user_folders import guess_language, write_section
from zerodr.config.registry import Collection
from zerodr.config.user_folders import UserFolder, find_files
from zerodr.encoders.folder.contract import CONTRACT
from zerodr.encoders.inference.encoder import Encoder, load_encoder
from zerodr.errors import CollectionError, ModelError
from zerodr.lookup.sources import DENSE, PLAIN, Source
from zerodr.retrieval.batching import plan_batches
from zerodr.retrieval.embed import document_texts

log = logging.getLogger("zerodr")
VECTORS = STATE / "lookup"
TITLE_JOIN = " "
WINDOW, BATCH_TOKENS = 2048, 8192


def is_model(folder: Path) -> bool:
    """True when a folder holds a model of the bench."""
    return (folder / CONTRACT).is_file()


def source_of_folder(model: Path, corpus: Path) -> tuple[Source, str]:
    """Embed the documents of a folder with a model, unless that was done; return the source, and their language.

    Args:
        model: a model folder, such as an exported one.
        corpus: a folder with `corpus.{jsonl,tsv,parquet}`, or a normalised collection.

    Raises:
        ModelError: the first is no model folder.
        CollectionError: the second holds no documents that can be read.
    """
    if not is_model(model):
        raise ModelError(model, f"holds no {CONTRACT}", "name an exported folder")
    files = find_files(corpus)
    if "corpus" not in files:
        raise CollectionError(corpus, "holds no corpus.{jsonl,tsv,parquet}", "name a folder with documents")
    weights = sorted(path for path in model.rglob("*") if path.suffix in (".safetensors", ".json"))
    digests = {str(path): file_digest(path) for path in [*map(Path, files["corpus"]), *weights]}
    home = VECTORS / object_digest([*digests.values()])[:16] / corpus.resolve().name.lower()
    if not (home / "corpus.parquet").exists():
        _normalize(corpus, files, home)
    vectors = home / "corpus.npy"
    if not vectors.exists():
        _embed(model, home, vectors)
    inputs = {"model": [str(model / "manifest.json")]}
    language = guess_language(UserFolder(str(corpus), files))
    return Source(model.name, str(home / "manifest.json"), DENSE, (str(vectors),), {}, PLAIN, inputs), language


def _normalize(corpus: Path, files: dict[str, tuple[str, ...]], home: Path) -> None:
    making = home.with_name(f".{home.name}.making")
    making.mkdir(parents=True, exist_ok=True)
    row = Collection(name=home.name, label=home.name, kind="own", format="folder", drop_missing=True)
    if not (corpus / "manifest.json").exists():
        for section in files:
            write_section(section, str(corpus), files[section], row, making)
    else:
        (making / "corpus.parquet").symlink_to((corpus / "corpus.parquet").resolve())
    making.replace(home)


def _embed(model: Path, home: Path, target: Path) -> None:
    encoder, size = load_encoder(model, side="document"), corpus_size(home)
    vectors = np.empty((size, encoder.dimension), np.float32)
    progress = Progress(f"embed {home.name}", size, "documents")
    for start in range(0, size, WINDOW):
        stop = min(start + WINDOW, size)
        texts = [text for _, text in document_texts(home, start, stop, TITLE_JOIN)]
        vectors[start:stop] = _encode(encoder, texts)
        progress.add(stop - start)
    progress.finish()
    making = target.with_name(f".{target.name}")
    with open(making, "wb") as stream:
        np.save(stream, vectors)
    making.replace(target)


def _encode(encoder: Encoder, texts: list[str]) -> np.ndarray:
    contract = encoder.contract
    tokens = encoder.tokenize(texts, contract.prefix("document"), contract.tokens("document"))
    vectors = np.empty((len(texts), encoder.dimension), np.float32)
    for rows in plan_batches(tokens.lengths, BATCH_TOKENS):
        vectors[rows] = encoder.encode_batch([tokens[row] for row in rows])
    return vectors
