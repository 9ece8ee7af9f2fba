"""Stages `embed_corpus` and `embed_queries`: encode a collection's texts to a float32 matrix, one row a text, in order.

Texts are read in windows of bounded size, so memory does not grow with the shard. Inside a window they are batched by
length. The batches depend on texts and settings only, so a run that was killed and resumed gives the same bytes.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from zerodr.artifacts.progress import Progress, log_waiting
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_size, read_corpus, shard_rows, split_queries
from zerodr.config.base import Settings, validate
from zerodr.encoders.folder.contract import Side, read_contract
from zerodr.encoders.inference.encoder import Encoder, Tokens, encode_batches, load_encoder
from zerodr.encoders.inference.graph import content
from zerodr.encoders.inference.processor import keep_freed_memory
from zerodr.encoders.inference.token_store import TOKENS
from zerodr.errors import NonFiniteEmbedding
from zerodr.retrieval.batching import Ahead, Text, padded_tokens, plan_batches, windows
from zerodr.retrieval.budget import choose_tokens
from zerodr.retrieval.known import VECTORS, KnownVectors
from zerodr.retrieval.store import EmbeddingStore

log = logging.getLogger("zerodr")
WINDOW = 8192
SAVE_EVERY_S = 20.0
Texts = Callable[[int], Iterable[Text]]


class EmbeddingSettings(Settings):
    """Settings of both embedding stages."""

    collection: str
    """Name of the collection."""
    query_tokens: int | None
    """Length of the protocol, special tokens included. None: the model's."""
    document_tokens: int | None
    """Length of the protocol, special tokens included. None: the model's."""
    title_join: str | None
    """Separator of title and text. None: text only."""
    precision: Literal["fp32", "bf16"]
    """Arithmetic of the encoder."""
    batch_tokens: int = Field(ge=64)
    """Padded tokens of one batch on the CPU."""


class QuerySettings(EmbeddingSettings):
    """Params of rule embed_queries."""

    split: str
    """Queries with a judgement in this split."""


class CorpusSettings(EmbeddingSettings):
    """Params of rule embed_corpus."""

    shard: int = Field(ge=0)
    """Number of this shard, from 0."""
    shards: int = Field(ge=1)
    """Number of shards."""
    reuse: bool = False
    """Take vectors of equal texts from earlier jobs. Their last bits may be those of another batch."""


@dataclass(frozen=True)
class EmbedTask:
    """Texts to encode to one matrix.

    Attributes:
        name: for messages, such as `scifact 1/3`.
        kind: `document` or `query`.
        rows: number of texts.
        texts: first row -> (id, text) from that row on.
        prefix: precedes every text.
        tokens: longest input, special tokens included.
        batch_tokens: upper limit of padded tokens of a batch.
        threads: cores to use; the vectors do not depend on it.
        window: number of texts that are read and batched together.
        save_every_s: seconds between saves of progress.
        stored: folder of tokens that other jobs use, too (encoders/inference/token_store.py), or None.
        known: vectors of earlier jobs, or None.
    """

    name: str
    kind: Side
    rows: int
    texts: Texts
    prefix: str
    tokens: int
    batch_tokens: int
    threads: int
    window: int = WINDOW
    save_every_s: float = SAVE_EVERY_S
    stored: Path | None = None
    known: KnownVectors | None = None


def embed_corpus(stage: Stage, model: Path | None = None) -> None:
    """Read inputs `collection` and `model` (unless given); write `embeddings`, the rows of one corpus shard."""
    settings, folder = validate(CorpusSettings, stage.params, stage.spec.name()), stage.path("collection")
    start, stop = shard_rows(corpus_size(folder), settings.shard, settings.shards)

    def texts(first: int) -> Iterator[Text]:
        return document_texts(folder, start + first, stop, settings.title_join)

    name = f"{settings.collection} {settings.shard + 1}/{settings.shards}"
    _embed(stage, settings, "document", model, name, stop - start, texts)


def embed_queries(stage: Stage, model: Path | None = None) -> None:
    """Read inputs `collection` and `model` (unless given); write `embeddings`, rows in the order of `split_queries`."""
    settings = validate(QuerySettings, stage.params, stage.spec.name())
    queries = split_queries(stage.path("collection"), settings.split)

    def texts(first: int) -> Iterator[Text]:
        return zip(queries["id"][first:], queries["text"][first:], strict=True)

    _embed(stage, settings, "query", model, f"{settings.collection}/{settings.split}", len(queries), texts)


def document_texts(folder: Path, start: int, stop: int, title_join: str | None) -> Iterator[Text]:
    """Read (id, text) of corpus rows `start..stop`. With a `title_join`, a non-empty title precedes its text."""
    for batch in read_corpus(folder, start, stop):
        for key, title, text in zip(*(batch.column(name).to_pylist() for name in ("id", "title", "text")), strict=True):
            yield key or "", title + title_join + (text or "") if title and title_join is not None else text or ""


def _embed(
    stage: Stage, settings: EmbeddingSettings, side: Side, model: Path | None, name: str, rows: int, texts: Texts
) -> None:
    # The tokenizer's thread pool reads this once, when it starts: it is set before a model is loaded.
    os.environ.setdefault("RAYON_NUM_THREADS", str(stage.threads))  # threads of the tokenizer
    tuned = keep_freed_memory()
    folder = model or stage.path("model")
    encoder = load_encoder(folder, settings.precision, side=side)
    stage.note(backend=encoder.backend, device=encoder.device, precision=encoder.precision, malloc_tuned=tuned)
    tokens, prefix = _length(stage, encoder, settings, side), encoder.contract.prefix(side)
    batch_tokens, facts = choose_tokens(encoder, tokens, settings.batch_tokens, stage.state)
    stage.note(**{"batch_tokens": facts} if facts else {})
    known = None
    if isinstance(settings, CorpusSettings) and settings.reuse:
        known = known_vectors(folder, encoder)
    task = EmbedTask(name, side, rows, texts, prefix, tokens, batch_tokens, stage.threads, stored=TOKENS, known=known)
    key: dict[str, Any] = {"backend": encoder.backend, "device": encoder.device, "torch": version("torch")}
    key |= {"window": task.window, "batch_tokens": task.batch_tokens}
    key |= {"known": known.segments} if known else {}
    store = EmbeddingStore(stage.state, rows, encoder.dimension, key)
    resumed, started = store.finished, time.monotonic()
    encoded, waited = embed(encoder, task, store)
    store.publish(stage.output("embeddings"))
    if known and not resumed:
        known.keep(store.path)
    stage.note(texts=rows, resumed_at=resumed, waited_for_data=round(waited, 4), **store.totals)
    stage.metric("texts_per_second", encoded / max(time.monotonic() - started, 1e-9))


def known_vectors(folder: Path, encoder: Encoder) -> KnownVectors:
    """Open the vectors that a model computed before."""
    tower = folder if encoder.contract == read_contract(folder) else folder / "document"
    facts = {"model": content(tower, encoder.contract), "backend": encoder.backend, "device": encoder.device}
    return KnownVectors(VECTORS, facts | {"precision": encoder.precision})


def _length(stage: Stage, encoder: Encoder, settings: EmbeddingSettings, side: Side) -> int:
    """Return the protocol's length, else the model's; cut it at the model's limit, and report that."""
    protocol, limit = getattr(settings, f"{side}_tokens"), encoder.contract.max_tokens
    used = min(protocol or encoder.contract.tokens(side), limit)
    if protocol and protocol > limit:
        log.warning("%s tokens: the protocol sets %d, the model's limit is %d: cut at %d", side, protocol, limit, used)
    stage.note(**{f"{side}_tokens": {"protocol": protocol, "model": limit, "used": used}})
    return used


class TokenProgress(Progress):
    """Progress that also reports tokens per second."""

    tokens = 0

    def line(self, now: float) -> str:
        """Format the progress line at monotonic time `now`."""
        return f"{super().line(now)}, {self.tokens / max(now - self.start, 1e-9):.0f} tokens/s"


def embed(encoder: Encoder, task: EmbedTask, store: EmbeddingStore) -> tuple[int, float]:
    """Fill the rest of `store` with the vectors of `task`; the next window is tokenised meanwhile.

    Returns:
        number of texts that were encoded now, and the share of the time that waited for tokens.

    Raises:
        NonFiniteEmbedding: names the first text, in the task's order, whose vector is not finite.
    """
    progress = TokenProgress(f"embed {task.name}", task.rows, "texts", store.finished)
    texts = islice(task.texts(store.finished), task.rows - store.finished)
    known = encoder.token_store(task.stored, task.prefix, task.tokens) if task.stored else None
    ahead = Ahead(
        (window, encoder.tokenize([text for _, text in window], task.prefix, task.tokens, known))
        for window in windows(texts, task.window)
    )
    started = time.monotonic()
    for window, tokens in ahead:
        with store.window(len(window)) as vectors:
            rows = None if task.known is None else task.known.find(tokens, vectors)
            _fill(encoder, tokens, vectors, store, progress, task, rows)
            _check_finite(vectors, window, tokens, task)
        store.save(store.finished + len(window), 0)
    progress.finish()
    if known is not None:
        known.close()
        store.totals["tokenized"] = store.totals.get("tokenized", 0) + known.tokenized
    share = ahead.waited / max(time.monotonic() - started, 1e-9)
    log_waiting(f"embed {task.name}", share)
    return progress.done - progress.first, share


def _fill(
    encoder: Encoder,
    tokens: Tokens,
    vectors: np.memmap,
    store: EmbeddingStore,
    progress: TokenProgress,
    task: EmbedTask,
    rows: np.ndarray | None = None,
) -> None:
    """Encode the window's remaining batches, then count its tokens.

    Args:
        rows: those without a vector; None: all.
    """
    # Batches are planned again on resume, from lengths and settings alone, so `done` still counts the same ones.
    saved, done, lengths = time.monotonic(), store.batches, tokens.lengths
    batches = plan_batches(lengths, task.batch_tokens)
    if rows is not None:
        batches = [rows[batch] for batch in plan_batches(lengths[rows], task.batch_tokens)]
        progress.skip(len(lengths) - len(rows))
    progress.skip(sum(len(rows) for rows in batches[:done]))
    for batch, encoded in encode_batches(encoder, tokens, batches[done:], task.threads):
        vectors[batch] = encoded
        done += 1
        progress.tokens += int(lengths[batch].sum())
        if time.monotonic() - saved >= task.save_every_s:
            vectors.flush()
            store.save(store.finished, done)
            saved = time.monotonic()
        progress.add(len(batch))
    counts = {"tokens": int(lengths.sum()), "padded_tokens": padded_tokens(lengths, batches)}
    counts |= {} if rows is None else {"reused": len(lengths) - len(rows)}
    counts["texts_at_length_limit"] = int((lengths >= task.tokens).sum())
    store.totals |= {name: store.totals.get(name, 0) + count for name, count in counts.items()}


def _check_finite(vectors: np.ndarray, window: list[Text], tokens: Tokens, task: EmbedTask) -> None:
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        row = int(bad[0])
        problem = (
            f"the encoder gave NaN or infinity for its {tokens.lengths[row]} tokens ({bad.size} such texts nearby)"
        )
        where = f"{task.name}: {task.kind} {window[row][0]}"
        raise NonFiniteEmbedding(where, problem, "use precision: fp32, or another model")
