"""Rankings as gzipped TREC run files: `query Q0 document rank score tag`.

A run is a pandas frame with columns `query` (str), `document` (str), `score` (float32), already in its total order:
queries in the order of the collection, then score descending, then document id descending.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from zerodr.errors import ArtifactError

COLUMNS = ["query", "document", "score"]


def total_order(run: pd.DataFrame) -> pd.DataFrame:
    """Sort by score descending, then document id descending, within queries in order of first appearance."""
    position = pd.factorize(run["query"])[0]
    keyed = run.assign(_position=position)
    ordered = keyed.sort_values(["_position", "score", "document"], ascending=[True, False, False], kind="stable")
    return ordered.drop(columns="_position").reset_index(drop=True)


def write_run(path: Path, run: pd.DataFrame, tag: str) -> None:
    """Write a run that is in total order; equal runs give equal bytes (no time stamp, shortest exact scores)."""
    rank = run.groupby("query", sort=False).cumcount().to_numpy() + 1
    table = pa.table(
        {
            "query": pa.array(run["query"], pa.string()),
            "q0": pa.array(np.full(len(run), "Q0"), pa.string()),
            "document": pa.array(run["document"], pa.string()),
            "rank": pa.array(rank.astype(str), pa.string()),
            "score": pa.array(run["score"].to_numpy(np.float32), pa.float32()).cast(pa.string()),
            "tag": pa.array(np.full(len(run), tag), pa.string()),
        }
    )
    options = pa.csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    with (
        open(path, "wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=5, mtime=0, filename="") as zipped,
    ):
        pa.csv.write_csv(table, zipped, options)


def read_run(path: Path) -> pd.DataFrame:
    """Read a TREC run (gzipped or not) into columns `query`, `document`, `score`, in the file's order."""
    try:
        frame = pd.read_csv(path, sep=r"\s+", header=None, names=["query", "q0", "document", "rank", "score", "tag"],
                            dtype={"query": str, "document": str, "score": np.float32}, engine="c",
                            usecols=[0, 2, 4], keep_default_na=False, quoting=3)  # fmt: skip
    except (OSError, ValueError, EOFError) as error:
        raise ArtifactError(
            path, f"is no TREC run ({error})", "expected lines 'query Q0 document rank score tag'"
        ) from error
    return frame[COLUMNS]
