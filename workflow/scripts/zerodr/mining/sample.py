"""Stage `sample_queries`: draw the training queries that a stage mines, before anything ranks them.

`mine_negatives` draws by the same function, so a ranking of the sample has all that it needs.
"""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_ids, read_qrels
from zerodr.collections.samples import write_sample
from zerodr.config.base import Settings, validate
from zerodr.mining.dev import held_out
from zerodr.mining.negatives import sampled_rows, words_of
from zerodr.mining.positives import Positives, known_positives


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
