"""Read texts of a target without labels, and draw each step's by a pure function of the step."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zerodr.collections.access import joined_texts, read_corpus, read_rows, split_queries, unlabelled_queries
from zerodr.errors import CollectionError
from zerodr.papers.modir.settings import TargetQueries, TargetTexts
from zerodr.training.data.batches import epoch_order

log = logging.getLogger("zerodr")
DOCUMENTS, QUERIES = 4, 5  # words of a seed: what the random numbers are for


@dataclass(frozen=True)
class TargetSizes:
    """Numbers of a target's texts; 0 queries: documents alone."""

    documents: int
    queries: int


class TargetStream:
    """Numbers of the texts of each step.

    Args:
        sizes: of the target.
        batch: texts of each kind in a step, over all processes.
        seed: words that the orders come from.
        in_file_order: line i of a file is (query i, documents 2i and 2i + 1), each counted from the beginning again at
            its end; micro-batches take the first and the second document in turn, as in MoDIR's released code. Else:
            a new random order of all documents, and of all queries, each time they are through.
        restart: steps after which it begins anew; 0: never.
        micro_batches: of a step.
    """

    def __init__(
        self,
        sizes: TargetSizes,
        batch: int,
        seed: Sequence[int],
        in_file_order: bool = False,
        restart: int = 0,
        micro_batches: int = 1,
    ) -> None:
        self.sizes, self.batch, self.seed = sizes, batch, tuple(seed)
        self.in_file_order, self.restart, self.micro_batches = in_file_order, restart, micro_batches
        self._orders: dict[tuple[int, int], np.ndarray] = {}

    def documents(self, step: int) -> np.ndarray:
        """(B,) document numbers."""
        if not self.in_file_order:
            return self._shuffled(DOCUMENTS, self.sizes.documents, step)
        micro = step * self.micro_batches + np.arange(self.batch) * self.micro_batches // self.batch
        return (2 * self.lines(step) + micro % 2) % self.sizes.documents

    def queries(self, step: int) -> np.ndarray | None:
        """(B,) query numbers, or None."""
        if not self.sizes.queries:
            return None
        if not self.in_file_order:
            return self._shuffled(QUERIES, self.sizes.queries, step)
        return self.lines(step) % self.sizes.queries

    def lines(self, step: int) -> np.ndarray:
        """(B,) lines of the file that the official order is of."""
        return self._positions(step) % max(self.sizes.queries, -(-self.sizes.documents // 2))

    def _positions(self, step: int) -> np.ndarray:
        since = step % self.restart if self.restart else step
        return since * self.batch + np.arange(self.batch)

    def _shuffled(self, kind: int, count: int, step: int) -> np.ndarray:
        epochs, positions = np.divmod(self._positions(step), count)
        return np.array(
            [self._order(kind, count, int(epoch))[position] for epoch, position in zip(epochs, positions, strict=True)]
        )

    def _order(self, kind: int, count: int, epoch: int) -> np.ndarray:
        if (kind, epoch) not in self._orders:
            self._orders = {key: order for key, order in self._orders.items() if key[0] != kind or key[1] == epoch - 1}
            self._orders[kind, epoch] = epoch_order([kind, *self.seed], epoch, count)
        return self._orders[kind, epoch]


@dataclass(frozen=True)
class TargetCorpus:
    """Texts of one target, of one collection or of several in a row.

    Attributes:
        folders: normalised collections with how they are read.
        usable: for each the rows of documents that have a text.
        queries: texts.
        empty: documents without a text.
    """

    folders: list[tuple[Path, TargetTexts]]
    usable: list[np.ndarray]
    queries: list[str]
    empty: int

    @property
    def sizes(self) -> TargetSizes:
        """Numbers of texts."""
        return TargetSizes(sum(map(len, self.usable)), len(self.queries))

    def texts(self, numbers: np.ndarray) -> pa.Array:
        """Texts of ascending document numbers, with one pass over the corpora."""
        ends = np.cumsum([len(rows) for rows in self.usable])
        chunks, first = [], 0
        for (folder, how), rows, end in zip(self.folders, self.usable, ends, strict=True):
            low, high = np.searchsorted(numbers, [first, end])
            wanted = read_rows(folder, rows[numbers[low:high] - first])
            chunks += [joined_texts(block, how.title_join) for block in wanted]
            first = int(end)
        return pa.concat_arrays(chunks)


def read_target(folders: Mapping[str, Path], how: Mapping[str, TargetTexts], kind: TargetQueries) -> TargetCorpus:
    """The target's documents and queries; documents and queries without a text are left out.

    Args:
        folders: normalised collections by name.
        how: how each is read.
        kind: which queries.

    Raises:
        CollectionError: no such queries.
    """
    usable, queries, empty = [], [], 0
    for name, folder in folders.items():
        rows, without = _with_text(folder, how[name].title_join)
        usable.append(rows)
        empty += without
        queries += [] if kind == "none" else _queries(folder, how[name].split)
    where = ", ".join(folders)
    if not queries and kind != "none":
        raise CollectionError(
            where, f"the target has no {kind} queries", "set adversary.queries to test, train, unlabelled or none"
        )
    if empty:
        log.warning("%s: %d documents without a text are left out", where, empty)
    return TargetCorpus([(folder, how[name]) for name, folder in folders.items()], usable, queries, empty)


def check_size(where: str, sizes: TargetSizes, batch: int) -> None:
    """Refuse a target with fewer documents than a batch.

    Raises:
        CollectionError: it has fewer.
    """
    if sizes.documents < batch:
        raise CollectionError(
            where,
            f"the target has {sizes.documents} documents with a text, a batch takes {batch}",
            f"set training.batch_queries to at most {sizes.documents}, or take another target"
            if sizes.documents
            else "take a target with documents",
        )


@dataclass(frozen=True)
class DrawnTexts:
    """The texts that a stream's steps take.

    Attributes:
        numbers: (n,) ascending document numbers.
        documents: (n,) their texts.
        queries: all query texts.
    """

    numbers: np.ndarray
    documents: pa.Array
    queries: list[str]

    def texts_of_documents(self, numbers: np.ndarray) -> list[str]:
        """Texts of document numbers."""
        return self.documents.take(pa.array(np.searchsorted(self.numbers, numbers))).to_pylist()

    def texts_of_queries(self, numbers: np.ndarray) -> list[str]:
        """Texts of query numbers."""
        return [self.queries[int(number)] for number in numbers]


def draw_texts(corpus: TargetCorpus, stream: TargetStream, steps: int) -> DrawnTexts:
    """Read what the first `steps` steps take, and no more: a target may be larger than memory."""
    taken = np.zeros(corpus.sizes.documents, bool)
    for step in range(steps):
        taken[stream.documents(step)] = True
    numbers = np.flatnonzero(taken)
    return DrawnTexts(numbers, corpus.texts(numbers), corpus.queries)


def _with_text(folder: Path, title_join: str | None) -> tuple[np.ndarray, int]:
    """Rows of documents with a text, and how many have none."""
    has = [
        pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(joined_texts(block, title_join))), 0)
        for block in read_corpus(folder, columns=("title", "text"))
    ]
    flags = np.concatenate([column.to_numpy(zero_copy_only=False) for column in has]) if has else np.zeros(0, bool)
    return np.flatnonzero(flags), int((~flags).sum())


def _queries(folder: Path, split: str | None) -> list[str]:
    """Texts of a split's queries, or of unlabelled ones."""
    texts = unlabelled_queries(folder) if split is None else split_queries(folder, split)["text"].tolist()
    return [text for text in texts if text.strip()]
