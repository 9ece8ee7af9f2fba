"""Encode texts with a bi-encoder: texts -> token ids -> vectors. `load_encoder(folder)` reads any model folder.

On the CPU OpenVINO computes the vectors in fp32 (`graph.py`), and neither torch nor transformers is imported. On a GPU,
in bf16, and for networks that OpenVINO does not convert, the transformers module does. `Encoder.backend` names the
pass, for lineage.

`encode_batches` encodes many batches at once: each worker thread computes whole batches. A batch is never split between
threads, so no thread waits inside a layer (on busy cores that waiting costs more than the work), and its vectors do not
depend on the number of threads.
"""

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from zerodr.encoders.folder.contract import SIDES, EncoderContract, Precision, Side, insert_modules, read_contract
from zerodr.encoders.inference.graph import Graph, open_converted, require_torch
from zerodr.encoders.inference.processor import usable_precision
from zerodr.encoders.inference.token_store import TokenStore, call_facts
from zerodr.encoders.network.tokenizing import UNLIMITED, Call, load_tokenizer, padded
from zerodr.errors import ModelError

log = logging.getLogger("zerodr")
AHEAD = 2  # queued batches for each worker
GPU_WORKERS = 2  # while one waits for its vectors, the other pads the next batch and starts it
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # of GPUs: NVIDIA, NVIDIA under WSL, AMD


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
        tokenizer: of transformers, or a `StoredTokenizer`.
        forward: ids, mask (B, L) int64 -> vectors (B, dimension) float32.
        backend: `openvino` with its version, or `transformers` with the reason.
    """

    contract: EncoderContract
    tokenizer: Any
    forward: Callable[[np.ndarray, np.ndarray], np.ndarray]
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

    def cuts(self, text: str, prefix: str, max_tokens: int) -> bool:
        """Report whether a text has more tokens than a model reads, special ones included."""
        return len(Call(prefix, UNLIMITED, self.contract.lowercase).ids(self.tokenizer, [text])[0]) > max_tokens

    def token_store(self, folder: Path, prefix: str = "", max_tokens: int | None = None) -> TokenStore | None:
        """Open the tokens that are stored in `folder`; None where the tokenizer can't be told from others."""
        facts = call_facts(self.tokenizer, self._call(prefix, max_tokens))
        return None if facts is None else TokenStore(folder, facts)

    def _call(self, prefix: str, max_tokens: int | None) -> Call:
        limit = min(max_tokens or self.contract.max_tokens, self.contract.max_tokens)
        return Call(prefix, limit, self.contract.lowercase)

    def encode_batch(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Encode one batch of token ids. rows: B arrays of ids -> (B, dimension) float32."""
        ids, there = padded(rows, self.tokenizer.pad_token_id or 0)
        return self.forward(ids, there.astype(np.int64))

    def prepare(self, threads: int) -> None:
        """Get ready for so many batches at once."""
        if isinstance(self.forward, Graph):
            self.forward.prepare(threads)


def load_encoder(
    folder: Path,
    precision: Precision = "fp32",
    device: str | None = None,
    graph: bool = True,
    side: Side | None = None,
) -> Encoder:
    """Load the encoder of a model folder.

    Args:
        folder: holds zerodr.json and the files of transformers.
        precision: arithmetic of the transformer. A processor without bf16
            instructions computes in fp32 instead.
        device: `cpu`, `cuda`, ...; None selects the GPU when there is one.
        graph: on the CPU, let OpenVINO compute. False: for one-off checks, which a conversion would make long.
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
    device = device or choose_device()
    precision = usable_precision(precision, device)
    reason = f"on {device}" if device != "cpu" else "switched off" if not graph else precision
    if graph and device == "cpu" and precision == "fp32":
        converted = open_converted(folder, contract)
        if converted.graph is not None:
            tokenizer = converted.tokenizer or load_tokenizer(folder)
            return Encoder(contract, tokenizer, converted.graph, precision, device, f"openvino {version('openvino')}")
        reason = converted.reason
        log.info("forward pass of transformers: %s", reason)
    require_torch(folder)
    from zerodr.encoders.inference.module import TowerPass
    from zerodr.encoders.network.towers import check_precision, load_tower

    tokenizer, tower = load_tokenizer(folder), load_tower(folder, contract)
    if contract.modules is not None:
        insert_modules(folder / contract.modules, tower.transformer)
    check_precision(folder, tower.transformer.config.model_type, precision, device)
    return Encoder(
        contract, tokenizer, TowerPass(tower, precision, device), precision, device, f"transformers ({reason})"
    )


def choose_device() -> str:
    """Return `cuda` where there is a GPU, else `cpu`. Where no driver of one is loaded, torch is not imported."""
    if not sys.modules.get("torch") and not (any(Path(driver).exists() for driver in DRIVERS) and find_spec("torch")):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


class BatchEncoder(Protocol):
    """Encoder of one batch at a time: an `Encoder`, or a `Scorer` of pairs."""

    device: str

    def encode_batch(self, rows: Sequence[Any]) -> np.ndarray:
        """Encode B rows of token ids, (B, ...) float32."""

    def prepare(self, threads: int) -> None:
        """Get ready for so many batches at once."""


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
    encoder.prepare(workers)
    torch = sys.modules.get("torch")  # None: nothing here computes with it
    before = torch.get_num_threads() if torch else 0

    def work(rows: np.ndarray) -> np.ndarray:
        return encoder.encode_batch([tokens[row] for row in rows])

    remaining, queue = iter(batches), deque[tuple[np.ndarray, Future[np.ndarray]]]()
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads if torch else int, initargs=(1,)) as pool:
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
            if torch:
                torch.set_num_threads(before)  # later threads would start with the workers' 1
