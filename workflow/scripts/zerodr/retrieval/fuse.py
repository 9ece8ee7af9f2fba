"""Stages `fuse_runs` and `fuse_candidates`: fuse two rankings by reciprocal ranks or by scaled scores."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from zerodr.artifacts.parquet import AGAIN
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.rankings import Rankings, RankingsWriter, iterate_rankings
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import order_rows, read_run, run_writer, strings, total_order
from zerodr.collections.access import RankingSettings, SplitSettings, split_queries
from zerodr.config.base import validate
from zerodr.config.methods import FusionSettings
from zerodr.errors import ArtifactError, ProtocolError

BLOCK = 2048  # queries in memory at once


class CandidateFusion(RankingSettings, FusionSettings):
    """Settings of `fuse_candidates`; `runs` names the methods in the order of the inputs."""

    unfound_is_zero: tuple[bool, bool] = (False, False)
    """Runs whose score of a document that they lack is 0, as BM25's, which shares no word with the query."""


class FuseSettings(CandidateFusion, SplitSettings):
    """Settings of `fuse_runs`."""

    tag: str
    """Last word of every line: the model."""


def fuse_runs(stage: Stage) -> None:
    """Fuse two runs. Read inputs `runs` (two files) and `collection`; write `run`.

    Raises:
        ArtifactError: a run holds unknown queries, or a document twice.
        ProtocolError: a run ranks the document with the query's id, although `exclude_self`.
    """
    settings = validate(FuseSettings, stage.params, stage.spec.rule)
    queries = split_queries(stage.path("collection"), settings.split)["id"]
    runs = []
    for path, name in zip(stage.paths("runs"), settings.runs, strict=True):
        run = read_run(path)
        check_run(run, queries, f"{name} ({path})", settings.exclude_self)
        runs.append(_by_block(run, queries))
    answered = lines = 0
    with run_writer(stage.output("run"), settings.tag) as writer:
        for start, *pair in zip(range(0, len(queries), BLOCK), *runs, strict=True):
            terms = run_terms(pair, settings)
            fused = fuse(terms[0], terms[1], queries[start : start + BLOCK], settings.depth)
            writer.write(strings(fused["query"]), strings(fused["document"]), fused["score"].to_numpy())
            answered, lines = answered + fused["query"].nunique(), lines + len(fused)
    stage.note(queries=answered, lines=lines)


def _by_block(run: pd.DataFrame, queries: pd.Series) -> Iterator[pd.DataFrame]:
    """Yield the rows of each BLOCK of queries, in the run's order."""
    block = pd.Index(queries).get_indexer(run["query"]) // BLOCK
    if (np.diff(block) < 0).any():
        order = np.argsort(block, kind="stable")
        run, block = run.iloc[order], block[order]
    ends = np.searchsorted(block, np.arange(-(-len(queries) // BLOCK)), side="right")
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        yield run.iloc[start:end].reset_index(drop=True)


def fuse_candidates(stage: Stage) -> None:
    """Fuse two rankings for mining. Read inputs `rankings` (two files of candidates); write `candidates`.

    Raises:
        ArtifactError: the files rank other queries.
    """
    settings = validate(CandidateFusion, stage.params, stage.spec.name())
    first, second = stage.paths("rankings")
    progress = Progress(f"fuse {settings.collection}/{settings.split}", 0, "queries")
    with RankingsWriter(stage.output("candidates"), settings.depth) as writer:
        for pair in zip(iterate_rankings(first, BLOCK), iterate_rankings(second, BLOCK), strict=True):
            if not pair[0].queries.equals(pair[1].queries):
                raise ArtifactError(second, f"ranks other queries than {first}", AGAIN)
            terms = run_terms([_frame(one) for one in pair], settings)
            queries = pair[0].queries
            fused = fuse(terms[0], terms[1], queries.to_pandas(), settings.depth)
            sizes = np.bincount(pd.Index(queries.to_pandas()).get_indexer(fused["query"]), minlength=len(queries))
            writer.write(Rankings(queries, sizes, strings(fused["document"]), fused["score"].to_numpy()))
            progress.add(len(queries))
    progress.finish()


def _frame(rankings: Rankings) -> pd.DataFrame:
    query = rankings.queries.take(pa.array(np.repeat(np.arange(len(rankings.sizes)), rankings.sizes)))
    columns = {"query": query.to_pandas(), "document": rankings.documents.to_pandas(), "score": rankings.scores}
    return pd.DataFrame(columns)


def check_run(run: pd.DataFrame, queries: pd.Series, where: str, exclude_self: bool) -> None:
    """Refuse a run of other queries, or one that breaks the protocol."""
    unknown = run.loc[~run["query"].isin(queries), "query"]
    if len(unknown):
        raise ArtifactError(where, f"query {unknown.iloc[0]!r} is none of this split", AGAIN)
    repeated = run[run.duplicated(["query", "document"])]
    if len(repeated):
        query, document = repeated.iloc[0][["query", "document"]]
        raise ArtifactError(where, f"document {document!r} is ranked twice for query {query!r}", AGAIN)
    if not np.isfinite(run["score"]).all():
        raise ArtifactError(where, "holds a score that is NaN or infinite", AGAIN)
    itself = run.loc[run["query"] == run["document"], "query"]
    if exclude_self and len(itself):
        problem = f"query {itself.iloc[0]!r} ranks the document with its id, which the protocol excludes"
        raise ProtocolError(where, problem, "search for both runs under this protocol")


def run_terms(pair: Sequence[pd.DataFrame], settings: CandidateFusion) -> list[pd.DataFrame]:
    """Return the terms of two runs, by `run_scores`."""
    return [
        run_scores(run, settings, weight, other if zero else None)
        for run, other, weight, zero in zip(
            pair, reversed(pair), settings.weights, settings.unfound_is_zero, strict=True
        )
    ]


def run_scores(
    run: pd.DataFrame, settings: CandidateFusion, weight: float, other: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return columns query, document, term: each entry's summand of the fused score, float64.

    `reciprocal_rank`: weight / (rank_constant + rank), rank from 1 in total order (Cormack, Clarke and Buettcher 2009).
    `weighted_score`: weight * (score - min) / (max - min) over the query's entries; 1 where all scores are equal.
    `standard_score`: weight * (score - min) / (standard deviation) over these, a constant from the sum of z-scores in
    which a document that one run lacks has that run's lowest; 0 where all scores are equal.

    Args:
        run: columns query, document, score.
        settings: of the fusion.
        weight: of the run.
        other: the run that it is fused with, where a document that `run` lacks scores 0 (BM25). A query with fewer
            entries than there gets zeros up to as many: the only document with a rare word is far above the others.
    """
    run = total_order(run)
    queries = run.groupby("query", sort=False)
    if settings.entries is not None:
        run = run[queries.cumcount() < settings.entries].reset_index(drop=True)
        queries = run.groupby("query", sort=False)
    if settings.fusion == "reciprocal_rank":
        term = weight / (settings.rank_constant + queries.cumcount().to_numpy(np.float64) + 1)
    else:
        score = run["score"].to_numpy(np.float64)
        wide = pd.Series(score).groupby(run["query"], sort=False)
        low, high = (wide.transform(name).to_numpy() for name in ("min", "max"))
        span, alone = high - low, 1.0
        if settings.fusion == "standard_score":
            span, alone = wide.transform("std", ddof=0).to_numpy(), 0.0
            if other is not None:
                entries = wide.transform("size").to_numpy()
                unfound = np.maximum(_entries_of(other, run["query"], settings.entries) - entries, 0)
                mean, low = wide.transform("mean").to_numpy(), np.where(unfound, 0.0, low)
                span = np.where(unfound, padded_deviation(entries, mean, span, unfound), span)
        flat = high == low
        term = weight * np.where(flat, alone, (score - low) / np.where(flat, 1.0, span))
    return run[["query", "document"]].assign(term=term)


def padded_deviation(entries: Any, mean: Any, deviation: Any, zeros: Any) -> Any:
    """Return the standard deviation of numbers with zeros added, from their count, mean and standard deviation.

    >>> float(np.array([4.0, 0, 0, 0]).std()), round(padded_deviation(1, 4.0, 0.0, 3), 9)
    (1.7320508075688772, 1.732050808)
    """
    share = entries / (entries + zeros)
    return (share * (deviation**2 + (1 - share) * mean**2)) ** 0.5


def _entries_of(run: pd.DataFrame, queries: pd.Series, most: int | None) -> np.ndarray:
    """Count a run's entries of each query, at most `most`."""
    counts = queries.map(run["query"].value_counts()).fillna(0).to_numpy(np.int64)
    return counts if most is None else np.minimum(counts, most)


def fuse(first: pd.DataFrame, second: pd.DataFrame, queries: pd.Series, depth: int) -> pd.DataFrame:
    """Sum the terms to a run: queries in their order, the first `depth` entries in total order.

    An entry of only one run gets that run's term; a query of only one run is ranked by it alone.

    >>> first = pd.DataFrame({"query": ["q", "q"], "document": ["a", "b"], "term": [0.5, 0.25]})
    >>> second = pd.DataFrame({"query": ["q", "q"], "document": ["b", "c"], "term": [0.5, 0.25]})
    >>> fuse(first, second, pd.Series(["q"]), depth=2)["document"].tolist()
    ['b', 'a']
    """
    both = pd.concat([first, second], ignore_index=True)
    position = pd.Index(queries).get_indexer(both["query"])
    document, names = pd.factorize(both["document"])
    key = position * max(1, len(names)) + document
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    total = np.add.reduceat(both["term"].to_numpy()[order], starts) if len(both) else np.zeros(0)
    once, score = order[starts], total.astype(np.float32)
    ranked = order_rows(position[once], score, strings(both["document"].iloc[once]))
    rows, score = once[ranked], score[ranked]
    first_rows = np.flatnonzero(np.diff(position[rows], prepend=-1))
    depths = np.arange(len(rows)) - np.repeat(first_rows, np.diff(np.append(first_rows, len(rows))))
    within = depths < depth
    return both.loc[rows[within], ["query", "document"]].assign(score=score[within]).reset_index(drop=True)
