"""Choose the queries that a stage ranks: those of a split, or of a sample of them.

A sample is Parquet with one column `query`: ids in the order of queries.parquet.
"""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from zerodr.artifacts.parquet import AGAIN, open_parquet
from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings
from zerodr.errors import ArtifactError

SCHEMA = pa.schema([("query", pa.string())])
INPUT = "sample"


class RankingSettings(Settings):
    """Settings that stages with rankings of a split share."""

    collection: str
    """Name of the collection."""
    split: str
    """Split whose queries are ranked."""
    depth: int = Field(ge=1)
    """Upper limit of documents in a ranking."""


class SplitSettings(RankingSettings):
    """Settings that stages share whose rankings are evaluated."""

    exclude_self: bool
    """Leave out, or refuse, the document whose id is the query's."""


def write_sample(path: Path, queries: pa.Array) -> None:
    """Write the ids of a sample."""
    pq.write_table(pa.table([queries], schema=SCHEMA), path, compression="zstd")


def ranked_queries(stage: Stage, queries: pd.DataFrame) -> pd.DataFrame:
    """Choose the queries that a stage ranks: those of its input `sample`, all where it has none.

    Args:
        stage: the stage.
        queries: of the split, as `split_queries` reads them.

    Returns:
        rows of `queries`, in their order and with their index.

    Raises:
        ArtifactError: the sample is damaged, or of another split.
    """
    if INPUT not in stage.spec.inputs:
        return queries
    path = stage.path(INPUT)
    with open_parquet(path, SCHEMA) as file:
        drawn = file.read()["query"].to_pylist()
    chosen = queries[queries["id"].isin(set(drawn))]
    if len(chosen) != len(drawn):
        known = set(queries["id"])
        unknown = [query for query in drawn if query not in known]
        problem = f"holds {len(drawn)} queries, of which {len(chosen)} are in this split"
        raise ArtifactError(path, f"{problem}{f'; {unknown[0]} is not' if unknown else ''}", AGAIN)
    return chosen
