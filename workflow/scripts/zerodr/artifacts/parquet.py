"""Write parquet files of a fixed schema in full row groups, and read them in batches; errors name the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zerodr.errors import ArtifactError

AGAIN = "delete the file and run its target again"
UNREADABLE = (OSError, pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError)


class GroupWriter:
    """A writer of rows in pieces; the bytes depend on the rows only, not on the pieces.

    Args:
        path: the file.
        schema: of the file, metadata included.
        group: rows of a row group; the memory holds at most that many, and a piece.
        dictionary: columns (leaf paths) whose values are numbered.
    """

    def __init__(self, path: Path, schema: pa.Schema, group: int, dictionary: list[str]) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=dictionary)
        self._schema, self._group = schema, group
        self._pending: list[pa.Table] = []
        self._rows = 0

    def write(self, rows: pa.Table) -> None:
        """Append rows."""
        self._pending.append(rows.cast(self._schema))
        self._rows += len(rows)
        if self._rows >= self._group:
            table = pa.concat_tables(self._pending)
            full = self._rows - self._rows % self._group
            for first in range(0, full, self._group):
                self._flush(table.slice(first, self._group))
            self._pending, self._rows = [table.slice(full)], self._rows - full

    def _flush(self, rows: pa.Table) -> None:
        self._writer.write_table(rows.combine_chunks(), row_group_size=self._group)

    def __enter__(self) -> GroupWriter:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None and self._rows:
            self._flush(pa.concat_tables(self._pending))
        self._writer.close()


def list_array(sizes: np.ndarray, values: pa.Array) -> pa.ListArray:
    """Build lists of `sizes` consecutive `values`."""
    return pa.ListArray.from_arrays(pa.array(np.r_[0, np.cumsum(sizes)].astype(np.int32)), values)


@contextmanager
def open_parquet(path: Path, schema: pa.Schema, *others: pa.Schema) -> Iterator[pq.ParquetFile]:
    """Open the file for reading, and check names and types of its columns against `schema`, or one of `others`.

    Raises:
        ArtifactError: it is missing, damaged (also when found later, inside the `with`), or has other columns.
    """
    try:
        with pq.ParquetFile(path) as file:
            actual = file.schema_arrow
            if not any(actual.remove_metadata().equals(one.remove_metadata()) for one in (schema, *others)):
                expected, columns = ([f"{field.name} {field.type}" for field in kind] for kind in (schema, actual))
                raise ArtifactError(path, f"expected columns {expected}, found {columns}", AGAIN)
            yield file
    except UNREADABLE as error:
        raise ArtifactError(path, f"can't be read as parquet ({error})", AGAIN) from error
