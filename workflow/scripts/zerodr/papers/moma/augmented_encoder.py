"""Bi-encoders whose queries may come with documents: what their folders hold, and how documents are tokenised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from pydantic import Field

from zerodr.config.base import Settings, validate
from zerodr.encoders.folder.contract import EncoderContract, Precision, read_json, write_model_json
from zerodr.encoders.network.tokenizing import Call
from zerodr.encoders.network.trainable import BiEncoder

FUSION = "fusion.json"


class FusionContract(Settings):
    """Augmentation of a model's queries, as its `fusion.json`."""

    documents: int = Field(10, ge=0)
    """K: documents that a query is augmented with."""
    document_tokens: int = Field(128, ge=2)
    """Longest augmentation document, special tokens included."""
    exclude_self: bool = True
    """A query is not augmented with a document that holds the same text, with or without its title."""


def fusion_json(fusion: FusionContract) -> dict[str, Any]:
    """Content of `fusion.json`; `exclude_self` only where it is false."""
    return fusion.model_dump(mode="json", exclude={"exclude_self"} if fusion.exclude_self else set())


@dataclass(frozen=True)
class Grounded:
    """Token ids of a query and of the documents that augment it."""

    query: Sequence[int] | np.ndarray
    documents: Sequence[Sequence[int] | np.ndarray]

    def __len__(self) -> int:
        return len(self.query) + sum(map(len, self.documents))


class AugmentedEncoder(BiEncoder):
    """A bi-encoder whose queries may be `Grounded`. Documents of the corpus are encoded plainly.

    Attributes:
        fusion: how many documents of which length.
    """

    fusion = FusionContract()

    def augment_with(self, fusion: FusionContract) -> Self:
        """Read so many documents of such a length with a query from now on.

        Raises:
            ModelError: the network can't read so much.
        """
        self.fusion = fusion
        return self

    def tokenize_augmentations(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of augmentation documents, as documents but cut at fusion.document_tokens."""
        return self.augmentation_call().ids(self.tokenizer, texts)

    def augmentation_call(self) -> Call:
        """Return how the tokenizer is called for augmentation documents."""
        limit = min(self.fusion.document_tokens, self.contract.max_tokens)
        return Call(self.contract.document_prefix, limit, self.contract.lowercase)

    def save(self, folder: Path) -> None:
        """As the bi-encoder's, and `fusion.json`."""
        super().save(folder)
        write_model_json(folder / FUSION, fusion_json(self.fusion))

    @classmethod
    def load(cls, folder: Path, precision: Precision = "fp32", contract: EncoderContract | None = None) -> Self:
        """The model of a folder; one that was never augmented has the default `fusion`.

        Raises:
            ModelError: as the bi-encoder's.
        """
        model = cast(Self, super().load(folder, precision, contract))
        if (folder / FUSION).exists():
            model.fusion = validate(FusionContract, read_json(folder / FUSION), str(folder / FUSION))
        return model
