"""Corrupt spans as T5 (Raffel et al. 2020): sentinels replace stretches of a text, the target repeats these.

Random numbers are those of (seed, number of the text), whatever the process that holds it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from zerodr.training.pretraining.masking import Words

CORRUPT = 6  # what the random numbers are for
SENTINELS = 100
NAMED = "<extra_id_{}>"
Pair = tuple[np.ndarray, np.ndarray]


def sentinels_of(tokenizer: Any) -> np.ndarray:
    """Return ids of sentinels, int64: T5's, or in a tokenizer without them its last ids, its rarest tokens."""
    vocabulary = tokenizer.get_vocab()
    named = [vocabulary[NAMED.format(n)] for n in range(SENTINELS) if NAMED.format(n) in vocabulary]
    if named:
        return np.array(named, np.int64)
    ordinary = sorted(set(vocabulary.values()) - set(tokenizer.all_special_ids))
    return np.array(ordinary[: -SENTINELS - 1 : -1], np.int64)


def corrupt(
    texts: Sequence[Words], rate: float, mean_span: float, sentinels: np.ndarray, seed: Sequence[int], rows: np.ndarray
) -> list[Pair]:
    """Of each text what is left, with sentinels, and what was cut out, each stretch behind its sentinel.

    round(rate * L) tokens, at least one, go in about round(that / mean_span) stretches of random lengths at random
    places, never two next to each other. A text of one token is cut out whole; an empty one stays empty.

    Args:
        texts: ids without special tokens.
        rows: (R,) number of each text in the batch of all processes.

    Returns:
        ids of input and target, int64, without special tokens other than sentinels.
    """
    pairs = []
    for text, row in zip(texts, rows.tolist(), strict=True):
        generator = np.random.default_rng([CORRUPT, *seed, row])
        pairs.append(_of(text.ids, stretches(len(text), rate, mean_span, len(sentinels), generator), sentinels))
    return pairs


def stretches(
    length: int, rate: float, mean_span: float, most: int, generator: np.random.Generator
) -> list[tuple[int, int]]:
    """Draw first and last-plus-one tokens of the stretches that are cut out, ascending and apart from one another."""
    if not length:
        return []
    noise = min(length, max(1, round(rate * length)))
    remaining = length - noise
    count = max(1, min(round(noise / mean_span), noise, remaining + 1, most))
    sizes = _composition(noise, count, generator)
    gaps = _composition(remaining + 2, count + 1, generator)  # first and last gap may be empty, the others not
    gaps[0] -= 1
    gaps[-1] -= 1
    first = np.cumsum(np.r_[gaps[0], gaps[1:-1] + sizes[:-1]])
    return list(zip(first.tolist(), (first + sizes).tolist(), strict=True))


def _composition(total: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """Draw `count` positive numbers that sum to `total`, each such sequence equally likely, int64."""
    cuts = np.sort(generator.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.r_[0, cuts, total])


def _of(ids: np.ndarray, cut: Sequence[tuple[int, int]], sentinels: np.ndarray) -> Pair:
    left: list[np.ndarray] = []
    target: list[np.ndarray] = []
    end = 0
    for number, (first, last) in enumerate(cut):
        mark = sentinels[number : number + 1]
        left += [ids[end:first], mark]
        target += [mark, ids[first:last]]
        end = last
    nothing = np.zeros(0, np.int64)
    return np.concatenate([nothing, *left, ids[end:]]), np.concatenate([nothing, *target])
