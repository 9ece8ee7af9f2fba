"""Answer a new query as a method of kind `feedback` does: with documents that its memory finds, and show these."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zerodr.collections.access import corpus_ids
from zerodr.config.base import validate
from zerodr.encoders.folder.attention import Attention, scores_alone
from zerodr.lookup.documents import Documents
from zerodr.lookup.searchers import Answer, open_source
from zerodr.lookup.sources import Source, load_function, query_encoders
from zerodr.retrieval.feedback import AugmentSettings, Retrieved, augment
from zerodr.retrieval.vectors import Vectors

CHARACTERS = 300  # of a document that the page shows


class FeedbackQueries:
    """Queries to which the first documents of another ranking are added.

    Args:
        source: whose halves are the bi-encoder without feedback and the method that finds documents.
    """

    def __init__(self, source: Source) -> None:
        plain, memory = source.halves
        self._settings = validate(AugmentSettings, source.params, source.name)
        learned = source.inputs.get("attention")
        self._attention = Attention.load(Path(learned[0]).parent) if learned else scores_alone(self._settings)
        self._queries = load_function(query_encoders()[plain.encoder].queries)(plain)
        self._memory, self._depth = open_source(memory), memory.params["depth"]
        self._shards = [Vectors.open(Path(path)) for path in source.index]
        folder = Path(source.collection).parent
        self._ids, self._documents = corpus_ids(folder), Documents(folder)

    def encode(self, text: str, options: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        """Embed the text, add documents that the memory finds for it, and tell the attention of each."""
        vector, fields = self._queries.encode(text, options)
        answer: Answer = self._memory.search(text, self._depth, options)
        names = answer.ids[: self._settings.documents]
        if not names:
            return vector, fields
        scores = np.array(answer.scores[: len(names)], np.float32)
        rows = pc.index_in(pa.array(names, self._ids.type), self._ids).to_numpy().astype(np.int64)
        (augmented,), (shares,) = augment(vector[None], self._shards, [Retrieved(rows, scores)], self._attention)
        texts = self._documents.texts(names)
        read = [
            {"id": name, "memory": self._settings.memory, "text": body[:CHARACTERS], "attention": float(share)}
            for name, (_, body), share in zip(names, texts, shares, strict=True)
        ]
        return augmented, fields | {"read": read}
