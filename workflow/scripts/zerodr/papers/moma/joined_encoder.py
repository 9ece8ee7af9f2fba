"""An encoder that reads a query and its documents as one text: the form of MoMA for networks without a decoder.

The text is `[CLS] query [SEP] document [SEP] document [SEP] ...`, as ANCE-PRF reads its feedback. Positions count, so
the order of documents matters, unlike in a T5's decoder. Nothing says how much a document was attended to: an augmenter
can't learn from it (`augmenter.mode` is `frozen` or `own`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from zerodr.config.starts import OF_T5
from zerodr.encoders.folder.contract import Precision, read_contract
from zerodr.encoders.network.moving import features_on
from zerodr.errors import ModelError
from zerodr.papers.moma.augmented_encoder import AugmentedEncoder, FusionContract, Grounded
from zerodr.papers.moma.fused_vectors import Fuser, Ids, QueryVectors, StateCache, TokensOf
from zerodr.papers.moma.fusion_encoder import FusionEncoder
from zerodr.retrieval.batching import plan_batches


class JoinedEncoder(AugmentedEncoder):
    """A bi-encoder that reads a query's documents behind the query."""

    def augment_with(self, fusion: FusionContract) -> Self:
        """As every augmented encoder's.

        Raises:
            ModelError: query and documents may be longer together than the network's longest text.
        """
        query, longest = self.contract.tokens("query"), self.contract.max_tokens
        left_out = int(self.tokenizer("a")["input_ids"][0] in self.tokenizer.all_special_ids)
        whole = query + fusion.documents * (fusion.document_tokens - left_out)
        if whole > longest:
            each = left_out + (longest - query) // max(1, fusion.documents)
            problem = f"reads {longest} tokens, a query of {query} with {fusion.documents} documents has up to {whole}"
            raise ModelError(
                self.contract.source, problem, f"set document_tokens to at most {each}, or fewer documents"
            )
        return super().augment_with(fusion)

    def pad(self, rows: Sequence[Any]) -> dict[str, Tensor]:
        """As the bi-encoder's; `Grounded` rows as one text each.

        Raises:
            ModelError: one is longer than the network's longest text, as a protocol's queries may be.
        """
        special = self.tokenizer.all_special_ids
        texts = [_joined(row, special) if isinstance(row, Grounded) else row for row in rows]
        longest, limit = max(map(len, texts), default=0), self.contract.max_tokens
        if longest > limit:
            problem = f"reads {limit} tokens, a query with its documents has {longest}"
            step = "take a protocol with shorter queries, or set inference.documents or its document_tokens lower"
            raise ModelError(self.contract.source, problem, step)
        return super().pad(texts)


def _joined(row: Grounded, special: Sequence[int]) -> np.ndarray:
    """Ids of a query, then of each document without the special token that begins a text, where there is one."""
    query = np.asarray(row.query, np.int32)
    texts = [np.asarray(ids, np.int32) for ids in row.documents]
    begins = len(query) > 0 and int(query[0]) in special
    return np.concatenate([query, *(ids[int(begins and len(ids) > 0 and ids[0] == query[0]) :] for ids in texts)])


class JoinedVectors(QueryVectors):
    """Vectors of queries with their documents, by an encoder that reads them as one text."""

    def __init__(self, model: JoinedEncoder, batch_tokens: int = 4096) -> None:
        super().__init__(model)
        self.batch_tokens = batch_tokens

    def vectors_of_tokens(
        self, queries: Sequence[Ids], documents: Sequence[Sequence[str]], tokens_of: TokensOf
    ) -> np.ndarray:
        """Vectors of queries that are tokenised already, as `vectors`."""
        keys = list(dict.fromkeys(key for listed in documents for key in listed))
        tokens = dict(zip(keys, tokens_of(keys) if keys else [], strict=True))
        pairs = zip(queries, documents, strict=True)
        rows = [Grounded(query, [tokens[key] for key in listed]) for query, listed in pairs]
        vectors = np.empty((len(rows), self.model.contract.dimension), np.float32)
        for batch in plan_batches(np.array([len(row) for row in rows]), self.batch_tokens):
            features = features_on(self.model.pad([rows[index] for index in batch]), self.device)
            with torch.inference_mode():
                vectors[batch] = self.model.encode(features, "query").float().cpu().numpy()
        return vectors


def load_augmented(folder: Path, precision: Precision = "fp32") -> AugmentedEncoder:
    """Load the model of a folder, on the CPU: a T5 fuses in its decoder, others read one text.

    Raises:
        ModelError: it is no model of this bench.
    """
    kind = FusionEncoder if read_contract(folder).pooling == OF_T5 else JoinedEncoder
    return kind.load(folder, precision)


def load_fusing(folder: Path, precision: Precision, documents: int, document_tokens: int) -> AugmentedEncoder:
    """Load a model, onto a GPU where there is one, to read so many documents of such a length at most with a query."""
    fusion = FusionContract(documents=documents, document_tokens=document_tokens)
    model = load_augmented(folder, precision).augment_with(fusion)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def query_vectors(model: AugmentedEncoder, cache: StateCache | None, batch_tokens: int) -> QueryVectors:
    """Make what computes vectors of queries with documents; only a T5 has states of documents to keep."""
    if isinstance(model, FusionEncoder):
        return Fuser(model, cache, batch_tokens)
    assert isinstance(model, JoinedEncoder), "there are two kinds"
    return JoinedVectors(model, batch_tokens)
