"""Score pairs with a cross-encoder: on the CPU a BERT runs in the packed forward pass, other models as in training."""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from zerodr.encoders.cross_encoder.network import CrossEncoder
from zerodr.encoders.cross_encoder.pairs import PairTokens
from zerodr.encoders.inference.packed import PackedBert, why_not
from zerodr.encoders.inference.processor import usable_precision
from zerodr.encoders.network.moving import features_on, to_host
from zerodr.encoders.network.towers import DTYPES

log = logging.getLogger("zerodr")
BERT = "BertForSequenceClassification"


class Scorer:
    """Score batches of pairs, without gradients.

    Args:
        model: the cross-encoder with its arithmetic; without bf16 instructions it becomes fp32.
        device: `cpu`, `cuda`, ...
        packed: on the CPU, use the packed forward pass where it is available.

    Attributes:
        backend: `packed` with its way of attention, or `transformers` with the reason.
        max_tokens: longest pair.
    """

    def __init__(self, model: CrossEncoder, device: str, packed: bool = True) -> None:
        self.model, self.device, self.max_tokens = model.to(device).eval(), device, model.contract.max_tokens
        model.precision = usable_precision(model.precision, device)
        network, dtype = model.network, DTYPES[model.precision]
        reason = why_not(network.bert if type(network).__name__ == BERT else network, dtype, device, packed)
        self.body = None if reason else PackedBert(network.bert, dtype)
        self.backend = self.body.backend if self.body else f"transformers ({reason})"
        if reason:
            log.info("forward pass of transformers, not the packed one: %s", reason)

    def tokenize_pairs(self, queries: Sequence[str], documents: Sequence[str]) -> list[PairTokens]:
        """Tokenize pairs as the model does."""
        return self.model.tokenize_pairs(queries, documents)

    def encode_batch(self, rows: Sequence[PairTokens]) -> np.ndarray:
        """Compute raw logits of B pairs, (B,) float32."""
        with torch.inference_mode():
            features = features_on(self.model.pad(rows), self.device)
            return to_host(self._packed(features) if self.body else self.model.score(features)).numpy()

    def _packed(self, features: dict[str, Tensor]) -> Tensor:
        """Compute hidden states by the packed pass; pooler and head in float32. -> (B,) float32."""
        assert self.body is not None
        hidden = self.body(features["input_ids"], features["attention_mask"], features.get("token_type_ids"))
        network = self.model.network
        return network.classifier(network.bert.pooler(hidden[:, :1].float())).squeeze(-1)
