"""Score a query and a document together, one logit for the pair. The cross-encoder teaches bi-encoders by distillation.

Its folder is an ordinary sequence classifier with one label for transformers and for sentence-transformers, whose
`CrossEncoder(folder)` gives the same raw logits. `zerodr_cross.json` is the contract that this module reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from zerodr.config.base import Settings, validate
from zerodr.encoders.cross_encoder.pairs import PairTokens, bare_ids, pad_pairs, pair_template
from zerodr.encoders.folder.contract import CONTRACT, read_json, write_model_json
from zerodr.encoders.folder.saving import ONE_FILE, save_tokenizer
from zerodr.encoders.inference.encoder import load_tokenizer
from zerodr.encoders.network.loading import load_config, load_network, short
from zerodr.encoders.network.towers import DTYPES, Precision, check_precision, check_vocabulary
from zerodr.errors import ConfigError, ModelError

CROSS_CONTRACT = "zerodr_cross.json"
IDENTITY = "torch.nn.modules.linear.Identity"  # sentence-transformers would put a sigmoid behind a single logit
INPUTS = ["input_ids", "attention_mask"]


class CrossContract(Settings):
    """Length and origin of a cross-encoder."""

    max_tokens: int = Field(ge=8)
    """Longest pair, special tokens included; the document is cut."""
    trained: bool
    """Whether its head was trained: a fresh one gives arbitrary scores."""
    architecture: str
    """Class of the network, such as `BertForSequenceClassification`."""
    source: str
    """Origin of the weights: a hub name, a package, a folder or a stage."""
    revision: str | None = None
    """Hub commit."""


class _Wide(nn.Linear):
    """The last layer, in float32 also under autocast: bfloat16 has only about 3 digits for a logit."""

    def forward(self, input: Tensor) -> Tensor:
        with torch.autocast(input.device.type, enabled=False):
            return functional.linear(input.float(), self.weight, self.bias)


class CrossEncoder(nn.Module):
    """Score pairs of texts: pairs -> token ids -> logits.

    Weights are float32 always; with precision `bf16` or `fp16` all but the last layer runs under autocast.

    Attributes:
        contract: length and origin. Replace it to name another `source` before saving.
        tokenizer: of transformers.
        network: its sequence classifier with one label.
        precision: arithmetic of the network.
    """

    def __init__(self, contract: CrossContract, tokenizer: Any, network: Any, precision: Precision = "fp32") -> None:
        super().__init__()
        check_vocabulary(contract.source, tokenizer, network.config)
        check_precision(contract.source, network.config.model_type, precision, None)
        self.contract, self.tokenizer, self.precision = contract, tokenizer, precision
        self.template = pair_template(contract.source, tokenizer, getattr(network.config, "type_vocab_size", 1))
        self.network = network
        for module in network.modules():
            if type(module) is nn.Linear and module.out_features == 1:
                module.__class__ = _Wide

    def tokenize_pairs(self, queries: Sequence[str], documents: Sequence[str]) -> list[PairTokens]:
        """Tokenize the pairs (queries[i], documents[i]), cut to `max_tokens` by pairs.pair_lengths."""
        limit = self.contract.max_tokens
        texts = zip(bare_ids(self.tokenizer, queries), bare_ids(self.tokenizer, documents), strict=True)
        return [self.template.join(query, document, limit) for query, document in texts]

    def pad(self, pairs: Sequence[PairTokens]) -> dict[str, Tensor]:
        """Pad B pairs to the network's input, each tensor (B, longest) int64, on the CPU."""
        return pad_pairs(pairs, self.tokenizer.pad_token_id, self.template.typed)

    def score(self, features: dict[str, Tensor]) -> Tensor:
        """Compute raw logits of one batch from `pad`, on the module's device. -> (B,) float32."""
        device, dtype = features["input_ids"].device.type, DTYPES[self.precision]
        check_precision(self.contract.source, self.network.config.model_type, self.precision, device)
        with torch.autocast(device, dtype, enabled=dtype != torch.float32):
            return self.network(**features).logits.squeeze(-1).float()

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        """Score one batch; the entry of wrappers."""
        return self.score(features)

    def save(self, folder: Path) -> None:
        """Write a folder for `load` and sentence-transformers. Equal weights give equal bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        self.network.config.sentence_transformers = {"activation_fn": IDENTITY}
        self.network.save_pretrained(folder, max_shard_size=ONE_FILE)
        save_tokenizer(self.tokenizer, folder)
        names = [*INPUTS, "token_type_ids"] if self.template.typed else INPUTS
        config = read_json(folder / "tokenizer_config.json")
        config |= {"model_max_length": self.contract.max_tokens, "model_input_names": names}
        write_model_json(folder / "tokenizer_config.json", config)
        write_model_json(folder / CROSS_CONTRACT, self.contract.model_dump(mode="json"))

    @classmethod
    def load(cls, folder: Path, precision: Precision = "fp32") -> CrossEncoder:
        """Load the cross-encoder of a folder, on the CPU, in evaluation mode.

        Raises:
            ModelError: the folder is no cross-encoder of this bench, or weights are missing.
        """
        contract = read_cross_contract(folder)
        network, missing = load_classifier(folder)
        if missing:
            raise ModelError(folder, f"lacks {len(missing)} weights, the first is {missing[0]}", "train it again")
        return cls(contract, load_tokenizer(folder), network, precision).eval()


def load_classifier(folder: Path, layers: int | None = None) -> tuple[Any, list[str]]:
    """Load the sequence classifier of a folder with one label; return the names of missing weights, too.

    Args:
        folder: files of transformers, with weights as safetensors.
        layers: number of first layers to use. None: all.

    Raises:
        ModelError: an unknown architecture, weights of another shape, or too few layers.
    """
    from transformers import AutoModelForSequenceClassification

    try:
        config = load_config(folder, layers)
        config.num_labels = 1
        with torch.random.fork_rng(devices=[]):  # missing weights would use up the caller's random numbers
            network, missing = load_network(AutoModelForSequenceClassification, folder, config)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        problem = f"transformers can't load it as a sequence classifier ({short(error)})"
        raise ModelError(folder, problem, "choose a BERT-like model that it knows") from None
    return network.eval(), missing


def read_cross_contract(folder: Path) -> CrossContract:
    """Read the contract of a cross-encoder's folder.

    Raises:
        ModelError: there is none, or it is wrong.
    """
    path = folder / CROSS_CONTRACT
    if not path.exists():
        kind = "is a bi-encoder's folder" if (folder / CONTRACT).exists() else f"has no {CROSS_CONTRACT}"
        raise ModelError(folder, f"{kind}, expected a cross-encoder of the bench", "create one by rule init_teacher")
    try:
        return validate(CrossContract, read_json(path), str(path))
    except ConfigError as error:
        raise ModelError(error.where, error.what, "delete the folder and run its target again") from None
