"""Let a language model write questions for documents, and choose usable ones (GenQ, Ma et al. 2021; GPL, 2022).

Batches are written in the order of the documents' lots and recorded one by one, so a run that was killed continues with
the batch that it was at and ends with the same questions.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from zerodr.artifacts.progress import Progress
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_ids, joined_texts, read_corpus
from zerodr.config.generation import WriterSettings
from zerodr.lexical.folder import read_ids
from zerodr.lexical.light import LightIndex
from zerodr.mining.cut import WORD
from zerodr.mining.negatives import words_of

RECORD = "questions.jsonl"
SPARE = 3  # documents that are read for each wanted question, as some questions are not used
QUESTIONS = "questions"  # the kind of queries that a language model writes
Check = Callable[[list[str], list[str]], list[bool]]


class Question(NamedTuple):
    """A query that was made from a document: its text, the document's id, and the number of it there."""

    text: str
    document: str
    number: int


def lots_of(source: Path, purpose: str, seed: int) -> np.ndarray:
    """Draw an order of the documents: the place of each, (M,) int64. It depends on ids and seed alone."""
    order = np.argsort(words_of(corpus_ids(source).to_pylist(), purpose, seed, 0), kind="stable")
    return np.argsort(order)


def write(
    stage: Stage, count: int, settings: WriterSettings, title_join: str | None, avoid: Collection[str] = ()
) -> list[Question]:
    """Write questions until `count` can be used, `each` for a document that is not in `avoid`, or documents end.

    Reads inputs `collection` and, for the round trip, `index`; `stage.state` holds the batches that are finished.
    """
    import torch

    from zerodr.encoders.inference.writer import load_writer

    torch.set_num_threads(max(1, stage.threads))
    source, record = stage.path("collection"), stage.state / RECORD
    lots = lots_of(source, QUESTIONS, stage.seed)
    each = min(max(settings.each[0], -(-count // max(len(lots), 1))), settings.each[1])
    documents = documents_of(source, lots, SPARE * -(-count // each) + len(avoid), title_join)
    documents = [one for one in documents if one[0] not in avoid for _ in range(each)]
    finds = finder(stage.path("index"), settings.round_trip, stage.threads) if settings.round_trip else None
    batches = [documents[i : i + settings.batch_passages] for i in range(0, len(documents), settings.batch_passages)]
    writer, offline = None, bool(stage.spec.site.get("offline", False))
    finished = list(recorded(record))
    record.write_text("".join(map(line_of, finished)), encoding="utf-8")  # without a line that was cut off
    used, reasons, tried = list[Question](), Counter[str](), 0
    asked = defaultdict[str, list[str]](list)  # of a document
    progress = Progress(f"write questions of {source.name}", count, "questions")
    for number, batch in enumerate(batches):
        if number == len(finished):
            writer = writer or load_writer(settings.model, settings.revision, offline, settings.precision)
            sampling = (settings.passage_tokens, settings.question_tokens, settings.temperature, settings.top_p)
            seed = int(words_of([str(number)], "writer", stage.seed, 0)[0] >> np.uint64(1))
            finished.append(writer.write([text for _, text in batch], seed, *sampling))
            with record.open("a", encoding="utf-8") as stream:
                stream.write(line_of(finished[-1]))
        tried += len(batch)
        chosen = usable(batch, finished[number], settings.words, finds, reasons)[: count - len(used)]
        for one in chosen:
            if one.text in asked[one.document]:
                reasons["repeated"] += 1
                continue
            used.append(one._replace(number=len(asked[one.document])))
            asked[one.document].append(one.text)
            progress.add()
        if len(used) == count:
            break
    progress.finish()
    for reason, number in reasons.items():
        stage.metric(f"questions_{reason}", number)
    stage.metric("questions_tried", tried)
    return used


def recorded(path: Path) -> Iterator[list[str]]:
    """Read the batches that are recorded whole."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:  # splitlines also splits at U+2028
            try:
                yield json.loads(line)
            except ValueError:  # a killed run wrote half of it
                return


def line_of(questions: list[str]) -> str:
    """Write a batch as a line of the record."""
    return json.dumps(questions, ensure_ascii=False) + "\n"


def documents_of(source: Path, lots: np.ndarray, enough: int, title_join: str | None) -> list[tuple[str, str]]:
    """Read ids and texts of the documents whose lot is below `enough`, in the order of lots."""
    documents: list[tuple[int, str, str]] = []
    row = 0
    for block in read_corpus(source):
        here = lots[row : row + len(block)]
        row += len(block)
        chosen = np.flatnonzero(here < enough)
        taken = block.take(pa.array(chosen))
        texts = joined_texts(taken, title_join).to_pylist()
        documents += zip(here[chosen].tolist(), taken.column("id").to_pylist(), texts, strict=True)
    return [(key, text) for _, key, text in sorted(documents) if text.strip()]


def finder(index: Path, depth: int, threads: int) -> Check:
    """Return the check of the round trip: BM25 must rank a question's document among the first `depth`."""
    light, ids = LightIndex.load(index), read_ids(index)
    row_of = {key: row for row, key in enumerate(ids.to_pylist())}

    def finds(questions: list[str], documents: list[str]) -> list[bool]:
        ranked, _, counts = light.search(questions, depth, threads)
        pairs = zip(ranked, counts, documents, strict=True)
        return [row_of.get(key, -1) in row[:size].tolist() for row, size, key in pairs]

    return finds


def usable(
    batch: list[tuple[str, str]],
    questions: list[str],
    words: tuple[int, int],
    finds: Check | None,
    reasons: Counter[str],
) -> list[Question]:
    """Choose questions of the right length that are no part of their document and, with `finds`, lead back to it.

    Args:
        batch: id and text of each document.
        questions: one for each.
        words: fewest and most words.
        finds: of `finder`; None: no round trip.
        reasons: counts those that are left out.
    """
    returns = finds(questions, [key for key, _ in batch]) if finds else [True] * len(questions)
    chosen = []
    for (key, text), question, back in zip(batch, questions, returns, strict=True):
        length = len(WORD.findall(question))
        if not words[0] <= length <= words[1]:
            reasons["of_other_length"] += 1
        elif question.strip(" ?.").lower() in " ".join(text.split()).lower():
            reasons["copied"] += 1
        elif not back:
            reasons["lost_on_round_trip"] += 1
        else:
            chosen.append(Question(question, key, 0))
    return chosen
