"""Stage `generate_queries`: make queries from a target's documents, for training without judgements.

The result is a collection like any other: the target's corpus, the queries, and judgements that name the document each
query was made from. Sentences are those that COCO pretraining cuts (zerodr.mining.cut).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from zerodr.artifacts.manifest import link_or_copy
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import read_corpus, read_queries, write_generated_queries
from zerodr.config.base import validate
from zerodr.config.generation import Form, GenerateSettings
from zerodr.errors import CollectionError
from zerodr.mining.cut import WORD, sentences_of
from zerodr.mining.written import QUESTIONS, Question, lots_of, write

MORE = 8  # times as many documents are read where those before gave too few queries
EDGES = " .,;:!?()[]\"'"


class MakeSettings(GenerateSettings):
    """Settings of `generate_queries`."""

    split: str
    """Name of the queries as a split of the collection."""
    title_join: str | None = None
    """Text that joins a document's title and text for the writer. None: text alone."""
    apart: bool = False
    """Leave out documents that questions which judge were written about."""


def generate_queries(stage: Stage) -> None:
    """Read input `collection` and optional `index`; write a folder with the same corpus and the generated queries.

    Raises:
        CollectionError: no document gives a query.
    """
    settings = validate(MakeSettings, stage.params, stage.spec.name())
    source, folder = stage.path("collection"), stage.output("collection")
    share = -(-settings.count // len(settings.forms))
    questions = {form: _generate(stage, form, share, settings) for form in settings.forms}
    generated = [(form, one) for form, ones in questions.items() for one in ones]
    if not generated:
        problem = f"gives no query of the forms {', '.join(settings.forms)}"
        raise CollectionError(source.name, problem, "choose other forms, or lower least_words")
    rows = [
        (f"{form}-{one.number}-{one.document}", one.text, one.document) for form, one in generated[: settings.count]
    ]
    write_generated_queries(folder, settings.split, rows)
    link_or_copy(source / "corpus.parquet", folder / "corpus.parquet")
    for form, ones in questions.items():
        stage.metric(f"queries_{form}", len(ones))
    stage.note(queries=len(rows), documents=len({document for _, _, document in rows}))


def _generate(stage: Stage, form: Form, count: int, settings: MakeSettings) -> list[Question]:
    if form != "questions":
        return make(stage.path("collection"), form, count, settings, stage.seed)
    assert settings.writer is not None, "settings of the form questions"
    avoid = asked_about(stage.path("collection")) if settings.apart else ()
    return write(stage, count, settings.writer, settings.title_join, avoid)


def asked_about(source: Path) -> set[str]:
    """Name the documents that questions which judge were written about (`hold_out_items`); mostly none."""
    split_up = (name.partition("-") for name in read_queries(source)["id"].to_pylist())
    return {key for kind, _, key in split_up if kind == QUESTIONS}


def make(source: Path, form: Form, count: int, settings: GenerateSettings, seed: int) -> list[Question]:
    """Make at most `count` queries of a form, as evenly from the documents as they allow, no text twice.

    The choice depends on the seed and the documents' ids alone, not on their order.
    """
    position = lots_of(source, form, seed)
    each = max(1, -(-count // max(len(position), 1)))
    several = each if form != "titles" else 1
    drawn, lots = list[tuple[int, Question]](), range(2 * count)
    while True:
        drawn += _drawn(source, form, several, settings, seed, position, lots)
        chosen: dict[str, Question] = {}
        for _, one in sorted(drawn, key=lambda one: (one[1].number, one[0])):
            chosen.setdefault(one.text, one)
        if len(chosen) >= count or lots.stop >= len(position):
            return list(chosen.values())[:count]
        lots = range(lots.stop, MORE * lots.stop)


def _drawn(
    source: Path, form: Form, several: int, settings: GenerateSettings, seed: int, position: np.ndarray, lots: range
) -> Iterator[tuple[int, Question]]:
    """Yield queries of the documents with some lots, each with its document's lot."""
    total = min(lots.stop, len(position)) - lots.start
    row, progress = 0, Progress(f"generate {form} of {source.name}", total, "documents")
    for block in read_corpus(source):
        for key, title, text in zip(*(column.to_pylist() for column in block.columns), strict=True):
            lot = int(position[row])
            row += 1
            if lot not in lots:
                continue
            draw = random.Random(f"{form} {seed} {key}")
            for number, query in enumerate(queries_of(title, text, form, several, settings, draw)):
                yield lot, Question(query, key, number)
            progress.add()
    progress.finish()


def queries_of(
    title: str, text: str, form: Form, several: int, settings: GenerateSettings, draw: random.Random
) -> list[str]:
    """Make at most `several` different queries of a document."""
    if form == "titles":
        return [" ".join(title.split())] if title.strip() else []
    sentences = [one for one in dict.fromkeys(sentences_of(text)) if len(WORD.findall(one)) >= settings.least_words]
    chosen = draw.sample(sentences, min(several, len(sentences)))
    return chosen if form == "sentences" else [phrase_of(one, settings.phrase_words, draw) for one in chosen]


def phrase_of(sentence: str, sizes: tuple[int, int], draw: random.Random) -> str:
    """Cut neighbouring words out of a sentence; all of it where it has no more than a phrase."""
    words = list(WORD.finditer(sentence))
    size = min(draw.randint(*sizes), len(words))
    first = draw.randrange(len(words) - size + 1)
    return sentence[words[first].start() : words[first + size - 1].end()].strip(EDGES)
