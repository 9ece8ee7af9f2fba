"""Stages `embed_corpus` and `embed_queries`: texts of a collection to a float32 matrix, one row a text, in their order.

Texts are taken in windows of bounded size, so memory does not grow with the shard; inside a window they are batched by
length. The batch plan depends on texts and settings alone, so a run that was killed and continued gives the same bytes.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from zerodr.artifacts.progress import Progress
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_size, read_corpus, shard_rows, split_queries
from zerodr.config.base import Settings, validate
from zerodr.encoders.folder.contract import Side
from zerodr.encoders.inference.encoder import Encoder, Tokens, load_encoder
from zerodr.encoders.inference.malloc import keep_freed_memory
from zerodr.encoders.inference.parallel import encode_batches
from zerodr.errors import NonFiniteEmbedding
from zerodr.retrieval.batching import Text, padded_tokens, plan_batches, windows
from zerodr.retrieval.store import EmbeddingStore

log = logging.getLogger("zerodr")
WINDOW = 8192
SAVE_EVERY_S = 20.0


class EmbeddingSettings(Settings):
    """What documents and queries have in common."""

    collection: str
    """Name of the collection."""
    query_tokens: int | None
    """Length of the protocol, special tokens included. None: the model's."""
    document_tokens: int | None
    """Length of the protocol, special tokens included. None: the model's."""
    title_join: str | None
    """What stands between title and text. None: text alone."""
    precision: Literal["fp32", "bf16"]
    """Arithmetic of the encoder."""
    batch_tokens: int = Field(ge=64)
    """Padded tokens of one batch."""


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


@dataclass(frozen=True)
class Job:
    """One matrix to make.

    Attributes:
        name: for messages, such as `scifact 1/3`.
        kind: `document` or `query`.
        rows: number of texts.
        texts: first row -> (id, text) from that row on.
        prefix: put before every text.
        tokens: longest input, special tokens included.
        batch_tokens: padded tokens of a batch.
        threads: cores to use; the vectors do not depend on it.
        window: texts that are read and batched together.
        save_every_s: seconds between records of progress.
    """

    name: str
    kind: Side
    rows: int
    texts: Callable[[int], Iterable[Text]]
    prefix: str
    tokens: int
    batch_tokens: int
    threads: int
    window: int = WINDOW
    save_every_s: float = SAVE_EVERY_S


def embed_corpus(stage: Stage) -> None:
    """Stage: inputs `collection`, `model`; output `embeddings`, the rows of one corpus shard."""
    embed_corpus_with(stage, stage.path("model"))


def embed_corpus_with(stage: Stage, model: Path) -> None:
    """As `embed_corpus`, with the model in folder `model`."""
    settings = validate(CorpusSettings, stage.params, stage.spec.name())
    encoder, folder = _prepare(stage, settings, "document", model), stage.path("collection")
    start, stop = shard_rows(corpus_size(folder), settings.shard, settings.shards)
    tokens = _length(stage, encoder, "document", settings.document_tokens)

    def texts(first: int) -> Iterator[Text]:
        return document_texts(folder, start + first, stop, settings.title_join)

    name = f"{settings.collection} {settings.shard + 1}/{settings.shards}"
    prefix = encoder.contract.document_prefix
    job = Job(name, "document", stop - start, texts, prefix, tokens, settings.batch_tokens, stage.threads)
    _run(stage, encoder, job)


def embed_queries(stage: Stage) -> None:
    """Stage: inputs `collection`, `model`; output `embeddings`, rows in the order of `split_queries`."""
    embed_queries_with(stage, stage.path("model"))


def embed_queries_with(stage: Stage, model: Path) -> None:
    """As `embed_queries`, with the model in folder `model`."""
    settings = validate(QuerySettings, stage.params, stage.spec.name())
    encoder = _prepare(stage, settings, "query", model)
    queries = split_queries(stage.path("collection"), settings.split)
    tokens = _length(stage, encoder, "query", settings.query_tokens)

    def texts(first: int) -> Iterator[Text]:
        return zip(queries["id"][first:], queries["text"][first:], strict=True)

    name, prefix = f"{settings.collection}/{settings.split}", encoder.contract.query_prefix
    job = Job(name, "query", len(queries), texts, prefix, tokens, settings.batch_tokens, stage.threads)
    _run(stage, encoder, job)


def document_texts(folder: Path, start: int, stop: int, title_join: str | None) -> Iterator[Text]:
    """(id, text) of corpus rows `start..stop`. With a `title_join`, a title that is not empty precedes its text."""
    for batch in read_corpus(folder, start, stop):
        for row in range(batch.num_rows):
            key, title, text = (batch.column(name)[row].as_py() or "" for name in ("id", "title", "text"))
            yield key, title + title_join + text if title and title_join is not None else text


def _prepare(stage: Stage, settings: EmbeddingSettings, side: Side, model: Path) -> Encoder:
    os.environ.setdefault("RAYON_NUM_THREADS", str(stage.threads))  # threads of the tokenizer
    tuned = keep_freed_memory()
    encoder = load_encoder(model, settings.precision, side=side)
    stage.note(backend=encoder.backend, device=encoder.device, precision=encoder.precision, malloc_tuned=tuned)
    return encoder


def _length(stage: Stage, encoder: Encoder, side: Side, wanted: int | None) -> int:
    """The protocol's length, else the model's own; never more than the model takes, which log and lineage then say."""
    limit = encoder.contract.max_tokens
    used = min(wanted or encoder.contract.tokens(side), limit)
    if wanted and wanted > limit:
        log.warning("the protocol asks for %s of %d tokens, the model takes %d: cut at %d", side, wanted, limit, used)
    stage.note(**{f"{side}_tokens": {"protocol": wanted, "model": limit, "used": used}})
    return used


def _run(stage: Stage, encoder: Encoder, job: Job) -> None:
    key = {
        "backend": encoder.backend,
        "device": encoder.device,
        "torch": torch.__version__,
        "window": job.window,
        "batch_tokens": job.batch_tokens,
    }
    store = EmbeddingStore(stage.state, job.rows, encoder.dimension, key)
    resumed, started = store.finished, time.monotonic()
    made = embed(encoder, job, store)
    store.publish(stage.output("embeddings"))
    stage.note(texts=job.rows, resumed_at=resumed, **store.totals)
    stage.metric("texts_per_second", made / max(time.monotonic() - started, 1e-9))


class TokenProgress(Progress):
    """Progress that also tells tokens per second."""

    tokens = 0

    def line(self, now: float) -> str:
        """The progress line at monotonic time `now`."""
        return f"{super().line(now)}, {self.tokens / max(now - self.start, 1e-9):.0f} tokens/s"


def embed(encoder: Encoder, job: Job, store: EmbeddingStore) -> int:
    """Fill `store` with the vectors of `job`, from where it stands; the number of texts that were encoded now.

    Raises:
        NonFiniteEmbedding: names the first text, in the job's order, whose vector is not finite.
    """
    progress = TokenProgress(f"embed {job.name}", job.rows, "texts", store.finished)
    texts = iter(job.texts(store.finished))
    for window in windows(islice(texts, job.rows - store.finished), job.window):
        tokens = encoder.tokenize([text for _, text in window], job.prefix, job.tokens)
        batches = plan_batches(tokens.lengths, job.batch_tokens)
        with store.window(len(window)) as vectors:
            _fill(encoder, tokens, batches, vectors, store, progress, job)
            _check_finite(vectors, window, tokens, job)
        _count(store, tokens, batches, job)
        store.save(store.finished + len(window), 0)
    progress.finish()
    return progress.done - progress.first


def _fill(
    encoder: Encoder,
    tokens: Tokens,
    batches: list[np.ndarray],
    vectors: np.memmap,
    store: EmbeddingStore,
    progress: TokenProgress,
    job: Job,
) -> None:
    """Encode the window's batches that are not done yet."""
    saved = time.monotonic()
    done = store.batches
    progress.skip(sum(len(rows) for rows in batches[:done]))
    for rows, made in encode_batches(encoder, tokens, batches[done:], job.threads):
        vectors[rows] = made
        done += 1
        progress.tokens += int(tokens.lengths[rows].sum())
        if time.monotonic() - saved >= job.save_every_s:
            vectors.flush()
            store.save(store.finished, done)
            saved = time.monotonic()
        progress.add(len(rows))


def _check_finite(vectors: np.ndarray, window: list[Text], tokens: Tokens, job: Job) -> None:
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        row = int(bad[0])
        raise NonFiniteEmbedding(
            f"{job.name}: {job.kind} {window[row][0]}",
            f"the encoder gave NaN or infinity for its {tokens.lengths[row]} tokens ({bad.size} such texts nearby)",
            "use precision: fp32, or another model",
        )


def _count(store: EmbeddingStore, tokens: Tokens, batches: list[np.ndarray], job: Job) -> None:
    found = {
        "tokens": int(tokens.lengths.sum()),
        "padded_tokens": padded_tokens(tokens.lengths, batches),
        "texts_at_length_limit": int((tokens.lengths >= job.tokens).sum()),
    }
    for name, value in found.items():
        store.totals[name] = store.totals.get(name, 0) + value
