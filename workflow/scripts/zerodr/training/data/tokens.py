"""Share the tokens of texts: one text is tokenised once by all steps, evaluations, jobs and processes.

`Memo` remembers results of texts, so that a text that comes again in training is not tokenised again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from zerodr.encoders.inference.token_store import TokenStore, call_facts
from zerodr.encoders.network.tokenizing import Call

MEMORY = 256 << 20  # bytes of texts and tokens that are held, estimated
ROW_BYTES, CHARACTER_BYTES, TOKEN_BYTES = 300, 1, 8
T = TypeVar("T")
Rows = list[np.ndarray]
Tokenize = Callable[[list[str]], Sequence[Any]]


class Memo(Generic[T]):
    """Results of a function of texts, by text, until MEMORY is full; what comes later is computed each time.

    Several threads may use it: one computes what is missing, once for all.
    """

    def __init__(self, function: Callable[[list[str]], Sequence[T]], size: Callable[[T], int]) -> None:
        """Args: function: texts -> a result for each; size: tokens of a result."""
        self.function, self.size, self.left = function, size, MEMORY
        self.known: dict[str, T] = {}
        self._computing = threading.Lock()

    def of(self, texts: Sequence[str]) -> list[T]:
        """Return the result for each text."""
        known = [self.known.get(text) for text in texts]
        missing = dict.fromkeys(text for text, result in zip(texts, known, strict=True) if result is None)
        if not missing:
            return known  # type: ignore[return-value]  # none is None
        with self._computing:
            computed = self._computed(list(missing))
        return [computed[text] if result is None else result for text, result in zip(texts, known, strict=True)]

    def _computed(self, texts: list[str]) -> dict[str, T]:
        """Compute results that another thread has not computed meanwhile."""
        known = {text: self.known[text] for text in texts if text in self.known}
        missing = [text for text in texts if text not in known]
        computed = dict(zip(missing, self.function(missing), strict=True)) if missing else {}
        for text, result in computed.items():
            self.left -= ROW_BYTES + CHARACTER_BYTES * len(text) + TOKEN_BYTES * self.size(result)
            if self.left < 0:
                break
            self.known[text] = result
        return known | computed


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
