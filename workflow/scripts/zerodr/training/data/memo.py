"""Remember the tokens of texts, so that a text that comes again in training is not tokenised again."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

MEMORY = 256 << 20  # bytes of texts and tokens that are held, estimated
ROW_BYTES, CHARACTER_BYTES, TOKEN_BYTES = 300, 1, 8
T = TypeVar("T")


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
