"""The extractive reader: question and passage read together, a start and an end logit for every token of the passage.

A folder of one is an ordinary question-answering model for transformers, beside `zerodr_reader.json`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from zerodr.encoders.cross_encoder.pair_model import PairContract, PairModel
from zerodr.encoders.cross_encoder.pairs import PairTokens, pair_lengths
from zerodr.encoders.network.tokenizing import BARE, TOKENIZING


class ReaderContract(PairContract):
    """How a reader's predictions come about."""

    answer_tokens: int = Field(ge=1)
    """Longest answer that is predicted."""


@dataclass(frozen=True, slots=True)
class ReadTokens(PairTokens):
    """Token ids of a question and a passage, and the passage's characters that each of its tokens stands for."""

    offsets: list[tuple[int, int]]


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

    def tokenize(self, questions: Sequence[str], passages: Sequence[str]) -> list[ReadTokens]:
        """Ids of the pairs (questions[i], passages[i]), the passage cut where they are longer than max_tokens."""
        room, tokens = self.template.room(self.contract.max_tokens), []
        asked, passage_tokens = self._bare(questions, False)["input_ids"], self._bare(passages, True)
        for question, passage, offsets in zip(
            asked, passage_tokens["input_ids"], passage_tokens["offset_mapping"], strict=True
        ):
            pair = self.template.join(question, passage, self.contract.max_tokens)
            read = pair_lengths(len(question), len(passage), room)[1]
            tokens.append(ReadTokens(pair.ids, pair.document, list(offsets[:read])))
        return tokens

    def _bare(self, texts: Sequence[str], offsets: bool) -> Any:
        with TOKENIZING:
            return self.tokenizer(list(texts), **BARE, return_offsets_mapping=offsets)

    def logits(self, pairs: Sequence[ReadTokens], device: str) -> Tensor:
        """Start and end logits of passage tokens, (2, B, P) float32; -inf behind a passage's last token."""
        output = self.run({key: value.to(device) for key, value in self.pad(pairs).items()})
        both = torch.stack([output.start_logits, output.end_logits]).float()  # (2, B, L)
        most = max(1, max(len(pair.offsets) for pair in pairs))
        firsts = torch.tensor([pair.document for pair in pairs], device=device)
        sizes = torch.tensor([len(pair.offsets) for pair in pairs], device=device)
        inside = torch.arange(most, device=device) < sizes[:, None]
        columns = torch.where(inside, firsts[:, None] + torch.arange(most, device=device), 0)
        return both.gather(2, columns.expand(2, -1, -1)).masked_fill(~inside, -torch.inf)
