"""Map embedding files (float32 matrices in `.npy`) into memory, and release them block by block."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import BinaryIO

import numpy as np

from zerodr.artifacts.parquet import AGAIN
from zerodr.errors import ArtifactError


class Vectors:
    """The rows of a matrix [rows, dimension] float32, either an array or a mapped `.npy` file.

    `release` drops the pages of finished rows, so that a long pass over a large file has a small resident set.

    >>> vectors = Vectors(np.zeros((3, 2), np.float32))
    >>> vectors.rows, vectors.dimension
    (3, 2)
    """

    def __init__(self, array: np.ndarray, mapped: mmap.mmap | None = None, offset: int = 0) -> None:
        self.array, self._mapped, self._offset = array, mapped, offset

    @property
    def rows(self) -> int:
        """Number of vectors."""
        return self.array.shape[0]

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.array.shape[1]

    @property
    def mapped(self) -> bool:
        """True where the vectors stay in their file."""
        return self._mapped is not None

    @classmethod
    def open(cls, path: Path) -> Vectors:
        """Map the `.npy` file at `path`.

        Raises:
            ArtifactError: the file is no C-ordered two-dimensional float32 array, or is truncated.
        """
        try:
            with open(path, "rb") as stream:
                shape, fortran, dtype = _header(stream)
                offset = stream.tell()
                size = stream.seek(0, 2)
                if len(shape) != 2 or dtype != np.float32 or fortran:
                    raise ArtifactError(path, f"expected a float32 matrix in C order, found {dtype} {shape}", AGAIN)
                expected = offset + 4 * shape[0] * shape[1]
                if size != expected:
                    raise ArtifactError(path, f"expected {expected} bytes for shape {shape}, found {size}", AGAIN)
                if shape[0] * shape[1] == 0:
                    return cls(np.zeros(shape, np.float32))
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ArtifactError(path, f"is no .npy file ({error})", AGAIN) from error
        return cls(np.frombuffer(mapped, np.float32, offset=offset).reshape(shape), mapped, offset)

    def require(self, where: Path, rows: int, what: str) -> None:
        """Check that there is a vector for each text.

        Raises:
            ArtifactError: there are fewer or more than `rows`.
        """
        if self.rows != rows:
            raise ArtifactError(where, f"expected a row for each {what}, {rows} in all, found {self.rows}", AGAIN)

    def release(self, start: int, stop: int) -> None:
        """Drop the resident pages within rows `start..stop`; they are read again when needed."""
        if self._mapped is None:
            return
        width, page = 4 * self.dimension, mmap.PAGESIZE
        first = -(-(self._offset + start * width) // page) * page
        length = (self._offset + stop * width) // page * page - first
        if length > 0:  # whole pages alone: rows in use share the first and last one
            self._mapped.madvise(mmap.MADV_DONTNEED, first, length)


def _header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(stream)
