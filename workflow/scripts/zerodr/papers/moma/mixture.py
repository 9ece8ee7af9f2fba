"""MoMA over vectors that stay: a projection finds documents of several memories, one head of attention reads them.

The augmenter's query is `W q`; documents of all memories stand in one index (MoMA eq. 4). The main model's is
`q' = q + w * sum_i share_i V d_i`, `share_i = softmax_i(t * s_i + (A q)(B d_i))`, with `s_i = (W q) d_i` (eq. 5 and 6
with one state a document). W and V start as the identity, w at the recipe's 0: the bi-encoder as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from zerodr.artifacts.parquet import AGAIN
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_ids, namespaced
from zerodr.encoders.folder.attention import WEIGHTS
from zerodr.errors import ArtifactError
from zerodr.retrieval.candidates import join
from zerodr.retrieval.search import exact_rankings
from zerodr.retrieval.vectors import Vectors


class Mixture(NamedTuple):
    """Documents of all memories, memory after memory.

    Attributes:
        vectors: float32 [n, d].
        ids: `<memory>:<document id>` of each; they break ties.
        names: of the memories.
        ends: row behind the last document of each memory, int64 [m].
    """

    vectors: np.ndarray
    ids: pa.Array
    names: list[str]
    ends: np.ndarray

    @classmethod
    def open(cls, stage: Stage, names: list[str]) -> Mixture:
        """Read the inputs `memories` (embeddings, a file a shard) and `collections` (manifests, in the same order).

        Raises:
            ArtifactError: there are other numbers of vectors than documents.
        """
        ids = [
            namespaced(name, corpus_ids(path.parent))
            for name, path in zip(names, stage.paths("collections"), strict=True)
        ]
        vectors = np.concatenate([Vectors.open(path).array for path in stage.paths("memories")])
        ends = np.cumsum([len(one) for one in ids])
        if len(vectors) != ends[-1]:
            problem = f"expected {ends[-1]} documents of {', '.join(names)}, found {len(vectors)}"
            raise ArtifactError(stage.paths("memories")[0], problem, AGAIN)
        return cls(vectors, pa.concat_arrays(ids), names, ends)

    def search(self, stage: Stage, queries: np.ndarray, depth: int, skip: np.ndarray | None = None) -> Ranked:
        """Search the first documents of queries [n, d]; `skip`: a row that a query does not get, -1 for none."""
        depth = min(depth, len(self.vectors) - (skip is not None))
        ranking = join(
            list(exact_rankings(stage, Vectors(queries), Vectors(self.vectors), self.ids, depth, "memories", skip))
        )
        return Ranked(ranking.rows.reshape(-1, depth).astype(np.int64), ranking.scores.reshape(-1, depth))

    def shares(self, rows: np.ndarray, weights: np.ndarray) -> dict[str, float]:
        """Return each memory's share of the weights of documents `rows`, by name."""
        of_memory = np.searchsorted(self.ends, rows.ravel(), side="right")
        sums = np.bincount(of_memory, weights.ravel(), minlength=len(self.names)) / weights.sum()
        return dict(zip(self.names, sums.tolist(), strict=True))


class Ranked(NamedTuple):
    """Documents of n queries, best first.

    Attributes:
        rows: int64 [n, k].
        scores: float32 [n, k].
    """

    rows: np.ndarray
    scores: np.ndarray

    def without(self, banned: list[np.ndarray], count: int) -> Ranked:
        """Leave out the rows that are banned for each query, and cut at `count`."""
        chosen = [np.flatnonzero(~np.isin(rows, out))[:count] for rows, out in zip(self.rows, banned, strict=True)]
        columns = np.stack(chosen)
        return Ranked(np.take_along_axis(self.rows, columns, 1), np.take_along_axis(self.scores, columns, 1))


class Reader(nn.Module):
    """The augmenter's projection, and the attention with values.

    Args:
        dimension: of vectors.
        width: of the projections of attention.
        inverse_temperature, weight: where they start.
    """

    def __init__(self, dimension: int, width: int, inverse_temperature: float, weight: float) -> None:
        super().__init__()
        self.inverse_temperature = nn.Parameter(torch.tensor(float(inverse_temperature)))
        self.weight = nn.Parameter(torch.tensor(float(weight)))
        bound = dimension**-0.5
        self.queries = nn.Parameter(torch.empty(width, dimension).uniform_(-bound, bound))
        self.documents = nn.Parameter(torch.empty(width, dimension).uniform_(-bound, bound))
        self.values = nn.Parameter(torch.eye(dimension))
        self.augmenter = nn.Parameter(torch.eye(dimension))

    def asked(self, queries: Tensor) -> Tensor:
        """Return the queries [n, d] that search the memories."""
        return F.normalize(queries @ self.augmenter.T, dim=-1)

    def forward(self, queries: Tensor, documents: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Read documents [n, k, d] with queries [n, d]; return vectors of length 1 [n, d] and the shares [n, k]."""
        logits = torch.einsum("nkh,nh->nk", documents @ self.documents.T, queries @ self.queries.T)
        shares = (self.inverse_temperature * scores + logits).softmax(-1)
        read = torch.einsum("nk,nkd->nd", shares, documents) @ self.values.T
        return F.normalize(queries + self.weight * read, dim=-1), shares

    @torch.no_grad()
    def read(
        self, mixture: Mixture, queries: np.ndarray, retrieved: Ranked, block: int = 1024
    ) -> tuple[np.ndarray, np.ndarray]:
        """Do the same with what was retrieved for all queries, some at a time."""
        vectors, shares = np.empty_like(queries), np.empty_like(retrieved.scores)
        for start in range(0, len(queries), block):
            some = slice(start, start + block)
            documents = torch.from_numpy(mixture.vectors[retrieved.rows[some]])
            both = self(torch.from_numpy(queries[some]), documents, torch.from_numpy(retrieved.scores[some]))
            vectors[some], shares[some] = both[0].numpy(), both[1].numpy()
        return vectors, shares

    def save(self, folder: Path) -> None:
        """Write the weights into a folder."""
        save_file({name: one.detach().contiguous() for name, one in self.state_dict().items()}, folder / WEIGHTS)

    @classmethod
    def load(cls, folder: Path) -> Reader:
        """Read the weights of a folder.

        Raises:
            ArtifactError: they are missing, damaged, or those of something else.
        """
        path = folder / WEIGHTS
        try:
            tensors = load_file(path)
            width, dimension = tensors["queries"].shape
            network = cls(dimension, width, 0.0, 0.0)
            network.load_state_dict(tensors)
        except (OSError, SafetensorError, KeyError, RuntimeError) as error:
            raise ArtifactError(path, f"is no reader of memories ({error})", AGAIN) from error
        return network
