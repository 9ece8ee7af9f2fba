"""Store token ids on the disk, so that a text is tokenised once for all jobs, epochs and processes.

`results/.state/tokens` holds a folder for each tokenizer and each way to call it, with segments: Arrow files of hashes
of texts, ascending, and of their tokens. Any job maps the segments that are there, and writes what it had to tokenise
as a further one. So there are no locks: a segment appears whole under a name of its own, and never changes. Two jobs
that tokenise one text at the same time both store it. Files may be deleted at any time; their texts are tokenised
again. Tokens are those of the tokenizer, so batches and vectors do not depend on what is stored.
"""

import hashlib
import json
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from shutil import disk_usage
from typing import Any

import numpy as np
import pyarrow as pa

from zerodr.artifacts.manifest import object_digest
from zerodr.artifacts.record import STATE
from zerodr.encoders.network.tokenizing import Call, lower_within

log = logging.getLogger("zerodr")
TOKENS = STATE / "tokens"
SEGMENT, WORTH = 64 << 20, 64 << 10  # bytes of tokens: a segment is written with so many, and none with fewer
SHARE = 0.1  # of the disk space that is free without the store: more is not stored
NUMBER = 4  # bytes
Rows = list[np.ndarray]


def call_facts(tokenizer: Any, call: Call) -> dict[str, Any] | None:
    """Return what tokens depend on besides the text; None where the tokenizer does not say."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    if call.lowercase:
        lower_within(tokenizer)
    inner = json.loads(backend.to_str()) | {"truncation": None, "padding": None}  # as earlier calls left them
    digest = hashlib.sha256(json.dumps(inner).encode()).hexdigest()
    kind = {"class": getattr(tokenizer, "kind", type(tokenizer).__name__), "truncation_side": tokenizer.truncation_side}
    split = {"split_special_tokens": True} if tokenizer.split_special_tokens else {}  # `to_str` does not write it
    return asdict(call) | kind | split | {"tokenizer": digest, "tokenizers": version("tokenizers")}


class TokenSegment:
    """One file, mapped."""

    def __init__(self, path: Path) -> None:
        batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
        self.keys, self.checks = (batch.column(name).to_numpy() for name in ("key", "check"))
        self.offsets, self.values = batch.column("tokens").offsets.to_numpy(), batch.column("tokens").values.to_numpy()

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """Find texts by their hashes (n, 2), (n,) rows; -1 for those that are not here."""
        rows = np.minimum(np.searchsorted(self.keys, hashes[:, 0]), len(self.keys) - 1)
        return np.where((self.keys[rows] == hashes[:, 0]) & (self.checks[rows] == hashes[:, 1]), rows, -1)


class TokenStore:
    """Tokens of texts by one way of calling one tokenizer. Several threads may use it.

    Args:
        folder: of all tokenizers.
        facts: what tokens depend on (`call_facts`).
        width: numbers of a token; more than one are the columns of a (L, width) array.

    Attributes:
        tokenized: texts that were not stored.
    """

    def __init__(self, folder: Path, facts: dict[str, Any], width: int = 1) -> None:
        self.root, self.folder, self.width = folder, folder / object_digest(facts | {"width": width})[:16], width
        self.segments: dict[str, TokenSegment | None] = {}
        self.new: dict[bytes, np.ndarray] = {}
        self.size, self.lock, self.full, self.tokenized = 0, threading.Lock(), False, 0
        self._map()

    def of(self, texts: Sequence[str], tokenize: Callable[[list[str]], Sequence[Any]]) -> Rows:
        """Return tokens of each text, (L,) or (L, width) int32; `tokenize` is called with those that are not stored."""
        if not len(texts):
            return []
        hashes = np.frombuffer(b"".join(map(_hash, texts)), "<u8").reshape(-1, 2)
        with self.lock:
            stored: list[np.ndarray | None] = [self.new.get(row.tobytes()) for row in hashes]
            segments = [segment for segment in self.segments.values() if segment is not None]
        for segment in segments:
            rows = segment.find(hashes)
            for number in np.flatnonzero(rows >= 0).tolist():
                first, last = segment.offsets[rows[number]], segment.offsets[rows[number] + 1]
                values = segment.values[first:last]
                stored[number] = values if self.width == 1 else values.reshape(-1, self.width)
        missing = {texts[number]: number for number, tokens in enumerate(stored) if tokens is None}
        computed = {
            text: np.asarray(tokens, np.int32)
            for text, tokens in (zip(missing, tokenize(list(missing)), strict=True) if missing else ())
        }
        self._add({hashes[missing[text]].tobytes(): tokens for text, tokens in computed.items()})
        return [computed[text] if tokens is None else tokens for text, tokens in zip(texts, stored, strict=True)]

    def _add(self, rows: dict[bytes, np.ndarray]) -> None:
        with self.lock:
            self.new |= rows
            self.tokenized += len(rows)
            self.size += NUMBER * sum(tokens.size for tokens in rows.values())
            if self.size >= SEGMENT:
                self._write()

    def close(self) -> None:
        """Store what is left."""
        with self.lock:
            self._write()

    def _write(self) -> None:
        rows, size, self.new, self.size = self.new, self.size, {}, 0
        if size < WORTH or self.full or not self._fits(size):
            return
        path = self.folder / f"{uuid.uuid4().hex}.arrow"
        partial = path.with_name(f".{path.name}.making")
        try:
            with pa.OSFile(str(partial), "wb") as sink:
                batch = _batch(rows)
                with pa.ipc.new_file(sink, batch.schema) as writer:
                    writer.write_batch(batch)
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            self._stop(str(error))
        self._map()

    def _fits(self, size: int) -> bool:
        """Whether the disk has room; the folder is there afterwards."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            stored = sum(file.stat().st_size for file in self.root.rglob("*.arrow"))
            fits = stored + size <= SHARE * (disk_usage(self.root).free + stored)
        except OSError as error:
            return self._stop(str(error))
        return fits or self._stop(f"it has {stored / 2**20:.0f} MiB, and may have a tenth of the free disk")

    def _stop(self, reason: str) -> bool:
        """Store nothing more, and return false."""
        self.full = True
        log.info("tokens are no longer stored in %s: %s", self.root, reason)
        return False

    def _map(self) -> None:
        """Map the segments that have come, of this and of other processes."""
        for path in sorted(self.folder.glob("[!.]*.arrow")):
            if path.name not in self.segments:
                try:
                    self.segments[path.name] = TokenSegment(path)
                except (OSError, pa.ArrowInvalid) as error:
                    self.segments[path.name] = None
                    log.warning("%s can't be read and is left out: delete it (%s)", path, error)


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _batch(rows: dict[bytes, np.ndarray]) -> pa.RecordBatch:
    hashes, tokens = np.frombuffer(b"".join(rows), "<u8").reshape(-1, 2), list(rows.values())
    order = np.argsort(hashes[:, 0], kind="stable")
    sizes = np.array([tokens[number].size for number in order], np.int64)
    values = np.concatenate([tokens[number].ravel() for number in order]).astype(np.int32, copy=False)
    lists = pa.LargeListArray.from_arrays(np.r_[0, np.cumsum(sizes)].astype(np.int64), values)
    columns = [np.ascontiguousarray(hashes[order, 0]), np.ascontiguousarray(hashes[order, 1]), lists]
    return pa.RecordBatch.from_arrays(list(map(pa.array, columns[:2])) + [lists], ["key", "check", "tokens"])
