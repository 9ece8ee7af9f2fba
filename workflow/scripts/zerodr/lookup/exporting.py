"""Export a retriever to what other programs read: a plain model folder, or vectors and texts in a store on disk."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import pyarrow as pa

from zerodr.artifacts.manifest import LISTING, MANIFEST
from zerodr.artifacts.record import record_path
from zerodr.collections.access import read_corpus
from zerodr.encoders.folder.contract import read_contract
from zerodr.encoders.folder.retriever import INDEX, RETRIEVER, RetrieverFacts, read_retriever, shards_of
from zerodr.encoders.inference.graph import SHIPPED
from zerodr.errors import ArtifactError, MachineError, ModelError, nearest

BLOCK = 512  # documents that are written together


def export(folder: Path, kind: str, target: Path) -> str:
    """Write a retriever to `target`; return a sentence on what the copy can't do.

    Args:
        folder: of a retriever.
        kind: a key of KINDS.
        target: a new folder.

    Raises:
        ArtifactError: `kind` is not known, or something is at `target` already.
        ModelError: the retriever has no model.
        MachineError: the kind's package is missing.
    """
    if kind not in KINDS:
        raise ArtifactError(f"--to {kind}", "is not known", nearest(kind, list(KINDS)))
    facts = read_retriever(folder)
    if not facts.encoder:
        raise ModelError(folder, f"is {facts.method}, which has no model to export", "use it by zerodr.Retriever")
    if target.exists():
        raise ArtifactError(target, "is there already", "name a new folder")
    making = target.with_name(f".{target.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    KINDS[kind](folder, facts, making)
    making.replace(target)
    if facts.kind == "dense":
        return f"{kind} holds all of {facts.method}"
    missing = f"{facts.method}, which was measured, needs zerodr.Retriever"
    return f"{kind} holds {facts.encoder} alone; {missing}"


def _model(folder: Path, facts: RetrieverFacts, target: Path) -> None:
    """Copy the model's files alone."""
    left_out = (INDEX, RETRIEVER, SHIPPED, MANIFEST, LISTING, record_path(folder / MANIFEST).name)
    shutil.copytree(folder, target, ignore=lambda home, _: left_out if Path(home) == folder else ())
    card = target / "README.md"
    if card.exists():
        card.write_text(plain_card(card.read_text(encoding="utf-8"), facts), encoding="utf-8")


def plain_card(card: str, facts: RetrieverFacts) -> str:
    """Write the card of a retriever as one of its model's files, which `zerodr.Retriever` does not load."""
    title, use, rest = card.partition("## Use\n")
    _, measured, rest = rest.partition("## Measured on ")
    if not (use and measured):
        return card
    if facts.kind == "dense":
        return title + measured + rest
    rest = rest.replace(" (this) |", " |", 1).replace("; this folder holds ", "; the whole retriever is ", 1)
    rest = re.sub(rf" \({re.escape(RETRIEVER)} has the settings[^)]*\)", "", rest)
    title = re.sub(r"^# .*", f"# {facts.encoder} for {facts.collection}", title, flags=re.MULTILINE)
    alone = f"**This copy holds {facts.encoder} alone.** {facts.method} needs the folder that zerodr adapt wrote."
    return f"{title}{alone}\n\n{measured}{rest}"


def _onnx(folder: Path, facts: RetrieverFacts, target: Path) -> None:
    if missing := [name for name in ("torch", "transformers", "onnx", "onnxruntime") if not find_spec(name)]:
        whole, apart = "'path/to/zerodr[torch]'", [name for name in missing if name.startswith("onnx")]
        step = " ".join(["run: pip install", *([whole] if len(apart) < len(missing) else []), *apart])
        raise MachineError("--to onnx", f"needs {' and '.join(missing)}, not installed here", step)
    from zerodr.encoders.publishing.onnx import write_onnx

    write_onnx(folder, target)


def _qdrant(folder: Path, facts: RetrieverFacts, target: Path) -> None:
    client, models = _package("qdrant_client"), _package("qdrant_client.models")
    store = client.QdrantClient(path=str(target))
    shards = [np.load(shard, mmap_mode="r") for shard in shards_of(folder / INDEX, facts.encoder)]
    shape = models.VectorParams(size=shards[0].shape[1], distance=models.Distance.DOT)
    store.create_collection(facts.collection, vectors_config=shape)
    for rows, vectors in _blocks(folder, shards):
        points = [
            models.PointStruct(id=str(uuid5(NAMESPACE_URL, row["id"])), vector=vector.tolist(), payload=row)
            for row, vector in zip(rows.to_pylist(), vectors, strict=True)
        ]
        store.upsert(facts.collection, points)
    store.close()


def _lancedb(folder: Path, facts: RetrieverFacts, target: Path) -> None:
    store, table = _package("lancedb").connect(str(target)), None
    shards = [np.load(shard, mmap_mode="r") for shard in shards_of(folder / INDEX, facts.encoder)]
    for rows, vectors in _blocks(folder, shards):
        flat = pa.array(np.ascontiguousarray(vectors).ravel())
        block = pa.Table.from_batches([rows]).append_column(
            "vector", pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        )
        if table is None:
            table = store.create_table(facts.collection, block)
        else:
            table.add(block)


def _blocks(folder: Path, shards: list[np.ndarray]) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Yield rows of the corpus with their vectors; vectors of cosine models have the length 1 already."""
    contract, first = read_contract(folder), 0
    every = np.concatenate(shards) if len(shards) > 1 else shards[0]
    for rows in read_corpus(folder / INDEX, block=BLOCK):
        vectors = np.asarray(every[first : first + rows.num_rows], np.float32)
        if contract.similarity == "cosine":
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        yield rows, vectors
        first += rows.num_rows


def _package(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0].replace("_", "-")
        raise MachineError(package, "is not installed here", f"run: pip install {package}") from None


KINDS: dict[str, Callable[[Path, RetrieverFacts, Path], Any]] = {
    "sentence-transformers": _model,
    "onnx": _onnx,
    "qdrant": _qdrant,
    "lancedb": _lancedb,
}
