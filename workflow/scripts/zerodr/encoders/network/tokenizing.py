"""Call a tokenizer: options, whose turn it is, and token ids of texts."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

TOKENIZING = threading.Lock()  # a tokenizer serves one thread at a time, with all cores
BARE = dict.fromkeys(
    "add_special_tokens return_attention_mask return_token_type_ids truncation padding verbose".split(), False
)
"""For the ids of whole texts, without special tokens and without anything else."""
TOKENIZER_TEXTS = 512  # texts of one call of the tokenizer
UNLIMITED = 1 << 20  # tokens


@dataclass(frozen=True)
class Call:
    """A way to call a tokenizer.

    Attributes:
        prefix: in front of each text.
        limit: tokens with special ones; None: all tokens, without special ones.
        lowercase: the tokenizer lowers texts, special tokens in them excepted.
    """

    prefix: str = ""
    limit: int | None = None
    lowercase: bool = False

    def ids(self, tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts."""
        special = self.limit is not None
        return list(token_ids(tokenizer, texts, self.prefix, self.limit or UNLIMITED, self.lowercase, special))


def token_ids(
    tokenizer: Any, texts: Sequence[str], prefix: str, limit: int, lowercase: bool = False, special: bool = True
) -> Iterator[list[int]]:
    """Yield ids of each text behind its prefix, with special tokens or not, cut at `limit`.

    >>> def lengths(texts, max_length, **options):
    ...     return {"input_ids": [[len(word) for word in text.split()][:max_length] for text in texts]}
    >>> list(token_ids(lengths, ["a dense vector", "one"], prefix="query: ", limit=3))
    [[6, 1, 5], [6, 3]]
    """
    options: dict[str, Any] = dict.fromkeys(
        ("padding", "return_attention_mask", "return_token_type_ids", "verbose"), False
    )
    options |= {"truncation": True, "max_length": limit, "add_special_tokens": special}
    for start in range(0, len(texts), TOKENIZER_TEXTS):
        inputs = [prefix + text for text in texts[start : start + TOKENIZER_TEXTS]]
        with TOKENIZING:
            if lowercase and not lower_within(tokenizer):
                inputs = [text.lower() for text in inputs]
            rows = tokenizer(inputs, **options)["input_ids"]
        yield from rows


def lower_within(tokenizer: Any) -> bool:
    """Make a tokenizer's normalizer lower texts, as sentence-transformers does for `do_lower_case`.

    Special tokens in a text stay as they are. Returns False where the tokenizer has no normalizer to change.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return False
    from tokenizers import normalizers

    first = backend.normalizer
    steps: list[Any] = [] if first is None else [first]
    if isinstance(first, normalizers.Sequence):
        steps = [*first]  # type: ignore[misc]
    if not any(isinstance(step, normalizers.Lowercase) for step in steps):
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *steps])
    return True
