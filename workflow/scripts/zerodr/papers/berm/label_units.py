"""Stage `label_units`: the essential unit of each (query, positive) pair  # BERM section 4.1"""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from zerodr.artifacts.parquet import GroupWriter, open_parquet
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_ids
from zerodr.config.base import validate
from zerodr.config.params import SourceTexts
from zerodr.errors import ArtifactError, CollectionError
from zerodr.lexical.analysis import analyzer_of
from zerodr.lexical.folder import read_about
from zerodr.lexical.light import read_holders
from zerodr.papers.berm import unit_table
from zerodr.papers.berm.answers import Answers, has_answers, read_answers
from zerodr.papers.berm.losses import IGNORED, LEAST_UNITS
from zerodr.papers.berm.settings import LabelSettings
from zerodr.papers.berm.unit_scores import UnitScorer, essential_unit, hybrid

log = logging.getLogger("zerodr")
EXAMPLES = "examples.tsv"
Row = dict[str, Any]
ROW_GROUP, BLOCK, SHOWN = 4096, 4096, 50


class LabelUnitsSettings(SourceTexts):
    """Params of rule label_units."""

    label: LabelSettings
    """Scoring that selects the essential unit."""


@dataclass(frozen=True)
class Passage:
    """A positive with its units.

    Attributes:
        text: as training reads it; begin: where the document's text begins in it.
        spans: (units, 2) first and last-plus-one character of each unit.
        terms: of each unit.
    """

    text: str
    begin: int
    spans: np.ndarray
    terms: list[list[str]]


@dataclass
class LabelTally:
    """Pairs by what came of them, and how often a label holds a gold answer."""

    pairs: int = 0
    labelled: int = 0
    reasons: Counter[str] = field(default_factory=lambda: Counter(few_units=0, no_overlap=0))
    labels: Counter[int] = field(default_factory=Counter)
    changed: int = 0
    answered: int = 0
    holds: Counter[str] = field(default_factory=lambda: Counter(bm25=0, hybrid=0))
    chance: float = 0.0
    guess: float = 0.0

    def facts(self, with_reader: bool) -> dict[str, Any]:
        """Counts and shares of pairs, as JSON values."""
        counts: dict[str, Any] = {
            "pairs": self.pairs,
            "labelled": self.labelled,
            "ignored": dict(self.reasons),
            "first_units": {str(n): self.labels[n] for n in range(10)},
            "random_guess": self.guess / max(self.labelled, 1),
        }
        if with_reader:
            counts["changed_by_reader"] = self.changed
        if self.answered:
            names = ("bm25", "hybrid") if with_reader else ("bm25",)
            counts |= {"pairs_with_answer_in_a_unit": self.answered, "random_holds_answer": self.chance / self.answered}
            counts |= {f"{name}_holds_answer": self.holds[name] / self.answered for name in names}
        return counts


@dataclass(frozen=True)
class Labeller:
    """Scores the units of passages for queries.

    Attributes:
        passages: by id.
        scorer: BM25 of units.
        read: a reader's score of each unit by (query, document); None without a reader.
        delta: weight of the reader's scores.
        units: folder of the units, for errors.
        without_overlap: what a pair without a common term gets.
        answers: take the place of scores; None: the best score decides.
    """

    passages: dict[str, Passage]
    scorer: UnitScorer
    read: dict[tuple[str, str], np.ndarray] | None
    delta: float
    units: Path
    without_overlap: str = "none"
    answers: Answers | None = None

    def row(self, query: str, document: str, asked: list[str]) -> Row:
        """One row of labels.parquet; `asked` are the query's terms."""
        terms = self.passages[document].terms
        bm25, reader = self.scorer.scores(asked, terms), None
        if self.read is not None:
            reader = self.read.get((query, document))
            if reader is None or len(reader) != len(terms):
                scored = "none" if reader is None else len(reader)
                problem = f"has {len(terms)} units of {document}, of which the reader scored {scored} for query {query}"
                raise ArtifactError(self.units, problem, "read these units again")
        whole = hybrid(bm25, reader, self.delta)
        scores = {"bm25": bm25, "reader": reader, "hybrid": whole}
        label = essential_unit(whole, self.without_overlap)
        if self.answers is not None:
            label = next(iter(gold_units(self.answers, query, document, self.passages[document])), IGNORED)
            label = label if len(terms) >= LEAST_UNITS else IGNORED
        return {"query": query, "document": document, **scores, "label": label, "units": len(terms)}


def label_units(stage: Stage) -> None:
    """Inputs `source`, `units`, `index` (bm25s), optional `read` (of read_units), `mined`; output `labels`, a folder.

    With `mined` only pairs of the queries that were mined are labelled.

    In it labels.parquet (by query and document, never by row number), examples.tsv for a reader's eye, and
    statistics.json; where the source came with answers, also how often the essential unit holds one.

    Raises:
        ArtifactError: units or reader scores of other passages.
        CollectionError: no pair gets a label.
    """
    settings = validate(LabelUnitsSettings, stage.params, stage.spec.name())
    source, folder = stage.path("source"), stage.output("labels")
    corpus = corpus_ids(source)
    mined = stage.path("mined") if "mined" in stage.spec.inputs else None
    known = unit_table.positives_of(source, settings.split, corpus, mined)
    queries = unit_table.query_texts(source, known.queries)
    analyze = analyzer_of(read_about(stage.path("index"))["language"])
    passages = read_passages(source, np.unique(known.documents), stage.path("units"), settings.title_join, analyze)
    holders, documents = read_holders(stage.path("index"))
    sizes = [len(terms) for passage in passages.values() for terms in passage.terms]
    mean = float(np.mean(sizes)) if sizes else 1.0
    scorer = UnitScorer(
        documents, lambda term: holders.get(term, 0), max(mean, 1e-9), settings.label.k1, settings.label.b
    )
    read = read_scores(stage.path("read") / unit_table.READ) if "read" in stage.spec.inputs else None
    label = settings.label
    answers = _answers(source, settings.split, passages)
    gold = answers if label.by == "answers" else None
    if label.by == "answers" and gold is None:
        problem = "has no answers, by which its units are to be labelled"
        raise CollectionError(f"{source.name}/{settings.split}", problem, "set units.label.by to scores")
    labeller = Labeller(passages, scorer, read, label.delta, stage.path("units"), label.without_overlap, gold)
    tally, examples = LabelTally(), list[Row]()
    pairs = zip(np.repeat(np.arange(len(known.queries)), known.sizes).tolist(), known.documents.tolist(), strict=True)
    progress = Progress(f"label units of {source.name}/{settings.split}", len(known.documents), "pairs")
    with GroupWriter(folder / unit_table.LABELS, unit_table.LABEL_SCHEMA, ROW_GROUP, []) as writer:
        while block := list(islice(pairs, BLOCK)):
            rows = [
                labeller.row(known.queries[query].as_py(), corpus[document].as_py(), analyze(queries[query]))
                for query, document in block
            ]
            for row, (query, _) in zip(rows, block, strict=True):
                _count(tally, row, passages[row["document"]], answers, read is not None)
                if len(examples) < SHOWN and row["label"] != IGNORED:
                    examples += list(_example(row, queries[query], passages[row["document"]]))
            writer.write(pa.Table.from_pylist(rows, unit_table.LABEL_SCHEMA))
            progress.add(len(block))
    progress.finish()
    tokens_of = unit_table.read_statistics(stage.path("units"))["made_for"]
    facts = {"made_for": tokens_of, "mean_terms_of_unit": mean, **tally.facts(read is not None)}
    if not tally.labelled:
        problem = f"none of its {tally.pairs} pairs has an essential unit ({dict(tally.reasons)})"
        raise CollectionError(f"{source.name}/{settings.split}", problem, "take a reader, or another segmenter")
    write_json(folder / unit_table.STATISTICS, {"collection": source.name, "split": settings.split} | facts)
    lines = ["\t".join(map(str, cells)) for cells in (examples[0], *(row.values() for row in examples))]
    (folder / EXAMPLES).write_text("\n".join(lines) + "\n", encoding="utf-8")
    stage.note(statistics=facts)
    stage.numbers(facts)
    log.info("%s/%s: %d of %d pairs have an essential unit", source.name, settings.split, tally.labelled, tally.pairs)


def read_passages(
    source: Path, rows: np.ndarray, folder: Path, title_join: str | None, analyze: Any
) -> dict[str, Passage]:
    """The positives with their units, by id.

    Raises:
        ArtifactError: the units are of other passages, or made with another title join.
    """
    if unit_table.read_statistics(folder)["made_for"]["title_join"] != title_join:
        problem = f"has units of passages whose title is joined by another string than {title_join!r}"
        raise ArtifactError(folder, problem, "cut the units again")
    spans_by_id, passages = unit_table.read_unit_spans(folder), {}
    for key, (whole, begin) in unit_table.passage_texts(source, rows, title_join).items():
        if key not in spans_by_id:
            problem = f"lacks document {key}, a positive of {source.name}"
            raise ArtifactError(folder / unit_table.UNITS, problem, "cut the units of this source and split")
        spans = spans_by_id[key]
        passages[key] = Passage(whole, begin, spans, [analyze(whole[start:end]) for start, end in spans])
    return passages


def read_scores(path: Path) -> dict[tuple[str, str], np.ndarray]:
    """A reader's score of each unit by (query, document)."""
    with open_parquet(path, unit_table.READ_SCHEMA) as file:
        table = file.read()
    pairs = zip(table["query"].to_pylist(), table["document"].to_pylist(), strict=True)
    return {pair: np.array(scores, np.float64) for pair, scores in zip(pairs, table["scores"].to_pylist(), strict=True)}


def _answers(source: Path, split: str, passages: dict[str, Passage]) -> Answers | None:
    """Answers of the split in these passages, for statistics alone; None where the split has none."""
    if not has_answers(source, split):
        return None
    return read_answers(source, split, {key: passage.text[passage.begin :] for key, passage in passages.items()})


def _count(tally: LabelTally, row: Row, passage: Passage, answers: Answers | None, with_reader: bool) -> None:
    tally.pairs += 1
    if row["label"] == IGNORED:
        tally.reasons["few_units" if row["units"] < 2 else "no_overlap"] += 1
        return
    tally.labelled += 1
    tally.guess += 1 / row["units"]
    tally.labels[row["label"]] += 1
    plain = essential_unit(row["bm25"])
    tally.changed += with_reader and plain != row["label"]
    if answers and (gold := gold_units(answers, row["query"], row["document"], passage)):
        tally.answered += 1
        tally.chance += len(gold) / len(passage.spans)
        tally.holds["hybrid"] += row["label"] in gold
        tally.holds["bm25"] += plain in gold


def gold_units(answers: Answers, query: str, document: str, passage: Passage) -> list[int]:
    """Find the units where answers to a question begin, each once, in the order of the answers."""
    spans, starts = passage.spans, [passage.begin + start for _, start in answers.spans.get((query, document), [])]
    units = (np.flatnonzero((spans[:, 0] <= start) & (start < spans[:, 1])) for start in starts)
    return list(dict.fromkeys(int(unit) for holding in units for unit in holding))


def _example(row: Row, query: str, passage: Passage) -> Iterator[Row]:
    """Rows of examples.tsv: the units of a pair, the essential one marked."""
    for number, (start, end) in enumerate(passage.spans):
        reader = "" if row["reader"] is None else f"{row['reader'][number]:.4f}"
        yield {
            "query": " ".join(query.split()),
            "document": row["document"],
            "unit": number,
            "essential": "*" if number == row["label"] else "",
            "bm25": f"{row['bm25'][number]:.4f}",
            "reader": reader,
            "text": " ".join(passage.text[start:end].split()),
        }
