"""Texts as tokens that know their word, for masking: fast tokenizers of BERT-like models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zerodr.errors import ModelError


def check_masking(where: object, tokenizer: Any) -> None:
    """The tokenizer can mask: it has a mask token, both ends, and knows which token belongs to which word.

    Raises:
        ModelError: with what it lacks.
    """
    lacking = [name for name in ("mask_token", "cls_token", "sep_token") if getattr(tokenizer, name, None) is None]
    if lacking or not getattr(tokenizer, "is_fast", False):
        what = f"no {lacking[0]}" if lacking else "no word boundaries (it is no fast tokenizer)"
        raise ModelError(
            where,
            f"its tokenizer has {what}, which masked language modelling needs",
            "start from BERT, RoBERTa or DistilBERT",
        )


def token_words(
    tokenizer: Any, texts: Sequence[str], lowercase: bool = False, characters: bool = False
) -> list[tuple[np.ndarray, ...]]:
    """Ids of each text without special tokens, uncut, and the number of each token's word; both (L,) int64.

    With `characters` also those of each token, [start, end), in the text as the tokenizer reads it; (L, 2) int64.
    """
    if not len(texts):
        return []
    texts = [text.lower() for text in texts] if lowercase else list(texts)
    made = tokenizer(
        texts,
        add_special_tokens=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        truncation=False,
        padding=False,
        verbose=False,
    )
    return [
        (
            np.asarray(encoding.ids, np.int64),
            _numbers(encoding.word_ids),
            *([np.array(encoding.offsets, np.int64).reshape(-1, 2)] if characters else []),
        )
        for encoding in made.encodings
    ]


def _numbers(words: Sequence[int | None]) -> np.ndarray:
    """Word numbers; a token without a word is a word of its own."""
    return np.array([-1 - place if word is None else word for place, word in enumerate(words)], np.int64)


def ordinary_ids(tokenizer: Any) -> np.ndarray:
    """Ids of all tokens but special ones, ascending int64."""
    return np.array(sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids)), np.int64)
