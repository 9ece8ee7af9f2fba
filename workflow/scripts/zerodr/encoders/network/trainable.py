"""The trainable bi-encoder: the same folders as `load_encoder` reads, as one module with gradients."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from zerodr.encoders.folder.contract import SIDES, EncoderContract, Side, read_contract
from zerodr.encoders.folder.saving import save_router, save_tower
from zerodr.encoders.inference.encoder import load_tokenizer, pad, token_ids
from zerodr.encoders.network.towers import DTYPES, Precision, Tower, check_precision, check_vocabulary, load_tower
from zerodr.errors import ModelError

log = logging.getLogger("zerodr")
SHARED = "shared"


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
            raise ModelError(
                contract.source,
                f"towers {sorted(towers)} do not make towers: {contract.towers}",
                f"give {sorted(expected)}",
            )
        self.contract, self.tokenizer, self.precision = contract, tokenizer, precision
        self.towers = nn.ModuleDict(towers)
        for tower in towers.values():
            check_vocabulary(contract.source, tokenizer, tower.transformer.config)

    def tower(self, side: Side) -> Tower:
        """The network of a side."""
        return self.towers[side if self.contract.towers == "separate" else SHARED]  # type: ignore[return-value]

    def encode(self, features: dict[str, Tensor], side: Side) -> Tensor:
        """Vectors of one batch.

        Args:
            features: `input_ids` and `attention_mask`, each (B, L) int64, on the module's device.
            side: whose tower and prefix; the prefix is in the ids already.

        Returns:
            (B, D) float32; of length 1 where similarity is cosine.
        """
        return self.encode_tokens(features, side)[0]

    def encode_tokens(self, features: dict[str, Tensor], side: Side) -> tuple[Tensor, Tensor]:
        """As `encode`, with the last hidden states of the same pass, (B, L, d); of a decoder (B, 1, d)."""
        ids, mask, tower = features["input_ids"], features["attention_mask"], self.tower(side)
        check_precision(self.contract.source, tower.transformer.config.model_type, self.precision, ids.device.type)
        return tower.with_states(ids, mask, DTYPES[self.precision])

    def forward(self, features: dict[str, Tensor], side: Side) -> Tensor:
        """As `encode`; the way in for wrappers such as DistributedDataParallel."""
        return self.encode(features, side)

    def tokenize(self, texts: Sequence[str], side: Side) -> list[list[int]]:
        """Ids of each text behind the side's prefix, with special tokens, cut at the side's length."""
        contract = self.contract
        return list(token_ids(self.tokenizer, texts, contract.prefix(side), contract.tokens(side), contract.lowercase))

    def pad(self, rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        """Token ids of B texts as `input_ids` and `attention_mask`, (B, longest) int64, right-padded, on the CPU."""
        ids, mask = pad(rows, self.tokenizer.pad_token_id)
        return {"input_ids": ids, "attention_mask": mask}

    def score(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Inner products, which are cosines where similarity is cosine. (N, D), (M, D) -> (N, M)."""
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
        save_router(self.contract, folder)

    @classmethod
    def load(cls, folder: Path, precision: Precision = "fp32", contract: EncoderContract | None = None) -> BiEncoder:
        """The bi-encoder of a model folder, on the CPU, in evaluation mode.

        Args:
            contract: instead of the folder's own.

        Raises:
            ModelError: the folder is no model of this bench, tokenizer and model differ, or T5 was asked for in fp16.
        """
        contract = contract or read_contract(folder)
        if contract.modules is not None:
            raise ModelError(
                folder,
                "is a modular form, a backbone with inserted modules; expected a plain model",
                "take the plain form, or ModularEncoder.load",
            )
        places = {SHARED: folder} if contract.towers == "tied" else {side: folder / side for side in SIDES}
        own = {name: contract if place == folder else read_contract(place) for name, place in places.items()}
        towers = {name: load_tower(place, own[name]) for name, place in places.items()}
        for tower in towers.values():
            check_precision(folder, tower.transformer.config.model_type, precision, None)
        return cls(contract, _one_tokenizer(folder, list(places.values())), towers, precision).eval()


def _one_tokenizer(folder: Path, places: list[Path]) -> Any:
    tokenizers = [load_tokenizer(place) for place in places]
    if any(other.get_vocab() != tokenizers[0].get_vocab() for other in tokenizers[1:]):
        raise ModelError(folder, "its towers have different tokenizers", "start both towers from one tokenizer")
    return tokenizers[0]


def trained_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Names and parameters that take part in training, in the module's order."""
    return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]


def parameter_count(model: nn.Module) -> int:
    """Numbers that take part in training."""
    return sum(weight.numel() for _, weight in trained_parameters(model))
