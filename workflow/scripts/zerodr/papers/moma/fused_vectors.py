"""Fused query vectors for search: each distinct document passes the encoder once, and the decoder takes one step.

`decode_once` is T5's decoder for its first position alone, without keys and values of the T tokens that it looks at.
With one position, q_h (W_k,h s_t) = (W_k,h^T q_h) s_t and sum_t p_t W_v,h s_t = W_v,h (sum_t p_t s_t). So a layer's
cross-attention costs 2 H d multiplications a token instead of 2 d^2 (T5-base: 64 times fewer), and the vector differs
by rounding only. For inference: no dropout, no gradient.

Encoder states of documents stay in memory up to a size (`StateCache`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from zerodr.encoders.network.moving import on_device
from zerodr.encoders.network.towers import DTYPES
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.papers.moma.augmented_encoder import AugmentedEncoder
from zerodr.papers.moma.fusion_encoder import FusionEncoder

DECODED_STATES = 1 << 25  # numbers of padded encoder states that are decoded together
Ids = Sequence[int] | np.ndarray
TextsOf = Callable[[list[str]], list[str]]
TokensOf = Callable[[list[str]], Sequence[Ids]]
MIB = 2**20
BLOCK = 1 << 20


class QueryVectors(ABC):
    """Vectors of queries with their documents.

    Args:
        model: is set to evaluation mode, on its device.
    """

    def __init__(self, model: AugmentedEncoder) -> None:
        self.model = model.eval()
        self.device = next(model.parameters()).device

    def vectors(self, queries: Sequence[str], documents: Sequence[Sequence[str]], texts_of: TextsOf) -> np.ndarray:
        """Vectors of augmented queries, (Q, D) float32.

        Args:
            queries: texts.
            documents: keys of each query's documents; none for a plain query.
            texts_of: texts of documents by key; asked only for those whose states are not cached.
        """

        def tokens_of(keys: list[str]) -> list[list[int]]:
            return self.model.tokenize_augmentations(texts_of(keys))

        return self.vectors_of_tokens(self.model.tokenize(queries, "query"), documents, tokens_of)

    @abstractmethod
    def vectors_of_tokens(
        self, queries: Sequence[Ids], documents: Sequence[Sequence[str]], tokens_of: TokensOf
    ) -> np.ndarray:
        """Vectors of augmented queries that are tokenised already, as `vectors`."""


class Fuser(QueryVectors):
    """Vectors of a T5, equal to the model's own up to rounding.

    Args:
        cache: of encoder states by document; None encodes every document of every query anew.
        batch_tokens: padded tokens of one pass through the encoder.
    """

    def __init__(self, model: FusionEncoder, cache: StateCache | None, batch_tokens: int = 4096) -> None:
        super().__init__(model)
        self.cache, self.batch_tokens = cache, batch_tokens
        self.transformer, self.dtype = model.tower("query").transformer, DTYPES[model.precision]

    def vectors_of_tokens(
        self, queries: Sequence[Ids], documents: Sequence[Sequence[str]], tokens_of: TokensOf
    ) -> np.ndarray:
        """Vectors of fused queries that are tokenised already, as `vectors`."""
        with torch.inference_mode(), torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            query_states = self.encoded(queries)
            states = self.states_of(documents, tokens_of)
            rows = [torch.cat([query, *given]) for query, given in zip(query_states, states, strict=True)]
            return self.fused(rows)

    def states_of(self, documents: Sequence[Sequence[str]], tokens_of: TokensOf) -> list[list[Tensor]]:
        """Encoder states of each query's documents, (tokens, d) each."""
        if self.cache is None:
            keys = [key for listed in documents for key in listed]
            flat = iter(self.encoded(tokens_of(keys)))
            return [[next(flat) for _ in listed] for listed in documents]
        held: dict[str, Tensor] = {}
        missing: list[str] = []
        for key in dict.fromkeys(key for listed in documents for key in listed):
            cached = self.cache.get(key)
            if cached is None:
                missing.append(key)
            else:
                held[key] = on_device(cached, self.device)
        if missing:
            for key, states in zip(missing, self.encoded(tokens_of(missing)), strict=True):
                held[key] = states
                self.cache.put(key, states.clone())
        return [[held[key] for key in listed] for listed in documents]

    def encoded(self, tokens: Sequence[Ids]) -> list[Tensor]:
        """Encoder states of texts, without padding, (tokens, d) each."""
        encoded: list[Tensor] = [torch.empty(0)] * len(tokens)
        order = sorted(range(len(tokens)), key=lambda index: -len(tokens[index]))
        start = 0
        while start < len(order):
            count = max(1, self.batch_tokens // max(1, len(tokens[order[start]])))
            batch = order[start : start + count]
            features = BiEncoder.pad(self.model, [tokens[index] for index in batch])
            ids, mask = (on_device(features[name], self.device) for name in ("input_ids", "attention_mask"))
            states = self.transformer.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            for row, index in enumerate(batch):
                encoded[index] = states[row, : len(tokens[index])]
            start += count
        return encoded

    def fused(self, rows: Sequence[Tensor]) -> np.ndarray:
        """Vectors from encoder states (tokens, d) of each query and its documents, (Q, D) float32."""
        vectors = np.empty((len(rows), self.model.contract.dimension), np.float32)
        order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
        start = 0
        while start < len(order):
            count = max(1, DECODED_STATES // rows[order[start]].numel())
            batch = order[start : start + count]
            states = pad_sequence([rows[index] for index in batch], batch_first=True)
            lengths = on_device(torch.tensor([len(rows[index]) for index in batch]), self.device)
            mask = (torch.arange(states.shape[1], device=self.device) < lengths[:, None]).long()
            hidden = decode_once(self.transformer, states, mask)
            vectors[batch] = self.model.tower("query").vectors(hidden, mask).float().cpu().numpy()
            start += count
        return vectors


def decode_once(transformer: Any, states: Tensor, mask: Tensor) -> Tensor:
    """The decoder's last hidden state at its start token, after the final norm.

    Args:
        transformer: T5 encoder-decoder of transformers, in evaluation mode.
        states: (B, T, d) encoder states.
        mask: (B, T), 1 for real tokens; every row has one.

    Returns:
        (B, 1, d) in the dtype of the weights.
    """
    decoder = transformer.decoder
    start = mask.new_full((len(mask),), transformer.config.decoder_start_token_id)
    hidden = decoder.embed_tokens(start)
    bias = torch.zeros(mask.shape, dtype=states.dtype, device=states.device)
    bias.masked_fill_(mask == 0, torch.finfo(states.dtype).min)
    for block in decoder.block:
        itself, cross, forward = block.layer
        attention = itself.SelfAttention  # a softmax over one position is 1
        hidden = hidden + attention.o(attention.v(itself.layer_norm(hidden)))
        hidden = hidden + _look(cross.EncDecAttention, cross.layer_norm(hidden), states, bias)
        hidden = forward(hidden)
    return decoder.final_layer_norm(hidden)[:, None]


def _look(attention: Any, hidden: Tensor, states: Tensor, bias: Tensor) -> Tensor:
    """Cross-attention of one position. hidden (B, d), states (B, T, d), bias (B, T) -> (B, d)."""
    heads, size = attention.n_heads, attention.key_value_proj_dim
    keys, values = (w.weight.view(heads, size, -1) for w in (attention.k, attention.v))  # (H, dk, d)
    query = attention.q(hidden).view(-1, heads, size)
    folded = torch.einsum("bhk,hkd->bhd", query, keys)
    scores = torch.bmm(folded, states.transpose(1, 2)) + bias[:, None]
    seen = torch.bmm(torch.softmax(scores.float(), -1).to(states.dtype), states)  # (B, H, d)
    return attention.o(torch.einsum("bhd,hkd->bhk", seen, values).flatten(1))


def fingerprint(folder: Path) -> str:
    """SHA-256 of the weights of a model folder."""
    digest = sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()


class StateCache:
    """States by document, the least recently used ones dropped beyond `limit_mib`.

    Attributes:
        hits, misses: documents that were there, and that were not.
    """

    def __init__(self, limit_mib: int) -> None:
        self.limit = limit_mib * MIB
        self.hits = self.misses = self.held = 0
        self._states: OrderedDict[str, Tensor] = OrderedDict()

    def get(self, key: str) -> Tensor | None:
        """States (tokens, d) of a document; None where it is not kept."""
        states = self._states.get(key)
        if states is not None:
            self._states.move_to_end(key)
        self.hits, self.misses = self.hits + (states is not None), self.misses + (states is None)
        return states

    def put(self, key: str, states: Tensor) -> None:
        """Keep states of a document that was not there."""
        self.held += states.nbytes
        self._states[key] = states
        while self.held > self.limit and self._states:
            self.held -= self._states.popitem(last=False)[1].nbytes

    def forget(self, keys: Iterable[str]) -> None:
        """Drop states of documents, where they are held in memory."""
        for key in keys:
            states = self._states.pop(key, None)
            self.held -= 0 if states is None else states.nbytes

    def items(self) -> Iterable[tuple[str, Tensor]]:
        """Documents and states in memory."""
        return self._states.items()
