"""Score a query and a document together, one logit for the pair. The cross-encoder teaches bi-encoders by distillation.

Its folder is an ordinary sequence classifier with one label for transformers and for sentence-transformers, whose
`CrossEncoder(folder)` gives the same raw logits. `zerodr_cross.json` is the contract that `PairModel` reads. `Scorer`
scores many pairs: on the CPU in fp32 by OpenVINO, else as in training.
"""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from zerodr.encoders.cross_encoder.pair_model import Ids, PairModel, PairTokens, bare_ids
from zerodr.encoders.folder.contract import Precision, read_json, write_model_json
from zerodr.encoders.inference.graph import Graph, convert_checked, probe, table_rows
from zerodr.encoders.inference.processor import usable_precision
from zerodr.encoders.network.moving import features_on, to_host

CROSS_CONTRACT = "zerodr_cross.json"
IDENTITY = "torch.nn.modules.linear.Identity"  # sentence-transformers would put a sigmoid behind a single logit
INPUTS = ["input_ids", "attention_mask"]
NAMES = (*INPUTS, "token_type_ids")


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

    Attributes:
        backend: `openvino` with its version, or `transformers` with the reason.
        max_tokens: longest pair.
    """

    def __init__(self, model: CrossEncoder, device: str) -> None:
        self.model, self.device, self.max_tokens = model.to(device).eval(), device, model.contract.max_tokens
        model.precision = usable_precision(model.precision, device)
        self.graph, reason = None, f"on {device}" if device != "cpu" else model.precision
        if (device, model.precision) == ("cpu", "fp32"):
            inputs = probe(model.network, self.max_tokens)
            inputs += (inputs[1],) if model.template.typed else ()
            network, reason = convert_checked(_Logits(model).eval(), model.network, inputs)
            self.graph = Graph(network, table_rows(model.network)) if network is not None else None
        self.backend = f"openvino {version('openvino')}" if self.graph else f"transformers ({reason})"

    def tokenize_pairs(self, queries: Sequence[str], documents: Sequence[str]) -> list[PairTokens]:
        """Tokenize pairs as the model does."""
        return self.model.tokenize_pairs(queries, documents)

    def encode_batch(self, rows: Sequence[PairTokens]) -> np.ndarray:
        """Compute raw logits of B pairs, (B,) float32."""
        features = self.model.pad(rows)
        if self.graph:
            return self.graph(*(features[name].numpy() for name in NAMES if name in features))
        with torch.inference_mode():
            return to_host(self.model.score(features_on(features, self.device))).numpy()

    def prepare(self, threads: int) -> None:
        """Get ready for so many batches at once."""
        if self.graph:
            self.graph.prepare(threads)


class _Logits(nn.Module):
    """A cross-encoder whose features are arguments, in the order of NAMES."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor | None = None) -> Tensor:
        return self.model.score({name: x for name, x in zip(NAMES, (ids, mask, types), strict=True) if x is not None})
