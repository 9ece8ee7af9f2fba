"""Stage `mine_negatives`: write the training queries of a stage with their known positives and mined negatives.

ANCE's rule, by its released code: examine the first `depth` ranks, exclude known positives, choose `count`. Options
differ from it: `exclude: one` excludes only a query's first positive (best grade, then id), because that code knows a
single positive for each query. (It uses the last in the judgements' file. Here the order of that file never matters,
and the excluded positive is the one that a teacher scores. For queries with one positive both agree.)
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
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
from zerodr.mining.imported import import_candidates
from zerodr.mining.negatives import PairSet, choose, entries, words_of
from zerodr.mining.positives import Positives, known_positives, numbered, rows_among
from zerodr.mining.sample import SampleSettings, draw
from zerodr.mining.statistics import (
    DICTIONARY,
    LED_SCHEMA,
    NAME,
    ROW_GROUP,
    SCHEMA,
    Leaders,
    MinedBatch,
    MiningTally,
    Previous,
    bare_batch,
    text_numbers,
)

log = logging.getLogger("zerodr")
STATISTICS, IMPORTED = "statistics.json", "imported.parquet"
NONE = "none"
ENTRIES = 1 << 21  # candidates in memory at once


class MineSettings(Settings):
    """Settings of `mine_negatives`."""

    negatives: NegativesSettings
    """Source and choice of the negatives."""
    split: str
    """The source's split with training queries."""
    stage: str
    """Name of the stage in its chain, such as `ep0`."""
    stage_index: int = Field(ge=0)
    """Position of the stage in its chain, from 0. Stages draw other queries and other negatives."""
    dev_queries: int = Field(0, ge=0)
    """Training queries that training holds out; a sample of queries always holds them too."""
    leaders: bool = False
    """The first of each ranking without known positives takes the positives' place, and scores are kept: they teach."""
    scored: bool = False
    """The best ranked positive stands for all, and scores are kept: those of the file teach."""
    exclude_self: bool = False
    """The document with a query's id is the query itself, and no negative of it."""

    @property
    def sample(self) -> SampleSettings:
        """Settings of the draw of the mined queries."""
        shared = self.model_dump(include={"split", "stage_index", "dev_queries"})
        return SampleSettings(queries=self.negatives.queries, **shared)

    @property
    def teaching(self) -> bool:
        """True when rankings have the teacher's scores."""
        return self.leaders or self.scored


def mine_negatives(stage: Stage) -> None:
    """Read `source`, `candidates` or `file` (none where negatives.source is), optional `previous`; write `mined`.

    Raises:
        ArtifactError: candidates of another corpus or split, too shallow, or damaged.
        CollectionError: the split has no positive.
        ConfigError: no rank is left to examine.
    """
    settings = validate(MineSettings, stage.params, stage.spec.name())
    candidates, negatives = _candidates(stage, settings.negatives), settings.negatives
    source, folder = stage.path("source"), stage.output("mined")
    corpus = corpus_ids(source)
    positives = known_positives(source, settings.split, corpus)
    if candidates is not None and negatives.file is not None:
        ranked = stage.state / IMPORTED
        given = import_candidates(candidates, positives.all_queries, negatives.depth, ranked, settings.scored)
        stage.note(imported=given)
        candidates = ranked
    without_positive = len(positives.all_queries) - len(positives.queries)
    positives = draw(positives, read_qrels(source, settings.split), settings.sample, stage.seed)
    previous = None
    if "previous" in stage.spec.inputs:
        previous = Previous(stage.path("previous") / NAME, positives.queries, corpus, source.name)
    if candidates is None:
        texts, batches = np.zeros(len(corpus), np.int64), iter([bare_batch(len(positives.queries))])
    else:
        texts, batches = text_numbers(source), mine(candidates, positives, corpus, source.name, settings, stage.seed)
    tally, name = (
        MiningTally(positives, negatives.depth, negatives.count, texts, previous),
        f"{source.name}/{settings.split}",
    )
    progress = Progress(f"mine {name} for {settings.stage}", len(positives.queries), "queries")
    schema = LED_SCHEMA if settings.teaching else SCHEMA
    with GroupWriter(folder / NAME, schema, ROW_GROUP, DICTIONARY) as writer:
        for batch in batches:
            writer.write(batch.table(positives, corpus))
            tally.add(batch)
            progress.add(len(batch.rows))
    progress.finish()
    facts = tally.facts(negatives.skip)
    facts["queries"]["without_positive"] = without_positive
    write_json(folder / STATISTICS, {"stage": settings.stage, "split": settings.split} | facts)
    _report(stage, facts, name, mined=candidates is not None)


def mine(
    candidates: Path, positives: Positives, corpus: pa.Array, collection: str, settings: MineSettings, seed: int
) -> Iterator[MinedBatch]:
    """Choose negatives of the queries in `positives`, in the candidates' order.

    Args:
        candidates: rankings of at least the queries in `positives`.
        positives: of the mined queries.
        corpus: ids of the documents.
        collection: its name, for errors.
        settings: ranks, count and sampling of the negatives.
        seed: of the choice.

    Raises:
        ArtifactError: see `mine_negatives`.
    """
    negatives, (row_of, step) = settings.negatives, _check(candidates, positives, settings)
    first = 0
    for rankings in iterate_rankings(candidates, step):
        rows = row_of[first : first + len(rankings.sizes)]
        first += len(rows)
        query, rank = entries(rankings.sizes)
        examined = (rows >= 0)[query] & (rank <= negatives.depth)
        document = numbered(candidates, rankings.documents.filter(pa.array(examined)), corpus, collection)
        query, rank, rows = (np.cumsum(rows >= 0) - 1)[query[examined]], rank[examined], rows[rows >= 0]
        sizes, documents = positives.take(rows)
        owner, starts = np.repeat(np.arange(len(rows)), sizes), np.cumsum(sizes) - sizes
        positive = PairSet(owner, documents, len(corpus)).contains(query, document)
        excluded = positive if negatives.exclude == "all" else document == documents[starts][query]
        words = words_of(positives.queries.take(pa.array(rows)).to_pylist(), "negatives", seed, settings.stage_index)
        if settings.exclude_self:
            excluded = excluded | (document == rows_among(positives.queries.take(pa.array(rows)), corpus)[query])
        allowed = (rank > negatives.skip) & ~excluded
        leaders = np.zeros(0, np.int64)
        if settings.teaching:
            leaders = choose(query, rank, positive if settings.scored else allowed, words, 1, "top")
            allowed[leaders] = False
        chosen = choose(query, rank, allowed, words, negatives.count, negatives.sampling)
        best = np.zeros(len(rows), np.int64)
        ranked, first_entry = np.unique(query[positive], return_index=True)
        best[ranked] = rank[positive][first_entry]
        batch = MinedBatch(rows, query[chosen], rank[chosen], document[chosen], best)
        if settings.teaching:
            score = rankings.scores[examined]
            led = Leaders(query[leaders], document[leaders], score[leaders], score[chosen])
            batch = replace(batch, leaders=led)
        yield batch


def _candidates(stage: Stage, negatives: NegativesSettings) -> Path | None:
    name = "candidates" if negatives.file is None else "file"
    available = name in stage.spec.inputs
    if available == (negatives.source == NONE):
        verb = "has" if available else "lacks"
        problem = f"negatives.source is {negatives.source}, and the stage {verb} the input `candidates`"
        raise ConfigError(stage.spec.name(), problem, "give candidates unless the source is none")
    if negatives.skip >= negatives.depth:
        problem = f"leaves none of the {negatives.depth} ranks, found {negatives.skip}"
        raise ConfigError("negatives.skip", problem, "set it below negatives.depth")
    return stage.path(name) if available else None


def _check(candidates: Path, positives: Positives, settings: MineSettings) -> tuple[np.ndarray, int]:
    """Return each candidates row's row in `positives` or -1, and how many rows to read at once."""
    depth, ranked, queries = read_depth(candidates), read_queries(candidates), positives.queries
    if depth < settings.negatives.depth:
        problem = f"is ranked to depth {depth}, expected at least {settings.negatives.depth}"
        raise ArtifactError(candidates, problem, AGAIN)
    missing = np.flatnonzero(rows_among(queries, ranked) < 0)
    if len(missing):
        problem = f"lacks {len(missing)} of the {len(queries)} queries of split {settings.split} that are mined"
        step = "rank this collection and split, or the sample of this stage"
        raise ArtifactError(candidates, f"{problem}, the first is {queries[int(missing[0])]}", step)
    return rows_among(ranked, positives.queries), max(1, ENTRIES // depth)


def _report(stage: Stage, facts: dict[str, Any], where: str, mined: bool) -> None:
    """Put numbers into the lineage record, and warnings into the log."""
    for topic, values in facts.items():
        if isinstance(values, dict):
            for name, value in values.items():
                if value is not None:
                    stage.metric(f"{topic}_{name}", value)
    stage.note(statistics=facts)
    queries = facts["queries"]
    reasons = {"without_positive": "have no positive and do not train"}
    if mined:
        reasons |= {"short": "have fewer negatives than negatives.count", "empty": "have no negative"}
    for name, reason in reasons.items():
        if queries[name]:
            log.warning("%s: %d queries %s", where, queries[name], reason)
