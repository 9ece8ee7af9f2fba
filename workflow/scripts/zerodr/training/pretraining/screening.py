"""Screen whole documents for pretraining: those of some tokens, each text once."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from zerodr.encoders.network.tokenizing import BARE
from zerodr.errors import CollectionError

LEAST_TOKENS = 3
PREFIX = 200  # characters that are looked at: a text whose beginning has enough tokens has enough
SHORT, REPEATED = "too_short", "repeated"
Blocks = Iterator[pa.RecordBatch]


def screened(name: str, blocks: Callable[[], Blocks], tokenizer: Any, left_out: Counter[str]) -> Blocks:
    """Yield documents of a corpus without those of fewer than 3 tokens and without repeated texts.

    Of equal texts the first remains. The corpus is read twice, so that only 8 bytes a document are held.

    Args:
        name: of the corpus, for messages.
        blocks: reads the corpus, lists of one span.
        tokenizer: counts tokens; special ones don't count.
        left_out: gets the numbers of documents that are left out, by reason.

    Raises:
        CollectionError: nothing is left.
    """
    keys = [_digests(block) for block in blocks()]
    flat = np.concatenate([*keys, np.zeros(0, np.uint64)])
    first = np.zeros(len(flat), bool)
    first[np.unique(flat, return_index=True)[1]] = True
    start, count = 0, 0
    for block in blocks():
        chosen = first[start : start + len(block)]
        start += len(block)
        left_out[REPEATED] += int((~chosen).sum())
        rows = np.flatnonzero(chosen)
        long = long_enough(_texts(block.take(pa.array(rows))), tokenizer)
        left_out[SHORT] += int((~long).sum())
        count += int(long.sum())
        yield block.take(pa.array(rows[long]))
    if not count:
        raise CollectionError(
            name,
            f"has no document of at least {LEAST_TOKENS} tokens ({len(flat)} documents have a text)",
            "leave it out of `corpora`, or check its texts",
        )


def long_enough(texts: list[str], tokenizer: Any) -> np.ndarray:
    """Mark texts that have at least 3 tokens, (n,) bool."""
    if not texts:
        return np.zeros(0, bool)
    tokens = tokenizer([text[:PREFIX] for text in texts], **BARE)
    enough = np.array([len(ids) >= LEAST_TOKENS for ids in tokens["input_ids"]], bool)
    for row in np.flatnonzero(~enough):  # long words that are no tokens themselves, or much white space
        if len(texts[row]) > PREFIX:
            whole = tokenizer(texts[row], **BARE)["input_ids"]
            enough[row] = len(whole) >= LEAST_TOKENS
    return enough


def _texts(block: pa.RecordBatch) -> list[str]:
    return [spans[0] for spans in block.column("spans").to_pylist()]


def _digests(block: pa.RecordBatch) -> np.ndarray:
    """64 bits of each text's digest, (n,) uint64."""
    joined = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in _texts(block))
    return np.frombuffer(joined, np.uint64)
