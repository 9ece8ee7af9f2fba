"""Stage `cut_spans`: cut a corpus's documents into spans of about a sentence, for pretraining (COCO-DR section 4.1).

Sentences are syntok's: of the splitters in stack.md it breaks fewest abbreviations; its 1400 to 2000 documents a second
on each core are far above what training reads.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from zerodr.artifacts.machine import die_with_parent
from zerodr.artifacts.parquet import GroupWriter, list_array
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_size, read_corpus
from zerodr.config.base import validate
from zerodr.config.pretraining import SpanSettings
from zerodr.encoders.folder.contract import SIDES, read_contract
from zerodr.encoders.network.tokenizing import load_tokenizer, token_ids
from zerodr.errors import CollectionError
from zerodr.mining.cut import Sentences, draws_for, joined, merge, sentences_of_all

log = logging.getLogger("zerodr")
SPANS, STATISTICS = "spans.parquet", "statistics.json"
SCHEMA = pa.schema([("id", pa.string()), ("spans", pa.list_(pa.string()))])
ROW_GROUP, BLOCK, TASK, AHEAD = 4096, 2048, 256, 2  # documents of each; blocks
NO_LIMIT = 1 << 30
SHORTEST_START = 3  # tokens of the first span
REASONS = ("empty", "one_sentence", "one_span", "short_start")
COUNT_EDGES = (2, 3, 4, 5, 6, 8, 11, 16, 31, 61)
LENGTH_EDGES = (1, 6, 11, 16, 21, 26, 31, 41, 61, 91, 129)


@dataclass
class SpanTally:
    """Counts of a corpus's documents, and of their spans."""

    documents: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    counts: np.ndarray = field(default_factory=lambda: np.zeros(len(COUNT_EDGES), np.int64))
    lengths: np.ndarray = field(default_factory=lambda: np.zeros(len(LENGTH_EDGES), np.int64))
    spans: int = 0
    tokens: int = 0
    long: int = 0

    def add(self, lengths: list[int], max_tokens: int) -> None:
        """Count a usable document with the tokens of its spans."""
        self.counts[np.searchsorted(COUNT_EDGES, len(lengths), side="right") - 1] += 1
        np.add.at(self.lengths, np.searchsorted(LENGTH_EDGES, lengths, side="right") - 1, 1)
        self.spans += len(lengths)
        self.tokens += sum(lengths)
        self.long += sum(length > max_tokens for length in lengths)

    def facts(self) -> dict[str, Any]:
        """Return all counts as JSON values."""
        dropped, total = sum(self.dropped.values()), max(self.documents, 1)
        usable = self.documents - dropped
        return {
            "documents": self.documents,
            "kept": usable,
            "drop_rate": dropped / total,
            "dropped": self.dropped,
            "dropped_rate": {reason: count / total for reason, count in self.dropped.items()},
            "spans": self.spans,
            "spans_per_document": self.spans / usable if usable else None,
            "tokens_per_span": self.tokens / self.spans if self.spans else None,
            "longer_than_max_tokens": self.long,
            "histogram_spans": _histogram(COUNT_EDGES, self.counts),
            "histogram_tokens": _histogram(LENGTH_EDGES, self.lengths),
        }


def _histogram(edges: tuple[int, ...], counts: np.ndarray) -> list[dict[str, int | None]]:
    bins = zip(edges, [*(edge - 1 for edge in edges[1:]), None], counts, strict=True)
    return [{"from": low, "to": high, "count": int(count)} for low, high, count in bins]


def cut_spans(stage: Stage) -> None:
    """Read inputs `collection` and `model` (its tokens count); write `spans`: spans.parquet and statistics.json.

    Raises:
        CollectionError: no document gives two spans.
    """
    settings = validate(SpanSettings, stage.params, stage.spec.name())
    source, folder, tally = stage.path("collection"), stage.output("spans"), SpanTally()
    progress = Progress(f"cut spans of {source.name}", corpus_size(source), "documents")
    with _pool(stage.threads) as pool, GroupWriter(folder / SPANS, SCHEMA, ROW_GROUP, []) as writer:
        blocks = _split(source, settings.title == "join", pool)
        cutter = SpanCutter.load(stage.path("model"), settings, stage.seed)
        for ids, sentences in blocks:
            writer.write(cutter.cut(ids, sentences, tally))
            progress.add(len(ids))
    progress.finish()
    facts = tally.facts()
    if not facts["kept"]:
        raise _no_spans(source.name, settings, facts)
    write_json(folder / STATISTICS, {"collection": source.name} | facts)
    for name in ("documents", "kept", "drop_rate", "spans", "spans_per_document", "tokens_per_span"):
        stage.metric(name, facts[name])
    stage.note(statistics=facts)
    line = "{kept} of {documents} documents used ({drop_rate:.1%} dropped), {spans_per_document:.1f} spans each"
    log.info("%s: %s", source.name, line.format(**facts))


def _no_spans(collection: str, settings: SpanSettings, facts: dict[str, Any]) -> CollectionError:
    reasons = ", ".join(f"{reason} {count}" for reason, count in facts["dropped"].items() if count)
    title = "" if settings.title == "join" else ", or set title: join"
    problem = (
        f"none of its {facts['documents']} documents gives two spans (drop rate 100 %: "
        f"{reasons or 'the corpus is empty'}) with max_tokens {settings.max_tokens}, early_split {settings.early_split}"
    )
    step = f"lower max_tokens, raise early_split{title}, or leave the collection out of pretraining"
    return CollectionError(collection, problem, step)


@dataclass
class SpanCutter:
    """Count tokens, merge sentences to spans, and drop documents that can't be used."""

    tokenizer: Any
    lowercase: bool
    settings: SpanSettings
    seed: int

    @classmethod
    def load(cls, model: Path, settings: SpanSettings, seed: int) -> SpanCutter:
        """Load the tokenizer of a model folder."""
        contract = read_contract(model)
        folder = model if contract.towers == "tied" else model / SIDES[1]
        return cls(load_tokenizer(folder), contract.lowercase, settings, seed)

    def cut(self, ids: list[str], sentences: list[Sentences], tally: SpanTally) -> pa.Table:
        """Cut documents; return the usable ones as rows of spans.parquet."""
        flat = [sentence for document in sentences for sentence in document]
        sizes = iter(token_ids(self.tokenizer, flat, "", NO_LIMIT, self.lowercase, special=False))
        usable, counts, spans = [], [], []
        for document, texts in zip(ids, sentences, strict=True):
            cut = self._spans(document, texts, [len(next(sizes)) for _ in texts], tally)
            if cut:
                usable.append(document)
                counts.append(len(cut))
                spans += cut
        lists = list_array(np.asarray(counts, np.int64), pa.array(spans, pa.string()))
        return pa.table({"id": pa.array(usable, pa.string()), "spans": lists}, schema=SCHEMA)

    def _spans(self, document: str, sentences: Sentences, lengths: list[int], tally: SpanTally) -> list[str]:
        """Merge a document's sentences to spans; none when it is dropped."""
        tally.documents += 1
        texts = [text for text, length in zip(sentences, lengths, strict=True) if length]
        sizes = [length for length in lengths if length]
        if len(texts) < 2:
            tally.dropped["one_sentence" if texts else "empty"] += 1
            return []
        spans = merge(sizes, self.settings.max_tokens, self.settings.early_split, draws_for(document, self.seed))
        tokens = [sum(sizes[number] for number in span) for span in spans]
        if len(spans) < 2 or tokens[0] < SHORTEST_START:
            tally.dropped["one_span" if len(spans) < 2 else "short_start"] += 1
            return []
        tally.add(tokens, self.settings.max_tokens)
        return [joined([texts[number] for number in span]) for span in spans]


def _pool(threads: int) -> Any:
    """Start processes that find sentences; None with one thread. Start them before this process has other threads."""
    if threads == 1:
        return nullcontext()
    return ProcessPoolExecutor(threads, multiprocessing.get_context("fork"), initializer=die_with_parent)


def _split(source: Path, titles: bool, pool: ProcessPoolExecutor | None) -> Iterator[tuple[list[str], list[Sentences]]]:
    """Yield ids and sentences of each block of documents, in order; some blocks are split ahead."""
    waiting: deque[tuple[list[str], list[Future[list[Sentences]]]]] = deque()
    for block in read_corpus(source, block=BLOCK):
        ids, texts, heads = (block.column(name).to_pylist() for name in ("id", "text", "title"))
        pairs = [(head or "" if titles else "", text or "") for head, text in zip(heads, texts, strict=True)]
        if pool is None:
            yield ids, sentences_of_all(pairs)
            continue
        tasks = [pool.submit(sentences_of_all, pairs[first : first + TASK]) for first in range(0, len(pairs), TASK)]
        waiting.append((ids, tasks))
        if len(waiting) > AHEAD:
            yield _finished(*waiting.popleft())
    while waiting:
        yield _finished(*waiting.popleft())


def _finished(ids: list[str], tasks: list[Future[list[Sentences]]]) -> tuple[list[str], list[Sentences]]:
    return ids, [sentences for task in tasks for sentences in task.result()]
