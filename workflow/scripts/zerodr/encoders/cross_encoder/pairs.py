"""Tokenize (query, document) pairs to one sequence with both; the document is cut where it is too long."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zerodr.encoders.inference.encoder import pad
from zerodr.encoders.network.tokenizing import Call
from zerodr.errors import ModelError

PROBE = ("a", "b")
BARE_CALL = Call()  # texts are cut as pairs, not alone
Ids = Sequence[int] | np.ndarray


@dataclass(frozen=True, slots=True)
class PairTokens:
    """Token ids of one pair, special tokens included, (L,) int32; the document begins at position `document`."""

    ids: np.ndarray
    document: int

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Template:
    """Special tokens before the query, between query and document, and behind the document.

    Attributes:
        typed: the document's tokens, and the special ones behind it, have token type 1.
    """

    before: np.ndarray
    between: np.ndarray
    behind: np.ndarray
    typed: bool

    def room(self, max_tokens: int) -> int:
        """Count the tokens that query and document share."""
        return max_tokens - len(self.before) - len(self.between) - len(self.behind)

    def join(self, query: Ids, document: Ids, max_tokens: int) -> PairTokens:
        """Join the pair, with at most `max_tokens` tokens."""
        first, second = pair_lengths(len(query), len(document), self.room(max_tokens))
        pieces = (self.before, query[:first], self.between, document[:second], self.behind)
        ids = np.concatenate([np.asarray(piece, np.int32) for piece in pieces])
        return PairTokens(ids, len(self.before) + first + len(self.between))


def pair_lengths(query: int, document: int, room: int) -> tuple[int, int]:
    """Return the numbers of tokens to use of a query and of a document.

    Only the document is cut, unless the query is longer than half the room: then the query is cut, too, down to that
    half. Transformers calls this `longest_first`.
    """
    if query + document <= room:
        return query, document
    shorter = min(query, document, room // 2)
    return (shorter, room - shorter) if query <= document else (room - shorter, shorter)


def pair_template(folder: Path | str, tokenizer: Any, types: int) -> Template:
    """Find out how a tokenizer joins two texts.

    Args:
        folder: for messages.
        tokenizer: of transformers.
        types: number of token types of the model.

    Raises:
        ModelError: it does not separate the texts of a pair, or marks them by other types than 0 and 1.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(folder, "its tokenizer does not separate the texts of a pair", "add a tokenizer.json")
    probe = tokenizer(*PROBE, truncation=False, padding=False, return_token_type_ids=True, return_attention_mask=False)
    owners, ids, kinds = probe.sequence_ids(0), probe["input_ids"], probe["token_type_ids"]
    first, second = ([position for position, owner in enumerate(owners) if owner == text] for text in (0, 1))
    if not first or not second or first[-1] > second[0]:
        raise ModelError(folder, "its tokenizer does not put a query before a document", "choose another model")
    typed = types > 1 and "token_type_ids" in tokenizer.model_input_names and any(kinds)
    if typed and kinds != [0] * second[0] + [1] * (len(ids) - second[0]):
        problem = f"its tokenizer gives a pair the token types {kinds}, expected 0 for the query and 1 for the document"
        raise ModelError(folder, problem, "choose another model")
    before, between, behind = ids[: first[0]], ids[first[-1] + 1 : second[0]], ids[second[-1] + 1 :]
    return Template(np.array(before, np.int32), np.array(between, np.int32), np.array(behind, np.int32), typed)


def bare_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Tokenize texts without special tokens, uncut; equal texts are tokenised once."""
    distinct = list(dict.fromkeys(texts))
    by_text = dict(zip(distinct, BARE_CALL.ids(tokenizer, distinct), strict=True))
    return [by_text[text] for text in texts]


def pad_pairs(pairs: Sequence[PairTokens], padding: int, typed: bool) -> dict[str, Tensor]:
    """Pad to `input_ids`, `attention_mask` and, where typed, `token_type_ids`: (B, longest) int64, on the right."""
    ids, mask = pad([pair.ids for pair in pairs], padding)
    features = {"input_ids": ids, "attention_mask": mask}
    if typed:
        starts = torch.tensor([pair.document for pair in pairs])[:, None]
        features["token_type_ids"] = ((torch.arange(ids.shape[1]) >= starts) & (mask == 1)).long()
    return features
