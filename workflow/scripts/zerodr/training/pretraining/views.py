"""Make the network's inputs and targets in pretraining: views of the documents of a batch, as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from zerodr.config.pretraining import PAIRED, PretrainSettings
from zerodr.encoders.inference.token_store import TokenStore, call_facts
from zerodr.encoders.network.moving import Features
from zerodr.encoders.network.tokenizing import Call
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.pretraining.prediction import check_masking, ordinary_ids, token_words
from zerodr.errors import ConfigError, ModelError
from zerodr.training.data.batches import length_groups
from zerodr.training.data.tokens import Memo
from zerodr.training.pretraining.masking import (
    NO_MARK,
    NOT_MASKED,
    TokenLoss,
    Vocabulary,
    Words,
    corrupt,
    crop,
    delete,
    mask_words,
    sentinels_of,
)
from zerodr.training.pretraining.passages import PassageBatch, Passages, two_spans

WIDTH = 2  # at most so many views of a document
SIDE = "document"


@dataclass(frozen=True)
class Views:
    """Texts of (a process's part of) a batch, views of one document next to each other.

    Attributes:
        tokens: ids of each text, with special tokens.
        targets: what is to be predicted of each: labels as long as its tokens where words are masked, the whole text's
            ids where some were deleted, what was cut out behind sentinels for T5; empty where nothing is.
        groups: (side, places of texts) that are encoded together.
        asked: tokens that are to be predicted.
        marks: number of each token of each text for a paper's loss, -1 for none; empty without one.
        features: of each group, padded, on the host (`Forward.padded`).
        rows: of each group, its rows of the representation, (n,) int64.
    """

    tokens: list[np.ndarray]
    targets: list[np.ndarray]
    groups: list[tuple[str, list[int]]]
    asked: int = 0
    marks: list[np.ndarray] = field(default_factory=list)
    features: list[Features] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)


class ViewMaker:
    """Makes views by an objective's rules. Prefixes that a model has for retrieval stay out.

    Args:
        encoder: for its tokenizer and limits.
        settings: the objective.
        passages: the documents.
        paired: whether documents are lists of spans, or whole.
        seed: words that random numbers come from.
        waste: padded tokens that a group may hold.
        chunk: texts that a group may hold, or None.
        extra: a paper's loss that joins the objective.

    Raises:
        ModelError: the tokenizer can't mask, or max_tokens is more than the model takes.
        ConfigError: the objective needs documents of several spans.
    """

    def __init__(
        self,
        encoder: BiEncoder,
        settings: PretrainSettings,
        passages: Passages,
        paired: bool,
        seed: Sequence[int],
        waste: int,
        chunk: int | None = None,
        extra: TokenLoss | None = None,
    ) -> None:
        self.tokenizer, self.lowercase = encoder.tokenizer, encoder.contract.lowercase
        self.settings, self.passages, self.paired, self.seed = settings, passages, paired, list(seed)
        self.waste, self.chunk, self.extra = waste, chunk, extra
        source, most = encoder.contract.source, encoder.contract.max_tokens
        if settings.max_tokens > most:
            raise ModelError(source, f"takes {most} tokens, max_tokens asks for {settings.max_tokens}", "lower it")
        if settings.name in PAIRED and not paired:
            raise ConfigError(
                "objective.name",
                f"{settings.name} needs documents of several spans, found whole ones",
                "give `spans` (of cut_spans), not `collections`",
            )
        self.before, self.after = around(self.tokenizer)
        self.memo = Memo(self._words, len)
        self.limit = settings.max_tokens - len(self.before) - len(self.after)
        if self.limit < 1:
            raise ModelError(
                source,
                f"adds {len(self.before) + len(self.after)} special tokens, max_tokens "
                f"{settings.max_tokens} leaves none for the text",
                "raise it",
            )
        if settings.masks:
            check_masking(source, self.tokenizer)
            self.vocabulary = Vocabulary(self.tokenizer.mask_token_id, ordinary_ids(self.tokenizer))
        if settings.name == "t5_coco":
            self.sentinels = sentinels_of(self.tokenizer)

    def take_stored(self, folder: Path) -> TokenStore | None:
        """Take tokens of texts that are stored in `folder`, and store others; None where that can't be done."""
        facts = call_facts(self.tokenizer, Call(lowercase=self.lowercase))
        if facts is None:
            return None
        store = TokenStore(folder, facts, 4 if self.extra is not None else 2)  # as `_numbers`

        def words(texts: list[str]) -> list[Words]:
            return [
                _words_of(numbers) for numbers in store.of(texts, lambda new: list(map(_numbers, self._words(new))))
            ]

        self.memo = Memo(words, len)
        return store

    def with_seed(self, seed: Sequence[int]) -> ViewMaker:
        """Copy the maker with another seed."""
        maker = copy(self)
        maker.seed = list(seed)
        return maker

    def make(self, batch: PassageBatch) -> Views:
        """Make views as the objective trains on them."""
        seed, rows = [*self.seed, batch.step], self._rows(batch)
        taken = self._texts(batch)
        texts, rows = self._cropped(taken, seed, rows)
        if self.settings.masks:
            masked = mask_words(
                texts, self.settings.mask_rate, self.vocabulary, seed, rows, self.limit, self.settings.mask_unit
            )
            asked = sum(int((labels != NOT_MASKED).sum()) for _, labels in masked)
            labels = [self._around(labels, NOT_MASKED) for _, labels in masked]
            views = self._views([ids for ids, _ in masked], labels, asked)
            return views if self.extra is None else replace(views, marks=self._marks(self.extra, taken, texts))
        if self.settings.name == "t5_coco":
            pairs = corrupt(
                texts, self.settings.corruption_rate, self.settings.corruption_span, self.sentinels, seed, rows
            )
            targets = [np.concatenate([target, self.after]) for _, target in pairs]
            return self._views([ids for ids, _ in pairs], targets, sum(map(len, targets)))
        if self.settings.name == "tsdae":
            left = delete(texts, self.settings.delete_rate, seed, rows, self.limit)
            whole = [self._around(text.ids) for text in texts]
            return self._views(left, whole, sum(len(ids) - 1 for ids in whole))
        return self._views([text.ids for text in texts])

    def plain(self, batch: PassageBatch) -> Views:
        """Return two spans of each document as they are, whatever the objective; of whole documents the one text."""
        documents = zip(self.passages.spans(batch.rows), batch.draws, strict=True)
        texts = [two_spans(spans, draws) for spans, draws in documents]
        cropped, _ = self._cropped(texts, [*self.seed, batch.step], self._rows(batch))
        return self._views([text.ids for text in cropped])

    def _texts(self, batch: PassageBatch) -> list[list[str]]:
        chosen = []
        for spans, draws in zip(self.passages.spans(batch.rows), batch.draws, strict=True):
            if self.settings.name == "ict":
                chosen.append(cloze(spans, draws, self.settings.keep_rate))
            elif self.settings.name == "simcse":
                chosen.append([spans[int(draws[0] * len(spans))]] * 2)
            else:
                chosen.append(two_spans(spans, draws))
        return chosen

    def _marks(self, extra: TokenLoss, taken: list[list[str]], left: list[Words]) -> list[np.ndarray]:
        """Mark what is left of each text, as long as its tokens."""
        flat = [text for views in taken for text in views]
        return [self._around(extra.marks(text, words), NO_MARK) for text, words in zip(flat, left, strict=True)]

    def _rows(self, batch: PassageBatch) -> np.ndarray:
        return WIDTH * (batch.first + np.arange(len(batch)))

    def _cropped(self, texts: list[list[str]], seed: list[int], rows: np.ndarray) -> tuple[list[Words], np.ndarray]:
        """Crop tokens of all views, none longer than `limit`, and the number of each in the whole batch."""
        numbers = np.concatenate([row + np.arange(len(views)) for row, views in zip(rows, texts, strict=True)])
        flat = [text for views in texts for text in views]
        words = self.memo.of(flat)
        cuts = numbers - numbers % WIDTH if self.settings.name == "simcse" else numbers  # both views are one text
        return crop(words, self.limit, seed, cuts), numbers

    def _words(self, texts: list[str]) -> list[Words]:
        rows = token_words(self.tokenizer, texts, self.lowercase, self.extra is not None)
        return [Words(*fields) for fields in rows]

    def _around(self, ids: np.ndarray, instead: int | None = None) -> np.ndarray:
        """Put ids between the special tokens, or between `instead` for each of these."""
        before, after = self.before, self.after
        if instead is not None:
            before, after = np.full_like(before, instead), np.full_like(after, instead)
        return np.concatenate([before, ids, after])

    def _views(self, ids: Sequence[np.ndarray], targets: Sequence[np.ndarray] = (), asked: int = 0) -> Views:
        tokens = [self._around(text) for text in ids]
        groups = length_groups([len(text) for text in tokens], self.waste, self.chunk)
        return Views(tokens, list(targets), [(SIDE, group) for group in groups], asked)


def _numbers(text: Words) -> np.ndarray:
    """Put the fields of a text's tokens side by side, (L, 2), with characters (L, 4)."""
    fields = [text.ids, text.words] + ([] if text.characters is None else list(text.characters.T))
    return np.stack(fields, axis=1)


def _words_of(numbers: np.ndarray) -> Words:
    """Return the text of `_numbers`."""
    ids, words, *characters = numbers.astype(np.int64).T
    return Words(
        np.ascontiguousarray(ids), np.ascontiguousarray(words), np.stack(characters, 1) if characters else None
    )


def cloze(spans: Sequence[str], draws: np.ndarray, keep_rate: float) -> list[str]:
    """Choose a span and the document around it; with probability `keep_rate` it stays there  # ICT (Lee et al. 2019)"""
    chosen = int(draws[0] * len(spans))
    rest = spans if draws[1] < keep_rate else [*spans[:chosen], *spans[chosen + 1 :]]
    return [spans[chosen], " ".join(rest)]


def around(tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return special tokens before and after every text, int64."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    first = next(start for start in range(len(whole)) if whole[start : start + len(bare)] == bare)
    return np.array(whole[:first], np.int64), np.array(whole[first + len(bare) :], np.int64)
