"""Write the documents of corpora to the state of a stage that learns from them, once.

Whole documents are screened: those of some tokens, each text once.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from zerodr.artifacts.record import read_state, write_json
from zerodr.encoders.folder.contract import read_contract
from zerodr.encoders.network.tokenizing import BARE, load_tokenizer
from zerodr.errors import CollectionError
from zerodr.training.pretraining.passages import Blocks, sizes_path, texts_of, write_passages

LEAST_TOKENS = 3
PREFIX = 200  # characters that are looked at: a text whose beginning has enough tokens has enough
SHORT, REPEATED = "too_short", "repeated"
log = logging.getLogger("zerodr")
PASSAGES, LEFT_OUT = "passages.arrow", "left_out.json"
Counts = dict[str, Counter[str]]  # of documents that are left out, by corpus and reason


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


def store_passages(state: Path, corpora: Callable[[Counts], Mapping[str, Blocks]]) -> dict[str, dict[str, int]]:
    """Write `passages.arrow` of corpora, unless an earlier attempt of the stage has done so.

    Args:
        state: folder of the stage's state.
        corpora: returns the blocks of each corpus; reading them fills the counts that it is given.

    Returns:
        numbers of documents that were left out, by corpus and reason.

    Raises:
        CollectionError: a corpus without a document.
    """
    file, counts, left_out = state / PASSAGES, state / LEFT_OUT, Counts()
    if read_state(sizes_path(file)) is None or read_state(counts) is None:
        write_passages(file, corpora(left_out))
        write_json(counts, left_out)
    read: dict[str, dict[str, int]] = read_state(counts)
    return read


def whole_documents(
    folders: Sequence[Path], model: Path, title_join: str | None, left_out: Counts
) -> dict[str, Blocks]:
    """Read whole documents of normalised collections, screened.

    Args:
        folders: of the collections.
        model: folder whose tokenizer counts tokens.
        title_join: text between title and text; None: text alone.
        left_out: gets the numbers of documents that are left out.
    """
    tokenizer, corpora = load_tokenizer(_any_tower(model)), dict[str, Blocks]()
    for folder in folders:
        left_out[folder.name] = Counter()
        read = partial(texts_of, folder, title_join)
        corpora[folder.name] = screened(folder.name, read, tokenizer, left_out[folder.name])
    return corpora


def warn_of_gated(name: str, left_out: Sequence[str]) -> None:
    """Warn that a stage learns without gated corpora that it names."""
    if left_out:
        log.warning(
            "%s: %s gated and left out: download them as the registry says, put them into a mirror folder and "
            "name them in `gated`",
            name,
            ", ".join(left_out),
        )


def _any_tower(folder: Path) -> Path:
    return folder / "document" if read_contract(folder).towers == "separate" else folder
