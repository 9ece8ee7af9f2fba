"""Fused query vectors for search: each distinct document passes the encoder once, and the decoder takes one step."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from zerodr.encoders.network.moving import on_device
from zerodr.encoders.network.towers import DTYPES
from zerodr.papers.moma.decoder_once import decode_once
from zerodr.papers.moma.fusion_encoder import FusionEncoder
from zerodr.papers.moma.state_cache import StateCache

DECODED_STATES = 1 << 25  # numbers of padded encoder states that are decoded together
Ids = Sequence[int] | np.ndarray
TextsOf = Callable[[list[str]], list[str]]
TokensOf = Callable[[list[str]], Sequence[Ids]]


class Fuser:
    """Vectors of queries with their documents, equal to the model's own up to rounding.

    Args:
        model: in evaluation mode, on its device.
        cache: of encoder states by document; None encodes every document of every query anew.
        batch_tokens: padded tokens of one pass through the encoder.
    """

    def __init__(self, model: FusionEncoder, cache: StateCache | None, batch_tokens: int = 4096) -> None:
        self.model, self.cache, self.batch_tokens = model.eval(), cache, batch_tokens
        self.transformer = model.tower("query").transformer
        self.device, self.dtype = next(model.parameters()).device, DTYPES[model.precision]

    def vectors(self, queries: Sequence[str], documents: Sequence[Sequence[str]], texts_of: TextsOf) -> np.ndarray:
        """Vectors of fused queries, (Q, D) float32.

        Args:
            queries: texts.
            documents: keys of each query's documents; none for a plain query.
            texts_of: texts of documents by key; asked only for those whose states are not cached.
        """

        def tokens_of(keys: list[str]) -> list[list[int]]:
            return self.model.tokenize_augmentations(texts_of(keys))

        return self.vectors_of_tokens(self.model.tokenize(queries, "query"), documents, tokens_of)

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
            features = super(FusionEncoder, self.model).pad([tokens[index] for index in batch])
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
