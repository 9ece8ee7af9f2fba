"""Stage `read_memories`: augment a target's queries with documents of memories, the target among them."""

import numpy as np
import torch

from zerodr.artifacts.parquet import AGAIN
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import strings
from zerodr.collections.access import namespaced, split_queries
from zerodr.config.base import Settings, validate
from zerodr.errors import ArtifactError
from zerodr.papers.moma.mixture import Mixture, Reader
from zerodr.retrieval.search import self_rows
from zerodr.retrieval.vectors import Vectors


class ReadSettings(Settings):
    """Params of rule read_memories."""

    memories: tuple[str, ...]
    """The mixture: names of collections."""
    documents: int
    """K: documents that a query reads."""
    collection: str
    """Name of the target."""
    split: str
    """Split of the queries."""
    exclude_self: bool
    """A query does not read the target's document with its id."""


def read_memories(stage: Stage) -> None:
    """Read `queries`, `memories`, `collections`, `collection` and `attention`; write `embeddings`.

    Raises:
        ArtifactError: embeddings don't fit a collection.
    """
    settings = validate(ReadSettings, stage.params, stage.spec.rule)
    mixture, network = Mixture.open(stage, list(settings.memories)), Reader.load(stage.path("attention"))
    names = strings(split_queries(stage.path("collection"), settings.split)["id"])
    queries = Vectors.open(stage.path("queries")).array.copy()
    if len(queries) != len(names):
        problem = f"expected {len(names)} queries, found {len(queries)}"
        raise ArtifactError(stage.path("queries"), problem, AGAIN)
    skip = self_rows(namespaced(settings.collection, names), mixture.ids) if settings.exclude_self else None
    with torch.no_grad():
        asked = network.asked(torch.from_numpy(queries)).numpy()
    retrieved = mixture.search(stage, asked, settings.documents, skip)
    vectors, shares = network.read(mixture, queries, retrieved)
    for kind, weights in {"documents": np.ones_like(shares), "attention": shares}.items():
        stage.numbers({f"{kind}.{name}": share for name, share in mixture.shares(retrieved.rows, weights).items()})
    stage.note(queries=len(queries), memories=list(settings.memories))
    with open(stage.output("embeddings"), "wb") as stream:
        np.save(stream, vectors)
