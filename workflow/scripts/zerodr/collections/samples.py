"""Write and read samples of a split's queries: Parquet with one column `query`, ids in the order of queries.parquet."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from zerodr.artifacts.parquet import AGAIN, open_parquet
from zerodr.artifacts.stage import Stage
from zerodr.errors import ArtifactError

SCHEMA = pa.schema([("query", pa.string())])
INPUT = "sample"


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
