"""Stage `fuse_runs`: fuse two runs by reciprocal ranks or weighted scores."""

from typing import Literal

import numpy as np
import pandas as pd
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import read_run, total_order, write_run
from zerodr.collections.access import split_queries
from zerodr.config.base import Settings, validate
from zerodr.errors import ArtifactError, ProtocolError
from zerodr.retrieval.vectors import AGAIN


class FuseSettings(Settings):
    """Settings of `fuse_runs`."""

    runs: tuple[str, str]
    """Names of the two methods, in the order of the inputs."""
    fusion: Literal["reciprocal_rank", "weighted_score"]
    """Score of a fused entry."""
    rank_constant: int = Field(ge=1)
    """Constant of reciprocal rank fusion."""
    weights: tuple[float, float]
    """Weight of each run."""
    collection: str
    """Name of the collection."""
    split: str
    """Split whose queries were searched."""
    depth: int = Field(ge=1)
    """Documents of a ranking."""
    exclude_self: bool
    """The document whose id is the query's may not be in the runs."""
    tag: str
    """Last word of every line: the model."""


def fuse_runs(stage: Stage) -> None:
    """Fuse two runs. Read inputs `runs` (two files) and `collection`; write `run`.

    Raises:
        ArtifactError: a run holds unknown queries, or a document twice.
        ProtocolError: a run ranks the document with the query's id, although `exclude_self`.
    """
    settings = validate(FuseSettings, stage.params, "fuse_runs")
    queries = split_queries(stage.path("collection"), settings.split)["id"]
    scores = []
    for path, name, weight in zip(stage.paths("runs"), settings.runs, settings.weights, strict=True):
        run = read_run(path)
        check_run(run, queries, f"{name} ({path})", settings.exclude_self)
        scores.append(run_scores(run, settings, weight))
    fused = fuse(scores[0], scores[1], queries, settings.depth)
    stage.note(queries=int(fused["query"].nunique()), lines=len(fused))
    write_run(stage.output("run"), fused, settings.tag)


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


def run_scores(run: pd.DataFrame, settings: FuseSettings, weight: float) -> pd.DataFrame:
    """Return columns query, document, term: each entry's summand of the fused score, float64.

    `reciprocal_rank`: weight / (rank_constant + rank), rank from 1 in total order (Cormack, Clarke and Buettcher 2009).
    `weighted_score`: weight * (score - min) / (max - min) over the query's entries; 1 where all scores are equal.
    """
    run = total_order(run)
    queries = run.groupby("query", sort=False)
    if settings.fusion == "reciprocal_rank":
        term = weight / (settings.rank_constant + queries.cumcount().to_numpy(np.float64) + 1)
    else:
        score = run["score"].to_numpy(np.float64)
        low, high = (queries["score"].transform(name).to_numpy(np.float64) for name in ("min", "max"))
        flat = high == low
        term = weight * np.where(flat, 1.0, (score - low) / np.where(flat, 1.0, high - low))
    return run[["query", "document"]].assign(term=term)


def fuse(first: pd.DataFrame, second: pd.DataFrame, queries: pd.Series, depth: int) -> pd.DataFrame:
    """Sum the terms to a run: queries in their order, the first `depth` entries in total order.

    An entry of only one run gets that run's term; a query of only one run is ranked by it alone.
    """
    both = first.merge(second, on=["query", "document"], how="outer", suffixes=("_first", "_second"), sort=False)
    total = both["term_first"].fillna(0.0).to_numpy() + both["term_second"].fillna(0.0).to_numpy()
    both = both.assign(score=total.astype(np.float32), position=pd.Index(queries).get_indexer(both["query"]))
    fused = total_order(both.sort_values("position", kind="stable"))
    fused = fused[fused.groupby("query", sort=False).cumcount() < depth]
    return fused[["query", "document", "score"]].reset_index(drop=True)
