"""Read the first part of a collection for a rehearsal: first questions, their judged documents, first documents."""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Any

from zerodr.collections.readers import Reader
from zerodr.collections.readers.base import Document, Judgement, Query
from zerodr.config.rehearsal import Rehearsal


class FirstPart(Reader):
    """A part of a reader's rows, in their order.

    Args:
        whole: reads the collection.
        names: splits whose judgements are read; none: all.
        cut: how much is kept.
        questions: judged questions of a split.
    """

    def __init__(self, whole: Reader, names: list[str], cut: Rehearsal, questions: int) -> None:
        self.whole, self.names, self.cut, self.questions = whole, names, cut, questions

    def splits(self) -> list[str]:
        """List the splits that have judgements."""
        return self.whole.splits()

    @cached_property
    def judged(self) -> dict[str, list[Judgement]]:
        """Judgements of the first questions by split."""
        return {split: self._first(split) for split in self.names or self.splits()}

    def _first(self, split: str) -> list[Judgement]:
        rows, seen = list[Judgement](), Counter[tuple[str, bool]]()
        chosen: dict[str, None] = {}
        for row in self.whole.judgements(split):
            if row.query not in chosen and (len(chosen) == self.questions or row.grade <= 0):
                continue
            chosen[row.query] = None
            seen[row.query, row.grade > 0] += 1
            if seen[row.query, row.grade > 0] <= self.cut.judged:
                rows.append(row)
        return rows

    @cached_property
    def _queries(self) -> set[str]:
        return {row.query for rows in self.judged.values() for row in rows}

    def judgements(self, split: str) -> Iterator[Judgement]:
        """Read judgements of the first questions of a split."""
        return iter(self.judged[split] if split in self.judged else self._first(split))

    def queries(self) -> Iterator[Query]:
        """Read the questions that are judged."""
        return (row for row in self.whole.queries() if row.id in self._queries)

    def documents(self) -> Iterator[Document]:
        """Read the first documents, and those that are judged."""
        wanted = {row.document for rows in self.judged.values() for row in rows}
        return (row for n, row in enumerate(self.whole.documents()) if n < self.cut.documents or row.id in wanted)

    def unlabelled(self) -> Iterator[Query] | None:
        """Read the first questions without judgements."""
        rows = self.whole.unlabelled()
        return None if rows is None else islice(rows, self.cut.training_questions)

    def answers(self) -> Iterator[dict[str, Any]] | None:
        """Read answers to the questions that are judged."""
        rows = self.whole.answers()
        pairs = {(row.query, row.document) for rows in self.judged.values() for row in rows}
        return None if rows is None else (row for row in rows if (row["query_id"], row["corpus_id"]) in pairs)
