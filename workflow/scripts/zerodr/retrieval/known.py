"""Remember vectors of documents by their tokens, so that a folder that changed a little embeds little.

`results/.state/vectors` holds a folder for each model and way to compute, with a segment for each finished job: hashes
of the texts' tokens, and the job's vectors as a hard link, which takes no room while the job's result is there. The
newest segments stay. Files may be deleted at any time; their texts are embedded again. A text's vector depends on the
texts of its batch in the last bits, by its padding: reused vectors may differ from new ones by 1e-6.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from zerodr.artifacts.manifest import link_or_copy, object_digest
from zerodr.artifacts.record import STATE
from zerodr.encoders.inference.encoder import Tokens

log = logging.getLogger("zerodr")
VECTORS = STATE / "vectors"
SEGMENTS = 8  # of a model that stay
KEYS, ORDER, ROWS, SUMS = FILES = "keys.npy", "order.npy", "vectors.npy", "sums.npy"
KEY = "S16"


class KnownVectors:
    """Vectors that earlier jobs computed by one model.

    Args:
        folder: of all models.
        facts: what vectors depend on besides the tokens.

    Attributes:
        segments: names of those that are there, in order.
    """

    def __init__(self, folder: Path, facts: dict[str, Any]) -> None:
        self.home = folder / object_digest(facts)[:16]
        self._new: list[np.ndarray] = []
        listed = [(home, _load(home)) for home in sorted(self.home.glob("[!.]*"))]
        self.segments = [home.name for home, segment in listed if segment is not None]
        self._loaded = [segment for _, segment in listed if segment is not None]

    def find(self, tokens: Tokens, vectors: np.ndarray) -> np.ndarray:
        """Fill the rows of known texts; return the numbers of the others, ascending.

        Args:
            tokens: of n texts.
            vectors: float32 [n, d].
        """
        keys = np.frombuffer(b"".join(_hash(tokens[row]) for row in range(len(tokens))), KEY)
        self._new.append(keys)
        missing = np.arange(len(tokens))
        for known, order, rows, sums in self._loaded:
            at = np.minimum(np.searchsorted(known, keys[missing]), len(known) - 1)
            same = known[at] == keys[missing]
            numbers = order[at[same]]
            whole = _sums(stored := rows[numbers]) == sums[numbers]
            same[same] = whole  # a link shares the damage of the result that it was linked to
            vectors[missing[same]] = stored[whole]
            missing = missing[~same]
        return missing

    def keep(self, path: Path) -> None:
        """Remember the vectors of a finished file, whose texts `find` was asked for in order."""
        keys = np.concatenate(self._new) if self._new else np.zeros(0, KEY)
        if not len(keys):
            return
        making = self.home / f".{uuid.uuid4().hex}.making"
        making.mkdir(parents=True)
        order = np.argsort(keys, kind="stable")
        np.save(making / KEYS, keys[order], allow_pickle=False)
        np.save(making / ORDER, order, allow_pickle=False)
        link_or_copy(path, making / ROWS)
        np.save(making / SUMS, _sums(np.load(path, mmap_mode="r", allow_pickle=False)), allow_pickle=False)
        names = sorted(home.name for home in self.home.glob("[!.]*"))  # with those that can't be read, which go first
        number = int(names[-1].partition("-")[0]) + 1 if names else 0
        making.replace(self.home / f"{number:08d}-{making.name[1:9]}")
        for old in sorted(self.home.glob("[!.]*"))[:-SEGMENTS]:
            shutil.rmtree(old, ignore_errors=True)


def _hash(ids: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(ids, "<i4").tobytes(), digest_size=16).digest()


def _sums(vectors: np.ndarray) -> np.ndarray:
    """Sum the bits of each vector as whole numbers; a damaged component changes it. float32 [n, d] -> uint64 [n]."""
    return vectors.view("<u4").sum(1, dtype=np.uint64)


def _load(home: Path) -> tuple[np.ndarray, ...] | None:
    """Map a segment; None where it is damaged or was deleted meanwhile."""
    try:
        keys, order, rows, sums = (np.load(home / name, mmap_mode="r", allow_pickle=False) for name in FILES)
    except (OSError, ValueError, EOFError) as error:  # an empty file is an EOFError of numpy
        log.info("%s can't be read and is left out: %s", home, error)
        return None
    return (keys, order, rows, sums) if len(keys) == len(order) == len(rows) == len(sums) else None
