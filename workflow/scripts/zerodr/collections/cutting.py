"""Cut a text with headings into passages of about one size, for retrieval."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zerodr.config.loose_files import Cut

IDEOGRAPH = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
END = re.compile(r"(?<=[。！？])(?![。！？”’」』）])")  # no blank follows, so syntok sees no end there
SPACED = "।॥۔؟።։។။"  # ends in Hindi, Bengali, Urdu, Arabic, Amharic, Armenian, Khmer, Burmese; syntok knows none
SPACED_END = re.compile(rf"""(?<=[{SPACED}])(?![{SPACED}.!?"'”’»)\]])\s*""")
LETTERS = 12  # of a word, on average, at most: writing without blanks, and what is no text
SMALL = 4  # a section shorter than a SMALLth of a passage goes on in the next section's passage


class Block(NamedTuple):
    """A heading (level 1 to 6) or a paragraph (level 0), and its page, where there are pages."""

    level: int
    text: str
    page: int = 0


class Passage(NamedTuple):
    """A part of a text.

    Attributes:
        fragment: its number, from 1, or `page=<page>` where there are pages, with `.<n>` from the second of a page on.
        title: the text's first heading and those above the passage.
        text: its sentences.
    """

    fragment: str
    title: str
    text: str


def size_of(text: str) -> float:
    """Count words; two characters of writing without blanks count as one, and LETTERS letters as one at least.

    >>> size_of("two words"), size_of("検索する"), size_of("ค้นหา" * 12)
    (2.0, 3.0, 5.0)
    """
    return max(len(text.split()) + len(IDEOGRAPH.findall(text)) / 2, len(text) / LETTERS)


def cut(blocks: Sequence[Block], name: str, size: Cut) -> Iterator[Passage]:
    """Cut blocks into passages of at most `size.words`; they begin at headings and end with sentences.

    What ends with no sentence, as a transcript or a list, is cut at its lines, else between words.

    Args:
        name: of the text, which is the title where it has no heading.
    """
    number, by_page = 0, dict[int, int]()
    for titles, section in _sections(blocks, size.words):
        title = " > ".join(titles) or name
        for page, text in _packed(section, size):
            number += 1
            by_page[page] = by_page.get(page, 0) + 1
            more = f".{by_page[page]}" if by_page[page] > 1 else ""
            yield Passage(f"page={page}{more}" if page else str(number), title, text)


def _sections(blocks: Sequence[Block], words: int) -> Iterator[tuple[list[str], list[Block]]]:
    """Return the headings above each section, and its paragraphs; short neighbours below one heading are joined."""
    above: list[Block] = []
    section: list[Block] = []
    titles: list[str] = []
    for block in blocks:
        if not block.level:
            section.append(block)
            continue
        if above and not section and block.level <= above[-1].level:
            titles, section = titles[:-1], [above[-1]]  # nothing is below that heading: it is text itself
        length = sum(size_of(one.text) for one in section)
        inside = bool(above) and block.level >= above[-1].level
        above = [*(one for one in above if one.level < block.level), block]
        if section and inside and length < words / SMALL:
            section.append(block)  # the heading stays as a line of the joined passage
            continue
        if section:
            yield titles, section
        section, titles = [], [one.text for one in above]
    if section:
        yield titles, section


def _packed(section: Sequence[Block], size: Cut) -> Iterator[tuple[int, str]]:
    """Return page and text of each passage of a section."""
    held: list[Block] = []
    fresh = False
    for piece in _pieces(section, size.words):
        if fresh and sum(size_of(one.text) for one in held) + size_of(piece.text) > size.words:
            last = held.pop() if held[-1].level and len(held) > 1 else None  # a heading goes with what follows it
            yield held[0].page, _joined(held)
            held, fresh = [last] if last else _tail(held, size.overlap), False
            if not last and sum(size_of(one.text) for one in held) + size_of(piece.text) > size.words:
                held = []
        held.append(piece)
        fresh = True
    if fresh:
        yield held[0].page, _joined(held)


def _pieces(section: Sequence[Block], words: int) -> Iterator[Block]:
    """Return the sentences of a section: paragraphs end with a line break, which `_joined` keeps."""
    for block in section:
        sentences = sentences_of(block.text) if size_of(block.text) > words / SMALL else [block.text]
        sentences = [piece for sentence in sentences for piece in _shorter(sentence, words)]
        for number, sentence in enumerate(sentences, 1):
            yield Block(block.level, sentence + "\n" * (number == len(sentences)), block.page)


def _shorter(sentence: str, words: int) -> list[str]:
    """Split a sentence that is longer than a passage: at lines, else between words, else between characters."""
    if size_of(sentence) <= words:
        return [sentence]
    lines = [line for line in sentence.splitlines(keepends=True) if line.strip()]
    if len(lines) > 1:
        return [piece for line in lines for piece in _shorter(line, words)]
    pieces, held = list[list[str]](), 0.0
    for word in sentence.split():
        length = 2 * words if IDEOGRAPH.search(word) else LETTERS * words
        for start in range(0, len(word), length):
            letters = word[start : start + length]
            if not pieces or held + size_of(letters) > words:
                pieces.append([])
                held = 0.0
            pieces[-1].append(letters)
            held += size_of(letters)
    return [" ".join(piece) for piece in pieces]


def _joined(pieces: Sequence[Block]) -> str:
    text = ""
    for piece in pieces:
        gap = "" if not text or text.endswith("\n") or END.search(text, len(text)) else " "
        text += gap + piece.text
    return text.strip()


def _tail(pieces: Sequence[Block], words: int) -> list[Block]:
    """Return the last sentences that have at most so many words."""
    tail: list[Block] = []
    for piece in reversed(pieces):
        if sum(size_of(one.text) for one in tail) + size_of(piece.text) > words:
            break
        tail.insert(0, piece)
    return tail


def sentences_of(text: str) -> list[str]:
    """Split a paragraph into sentences."""
    from syntok import segmenter

    sentences = []
    for paragraph in segmenter.analyze(text):
        for tokens in paragraph:
            passage = text[tokens[0].offset : tokens[-1].offset + len(tokens[-1].value)]
            pieces = (piece for whole in END.split(passage) for piece in SPACED_END.split(whole))
            sentences += [piece for piece in pieces if piece.strip()]
    return sentences
