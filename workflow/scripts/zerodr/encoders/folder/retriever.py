"""Describe the folder of a chosen retriever: `retriever.json`, the model's files, and `index/` with what it searches.

    index/index.json           number of documents, the folder that they come from, SHA-256 of its files
    index/corpus.parquet       ids, titles and texts, unshortened
    index/vectors/<method>/    a model's vectors of these, in shards
    index/models/<method>/     a model that it needs besides its own
    index/bm25/<method>/       inverted indexes

All are files of the DAG under another name, so the rankings are those of the bench, and nothing is embedded again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zerodr.artifacts.manifest import LISTING, MANIFEST, link_or_copy
from zerodr.artifacts.record import record_path
from zerodr.errors import ArtifactError

RETRIEVER, INDEX, ABOUT, CORPUS = "retriever.json", "index", "index.json", "corpus.parquet"
VECTORS, MODELS, BM25 = "vectors", "models", "bm25"
AGAIN = "give the command zerodr adapt again"
FUSION, FEEDBACK, LEXICAL, DENSE = "fusion", "feedback", "lexical", "dense"


@dataclass(frozen=True)
class Way:
    """How one method searches.

    Attributes:
        kind: FUSION, FEEDBACK, LEXICAL or DENSE.
        members: methods that a fusion joins; of feedback, the bi-encoder and the method that finds documents.
        params: of the rule of the DAG that ranks; of a dense method, of its embeddings.
    """

    kind: str
    members: list[str]
    params: dict[str, Any]


@dataclass(frozen=True)
class RetrieverFacts:
    """Content of `retriever.json`.

    Attributes:
        method: the chosen one.
        collection: name of the folder's collection.
        language: of its texts.
        title_join: joins a document's title and text; None: text alone.
        encoder: the method whose model the folder holds; empty: none.
        ways: of the chosen method and of all that it is made of, by name.
    """

    method: str
    collection: str
    language: str
    title_join: str | None
    encoder: str
    ways: dict[str, Way]

    def named(self, kind: str) -> list[str]:
        """List its methods of a kind."""
        return [name for name, way in self.ways.items() if way.kind == kind]

    @property
    def kind(self) -> str:
        """Kind of the chosen method."""
        return self.ways[self.method].kind


def is_retriever(folder: Path) -> bool:
    """True when a folder holds a retriever."""
    return (folder / RETRIEVER).is_file()


def read_retriever(folder: Path) -> RetrieverFacts:
    """Read `retriever.json`.

    Raises:
        ArtifactError: it or its folder is missing, damaged, or of an earlier version.
    """
    if not is_retriever(folder):
        problem = f"holds no {RETRIEVER}" if folder.is_dir() else f"is no folder (looked for in {Path.cwd()})"
        raise ArtifactError(folder, problem, "name the folder that zerodr adapt prints in its line `model`")
    try:
        values = json.loads((folder / RETRIEVER).read_text(encoding="utf-8"))
        ways = {name: Way(**way) for name, way in values.pop("ways").items()}
        return RetrieverFacts(**values, ways=ways)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(folder, f"holds no {RETRIEVER} of this version ({error!r})", AGAIN) from None


def read_index(index: Path) -> dict[str, Any]:
    """Read `index.json` of an index: documents, folder, files.

    Raises:
        ArtifactError: the index is missing or damaged.
    """
    try:
        return json.loads((index / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ArtifactError(index, "is no index of a retriever", AGAIN) from None


def shards_of(index: Path, method: str) -> list[Path]:
    """List the files with the vectors of a method, in the order of the corpus."""
    return sorted((index / VECTORS / method).glob("*.npy"))


def link_index(index: Path, corpus: Path, vectors: Mapping[str, Sequence[Path]], indexes: Mapping[str, Path]) -> None:
    """Give files of the DAG a second name in the folder `index`.

    Args:
        index: the folder.
        corpus: folder of the normalised collection.
        vectors: of its documents by method, in shards.
        indexes: folders of inverted indexes by method.
    """
    index.mkdir(exist_ok=True)
    link_or_copy(corpus / CORPUS, index / CORPUS)
    for name, shards in vectors.items():
        (index / VECTORS / name).mkdir(parents=True)
        for number, shard in enumerate(shards):
            link_or_copy(shard, index / VECTORS / name / f"{number:05d}.npy")
    for name, folder in indexes.items():
        without = shutil.ignore_patterns(MANIFEST, LISTING, record_path(folder / MANIFEST).name)

        def link(source: str, target: str) -> None:
            link_or_copy(Path(source), Path(target))

        shutil.copytree(folder, index / BM25 / name, copy_function=link, ignore=without)
