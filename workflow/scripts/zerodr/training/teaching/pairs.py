"""Training a cross-encoder in the same loop as a bi-encoder, and its dev evaluation.

A pair's logit s is the inner product of the vectors [1] (the query's) and [s] (the pair's). So objectives that compare
a query with its own documents (InfoNCE without in-batch negatives, Margin-MSE, KL) mean the same for both kinds of
model, and gradient caching, accumulation and data-parallel training hold unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zerodr.encoders.cross_encoder.network import CrossEncoder
from zerodr.encoders.cross_encoder.pair_model import BARE_CALL, PairTokens
from zerodr.encoders.network.moving import features_on, on_device
from zerodr.training.data.batches import WASTE as TRAINING_WASTE
from zerodr.training.data.batches import Batch, length_groups
from zerodr.training.data.examples import Examples
from zerodr.training.data.tokens import SharedTokens
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.dev import BATCH_TEXTS, WASTE, ranking_metrics
from zerodr.training.loop.gradcache import Forward, Texts

PAIR = "pair"


@dataclass
class PairForward(Forward):
    """How a cross-encoder (encoders/cross_encoder/network.py) is trained; `chunk` counts pairs."""

    def pairs(self, queries: Sequence[str], documents: Sequence[str]) -> list[PairTokens]:
        """Tokenise the pairs (queries[i], documents[i]); texts of earlier ones are remembered."""
        return pair_tokens(self.model, self.shared, queries, documents)

    def texts(self, batch: Batch) -> Texts:
        """Tokenise the distinct pairs of (a process's part of) a batch, behind B empty rows for its queries."""
        count, width = batch.documents.shape
        span = len(self.examples.documents)
        codes = np.repeat(np.arange(count), width) * span + batch.documents.ravel()
        distinct, inverse = np.unique(codes, return_inverse=True)
        queries = self.examples.texts_of_queries(batch.rows)
        documents = self.examples.texts_of_documents(distinct % span)
        pairs = self.pairs([queries[row] for row in distinct // span], documents)
        waste = TRAINING_WASTE[torch.device(self.device).type]
        groups = length_groups([len(pair) for pair in pairs], waste, self.chunk)
        return Texts(
            [[]] * count + pairs,
            inverse.reshape(count, width),
            [(PAIR, [count + index for index in group]) for group in groups],
        )

    def vectors(self, features: dict[str, Tensor], side: str) -> Tensor:
        """Logits as vectors of one component, (n, 1) float32."""
        return self.model.score(features)[:, None]


def pair_tokens(
    model: CrossEncoder, shared: SharedTokens, queries: Sequence[str], documents: Sequence[str]
) -> list[PairTokens]:
    """Tokenise the pairs (queries[i], documents[i]), each text once."""
    ids = (shared.of(model.tokenizer, BARE_CALL, texts) for texts in (queries, documents))
    return model.join(*ids)


def logits_of(model: Any, pairs: list[PairTokens], device: str, group: Group) -> Tensor:
    """Logits of pairs without dropout, (P,); each process scores its part."""
    share = -(-len(pairs) // group.world)
    padded = pairs + [pairs[-1]] * (share * group.world - len(pairs))
    mine = padded[group.rank * share : (group.rank + 1) * share]
    logits = torch.empty(share, device=device)
    with torch.no_grad():
        for indices in length_groups([len(pair) for pair in mine], WASTE, BATCH_TEXTS):
            scores = model.score(features_on(model.pad([mine[index] for index in indices]), device))
            logits[on_device(torch.tensor(indices), device)] = scores
    return group.gather(logits)[: len(pairs)]


def evaluate_pairs(
    forward: PairForward, examples: Examples, rows: np.ndarray, negatives: int, group: Group
) -> dict[str, float]:
    """How a cross-encoder ranks each dev query's own positives and its first mined negatives.

    Returns:
        MRR@10, nDCG@10, and `accuracy`: share of queries whose best positive is above all these negatives.
    """
    candidates = [np.r_[examples.positives[int(row)], examples.negatives[int(row)][:negatives]] for row in rows]
    positives = [list(range(len(examples.positives[int(row)]))) for row in rows]
    sizes = [len(documents) for documents in candidates]
    queries = np.repeat(np.array(examples.texts_of_queries(rows), object), sizes).tolist()
    pairs = forward.pairs(queries, examples.texts_of_documents(np.concatenate(candidates)))
    model = forward.model
    was_training = model.training
    model.eval()
    logits = logits_of(model, pairs, forward.device, group)
    model.train(was_training)
    by_query = logits.cpu().split(sizes)
    scores = torch.full((len(rows), max(sizes)), -torch.inf)
    for row, of_query in enumerate(by_query):
        scores[row, : len(of_query)] = of_query
    above = [
        len(relevant) == len(of_query) or bool(of_query[relevant].max() > of_query[len(relevant) :].max())
        for relevant, of_query in zip(positives, by_query, strict=True)
    ]
    return ranking_metrics(scores, positives) | {"accuracy": float(np.mean(above))}
