"""Dev evaluation while training: held-out queries against the pool of their own documents. Pure functions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zerodr.encoders.network.moving import features_on, on_device
from zerodr.training.data.batches import length_groups
from zerodr.training.data.examples import Examples
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import Forward

CUT = 10
BATCH_TEXTS, WASTE = 64, 512


def ranking_metrics(scores: Tensor, positives: Sequence[Sequence[int]]) -> dict[str, float]:
    """Compute MRR@10 and nDCG@10 (binary gains), means over queries.

    Args:
        scores: (Q, P) similarity of queries and pool documents. Of equal scores the later document ranks first.
        positives: for each query the pool columns of its relevant documents.

    Returns:
        `recip_rank_cut_10` and `ndcg_cut_10`, in [0, 1].
    """
    pool, cut = scores.shape[1], min(CUT, scores.shape[1])
    order = torch.argsort(scores.flip(1), dim=1, descending=True, stable=True)[:, :cut].cpu()
    best = (pool - 1 - order).numpy()  # (Q, cut)
    discounts = 1.0 / np.log2(np.arange(CUT) + 2.0)
    reciprocal, gained = [], []
    for row, relevant in zip(best, positives, strict=True):
        hits = np.flatnonzero(np.isin(row, list(relevant)))
        reciprocal.append(1.0 / (hits[0] + 1) if len(hits) else 0.0)
        ideal = discounts[: min(CUT, len(relevant))].sum()
        gained.append(discounts[hits].sum() / ideal if len(relevant) else 0.0)
    return {"recip_rank_cut_10": float(np.mean(reciprocal)), "ndcg_cut_10": float(np.mean(gained))}


def pool_of(examples: Examples, rows: np.ndarray, negatives: int) -> tuple[np.ndarray, list[list[int]]]:
    """Pool the documents that dev queries are ranked against, and where each query's judged ones are among them.

    Args:
        rows: the dev queries.
        negatives: mined negatives of each query that join the pool, beside all its positives.

    Returns:
        document numbers (P,), ascending; for each query the columns of its judged documents, which all its positives
        are where the examples have none.
    """
    judged = examples.positives if examples.judged is None else examples.judged
    relevant = [judged[int(row)] for row in rows]
    positives = [examples.positives[int(row)] for row in rows]
    mined = [examples.negatives[int(row)][:negatives] for row in rows]
    pool = np.unique(np.concatenate(relevant + positives + mined))
    return pool, [np.searchsorted(pool, np.unique(documents)).tolist() for documents in relevant]


def embed_texts(model: Any, texts: Sequence[str], side: str, device: str, group: Group) -> Tensor:
    """Encode texts without dropout, (T, D) float32; each process encodes its share, all get the whole."""
    return embed_tokens(model, model.tokenize(list(texts), side), side, device, group)


def embed_tokens(model: Any, tokens: list[Any], side: str, device: str, group: Group) -> Tensor:
    """Encode tokenised texts likewise, as the model's `pad` takes them."""
    share = -(-len(tokens) // group.world)
    padded = tokens + [tokens[-1]] * (share * group.world - len(tokens))
    mine = padded[group.rank * share : (group.rank + 1) * share]
    encoded: Tensor | None = None
    with torch.no_grad():
        for positions in length_groups([len(ids) for ids in mine], WASTE, BATCH_TEXTS):
            features = features_on(model.pad([mine[position] for position in positions]), device)
            vectors = model.encode(features, side).float()
            encoded = torch.empty(share, vectors.shape[1], device=vectors.device) if encoded is None else encoded
            encoded[on_device(torch.tensor(positions), device)] = vectors
    assert encoded is not None, "there is at least one text"
    return group.gather(encoded)[: len(tokens)]


def evaluate_dev(
    forward: Forward, examples: Examples, rows: np.ndarray, negatives: int, group: Group
) -> dict[str, float]:
    """Compute MRR@10 and nDCG@10 of the dev queries against their pool. The model is left in the mode it was in."""
    queries = forward.tokens(examples.texts_of_queries(rows), "query")
    return evaluate_tokens(forward, queries, examples, rows, negatives, group)


def evaluate_tokens(
    forward: Forward, tokens: list[Any], examples: Examples, rows: np.ndarray, negatives: int, group: Group
) -> dict[str, float]:
    """Evaluate dev queries that are tokenised already."""
    pool, positives = pool_of(examples, rows, negatives)
    model, device = forward.model, forward.device
    was_training = model.training
    model.eval()
    queries = embed_tokens(model, tokens, "query", device, group)
    texts = forward.tokens(examples.texts_of_documents(pool), "document")
    scores = model.score(queries, embed_tokens(model, texts, "document", device, group))
    model.train(was_training)
    return ranking_metrics(scores, positives)
