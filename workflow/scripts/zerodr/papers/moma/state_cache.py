"""Encoder states of augmentation documents: in memory up to a size, or on disk for documents that are asked often.

States belong to one model: a store records the fingerprint of its weights and is refused for others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from zerodr.encoders.folder.contract import read_json, write_model_json
from zerodr.errors import ModelError

STATES, INDEX = "states.safetensors", "index.json"
MIB = 2**20
BLOCK = 1 << 20


def fingerprint(folder: Path) -> str:
    """SHA-256 of the weights of a model folder."""
    digest = sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()


class StateCache:
    """States by document, the least recently used ones dropped beyond `limit_mib`; stores are asked next.

    Attributes:
        stores: states on disk.
        hits, misses: documents that were there, and that were not.
    """

    def __init__(self, limit_mib: int, stores: Sequence[StateStore] = ()) -> None:
        self.limit, self.stores = limit_mib * MIB, list(stores)
        self.hits = self.misses = self.held = 0
        self._states: OrderedDict[str, Tensor] = OrderedDict()

    def get(self, key: str) -> Tensor | None:
        """States (tokens, d) of a document; None where it is not kept."""
        states = self._states.get(key)
        if states is not None:
            self._states.move_to_end(key)
        else:
            states = next((stored for store in self.stores if (stored := store.get(key)) is not None), None)
        self.hits, self.misses = self.hits + (states is not None), self.misses + (states is None)
        return states

    def put(self, key: str, states: Tensor) -> None:
        """Keep states of a document that was not there."""
        self.held += states.nbytes
        self._states[key] = states
        while self.held > self.limit and self._states:
            self.held -= self._states.popitem(last=False)[1].nbytes

    def forget(self, keys: Iterable[str]) -> None:
        """Drop states of documents, where they are held in memory."""
        for key in keys:
            states = self._states.pop(key, None)
            self.held -= 0 if states is None else states.nbytes

    def items(self) -> Iterable[tuple[str, Tensor]]:
        """Documents and states in memory."""
        return self._states.items()


class StateStore:
    """States of documents in a folder, mapped into memory.

    Args:
        folder: that `write_states` made.
        identity: fingerprint of the model that asks, and of what else its states depend on.

    Raises:
        ModelError: the states are another model's.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        from safetensors.torch import load_file

        index = read_json(folder / INDEX)
        if index["model"] != identity:
            theirs, ours = index["model"][:12], identity[:12]
            raise ModelError(
                folder,
                f"holds encoder states with fingerprint {theirs}, expected {ours}: they are of "
                "another model, or of other texts",
                "make the states again",
            )
        self._spans = {key: (first, count) for key, first, count in index["documents"]}
        self._states = load_file(folder / STATES)["states"]

    def __len__(self) -> int:
        return len(self._spans)

    def get(self, key: str) -> Tensor | None:
        """States (tokens, d) of a document; None where it is not kept."""
        span = self._spans.get(key)
        return None if span is None else self._states[span[0] : span[0] + span[1]]

    def items(self) -> Iterator[tuple[str, Tensor]]:
        """All of them."""
        return ((key, self._states[first : first + count]) for key, (first, count) in self._spans.items())


def write_states(folder: Path, states: Mapping[str, Tensor], identity: str) -> None:
    """Write states (tokens, d) of documents.

    Args:
        identity: fingerprint of their model, and of what else they depend on.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    documents, first = [], 0
    for key, tensor in states.items():
        documents.append([key, first, len(tensor)])
        first += len(tensor)
    save_file({"states": torch.cat([tensor.cpu() for tensor in states.values()]).contiguous()}, folder / STATES)
    write_model_json(folder / INDEX, {"model": identity, "documents": documents})
