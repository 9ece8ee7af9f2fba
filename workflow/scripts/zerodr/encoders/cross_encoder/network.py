"""Score a query and a document together, one logit for the pair. The cross-encoder teaches bi-encoders by distillation.

Its folder is an ordinary sequence classifier with one label for transformers and for sentence-transformers, whose
`CrossEncoder(folder)` gives the same raw logits. `zerodr_cross.json` is the contract that `PairModel` reads. `Scorer`
scores many pairs: on the CPU a BERT runs in the packed forward pass, other models as in training.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from zerodr.encoders.cross_encoder.pair_model import Ids, PairModel, PairTokens, bare_ids
from zerodr.encoders.folder.contract import read_json, write_model_json
from zerodr.encoders.inference.packed import PackedBert, why_not
from zerodr.encoders.inference.processor import usable_precision
from zerodr.encoders.network.moving import features_on, to_host
from zerodr.encoders.network.towers import DTYPES, Precision

CROSS_CONTRACT = "zerodr_cross.json"
IDENTITY = "torch.nn.modules.linear.Identity"  # sentence-transformers would put a sigmoid behind a single logit
INPUTS = ["input_ids", "attention_mask"]
log = logging.getLogger("zerodr")
BERT = "BertForSequenceClassification"


class _Wide(nn.Linear):
    """The last layer, in float32 also under autocast: bfloat16 has only about 3 digits for a logit."""

    def forward(self, input: Tensor) -> Tensor:
        with torch.autocast(input.device.type, enabled=False):
            return functional.linear(input.float(), self.weight, self.bias)


class CrossEncoder(PairModel):
    """Score pairs of texts by a sequence classifier with one label; its last layer runs in float32 always."""

    what, purpose = "cross-encoder", "that gives one logit for a pair"
    file = CROSS_CONTRACT
    auto, labels = "AutoModelForSequenceClassification", 1
    heads = ("classifier", "pre_classifier", "pooler")  # of sequence classifiers, on [CLS]

    def __init__(self, contract: Any, tokenizer: Any, network: Any, precision: Precision = "fp32") -> None:
        super().__init__(contract, tokenizer, network, precision)
        for module in network.modules():
            if type(module) is nn.Linear and module.out_features == 1:
                module.__class__ = _Wide

    def tokenize_pairs(self, queries: Sequence[str], documents: Sequence[str]) -> list[PairTokens]:
        """Tokenize the pairs (queries[i], documents[i]), cut to `max_tokens` by `pair_lengths`."""
        return self.join(bare_ids(self.tokenizer, queries), bare_ids(self.tokenizer, documents))

    def join(self, queries: Sequence[Ids], documents: Sequence[Ids]) -> list[PairTokens]:
        """Join the tokens of queries[i] and documents[i], as BARE_CALL gives them."""
        pairs, limit = zip(queries, documents, strict=True), self.contract.max_tokens
        return [self.template.join(query, document, limit) for query, document in pairs]

    def score(self, features: dict[str, Tensor]) -> Tensor:
        """Compute raw logits of one batch from `pad`, on the module's device. -> (B,) float32."""
        logits: Tensor = self.run(features).logits
        return logits.squeeze(-1).float()

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        """Score one batch; the entry of wrappers."""
        return self.score(features)

    def save(self, folder: Path) -> None:
        """Write a folder for `load` and sentence-transformers. Equal weights give equal bytes."""
        self.network.config.sentence_transformers = {"activation_fn": IDENTITY}
        super().save(folder)
        names = [*INPUTS, "token_type_ids"] if self.template.typed else INPUTS
        config = read_json(folder / "tokenizer_config.json")
        config |= {"model_max_length": self.contract.max_tokens, "model_input_names": names}
        write_model_json(folder / "tokenizer_config.json", config)


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
