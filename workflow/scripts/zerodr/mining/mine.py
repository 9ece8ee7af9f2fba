"""Stage `mine_negatives`: the training queries of a stage, with all their known positives and mined negatives.

ANCE's rule (specs/modir-ance 2.5): look at the first `depth` ranks, leave known positives out, keep `count`. The
differences are options: `exclude: one` keeps only a query's first positive (best grade, then id) out, as that code
knows a single positive for each query. (It takes the last in the judgements' file. Here that file's order never
matters, and the one kept out is the one that a teacher scores; for queries with one positive both agree.)
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from zerodr.artifacts.parquet import AGAIN, GroupWriter
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.rankings import iterate_rankings, read_depth, read_queries
from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_ids, read_qrels
from zerodr.config.base import Settings, validate
from zerodr.config.training import NegativesSettings
from zerodr.errors import ArtifactError, ConfigError
from zerodr.mining.batch import DICTIONARY, NAME, ROW_GROUP, SCHEMA, MinedBatch, bare_batch
from zerodr.mining.dev import held_out
from zerodr.mining.negatives import PairSet, choose, entries, sample_queries, words_of
from zerodr.mining.positives import Positives, known_positives, numbered, rows_among
from zerodr.mining.statistics import Previous, Tally
from zerodr.mining.texts import text_numbers

log = logging.getLogger("zerodr")
STATISTICS = "statistics.json"
NONE = "none"
ENTRIES = 1 << 21  # candidates in memory at once


class MineSettings(Settings):
    """Settings of `mine_negatives`."""

    negatives: NegativesSettings
    """Where negatives come from and which are kept."""
    split: str
    """The source's split with training queries."""
    stage: str
    """Name of the stage in its chain, such as `ep0`."""
    stage_index: int = Field(ge=0)
    """Place of the stage in its chain, from 0. Stages draw other queries and other negatives."""
    dev_queries: int = Field(0, ge=0)
    """Training queries that training holds out; a sample of queries always holds them too."""


def mine_negatives(stage: Stage) -> None:
    """Inputs `source`, `candidates` (unless negatives.source is none), optional `previous`; output `mined`, a folder.

    Raises:
        ArtifactError: candidates of another corpus or split, too shallow, or damaged.
        CollectionError: the split has no positive.
        ConfigError: no rank is left to look at.
    """
    settings = validate(MineSettings, stage.params, stage.spec.name())
    candidates = _candidates(stage, settings.negatives)
    source, folder = stage.path("source"), stage.output("mined")
    corpus = corpus_ids(source)
    known = known_positives(source, settings.split, corpus)
    with_positive = len(known.queries)
    lottery = words_of(known.queries.to_pylist(), "query", stage.seed, settings.stage_index)
    known = known.chosen(
        np.union1d(sample_queries(lottery, settings.negatives.queries), _dev_rows(known, settings, stage))
    )
    previous = None
    if "previous" in stage.spec.inputs:
        previous = Previous(stage.path("previous") / NAME, known.queries, corpus, source.name)
    if candidates is None:
        texts, batches = np.zeros(len(corpus), np.int64), iter([bare_batch(len(known.queries))])
    else:
        texts, batches = text_numbers(source), mine(candidates, known, corpus, source.name, settings, stage.seed)
    tally = Tally(known, settings.negatives.depth, settings.negatives.count, texts, previous)
    progress = Progress(f"mine {source.name}/{settings.split} for {settings.stage}", len(known.queries), "queries")
    with GroupWriter(folder / NAME, SCHEMA, ROW_GROUP, DICTIONARY) as writer:
        for batch in batches:
            writer.write(batch.table(known, corpus))
            tally.add(batch)
            progress.add(len(batch.rows))
    progress.finish()
    facts = tally.facts(settings.negatives.skip)
    facts["queries"]["without_positive"] = len(known.asked) - with_positive
    write_json(folder / STATISTICS, {"stage": settings.stage, "split": settings.split} | facts)
    _tell(stage, facts, f"{source.name}/{settings.split}", mined=candidates is not None)


def _dev_rows(known: Positives, settings: MineSettings, stage: Stage) -> np.ndarray:
    """Rows of `known` that are held out in training."""
    qrels = read_qrels(stage.path("source"), settings.split)
    dev = held_out(qrels.loc[qrels["grade"] > 0, "query"].tolist(), settings.dev_queries, stage.seed)
    return np.flatnonzero(pc.is_in(known.queries, pa.array(sorted(dev), known.queries.type)))


def mine(
    candidates: Path, known: Positives, corpus: pa.Array, collection: str, settings: MineSettings, seed: int
) -> Iterator[MinedBatch]:
    """Choose negatives of the queries in `known`, in the candidates' order.

    Args:
        candidates: rankings of at least all queries of the split.
        known: positives of the queries that are mined.
        corpus: ids of the documents.
        collection: its name, for errors.
        settings: what is kept.
        seed: of the choice.

    Raises:
        ArtifactError: see `mine_negatives`.
    """
    negatives, (row_of, step) = settings.negatives, _check(candidates, known, settings)
    first = 0
    for rankings in iterate_rankings(candidates, step):
        rows = row_of[first : first + len(rankings.sizes)]
        first += len(rows)
        query, rank = entries(rankings.sizes)
        looked = (rows >= 0)[query] & (rank <= negatives.depth)
        document = numbered(candidates, rankings.documents.filter(pa.array(looked)), corpus, collection)
        query, rank, rows = (np.cumsum(rows >= 0) - 1)[query[looked]], rank[looked], rows[rows >= 0]
        own, documents = known.take(rows)
        owner, starts = np.repeat(np.arange(len(rows)), own), np.cumsum(own) - own
        positive = PairSet(owner, documents, len(corpus)).contains(query, document)
        kept_out = positive if negatives.exclude == "all" else document == documents[starts][query]
        words = words_of(known.queries.take(pa.array(rows)).to_pylist(), "negatives", seed, settings.stage_index)
        allowed = (rank > negatives.skip) & ~kept_out
        chosen = choose(query, rank, allowed, words, negatives.count, negatives.sampling)
        best = np.zeros(len(rows), np.int64)
        found, place = np.unique(query[positive], return_index=True)
        best[found] = rank[positive][place]
        yield MinedBatch(rows, query[chosen], rank[chosen], document[chosen], best)


def _candidates(stage: Stage, negatives: NegativesSettings) -> Path | None:
    given = "candidates" in stage.spec.inputs
    if given == (negatives.source == NONE):
        has = "has" if given else "lacks"
        raise ConfigError(
            stage.spec.name(),
            f"negatives.source is {negatives.source}, and the stage {has} the input `candidates`",
            "give candidates unless the source is none",
        )
    if negatives.skip >= negatives.depth:
        raise ConfigError(
            "negatives.skip",
            f"leaves none of the {negatives.depth} ranks, found {negatives.skip}",
            "set it below negatives.depth",
        )
    return stage.path("candidates") if given else None


def _check(candidates: Path, known: Positives, settings: MineSettings) -> tuple[np.ndarray, int]:
    """For each candidates row the row in `known` or -1, and how many rows to read at once."""
    depth, ranked = read_depth(candidates), read_queries(candidates)
    if depth < settings.negatives.depth:
        raise ArtifactError(
            candidates, f"is ranked to depth {depth}, expected at least {settings.negatives.depth}", AGAIN
        )
    lacking = np.flatnonzero(rows_among(known.asked, ranked) < 0)
    if len(lacking):
        raise ArtifactError(
            candidates,
            f"lacks {len(lacking)} of the {len(known.asked)} queries of split "
            f"{settings.split}, the first is {known.asked[int(lacking[0])]}",
            "rank this collection and split",
        )
    return rows_among(ranked, known.queries), max(1, ENTRIES // depth)


def _tell(stage: Stage, facts: dict[str, Any], where: str, mined: bool) -> None:
    """Numbers to the lineage record; warnings to the log."""
    for group, values in facts.items():
        if isinstance(values, dict):
            for name, value in values.items():
                if value is not None:
                    stage.metric(f"{group}_{name}", value)
    stage.note(statistics=facts)
    queries = facts["queries"]
    reasons = {"without_positive": "have no positive and are left out"}
    if mined:
        reasons |= {"short": "have fewer negatives than asked for", "empty": "have no negative"}
    for name, reason in reasons.items():
        if queries[name]:
            log.warning("%s: %d queries %s", where, queries[name], reason)
