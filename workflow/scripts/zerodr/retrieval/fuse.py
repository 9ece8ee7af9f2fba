"""Stages `fuse_runs` and `fuse_candidates`: fuse two rankings by reciprocal ranks or by scaled scores."""

from collections.abc import Iterator

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
            terms = [run_scores(one, settings, w) for one, w in zip(pair, settings.weights, strict=True)]
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
            terms = [run_scores(_frame(one), settings, w) for one, w in zip(pair, settings.weights, strict=True)]
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


def run_scores(run: pd.DataFrame, settings: CandidateFusion, weight: float) -> pd.DataFrame:
    """Return columns query, document, term: each entry's summand of the fused score, float64.

    `reciprocal_rank`: weight / (rank_constant + rank), rank from 1 in total order (Cormack, Clarke and Buettcher 2009).
    `weighted_score`: weight * (score - min) / (max - min) over the query's entries; 1 where all scores are equal.
    `standard_score`: weight * (score - min) / (standard deviation) over these, a constant from the sum of z-scores in
    which a document that one run lacks has that run's lowest; 0 where all scores are equal.
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
        flat, span, alone = high == low, high - low, 1.0
        if settings.fusion == "standard_score":
            span, alone = wide.transform("std", ddof=0).to_numpy(), 0.0
        term = weight * np.where(flat, alone, (score - low) / np.where(flat, 1.0, span))
    return run[["query", "document"]].assign(term=term)


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
