"""Choose training queries: stage `sample_queries` draws those that a stage mines, `held_out` those of evaluation.

`mine_negatives` draws by the same function before anything ranks, so a ranking of the sample has all that it needs.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_ids, read_qrels, write_sample
from zerodr.config.base import Settings, validate
from zerodr.mining.negatives import sampled_rows, words_of
from zerodr.mining.positives import Positives, known_positives

LARGEST_SHARE = 10  # dev queries are at most a tenth of the split


class SampleSettings(Settings):
    """Settings of `sample_queries`."""

    split: str
    """The source's split with training queries."""
    queries: int | None = Field(None, ge=1)
    """Queries that are drawn. None: all."""
    stage_index: int = Field(ge=0)
    """Position in its chain of the stage that mines them, from 0. Stages draw other queries."""
    dev_queries: int = Field(0, ge=0)
    """Training queries that training holds out; a sample always holds them too."""


def sample_queries(stage: Stage) -> None:
    """Read input `collection`; write `sample`, the ids of the drawn queries.

    Raises:
        CollectionError: the split has no positive.
    """
    settings = validate(SampleSettings, stage.params, stage.spec.name())
    folder = stage.path("collection")
    positives = known_positives(folder, settings.split, corpus_ids(folder))
    drawn = draw(positives, read_qrels(folder, settings.split), settings, stage.seed)
    write_sample(stage.output("sample"), drawn.queries)
    stage.metric("queries", len(drawn.queries))
    stage.note(queries=len(drawn.queries), asked=len(drawn.all_queries))


def draw(positives: Positives, qrels: pd.DataFrame, settings: SampleSettings, seed: int) -> Positives:
    """Choose the queries that a stage mines: those of a seeded draw, and those that training holds out.

    Args:
        positives: of all queries of the split.
        qrels: of the split, as `read_qrels` reads them.
        settings: what decides the draw.
        seed: of the draw.
    """
    lottery = words_of(positives.queries.to_pylist(), "query", seed, settings.stage_index)
    dev = held_out(qrels.loc[qrels["grade"] > 0, "query"].tolist(), settings.dev_queries, seed)
    dev_rows = np.flatnonzero(pc.is_in(positives.queries, pa.array(sorted(dev), positives.queries.type)))
    return positives.select(np.union1d(sampled_rows(lottery, settings.queries), dev_rows))


def held_out(queries: Sequence[str], count: int, seed: int) -> set[str]:
    """Choose dev queries of a split: those with the smallest hash of (seed, id), at most a tenth of all.

    The choice depends on the split's queries, not on which were mined: every stage of a chain holds out the same.
    """

    def rank(query: str) -> bytes:
        return hashlib.sha256(f"{seed} {query}".encode()).digest()

    distinct = sorted(set(queries), key=rank)
    return set(distinct[: min(count, len(distinct) // LARGEST_SHARE)])
