"""Share the tokens of texts: one text is tokenised once by all steps, evaluations, jobs and processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zerodr.encoders.inference.token_store import TokenStore, call_facts
from zerodr.encoders.network.tokenizing import Call
from zerodr.training.data.memo import Memo

Rows = list[np.ndarray]
Tokenize = Callable[[list[str]], Sequence[Any]]


class SharedTokens:
    """Tokens of texts by each way of calling one tokenizer: remembered in memory, and stored on the disk.

    Several threads may use it.

    Args:
        folder: of tokens that other jobs use, too (encoders/inference/token_store.py). None: nothing is stored.

    Attributes:
        stores: those that are open.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.stores: list[TokenStore] = []
        self._memos: dict[tuple[Call, int], Memo[np.ndarray]] = {}
        self._lock = threading.Lock()

    def of(
        self, tokenizer: Any, call: Call, texts: Sequence[str], tokenize: Tokenize | None = None, width: int = 1
    ) -> Rows:
        """Return the tokens of each text, (L,) or (L, width) int32.

        Args:
            tokenizer: always the same one.
            tokenize: texts -> tokens of each, with this call and more columns than ids alone. None: ids.
            width: columns.
        """
        with self._lock:
            if (call, width) not in self._memos:
                self._memos[call, width] = Memo(self._source(tokenizer, call, tokenize, width), np.size)
        return self._memos[call, width].of(texts)

    def _source(self, tokenizer: Any, call: Call, tokenize: Tokenize | None, width: int) -> Callable[[list[str]], Rows]:
        """Make the function that reads what is stored, and tokenises other texts."""
        tokenize = tokenize or partial(call.ids, tokenizer)
        facts = None if self.folder is None else call_facts(tokenizer, call)
        if self.folder is None or facts is None:
            return partial(_arrays, tokenize)
        store = TokenStore(self.folder, facts, width)
        self.stores.append(store)
        return lambda texts: store.of(texts, tokenize)

    def close(self) -> None:
        """Store the tokens of texts that were not stored yet."""
        for store in self.stores:
            store.close()


def _arrays(tokenize: Tokenize, texts: list[str]) -> Rows:
    return [np.asarray(row, np.int32) for row in tokenize(texts)]
