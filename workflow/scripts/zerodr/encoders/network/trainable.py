"""Build the trainable bi-encoder: the same folders as `load_encoder` reads, as one module with gradients."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from zerodr.encoders.folder.contract import SIDES, EncoderContract, Precision, Side, read_contract
from zerodr.encoders.folder.layout import save_tower, write_layout
from zerodr.encoders.network.moving import pad
from zerodr.encoders.network.tokenizing import Call, load_tokenizer
from zerodr.encoders.network.towers import DTYPES, Tower, check_precision, check_vocabulary, load_tower
from zerodr.errors import ModelError

log = logging.getLogger("zerodr")
SHARED = "shared"
SPELLINGS = "Dense retrieval, Grüße, naïve, 你好"  # tokenizers of one vocabulary may lower and split otherwise


class BiEncoder(nn.Module):
    """Texts -> token ids -> vectors, for queries and documents, by one network or two.

    Weights are float32 always. With precision `bf16` or `fp16` the transformer runs under autocast; pooling, head and
    normalisation stay float32, and so do vectors. Parameters without use (BERT's pooler) have requires_grad False.

    Attributes:
        contract: pooling, prefixes, lengths, similarity. Replace it to name another `source` before saving.
        tokenizer: of transformers.
        towers: `shared`, or `query` and `document`.
        precision: arithmetic of the transformer.
    """

    def __init__(
        self, contract: EncoderContract, tokenizer: Any, towers: dict[str, Tower], precision: Precision = "fp32"
    ) -> None:
        super().__init__()
        expected = {SHARED} if contract.towers == "tied" else set(SIDES)
        if set(towers) != expected:
            problem = f"found towers {sorted(towers)} for towers: {contract.towers}"
            raise ModelError(contract.source, problem, f"give {sorted(expected)}")
        self.contract, self.tokenizer, self.precision = contract, tokenizer, precision
        self.towers = nn.ModuleDict(towers)
        for tower in towers.values():
            check_vocabulary(contract.source, tokenizer, tower.transformer.config)

    def tower(self, side: Side) -> Tower:
        """Return the network of a side."""
        return self.towers[side if self.contract.towers == "separate" else SHARED]  # type: ignore[return-value]

    def encode(self, features: dict[str, Tensor], side: Side) -> Tensor:
        """Encode one batch.

        Args:
            features: `input_ids` and `attention_mask`, each (B, L) int64, on the module's device.
            side: selects the tower; the ids contain the side's prefix already.

        Returns:
            (B, D) float32; of length 1 where similarity is cosine.
        """
        return self.encode_tokens(features, side)[0]

    def encode_tokens(self, features: dict[str, Tensor], side: Side) -> tuple[Tensor, Tensor]:
        """Encode one batch; return its last hidden states, too, (B, L, d); of a decoder (B, 1, d)."""
        ids, mask, tower = features["input_ids"], features["attention_mask"], self.tower(side)
        check_precision(self.contract.source, tower.transformer.config.model_type, self.precision, ids.device.type)
        return tower.with_states(ids, mask, DTYPES[self.precision])

    def forward(self, features: dict[str, Tensor], side: Side) -> Tensor:
        """Encode one batch; the entry of wrappers such as DistributedDataParallel."""
        return self.encode(features, side)

    def tokenize(self, texts: Sequence[str], side: Side) -> list[list[int]]:
        """Tokenize texts behind the side's prefix, with special tokens, cut at the side's length."""
        return self.call(side).ids(self.tokenizer, texts)

    def call(self, side: Side) -> Call:
        """Return how the tokenizer is called for a side's texts."""
        return Call(self.contract.prefix(side), self.contract.tokens(side), self.contract.lowercase)

    def pad(self, rows: Sequence[Sequence[int] | np.ndarray]) -> dict[str, Tensor]:
        """Pad ids of B texts on the right to `input_ids` and `attention_mask`, (B, longest) int64, on the CPU."""
        ids, mask = pad(rows, self.tokenizer.pad_token_id)
        return {"input_ids": ids, "attention_mask": mask}

    def score(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Compute inner products, which are cosines where similarity is cosine. (N, D), (M, D) -> (N, M)."""
        return queries @ documents.T

    def save(self, folder: Path) -> None:
        """Write a folder for `load`, `load_encoder` and sentence-transformers. Equal weights give equal bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.contract.towers == "tied":
            save_tower(self.tower("document"), self.tokenizer, self.contract, folder)
            return
        for side in SIDES:
            contract = self.contract.model_copy(update={"towers": "tied"})
            save_tower(self.tower(side), self.tokenizer, contract, folder / side)
        write_layout(folder, self.contract, self.contract.dimension)

    @classmethod
    def load(cls, folder: Path, precision: Precision = "fp32", contract: EncoderContract | None = None) -> BiEncoder:
        """Load the bi-encoder of a model folder, on the CPU, in evaluation mode.

        Args:
            contract: replaces the folder's contract.

        Raises:
            ModelError: the folder is no model of this bench, tokenizer and model differ, or T5 in fp16.
        """
        contract = contract or read_contract(folder)
        if contract.modules is not None:
            problem = "is a modular form, a backbone with inserted modules; expected a plain model"
            raise ModelError(folder, problem, "use the plain form, or ModularEncoder.load")
        folders = {SHARED: folder} if contract.towers == "tied" else {side: folder / side for side in SIDES}
        towers = {}
        for name, path in folders.items():
            towers[name] = load_tower(path, contract if path == folder else read_contract(path))
            check_precision(folder, towers[name].transformer.config.model_type, precision, None)
        return cls(contract, common_tokenizer(folder, [*folders.values()]), towers, precision).eval()


def trained_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """List names and parameters that training changes, in the module's order."""
    return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]


def parameter_count(model: nn.Module) -> int:
    """Count the numbers that training changes.

    >>> network = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    >>> network[1].requires_grad_(False)  # frozen
    Linear(in_features=3, out_features=1, bias=True)
    >>> parameter_count(network)
    15
    """
    return sum(weight.numel() for _, weight in trained_parameters(model))


def common_tokenizer(folder: Path, towers: Sequence[Path]) -> Any:
    """Load the tokenizer of all towers of a model.

    Raises:
        ModelError: transformers can't load it, or the towers' vocabularies or tokens differ.
    """
    tokenizer, *others = map(load_tokenizer, towers)

    def tokens(one: Any) -> tuple[dict[str, int], list[list[int]]]:
        return one.get_vocab(), Call().ids(one, [SPELLINGS])

    if any(tokens(other) != tokens(tokenizer) for other in others):
        raise ModelError(folder, "its towers have different tokenizers", "start both towers from one tokenizer")
    return tokenizer
