"""Random crops, whole-word masking, deletion of tokens, and T5's corrupted spans (Raffel et al. 2020).

`TokenLoss` is a loss next to an objective. The others are pure functions of token ids and of (seed, step, row): row r
of a batch draws the same numbers whichever process works on it and however many rows there are. In T5's spans sentinels
replace stretches of a text, and the target repeats these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from zerodr.config.stages import PretrainStage
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.papers import modules

CROP, ORDER, REPLACE, TOKEN, DELETE = range(5)  # what the random numbers are for
NOT_MASKED = -100  # label of a token that is not predicted
Unit = Literal["word", "token"]
AS_MASK, AS_RANDOM = 0.8, 0.9  # BERT: 80 % [MASK], 10 % another token, 10 % as it is
CORRUPT = 6  # what the random numbers are for
SENTINELS = 100
NAMED = "<extra_id_{}>"
Pair = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Words:
    """Tokens of a text without special tokens, and the number of the word that each belongs to, both (L,) int64.

    Attributes:
        characters: (L, 2) those of each token in the text, [start, end), where somebody asked for them.
    """

    ids: np.ndarray
    words: np.ndarray
    characters: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Vocabulary:
    """What masking needs to know of a tokenizer.

    Attributes:
        mask: the mask's id.
        ordinary: ids of all tokens but special ones, ascending: they alone are predicted, and may replace a token.
    """

    mask: int
    ordinary: np.ndarray

    def may_be_masked(self, ids: np.ndarray) -> np.ndarray:
        """Mark tokens that are no special ones, as those within a text may be (`[SEP]`, unknown letters); (L,) bool."""
        positions = np.searchsorted(self.ordinary, ids)
        return np.take(self.ordinary, positions, mode="clip") == ids


def uniforms(purpose: int, seed: Sequence[int], rows: np.ndarray, width: int) -> np.ndarray:
    """Draw numbers in [0, 1), (len(rows), width); a row's numbers depend on (purpose, seed, row, width) alone."""
    if not len(rows):
        return np.zeros((0, width))
    return np.random.default_rng([purpose, *seed]).random((int(rows.max()) + 1, width))[rows]


def crop(texts: Sequence[Words], limit: int, seed: Sequence[int], rows: np.ndarray) -> list[Words]:
    """Cut a random stretch of at most `limit` tokens from each text; ids, words and characters stay together."""
    starts = uniforms(CROP, seed, rows, 1)[:, 0]
    cropped = []
    for text, share in zip(texts, starts, strict=True):
        first = int(share * (max(len(text) - limit, 0) + 1))
        left = slice(first, first + limit)
        characters = None if text.characters is None else text.characters[left]
        cropped.append(Words(text.ids[left], text.words[left], characters))
    return cropped


def mask_words(
    texts: Sequence[Words],
    rate: float,
    vocabulary: Vocabulary,
    seed: Sequence[int],
    rows: np.ndarray,
    width: int,
    unit: Unit = "word",
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mask whole words of each text: in random order those that still fit into round(rate * L) tokens, at least one.

    So long words are masked somewhat more rarely than short ones, as in BERT's whole-word masking. A text whose every
    word is larger than that gets no mask, as in COCO-DR's code. Special tokens are never masked.

    Args:
        texts: of at most `width` tokens each; an empty one, or one of special tokens alone, stays as it is.
        unit: `token` takes each token by itself with probability `rate` instead, in a short text perhaps none.
        rows: (R,) number of each text in the batch of all processes.
        width: tokens that random numbers are drawn for.

    Returns:
        for each text its ids with masks, and labels: the true id where it is to be predicted, else NOT_MASKED.
    """
    keys, fates, drawn = (uniforms(purpose, seed, rows, width) for purpose in (ORDER, REPLACE, TOKEN))
    if not len(texts):
        return []
    lengths, ids = np.array([len(text) for text in texts]), np.concatenate([text.ids for text in texts])
    there, cuts = np.arange(width) < lengths[:, None], np.cumsum(lengths)[:-1]
    allowed = vocabulary.may_be_masked(ids)
    if unit == "word":
        by_text = zip(texts, keys, np.split(allowed, cuts), strict=True)
        chosen = np.concatenate([_chosen(text, rate, draws, may) for text, draws, may in by_text])
    else:
        chosen = allowed & (keys[there] < rate)
    fate, others = fates[there], vocabulary.ordinary[(drawn[there] * len(vocabulary.ordinary)).astype(np.int64)]
    instead = np.where(fate < AS_MASK, vocabulary.mask, np.where(fate < AS_RANDOM, others, ids))
    masked, labels = np.where(chosen, instead, ids), np.where(chosen, ids, NOT_MASKED)
    return list(zip(np.split(masked, cuts), np.split(labels, cuts), strict=True))


def _chosen(text: Words, rate: float, keys: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Choose tokens to predict, (L,) bool: of words all of whose tokens are `allowed`, (L,) bool."""
    if not allowed.any():
        return np.zeros(len(text), bool)
    starts = np.flatnonzero(np.r_[True, text.words[1:] != text.words[:-1]])
    sizes = np.diff(starts, append=len(text))
    left, taken = max(1, round(rate * len(text))), np.zeros(len(sizes), bool)
    order = np.argsort(keys[: len(sizes)], kind="stable")
    order = order[np.logical_and.reduceat(allowed, starts)[order]]
    for word in order.tolist():
        if sizes[word] <= left:
            taken[word] = True
            left -= sizes[word]
            if not left:
                break
    return np.repeat(taken, sizes)


def delete(texts: Sequence[Words], rate: float, seed: Sequence[int], rows: np.ndarray, width: int) -> list[np.ndarray]:
    """Delete each token with probability `rate`, and return each text's ids; one is always left  # TSDAE"""
    keys = uniforms(DELETE, seed, rows, width)
    remaining = []
    for line, text in enumerate(texts):
        draws = keys[line, : len(text)]
        left = draws >= rate
        if len(text) and not left.any():
            left[np.argmax(draws)] = True
        remaining.append(text.ids[left])
    return remaining


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


NO_MARK = -1


class TokenLoss:
    """Base of such losses. It is a mean over the texts that it counts.

    Attributes:
        name: of the loss in curves; share: of the share of texts that it counts.
    """

    name: str
    share: str

    @property
    def weight(self) -> float:
        """Factor on the loss in training."""
        raise NotImplementedError

    def marks(self, text: str, left: Words) -> np.ndarray:
        """Return a number for each token that is left of a text, -1 for none; (L,) int64."""
        raise NotImplementedError

    def count(self, marks: Sequence[np.ndarray]) -> int:
        """Count texts that the loss applies to."""
        raise NotImplementedError

    def total(self, vectors: Tensor, states: Tensor, marks: Tensor) -> Tensor:
        """Sum of the loss, without its weight, over the texts that it counts.

        Args:
            vectors: (n, D) of the texts; states: (n, L, d) of their tokens; marks: (n, L), -1 for none.
        """
        raise NotImplementedError


def token_loss(stage: PretrainStage, encoder: BiEncoder) -> TokenLoss | None:
    """Make the loss that a stage's settings ask for; None: no paper's."""
    losses = (paper.token_loss(stage, encoder) for paper in modules("pretraining"))
    return next((loss for loss in losses if loss is not None), None)
