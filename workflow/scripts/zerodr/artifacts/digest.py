"""Compute SHA-256 of files and of canonical JSON."""

import hashlib
from pathlib import Path

from zerodr.config.base import canonical_json

BLOCK = 1 << 22


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """Compute the hex digest of the file's bytes, read in blocks of 4 MiB."""
    hasher = hashlib.new(algorithm)
    with open(path, "rb") as stream:
        while block := stream.read(BLOCK):
            hasher.update(block)
    return hasher.hexdigest()


def object_digest(value: object) -> str:
    """Compute the hex SHA-256 of a JSON value in canonical form."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
