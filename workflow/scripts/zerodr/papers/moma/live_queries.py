"""Embed single queries with documents of exported memories, and show the attention that each document gets."""

from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from zerodr.collections.access import memory_of
from zerodr.encoders.folder.contract import read_json
from zerodr.errors import ConfigError, nearest
from zerodr.lookup.sources import Source
from zerodr.papers.moma.augmented_encoder import FusionContract, Grounded
from zerodr.papers.moma.fid_attention import fid_attention
from zerodr.papers.moma.fused_vectors import fingerprint
from zerodr.papers.moma.fusion_encoder import FusionEncoder, cross_attention
from zerodr.papers.moma.retriever import MEMORY, MoMA, augmenter_folder
from zerodr.plan import paths

CHARACTERS = 300  # of a document that the page shows


def list_memories(source: Source) -> list[str]:
    """List the exported memories with vectors of the source's augmenter."""
    return sorted(_memories(source.inputs["model"][0]))


@cache
def _memories(model: str) -> dict[str, Path]:
    """Folders of memories by name."""
    identity, folders = fingerprint(augmenter_folder(Path(model).parent)), {}
    for manifest in sorted(Path().glob(paths.exported_memory("*", "*", "*"))):
        facts = read_json(manifest.parent / MEMORY)
        if facts["model"] == identity:
            folders[str(facts["name"])] = manifest.parent
    return folders


class AugmentedQueries:
    """Queries with documents of the memories that are plugged in.

    Args:
        source: whose params say how many documents of which length augment a query, and of which memories those of
            the table (`joins`).
    """

    def __init__(self, source: Source) -> None:
        self.model = MoMA.load(Path(source.inputs["model"][0]).parent)
        self.folders = _memories(source.inputs["model"][0])
        self.row_memories = set(source.params.get("joins", ()))
        main, params = self.model.main.eval(), source.params
        limits = {"documents": params["documents"], "document_tokens": params["document_limit"]}
        tokens = min(params.get("query_tokens") or main.contract.tokens("query"), main.contract.max_tokens)
        main.contract = main.contract.model_copy(update={"query_tokens": tokens})
        main.augment_with(FusionContract(**limits, exclude_self=main.fusion.exclude_self))
        self._lock = Lock()

    def encode(self, text: str, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        """Embed the text with documents of the memories in `options` (by default all); report a T5's attention.

        Where these are not the memories that the queries of the table read, the notice says so: ranks differ.

        Raises:
            ConfigError: there is no such memory.
            CollectionError: the memories hold fewer documents than augment a query.
        """
        with self._lock:
            self._plug(options.get("memories", sorted(self.folders)))
            main, names = self.model.main, []
            if self.model.memories:
                (names,) = self.model.augment([text])
            texts = self.model.texts_of(names)
            read: list[dict[str, Any]] = [
                {"id": name, "memory": memory_of(name), "text": body[:CHARACTERS]}
                for name, body in zip(names, texts, strict=True)
            ]
            notices = [] if read else ["no memory is plugged in"]
            if self.row_memories and self.row_memories != self.model.memories.keys():
                named = " and ".join(sorted(self.row_memories))
                notices.append(f"not the table's ranking, whose queries read {named} (docs/search.md, Memories)")
            if not isinstance(main, FusionEncoder):
                (vector,) = self.model.fuser.vectors([text], [names], self.model.texts_of)
                return vector, {"read": read, "notice": "; ".join(notices)}
            row = Grounded(main.tokenize([text], "query")[0], main.tokenize_augmentations(texts))
            vectors, attention, segments, mask = cross_attention(main, main.pad([row]))
            mass = fid_attention(attention, segments, mask, len(names))[0]
            shares = (mass / mass.sum()).tolist()
        for shown, share in zip(read, shares[1:], strict=True):
            shown["attention"] = share
        attended = [f"the query itself has attention {shares[0]:.3f}"] if read else []
        return vectors[0].float().cpu().numpy(), {"read": read, "notice": "; ".join([*attended, *notices])}

    def _plug(self, names: list[str]) -> None:
        for name in names:
            if name not in self.folders:
                raise ConfigError(f"memory {name}", "has no vectors of this model here", nearest(name, self.folders))
        for name in self.model.memories.keys() - set(names):
            self.model.unplug(name)
        for name in set(names) - self.model.memories.keys():
            self.model.plug(self.folders[name])
