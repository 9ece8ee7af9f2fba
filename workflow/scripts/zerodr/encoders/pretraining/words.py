"""Tokenize texts with the word of each token, for masking: fast tokenizers of BERT-like models."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from zerodr.encoders.network.tokenizing import BARE, TOKENIZING
from zerodr.errors import ModelError


def check_masking(where: object, tokenizer: Any) -> None:
    """Check that the tokenizer can mask: it has a mask token, both ends, and maps tokens to words.

    Raises:
        ModelError: names what it lacks.
    """
    missing = [name for name in ("mask_token", "cls_token", "sep_token") if getattr(tokenizer, name, None) is None]
    if missing or not getattr(tokenizer, "is_fast", False):
        reason = f"no {missing[0]}" if missing else "no word boundaries (it is no fast tokenizer)"
        problem = f"its tokenizer has {reason}, which masked language modelling needs"
        raise ModelError(where, problem, "start from BERT, RoBERTa or DistilBERT")


def token_words(
    tokenizer: Any, texts: Sequence[str], lowercase: bool = False, characters: bool = False
) -> list[tuple[np.ndarray, ...]]:
    """Tokenize texts without special tokens, uncut: ids and the number of each token's word, both (L,) int64.

    A token without a word gets a number that no other token has.
    With `characters` also each token's range [start, end) in the text as the tokenizer reads it, (L, 2) int64.
    """
    if not len(texts):
        return []
    texts = [text.lower() for text in texts] if lowercase else list(texts)
    rows: list[tuple[np.ndarray, ...]] = []
    with TOKENIZING:
        encodings = tokenizer(texts, **BARE).encodings
    for encoding in encodings:
        words = np.array(encoding.word_ids, np.float64)  # None is NaN
        words = np.where(np.isnan(words), -1 - np.arange(len(words)), words).astype(np.int64)
        row = (np.asarray(encoding.ids, np.int64), words)
        rows.append((*row, np.array(encoding.offsets, np.int64).reshape(-1, 2)) if characters else row)
    return rows


def ordinary_ids(tokenizer: Any) -> np.ndarray:
    """List ids of all tokens but special ones, ascending int64."""
    return np.array(sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids)), np.int64)
