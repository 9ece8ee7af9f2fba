"""A query's attention to documents: `share_i = softmax_i(t s_i + (A q) (B d_i))`, and the weight of their mean.

`s_i` is the score of the ranking that found document i; `t`, A, B and the weight are settings or learned
(`zerodr.retrieval.learn_attention`). It is MoMA's fusion (Ge et al. 2023, eq. 6) with one state a document, the vector
that is searched anyway, and one head of attention. A share is no FidAtt (eq. 9), a sum over a decoder's heads.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from zerodr.config.feedback import Feedback
from zerodr.errors import ArtifactError

WEIGHTS = "attention.safetensors"
AGAIN = "delete the folder and run its target again"


class Attention(NamedTuple):
    """What decides the documents' shares and their weight.

    Attributes:
        inverse_temperature: factor t of the ranking's scores.
        weight: of the documents' mean; the query's vector has 1.
        queries: A, float32 [h, d]; h = 0: scores alone.
        documents: B, float32 [h, d].
    """

    inverse_temperature: float
    weight: float
    queries: np.ndarray
    documents: np.ndarray

    def shares(self, query: np.ndarray, documents: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Return the shares of documents [k, d] of a query [d] with scores [k], float32 [k]; they sum to 1."""
        logits = self.inverse_temperature * scores
        if len(self.queries):
            logits = logits + (documents @ self.documents.T) @ (self.queries @ query)
        return softmax(logits)

    def save(self, folder: Path) -> None:
        """Write the weights into a folder."""
        numbers = {name: np.array([getattr(self, name)], np.float32) for name in self._fields[:2]}
        (folder / WEIGHTS).write_bytes(save(numbers | {"queries": self.queries, "documents": self.documents}))

    @classmethod
    def load(cls, folder: Path) -> Attention:
        """Read the weights of a folder.

        Raises:
            ArtifactError: they are missing, damaged, or those of something else.
        """
        path = folder / WEIGHTS
        try:
            tensors = load(path.read_bytes())
            numbers = [float(tensors[name][0]) for name in cls._fields[:2]]
            return cls(numbers[0], numbers[1], tensors["queries"], tensors["documents"])
        except (OSError, SafetensorError, KeyError) as error:
            raise ArtifactError(path, f"is no learned attention ({error})", AGAIN) from error


def scores_alone(settings: Feedback) -> Attention:
    """Attention by the ranking's scores alone, as settings say."""
    nothing = np.zeros((0, 0), np.float32)
    return Attention(settings.inverse_temperature, settings.weight, nothing, nothing)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of [k] as float32 [k], computed in float64; of nothing, nothing."""
    if not len(logits):
        return np.zeros(0, np.float32)
    exponents = np.exp(logits.astype(np.float64) - logits.max())
    return (exponents / exponents.sum()).astype(np.float32)
