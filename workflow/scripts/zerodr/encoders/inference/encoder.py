"""Encode texts with a bi-encoder: texts -> token ids -> vectors. `load_encoder(folder)` reads any model folder.

On the CPU a `BertModel` runs in the packed forward pass. Other models, and every model on a GPU, run as the
transformers module. `Encoder.backend` names the pass, for lineage.

`encode_batches` encodes many batches at once: each worker thread computes whole batches. A batch is never split between
threads, so no thread waits inside a layer (on busy cores that waiting costs more than the work), and its vectors do not
depend on the number of threads.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from zerodr.encoders.folder.contract import SIDES, EncoderContract, Side, insert_modules, read_contract
from zerodr.encoders.inference.packed import PackedBert, why_not, why_not_of
from zerodr.encoders.inference.processor import usable_precision
from zerodr.encoders.inference.token_store import TokenStore, call_facts
from zerodr.encoders.network.heads import POOLINGS, unit_length
from zerodr.encoders.network.loading import read_bert, short
from zerodr.encoders.network.moving import on_device, to_host
from zerodr.encoders.network.tokenizing import Call
from zerodr.encoders.network.towers import (
    DTYPES,
    Precision,
    check_precision,
    hidden_states,
    load_projections,
    load_tower,
)
from zerodr.errors import ModelError

log = logging.getLogger("zerodr")
AHEAD = 2  # queued batches for each worker
GPU_WORKERS = 2  # while one waits for its vectors, the other pads the next batch and starts it


@dataclass
class Tokens:
    """Token ids of many texts, compact: ids (total,) int32, offsets (texts + 1,) int64."""

    ids: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Count the tokens of each text, (texts,) int64."""
        return np.diff(self.offsets)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]


@dataclass
class Encoder:
    """A loaded model.

    Attributes:
        contract: pooling, prefixes, lengths and so on.
        tokenizer: of transformers.
        hidden: ids (B, L), mask (B, L) -> last hidden states (B, L, d), of a decoder (B, 1, d).
        projections: modules after the pooling, in float32.
        backend: `packed` with its way of attention, or `transformers` with the reason.
    """

    contract: EncoderContract
    tokenizer: Any
    hidden: Callable[[Tensor, Tensor], Tensor]
    projections: list[torch.nn.Module]
    precision: Precision
    device: str
    backend: str

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        return self.contract.dimension

    def tokenize(
        self, texts: Sequence[str], prefix: str = "", max_tokens: int | None = None, store: TokenStore | None = None
    ) -> Tokens:
        """Tokenize texts to ids with special tokens, cut at the smaller of `max_tokens` and the contract's.

        Args:
            store: of `token_store` with the same prefix and length: what it holds is not tokenised.
        """
        tokenize = partial(self._call(prefix, max_tokens).ids, self.tokenizer)
        ids = tokenize(texts) if store is None else store.of(texts, tokenize)
        rows = [np.asarray(row, np.int32) for row in ids]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        return Tokens(np.concatenate(rows) if rows else np.zeros(0, np.int32), offsets)

    def token_store(self, folder: Path, prefix: str = "", max_tokens: int | None = None) -> TokenStore | None:
        """Open the tokens that are stored in `folder`; None where the tokenizer can't be told from others."""
        facts = call_facts(self.tokenizer, self._call(prefix, max_tokens))
        return None if facts is None else TokenStore(folder, facts)

    def _call(self, prefix: str, max_tokens: int | None) -> Call:
        limit = min(max_tokens or self.contract.max_tokens, self.contract.max_tokens)
        return Call(prefix, limit, self.contract.lowercase)

    def encode_batch(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Encode one batch of token ids. rows: B arrays of ids -> (B, dimension) float32."""
        ids, mask = pad(rows, self.tokenizer.pad_token_id or 0)
        with torch.inference_mode():
            ids, mask = on_device(ids, self.device), on_device(mask, self.device)
            vectors = POOLINGS[self.contract.pooling](self.hidden(ids, mask), mask)
            for project in self.projections:
                vectors = project(vectors)
            if self.contract.normalize:
                vectors = unit_length(vectors)
            return to_host(vectors.float()).numpy()


def pad(rows: Sequence[Sequence[int] | np.ndarray], padding: int) -> tuple[Tensor, Tensor]:
    """Pad rows on the right to ids (B, L) int64 and mask (B, L) of 0 and 1; L is the longest length, at least 1."""
    ids, there = padded(rows, padding)
    return torch.from_numpy(ids), torch.from_numpy(there.astype(np.int64))


def padded(rows: Sequence[Sequence[int] | np.ndarray], padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Pad rows of integers on the right to (B, L) int64, and mark what is not padding, (B, L) bool."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    there = np.arange(max(1, int(lengths.max()))) < lengths[:, None]
    ids = np.full(there.shape, padding, np.int64)
    if lengths.any():
        ids[there] = np.concatenate(rows)
    return ids, there


def load_encoder(
    folder: Path,
    precision: Precision = "fp32",
    device: str | None = None,
    packed: bool = True,
    side: Side | None = None,
) -> Encoder:
    """Load the encoder of a model folder.

    Args:
        folder: holds zerodr.json and the files of transformers.
        precision: arithmetic of the transformer; pooling and projections are float32. A processor without bf16
            instructions computes in fp32 instead.
        device: `cpu`, `cuda`, ...; None selects the GPU when there is one.
        packed: on the CPU, use the packed forward pass where it is available.
        side: required for separate towers; without effect where one tower serves both sides.

    Raises:
        ModelError: no contract, no tokenizer, weights missing, another dimension than in the contract, separate towers
            and no `side`, or a precision that the model does not support.
    """
    contract = read_contract(folder)
    if contract.towers == "separate":
        if side is None:
            problem = "has separate towers for queries and documents"
            raise ModelError(folder, problem, f"choose a side: {' or '.join(SIDES)}")
        folder = folder / side
        contract = read_contract(folder)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    precision = usable_precision(precision, device)
    tokenizer = load_tokenizer(folder)
    if packed and device == "cpu" and contract.modules is None:
        bert = read_bert(folder)
        if bert is not None and why_not_of(bert.config, DTYPES[precision]) is None:
            last = list(load_projections(folder, contract, bert.config.hidden_size).values())
            hidden = PackedBert(bert, DTYPES[precision])
            return Encoder(contract, tokenizer, hidden, last, precision, device, hidden.backend)
    tower = load_tower(folder, contract)
    if contract.modules is not None:
        insert_modules(folder / contract.modules, tower.transformer)
    check_precision(folder, tower.transformer.config.model_type, precision, device)
    forward, backend = _forward(tower.transformer, contract.pooling, precision, device, packed)
    projections = list(tower.projections.to(device))
    return Encoder(contract, tokenizer, forward, projections, precision, device, backend)


def _forward(
    model: Any, pooling: str, precision: Precision, device: str, packed: bool
) -> tuple[Callable[[Tensor, Tensor], Tensor], str]:
    dtype = DTYPES[precision]
    reason = why_not(model, dtype, device, packed)
    if reason is None:
        packed_model = PackedBert(model, dtype)
        return packed_model, packed_model.backend
    if packed:
        log.info("forward pass of transformers, not the packed one: %s", reason)
    module = model.to(device=device, dtype=dtype)
    return lambda ids, mask: hidden_states(module, pooling, ids, mask), f"transformers ({reason})"


def load_tokenizer(folder: Path) -> Any:
    """Load the folder's tokenizer.

    Raises:
        ModelError: transformers can't load it.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"its tokenizer can't be loaded ({short(error)})"
        raise ModelError(folder, problem, "copy all files of the tokenizer there") from None


class BatchEncoder(Protocol):
    """Encoder of one batch at a time: an `Encoder`, or a `Scorer` of pairs."""

    device: str

    def encode_batch(self, rows: Sequence[Any]) -> np.ndarray:
        """Encode B rows of token ids, (B, ...) float32."""


class Rows(Protocol):
    """Tokens of many texts, by row."""

    def __getitem__(self, row: int, /) -> Any:
        """Return the tokens of one text."""


def encode_batches(
    encoder: BatchEncoder, tokens: Rows, batches: Sequence[np.ndarray], threads: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows of each batch with their encodings (rows, ...) float32, in the order of `batches`.

    Args:
        encoder: on the CPU, `threads` batches run at once with one thread each; on a GPU two take turns.
        tokens: of all texts.
        batches: row numbers of `tokens`.
        threads: cores to use.
    """
    workers = threads if encoder.device == "cpu" else GPU_WORKERS
    before = torch.get_num_threads()

    def work(rows: np.ndarray) -> np.ndarray:
        return encoder.encode_batch([tokens[row] for row in rows])

    remaining, queue = iter(batches), deque[tuple[np.ndarray, Future[np.ndarray]]]()
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            for rows in islice(remaining, AHEAD * workers):
                queue.append((rows, pool.submit(work, rows)))
            while queue:
                rows, future = queue.popleft()
                vectors = future.result()
                for following in islice(remaining, 1):
                    queue.append((following, pool.submit(work, following)))
                yield rows, vectors
        finally:
            for _, future in queue:
                future.cancel()
            torch.set_num_threads(before)  # later threads would start with the workers' 1
