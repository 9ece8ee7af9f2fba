"""The (query, positive) pairs whose units are read and labelled."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zerodr.artifacts.trec import strings
from zerodr.errors import ArtifactError
from zerodr.mining.batch import NAME
from zerodr.mining.positives import Positives, known_positives, rows_among


def positives_of(source: Path, split: str, corpus: pa.Array, mined: Path | None) -> Positives:
    """Positives of a split; given a folder of mine_negatives, of the queries that were mined.

    Raises:
        CollectionError: there are none.
        ArtifactError: queries of another split were mined.
    """
    known = known_positives(source, split, corpus)
    if mined is None:
        return known
    rows = rows_among(strings(pq.read_table(mined / NAME, columns=["query"])["query"]), known.queries)
    if len(rows) == 0 or rows.min() < 0:
        raise ArtifactError(
            mined,
            f"holds {(rows < 0).sum()} of {len(rows)} queries that have no positive in split {split}",
            "mine this source and split",
        )
    return known.select(np.sort(rows))
