"""From a document to spans of about a sentence, as COCO pretraining reads them. Pure functions  # COCO-DR, specs 1.2"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from syntok import segmenter

EAST_ASIAN_END = re.compile(r"(?<=[。！？｡])(?![。！？｡”’」』）])")  # no space follows, so syntok sees no end there
Sentences = list[str]


def sentences_of(text: str) -> Sentences:
    """Sentences of a text in order, white space inside them reduced to one space; blank lines part sentences, too."""
    found = []
    for paragraph in segmenter.analyze(text):
        for tokens in paragraph:
            part = text[tokens[0].offset : tokens[-1].offset + len(tokens[-1].value)]
            found += [" ".join(piece.split()) for piece in EAST_ASIAN_END.split(part)]
    return [sentence for sentence in found if sentence]


def sentences_of_all(texts: Sequence[tuple[str, str]]) -> list[Sentences]:
    """Sentences of many (title, text) pairs; a title that is not empty is the first sentence."""
    return [([" ".join(title.split())] if title.strip() else []) + sentences_of(text) for title, text in texts]


def merge(lengths: Sequence[int], max_tokens: int, early_split: float, draw: Callable[[], float]) -> list[range]:
    """Which sentences make up each span.

    A sentence starts a new span when the current one would grow beyond `max_tokens`, or else with probability
    `early_split`. So only a single sentence can be a span of more than `max_tokens`.

    Args:
        lengths: tokens of each sentence.
        draw: gives a number in [0, 1) for each sentence but the first.
    """
    starts, size = [0], 0
    for place, length in enumerate(lengths):
        if place and (draw() < early_split or size + length > max_tokens):
            starts.append(place)
            size = 0
        size += length
    return [range(start, stop) for start, stop in zip(starts, [*starts[1:], len(lengths)], strict=True)]


def draws_for(document: str, seed: int) -> Callable[[], float]:
    """Numbers in [0, 1) that depend on the document's id and the seed alone."""
    return random.Random(f"spans {seed} {document}").random


def joined(sentences: Sentences) -> str:
    """One text of neighbouring sentences; East Asian ones stand without a space between them."""
    text = ""
    for sentence in sentences:
        text += sentence if not text or EAST_ASIAN_END.search(text, len(text)) else f" {sentence}"
    return text


def in_blocks(rows: Iterable[tuple[str, str]], size: int) -> Iterator[list[tuple[str, str]]]:
    """Consecutive rows, `size` at a time."""
    block: list[tuple[str, str]] = []
    for row in rows:
        block.append(row)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block
