"""Train queries alone against embeddings of documents that stay as they are: no document is read or embedded again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from torch import Tensor

from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_ids
from zerodr.config.params import FinetuneParams
from zerodr.config.stages import FinetuneStage
from zerodr.encoders.network.moving import on_device, pad
from zerodr.errors import ModelError
from zerodr.training.additions import Addition, together
from zerodr.training.data.examples import Examples
from zerodr.training.loop.gradcache import Forward, Share, Texts, gathered
from zerodr.training.objectives.base import Encoded

PROBED = 4  # documents whose embeddings are compared with the model's
LIKENESS = 0.99  # cosine; bf16 and other lengths of text change less


@dataclass
class FrozenForward(Forward):
    """Encoding of queries; documents have the vectors (M, D) float32 that `Examples.documents` are numbered by."""

    vectors_of_documents: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    def texts(self, batch: Any) -> Texts:
        """Tokenise the queries of a batch; documents are rows of the vectors."""
        tokens = self.tokens(self.examples.texts_of_queries(batch.rows), "query")
        return Texts(tokens, batch.documents, self.passes(tokens, range(len(tokens)), ()))

    def numbers(self, batch: Any, texts: Texts) -> dict[str, np.ndarray]:
        """Look up the vectors of documents, too."""
        return super().numbers(batch, texts) | {"vectors": self.vectors_of_documents[texts.documents]}

    def view(self, share: Share, leaf: Tensor, group: Any) -> Encoded:
        """Return the batch with vectors of its queries (with a gradient) and of its documents (without)."""
        return gathered(share, leaf, on_device(share.numbers["vectors"], leaf.device), group)


class FrozenIndex(Addition):
    """Input `vectors`: embeddings of the source's documents, in shards. The document tower is frozen."""

    @classmethod
    def asked(cls, stage: Stage, params: FinetuneParams) -> bool:
        """Return whether the settings have `keep_index`."""
        settings = params.settings
        return together(
            stage, "keep_index", isinstance(settings, FinetuneStage) and settings.keep_index is not None, "vectors"
        )

    def model(self, model: Any) -> Any:
        """Freeze the document tower."""
        model.tower("document").requires_grad_(False)
        return model

    def examples(self, examples: Examples, model: Any) -> Examples:
        """Look up the vectors of the examples' documents.

        Raises:
            ModelError: they are not the model's.
        """
        rows = pc.index_in(examples.documents, value_set=corpus_ids(self.stage.path("source"))).to_numpy()
        shards = [np.load(path, mmap_mode="r") for path in self.stage.paths("vectors")]
        ends = np.cumsum([len(shard) for shard in shards])
        self.rows = np.empty((len(rows), shards[0].shape[1]), np.float32)
        for number, shard in enumerate(shards):
            here = np.flatnonzero((rows >= ends[number] - len(shard)) & (rows < ends[number]))
            self.rows[here] = shard[rows[here] - (ends[number] - len(shard))]
        self._check(examples, model)
        self.facts = {"frozen_documents": len(rows)}
        return examples

    def _check(self, examples: Examples, model: Any) -> None:
        numbers = np.arange(min(PROBED, len(examples.documents)))
        ids, mask = pad(model.tokenize(examples.texts_of_documents(numbers), "document"), model.tokenizer.pad_token_id)
        device = next(model.parameters()).device
        with torch.no_grad():
            encoded = model.encode({"input_ids": ids.to(device), "attention_mask": mask.to(device)}, "document").cpu()
        given = torch.from_numpy(self.rows[numbers])
        likeness = torch.cosine_similarity(encoded, given).min().item() if encoded.shape == given.shape else -1.0
        if not likeness >= LIKENESS:
            raise ModelError(
                model.contract.source,
                f"embeds documents unlike keep_index does: cosine {likeness:.3f}, expected at least {LIKENESS}",
                "name the encoder that training starts from",
            )

    def forward(self, forward: Forward) -> Forward:
        """Encode queries alone."""
        plain = (forward.model, forward.examples, forward.device, forward.chunk, forward.by_group)
        return FrozenForward(*plain, vectors_of_documents=self.rows)
