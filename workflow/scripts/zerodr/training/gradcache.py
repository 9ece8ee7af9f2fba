"""From texts to vectors and from the loss back to weights, with or without gradient caching, with the same gradient.

The loss is a function of vectors alone. So its gradient with respect to the vectors is taken first; then each group of
texts sends its part back through the network. With caching, a group's activations are thrown away and made again when
its turn comes (Gao et al. 2021, Scaling deep contrastive learning batch size), under the same random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zerodr.training.batches import Batch
from zerodr.training.distributed import Group
from zerodr.training.examples import Examples
from zerodr.training.grouping import length_groups
from zerodr.training.objectives import Encoded, Objective

WASTE = {"cpu": 512, "cuda": 16384}  # padded tokens that cost less than one more forward pass


@dataclass(frozen=True)
class Texts:
    """The distinct texts of one process's part of a batch, tokenised: B queries, then documents.

    Attributes:
        tokens: token ids of each text, as the model's `pad` takes them.
        documents: (B, 1 + K) place of each document among the distinct ones.
        groups: (side, places of texts) that are encoded together. A text in no group stands for the vector of ones.
    """

    tokens: list[Any]
    documents: np.ndarray
    groups: list[tuple[str, list[int]]]


@dataclass
class Forward:
    """How training encodes.

    Attributes:
        model: a BiEncoder (encoders/trainable.py), with its arithmetic.
        chunk: texts that hold activations at once; None keeps all.
    """

    model: Any
    examples: Examples
    device: str
    chunk: int | None = None

    def texts(self, batch: Batch) -> Texts:
        """Tokenise the distinct texts of (a process's part of) a batch."""
        distinct, inverse = np.unique(batch.documents, return_inverse=True)
        queries = self.model.tokenize(self.examples.texts_of_queries(batch.rows), "query")
        documents = self.model.tokenize(self.examples.texts_of_documents(distinct), "document")
        first, every = len(queries), len(queries) + len(documents)
        tokens = [*queries, *documents]
        tied = self.model.contract.towers == "tied"
        sides = [("document", range(every))] if tied else [("query", range(first)),
                                                                      ("document", range(first, every))]  # fmt: skip
        waste = WASTE[torch.device(self.device).type]
        groups = [(side, [places[index] for index in group]) for side, places in sides
                  for group in length_groups([len(tokens[place]) for place in places], waste, self.chunk)]  # fmt: skip
        return Texts(tokens, inverse.reshape(batch.documents.shape), groups)

    def encode(self, texts: Texts, number: int, seed: Sequence[int]) -> Tensor:
        """Vectors of one group, (n, D) float32. Random numbers depend on (seed, number) alone."""
        side, places = texts.groups[number]
        word = np.random.SeedSequence([*seed, number]).generate_state(1, np.uint64)[0]
        torch.manual_seed(int(word >> np.uint64(1)))
        features = self.model.pad([texts.tokens[place] for place in places])
        return self.vectors({key: value.to(self.device) for key, value in features.items()}, side)

    def vectors(self, features: dict[str, Tensor], side: str) -> Tensor:
        """The model's vectors of one padded group, (n, D) float32."""
        return self.model.encode(features, side).float()

    def represent(self, texts: Texts, seed: Sequence[int]) -> Representation:
        """Vectors of all texts, ready to take a gradient."""
        with torch.set_grad_enabled(self.chunk is None):
            outputs = [self.encode(texts, number, seed) for number in range(len(texts.groups))]
        places = torch.tensor([place for _, group in texts.groups for place in group], device=outputs[0].device)
        leaf = torch.ones(len(texts.tokens), outputs[0].shape[1], device=outputs[0].device)
        leaf[places] = torch.cat([output.detach() for output in outputs])
        return Representation(self, texts, seed, leaf.requires_grad_(), outputs if self.chunk is None else [])


@dataclass
class Representation:
    """Vectors of texts, (T, D), cut off from the network until `backward` connects them again."""

    forward: Forward
    texts: Texts
    seed: Sequence[int]
    leaf: Tensor
    outputs: list[Tensor] = field(default_factory=list)

    def backward(self) -> None:
        """Send the vectors' gradients into the weights."""
        gradients = self.leaf.grad
        if gradients is None:
            return
        parts = [gradients[group] for _, group in self.texts.groups]
        if self.outputs:
            torch.autograd.backward(self.outputs, parts)
            return
        for number, part in enumerate(parts):
            self.forward.encode(self.texts, number, self.seed).backward(part)


@dataclass(frozen=True)
class Share:
    """What one process does of a micro-batch: the whole micro-batch's names, and its own texts."""

    batch: Batch
    texts: Texts
    query_ids: list[str]
    document_ids: list[str]
    positives: list[set[str]]


def prepare(forward: Forward, batch: Batch, group: Group) -> Share:
    """Draw up this process's share of a micro-batch (no model arithmetic: it may run ahead in another thread)."""
    examples = forward.examples
    positives = [set(examples.document_ids(examples.positives[int(row)])) for row in batch.rows]
    ids = examples.queries.take(_arrow(batch.rows)).to_pylist()
    texts = forward.texts(batch.part(group.rank, group.world))
    return Share(batch, texts, ids, examples.document_ids(batch.documents), positives)


def _arrow(rows: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.array(rows)


def add_gradients(forward: Forward, objective: Objective, share: Share, group: Group, seed: Sequence[int],
                  scale: Tensor | float = 1.0) -> dict[str, Tensor]:  # fmt: skip
    """Add the gradient of the micro-batch's loss, times `scale`, to the weights; this process's part of it.

    The parts of all processes, added, are the gradient of the loss of the whole micro-batch.

    Returns:
        the loss terms of the whole micro-batch, detached.
    """
    held = forward.represent(share.texts, [*seed, group.rank])
    own = len(share.texts.documents)
    queries, documents = held.leaf[:own], held.leaf[own:][torch.from_numpy(share.texts.documents).to(held.leaf.device)]
    teacher = None if share.batch.teacher is None else torch.from_numpy(share.batch.teacher).to(queries.device)
    encoded = Encoded(share.batch.step, group.gather(queries), group.gather(documents), share.query_ids,
                      share.document_ids, share.positives, teacher)  # fmt: skip
    terms = objective(encoded)
    if terms:
        (torch.stack(list(terms.values())).sum() * scale).backward()
        held.backward()
    direct = objective.direct(forward.model, share.batch.step, group.rank, group.world)
    if direct:
        (torch.stack(list(direct.values())).sum() * scale).backward()
    shares = {name: group.total(value.detach().clone()) for name, value in direct.items()}
    return {name: value.detach() for name, value in terms.items()} | shares
