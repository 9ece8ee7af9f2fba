"""Store texts of pretraining: documents of several corpora as lists of spans, in one mapped file, and their batches.

Corpora are mixed in proportion to their documents: an epoch is a random order of all of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zerodr.artifacts.parquet import list_array, open_parquet
from zerodr.artifacts.record import write_json
from zerodr.collections.access import read_corpus
from zerodr.errors import ArtifactError, CollectionError, ConfigError
from zerodr.mining.sample import LARGEST_SHARE
from zerodr.mining.spans import SCHEMA, SPANS, STATISTICS
from zerodr.training.data.batches import epoch_order

BLOCK = 4096
DRAWS, HELD_OUT = 2, 3  # first word of a seed: what the random numbers are for (0 and 1: training/data/batches.py)
Blocks = Iterator[pa.RecordBatch]


class Passages:
    """Documents by number, each a list of spans; a document that is taken whole is a list of one.

    Attributes:
        corpora: documents of each corpus by its name, in the order of the file.
    """

    def __init__(self, path: Path) -> None:
        self.corpora: dict[str, int] = dict(json.loads(sizes_path(path).read_text(encoding="utf-8")))
        self._file = pa.ipc.open_file(pa.memory_map(str(path)))
        batches = [self._file.get_batch(number) for number in range(self._file.num_record_batches)]
        self._columns = {name: [batch.column(name) for batch in batches] for name in ("id", "spans")}
        sizes = [batch.num_rows for batch in batches]
        self._starts = np.r_[0, np.cumsum(sizes)].astype(np.int64)
        self._ends = np.cumsum(list(self.corpora.values()))

    def __len__(self) -> int:
        return int(self._starts[-1])

    def spans(self, rows: np.ndarray) -> list[list[str]]:
        """Read the spans of documents."""
        return self._values(rows, "spans")

    def names(self, rows: np.ndarray) -> list[str]:
        """Name documents, `corpus/document` each."""
        corpora, numbers = list(self.corpora), np.searchsorted(self._ends, rows, side="right")
        return [f"{corpora[number]}/{key}" for number, key in zip(numbers, self._values(rows, "id"), strict=True)]

    def _values(self, rows: np.ndarray, column: str) -> list[Any]:
        """Read a column's values, with one look-up for each record batch that has some of the rows."""
        values: list[Any] = [None] * len(rows)
        batches = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(batches, kind="stable")
        for indices in np.split(order, np.flatnonzero(np.diff(batches[order])) + 1):
            if len(indices):
                number = batches[indices[0]]
                taken = self._columns[column][number].take(pa.array(rows[indices] - self._starts[number]))
                for index, value in zip(indices.tolist(), taken.to_pylist(), strict=True):
                    values[index] = value
        return values

    def rows_of(self, corpus: str) -> np.ndarray:
        """Return the numbers of a corpus's documents."""
        index = list(self.corpora).index(corpus)
        return np.arange(self._ends[index] - self.corpora[corpus], self._ends[index])


def span_folders(folders: Sequence[Path]) -> dict[str, Path]:
    """Map folders of cut_spans by the collection that they were cut from.

    Raises:
        ConfigError: one collection twice.
    """
    names = [json.loads((folder / STATISTICS).read_text(encoding="utf-8"))["collection"] for folder in folders]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigError("spans", f"collection {twice[0]} is given twice", "name each corpus once")
    return dict(zip(names, folders, strict=True))


def spans_of(folder: Path) -> Blocks:
    """Read documents of a folder of cut_spans."""
    with open_parquet(folder / SPANS, SCHEMA) as file:
        for batch in file.iter_batches(batch_size=BLOCK):
            if pc.min(pc.list_value_length(batch.column("spans"))).as_py() < 2:
                raise ArtifactError(folder / SPANS, "has a document of fewer than two spans", "cut its spans again")
            yield batch


def texts_of(folder: Path, title_join: str | None) -> Blocks:
    """Read whole documents of a normalised collection, those without a text left out."""
    for batch in read_corpus(folder, block=BLOCK):
        titles = [title or "" for title in batch.column("title").to_pylist()]
        texts = [text or "" for text in batch.column("text").to_pylist()]
        if title_join is not None:
            texts = [title_join.join(filter(None, pair)) for pair in zip(titles, texts, strict=True)]
        rows = [row for row, text in enumerate(texts) if text.strip()]
        spans = list_array(np.ones(len(rows), np.int64), pa.array([texts[row] for row in rows], pa.string()))
        yield pa.RecordBatch.from_arrays([batch.column("id").take(pa.array(rows, pa.int64())), spans], schema=SCHEMA)


def write_passages(path: Path, corpora: Mapping[str, Blocks]) -> None:
    """Write one file of all corpora, and last their sizes next to it.

    Raises:
        CollectionError: a corpus without a document.
    """
    sizes, partial = dict.fromkeys(corpora, 0), path.with_name(f".{path.name}.making")
    with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for name, blocks in corpora.items():
            for block in blocks:
                if block.num_rows:
                    writer.write_batch(
                        pa.RecordBatch.from_arrays(
                            [block.column(field.name).cast(field.type) for field in SCHEMA], schema=SCHEMA
                        )
                    )
                    sizes[name] += block.num_rows
            if not sizes[name]:
                raise CollectionError(name, "has no document to learn from", "leave it out of `corpora`")
    partial.replace(path)
    write_json(sizes_path(path), list(sizes.items()))


def sizes_path(path: Path) -> Path:
    """Return the path of the corpora's document counts; it exists when the passages are complete."""
    return path.with_suffix(".json")


@dataclass(frozen=True)
class PassageBatch:
    """Documents of one step, or a shard of them.

    Attributes:
        step: step of the stage, from 0.
        rows: (B,) document numbers.
        draws: (B, 3) numbers in [0, 1) that choose a document's spans.
        first: position of the first document in the whole batch of the step.
    """

    step: int
    rows: np.ndarray
    draws: np.ndarray
    first: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def shard(self, number: int, shards: int) -> PassageBatch:
        """Return the `number`-th of `shards` equal slices, in order."""
        size = len(self) // shards
        cut = slice(number * size, (number + 1) * size)
        return PassageBatch(self.step, self.rows[cut], self.draws[cut], self.first + number * size)


class PassageStream:
    """The batches of a stage: pure functions of (seed, step).

    Args:
        rows: documents that are trained on.
        batch: documents of a step, over all processes.
        seed: words that every random choice comes from.
        key: of the setting that `batch` comes from, for messages.

    Raises:
        ConfigError: fewer documents than a batch.
    """

    def __init__(self, rows: np.ndarray, batch: int, seed: Sequence[int], key: str = "training.batch_queries") -> None:
        if batch > len(rows):
            raise ConfigError(
                key,
                f"a batch of {batch} documents is larger than the {len(rows)} that there are to train on",
                f"set {key.rpartition('.')[2]} to at most {len(rows)}",
            )
        self.rows, self.batch_size, self.seed = rows, batch, tuple(seed)
        self.steps_per_epoch = len(rows) // batch
        self._epoch: tuple[int, np.ndarray] = (-1, rows)

    def batch(self, step: int) -> PassageBatch:
        """Return the batch of step `step`; documents that don't fill a last batch wait for the next epoch's order."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self.rows[epoch_order(self.seed, epoch, len(self.rows))])
        rows = self._epoch[1][position * self.batch_size : (position + 1) * self.batch_size]
        return PassageBatch(step, rows, np.random.default_rng([DRAWS, *self.seed, step]).random((len(rows), 3)))


def two_spans(spans: Sequence[str], draws: np.ndarray) -> list[str]:
    """Choose two different spans of a list, uniformly and in either order; of a list of one, that one."""
    if len(spans) == 1:
        return list(spans)
    first, second = int(draws[0] * len(spans)), int(draws[1] * (len(spans) - 1))
    return [spans[first], spans[second + (second >= first)]]


def split_documents(passages: Passages, held_out: int, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Choose documents to train on, and `held_out` documents of each corpus (at most a tenth of it) to evaluate on.

    The choice depends on the seed and on the corpus alone, not on the mixture.
    """
    train, dev = [], {}
    for corpus, size in passages.corpora.items():
        rows, count = passages.rows_of(corpus), min(held_out, size // LARGEST_SHARE)
        chosen = np.sort(np.random.default_rng([HELD_OUT, seed]).choice(size, count, replace=False))
        train.append(np.delete(rows, chosen))
        if count:
            dev[corpus] = rows[chosen]
    return np.concatenate(train), dev
