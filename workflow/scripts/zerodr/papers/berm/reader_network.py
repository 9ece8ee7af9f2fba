"""The extractive reader: question and passage read together, a start and an end logit for every token of the passage.

A folder of one is an ordinary question-answering model for transformers, beside `zerodr_reader.json`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from zerodr.encoders.cross_encoder.pair_model import PairContract, PairModel
from zerodr.encoders.cross_encoder.pairs import BARE_CALL, PairTokens, pair_lengths
from zerodr.encoders.network.moving import Features
from zerodr.encoders.network.tokenizing import BARE, TOKENIZING
from zerodr.training.data.tokens import SharedTokens


class ReaderContract(PairContract):
    """How a reader's predictions come about."""

    answer_tokens: int = Field(ge=1)
    """Longest answer that is predicted."""


@dataclass(frozen=True, slots=True)
class ReadTokens(PairTokens):
    """Token ids of a question and a passage; offsets (P, 2): characters [start, end) of each passage token."""

    offsets: np.ndarray


class Reader(PairModel):
    """(question, passage) -> token ids -> start and end logits, by a question-answering model."""

    what, purpose = "reader", "for question answering"
    file, contract_type = "zerodr_reader.json", ReaderContract
    auto, labels = "AutoModelForQuestionAnswering", 2
    heads = ("qa_outputs",)

    @classmethod
    def contract_values(cls, settings: Any) -> dict[str, Any]:
        """Lengths of pairs and of answers."""
        return super().contract_values(settings) | {"answer_tokens": settings.answer_tokens}

    def tokenize(
        self, questions: Sequence[str], passages: Sequence[str], shared: SharedTokens | None = None
    ) -> list[ReadTokens]:
        """Ids of the pairs (questions[i], passages[i]), the passage cut where they are longer than max_tokens.

        Args:
            shared: tokens of texts that were asked for before.
        """
        shared, limit = shared or SharedTokens(), self.contract.max_tokens
        asked = shared.of(self.tokenizer, BARE_CALL, questions)
        given = shared.of(self.tokenizer, BARE_CALL, passages, self._with_offsets, 3)
        room, tokens = self.template.room(limit), []
        for question, passage in zip(asked, given, strict=True):
            pair = self.template.join(question, passage[:, 0], limit)
            read = pair_lengths(len(question), len(passage), room)[1]
            tokens.append(ReadTokens(pair.ids, pair.document, passage[:read, 1:]))
        return tokens

    def _with_offsets(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids and offsets of each text, (L, 3) int32."""
        with TOKENIZING:
            encoded = self.tokenizer(list(texts), **BARE, return_offsets_mapping=True)
        rows = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        return [np.c_[np.array(ids, np.int32), np.array(offsets, np.int32).reshape(-1, 2)] for ids, offsets in rows]

    def features(self, pairs: Sequence[ReadTokens]) -> Features:
        """Pad pairs as `pad` does, with `columns` (B, P): a passage's tokens, and `inside` (B, P): which it has."""
        sizes = torch.tensor([len(pair.offsets) for pair in pairs])
        firsts = torch.tensor([pair.document for pair in pairs])
        numbers = torch.arange(max(1, int(sizes.max())))
        inside = numbers < sizes[:, None]
        return self.pad(pairs) | {"columns": torch.where(inside, firsts[:, None] + numbers, 0), "inside": inside}

    def logits(self, features: Features) -> Tensor:
        """Start and end logits of passage tokens, (2, B, P) float32; -inf behind a passage's last token.

        Args:
            features: of `features`, on the device.
        """
        extra = ("columns", "inside")
        output = self.run({name: tensor for name, tensor in features.items() if name not in extra})
        both = torch.stack([output.start_logits, output.end_logits]).float()  # (2, B, L)
        columns, inside = (features[name] for name in extra)
        return both.gather(2, columns.expand(2, -1, -1)).masked_fill(~inside, -torch.inf)
