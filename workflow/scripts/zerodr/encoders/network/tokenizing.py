"""Call a tokenizer: options, whose turn it is, and token ids of texts. Tokenizers without transformers, too."""

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zerodr.encoders.network.loading import short
from zerodr.errors import ModelError

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


def padded(rows: Sequence[Sequence[int] | np.ndarray], padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Pad rows of integers on the right to (B, L) int64, and mark what is not padding, (B, L) bool."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    there = np.arange(max(1, int(lengths.max()))) < lengths[:, None]
    ids = np.full(there.shape, padding, np.int64)
    if lengths.any():
        ids[there] = np.concatenate(rows)
    return ids, there


class StoredTokenizer:
    """A tokenizer as transformers loaded it once, called without transformers, whose import takes seconds.

    Args:
        facts: of `stored_facts`.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        from tokenizers import Tokenizer

        self.kind, self.pad_token_id, self.truncation_side = facts["kind"], facts["pad"], facts["truncation_side"]
        self.backend_tokenizer = Tokenizer.from_str(json.dumps(facts["backend"]))
        self.split_special_tokens = facts["split_special_tokens"]
        self.backend_tokenizer.encode_special_tokens = self.split_special_tokens

    def __call__(
        self, texts: list[str], *, max_length: int, add_special_tokens: bool, **_: object
    ) -> dict[str, list[list[int]]]:
        """Tokenize texts as a tokenizer of transformers does with the options of `token_ids`."""
        backend = self.backend_tokenizer
        if (backend.truncation or {}).get("max_length") != max_length:
            backend.enable_truncation(max_length, direction=self.truncation_side)
        return {
            "input_ids": [row.ids for row in backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)]
        }


def stored_facts(tokenizer: Any, probes: Sequence[str]) -> dict[str, Any] | None:
    """Return what `StoredTokenizer` needs in place of a tokenizer of transformers.

    Returns None where the tokenizer is not one of the `tokenizers` library, or gives other tokens of the probes.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    inner = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
    facts = {
        "kind": type(tokenizer).__name__,
        "pad": tokenizer.pad_token_id,
        "truncation_side": tokenizer.truncation_side,
        "split_special_tokens": bool(tokenizer.split_special_tokens),
        "backend": inner,
    }
    stored = StoredTokenizer(facts)
    same = all(Call(limit=limit).ids(stored, probes) == Call(limit=limit).ids(tokenizer, probes) for limit in (8, None))
    return facts if same else None


def added_special(tokenizer: Any) -> set[str]:
    """Return the special tokens that were added to a tokenizer of transformers."""
    return {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}


def load_tokenizer(folder: Path) -> Any:
    """Load the folder's tokenizer.

    Raises:
        ModelError: transformers can't load it.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"its tokenizer can't be loaded ({short(error)})"
        raise ModelError(folder, problem, "copy all files of the tokenizer there") from None
