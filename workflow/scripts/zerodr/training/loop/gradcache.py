"""Pass from texts to vectors and from the loss back to weights, with the same gradient with and without caching.

The objective is a function of vectors. So its gradient with respect to the vectors is taken first; then each group of
texts sends its part back through the network. With caching, a group's activations are thrown away and made again when
its turn comes (Gao et al. 2021, Scaling deep contrastive learning batch size), under the same random numbers. Losses of
a group's own (a language model's, of its tokens) join that second pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zerodr.encoders.network.moving import Features, features_on, on_device, pinned
from zerodr.training.data.batches import WASTE, length_groups
from zerodr.training.data.examples import Examples, known_positives
from zerodr.training.data.tokens import SharedTokens
from zerodr.training.distributed.overlap import GradientSums
from zerodr.training.distributed.processes import Group
from zerodr.training.objectives.base import Encoded, Objective, Turn

LOSS = 2**31  # in place of a group's number: random numbers of the loss
GATHERED = ("known", "teacher", "groups")  # numbers of the whole micro-batch that objectives see


@dataclass(frozen=True)
class Texts:
    """The distinct texts of one process's shard of a batch, tokenised: B queries, then documents.

    Attributes:
        tokens: token ids of each text, as the model's `pad` takes them.
        documents: (B, 1 + K) position of each document among the distinct ones.
        groups: (side, positions of texts) that are encoded together. A text in no group has the vector of ones.
        features: of each group, padded, on the host (`Forward.padded`).
        rows: of each group, its rows of the representation, (n,) int64.
    """

    tokens: list[Any]
    documents: np.ndarray
    groups: list[tuple[str, list[int]]]
    features: list[Features] = field(default_factory=list, kw_only=True)
    rows: list[Tensor] = field(default_factory=list, kw_only=True)


@dataclass
class Forward:
    """Encoding in training. Subclasses do so for other data than mined queries.

    Attributes:
        model: a BiEncoder (encoders/network/trainable.py), with its arithmetic.
        chunk: texts that hold activations at once; None keeps all.
        by_group: encode a document once for each group (cluster of queries) that has it, so that each text has one.
        shared: tokens of texts that were asked for before.
    """

    model: Any
    examples: Any
    device: str
    chunk: int | None = None
    by_group: bool = False
    shared: SharedTokens = field(default_factory=SharedTokens, kw_only=True, repr=False)
    unit = "queries"  # what a batch counts, for messages
    has_vectors = True  # False: there is nothing but losses of the groups' own

    @property
    def normalized(self) -> bool:
        """Whether the model's vectors have length 1."""
        contract = getattr(self.model, "contract", None)  # some models have none, or no vectors
        return bool(getattr(contract, "normalize", False))

    def prepare(self, batch: Any, group: Group) -> Share:
        """Prepare this process's share of a micro-batch (no model arithmetic: it may run ahead in another thread)."""
        batch = batch.sorted_by_group() if self.by_group and group.world > 1 else batch
        texts = self.padded(self.texts(batch.shard(group.rank, group.world)))
        numbers = {name: pinned(torch.from_numpy(of), self.device) for name, of in self.numbers(batch, texts).items()}
        return Share(batch, texts, numbers)

    def numbers(self, batch: Any, texts: Any) -> dict[str, np.ndarray]:
        """Look up what `view` needs of the whole micro-batch, and of this process's texts."""
        examples: Examples = self.examples
        every = {"teacher": batch.teacher, "groups": batch.groups, "documents": texts.documents}
        every["known"] = known_positives(examples, batch.rows, batch.documents)
        return {name: array for name, array in every.items() if array is not None}

    def padded(self, texts: Any) -> Any:
        """Return texts with each group's tensors on the host, for a GPU in pinned memory."""
        numbers = range(len(texts.groups))
        features = [self.features(texts, number) for number in numbers]
        rows = [pinned(torch.tensor(self.row_numbers(texts, number)), self.device) for number in numbers]
        pinned_features = [{name: pinned(of, self.device) for name, of in group.items()} for group in features]
        return replace(texts, features=pinned_features, rows=rows)

    def features(self, texts: Any, number: int) -> Features:
        """Pad the texts of one group."""
        return self.model.pad([texts.tokens[position] for position in texts.groups[number][1]])

    def names(self, batch: Any, count: int) -> list[str]:
        """Look up the names of the first `count` items of a batch, for messages."""
        return self.examples.queries.take(_arrow(batch.rows[:count])).to_pylist()

    def texts(self, batch: Any) -> Texts:
        """Tokenise the distinct texts of (a process's shard of) a batch."""
        span = len(self.examples.documents)
        codes = batch.documents + (batch.groups[:, None] * span if self.by_group else 0)
        distinct, inverse = np.unique(codes, return_inverse=True)
        queries = self.tokens(self.examples.texts_of_queries(batch.rows), "query")
        documents = self.tokens(self.examples.texts_of_documents(distinct % span), "document")
        tokens, first = [*queries, *documents], len(queries)
        groups = self.passes(tokens, range(first), range(first, len(tokens)))
        return Texts(tokens, inverse.reshape(batch.documents.shape), groups)

    def tokens(self, texts: Sequence[str], side: str) -> list[Any]:
        """Tokenise texts of a side; those of earlier steps are remembered."""
        return self.shared.of(self.model.tokenizer, self.model.call(side), texts)

    def close(self) -> None:
        """Store the tokens of texts that were not stored yet."""
        self.shared.close()

    def passes(
        self, tokens: Sequence[Any], queries: Sequence[int], documents: Sequence[int]
    ) -> list[tuple[str, list[int]]]:
        """Group texts that are encoded together, by side; `queries` and `documents` are positions among `tokens`."""
        tied = self.model.contract.towers == "tied"
        sides = [("document", range(len(tokens)))] if tied else [("query", queries), ("document", documents)]
        waste = WASTE[torch.device(self.device).type]
        return [
            (side, [positions[index] for index in group])
            for side, positions in sides
            for group in length_groups([len(tokens[position]) for position in positions], waste, self.chunk)
        ]

    def row_numbers(self, texts: Any, number: int) -> list[int]:
        """List the rows of the representation with the vectors of one group: its texts' positions."""
        return texts.groups[number][1]

    def rows(self, texts: Any, number: int) -> Tensor:
        """Return `row_numbers` on the device."""
        return on_device(texts.rows[number], self.device)

    def count(self, texts: Any) -> int:
        """Count rows of the representation."""
        return len(texts.tokens)

    def encode(self, texts: Any, number: int, seed: Sequence[int]) -> Tensor:
        """Encode one group, (n, D) float32. Random numbers depend on (seed, number) alone."""
        set_random(seed, number)
        return self.vectors(features_on(texts.features[number], self.device), texts.groups[number][0])

    def vectors(self, features: dict[str, Tensor], side: str) -> Tensor:
        """Return the model's vectors of one padded group, (n, D) float32."""
        return self.model.encode(features, side).float()

    def totals(self, texts: Any, group: Group) -> Mapping[str, float | Tensor]:
        """Return divisors of the losses of all groups of all processes, by name; nothing without such losses."""
        return {}

    def run(
        self, texts: Any, number: int, seed: Sequence[int], totals: Mapping[str, float | Tensor]
    ) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Encode one group as `encode`, and compute its losses: its share of each named mean."""
        return self.encode(texts, number, seed), {}

    def view(self, share: Share, leaf: Tensor, group: Group) -> Any:
        """Return what the objective sees: vectors of all processes, from this process's `leaf` (T, D)."""
        count = len(share.texts.documents)
        queries, documents = leaf[:count], leaf[count:][on_device(share.numbers["documents"], leaf.device)]
        return gathered(share, queries, documents, group)

    def represent(
        self, texts: Any, seed: Sequence[int], totals: Mapping[str, float | Tensor] | None = None
    ) -> Representation:
        """Encode all texts, ready to take a gradient."""
        totals = totals or {}
        if not self.has_vectors:
            return Representation(self, texts, seed, totals, None)
        numbers = range(len(texts.groups))
        passes: list[tuple[Tensor | None, dict[str, Tensor]]] = []
        if self.chunk is None:
            passes = [self.run(texts, number, seed, totals) for number in numbers]
            outputs = [vectors for vectors, _ in passes if vectors is not None]
        else:
            with torch.no_grad():
                outputs = [self.encode(texts, number, seed) for number in numbers]
        leaf = torch.ones(self.count(texts), outputs[0].shape[1], device=outputs[0].device)
        rows = torch.cat([self.rows(texts, number) for number in numbers])
        leaf[rows] = torch.cat([output.detach() for output in outputs])
        return Representation(self, texts, seed, totals, leaf.requires_grad_(), passes)


def set_random(seed: Sequence[int], number: int) -> None:
    """Seed the random numbers of a group's pass through the network."""
    word = np.random.SeedSequence([*seed, number]).generate_state(1, np.uint64)[0]
    torch.manual_seed(int(word >> np.uint64(1)))


@dataclass
class Representation:
    """Vectors of texts (and of their units), (T, D), cut off from the network until `backward` connects them again.

    Attributes:
        leaf: the vectors; None where there are only losses of the groups' own.
        passes: vectors and losses of each group with their activations, or nothing: they are made again.
    """

    forward: Forward
    texts: Any
    seed: Sequence[int]
    totals: Mapping[str, float | Tensor]
    leaf: Tensor | None
    passes: list[tuple[Tensor | None, dict[str, Tensor]]] = field(default_factory=list)

    def backward(self, scale: Tensor | float = 1.0, sums: GradientSums | None = None) -> dict[str, Tensor]:
        """Send gradients of vectors and of the groups' losses times `scale`, into the weights; return these losses.

        Args:
            sums: reduces gradients across processes during the last backward pass of a step.
        """
        gradients = None if self.leaf is None else self.leaf.grad
        if gradients is None and not self.totals:
            return {}
        totals: dict[str, Tensor] = {}
        roots: list[Tensor] = []
        upstream: list[Tensor] = []
        last = len(self.texts.groups) - 1
        for number in range(last + 1):
            outcome = (
                self.passes[number] if self.passes else self.forward.run(self.texts, number, self.seed, self.totals)
            )
            vectors, losses = outcome
            if vectors is not None and gradients is not None:
                roots.append(vectors)
                upstream.append(gradients[self.forward.rows(self.texts, number)])
            for name, loss in losses.items():
                totals[name] = totals.get(name, 0.0) + loss.detach()
                roots.append(loss)
                upstream.append(torch.ones_like(loss) * scale)
            if number == last and sums is not None:
                sums.open()
            if roots and (number == last or not self.passes):
                torch.autograd.backward(roots, upstream)
                roots, upstream = [], []
        return totals


@dataclass(frozen=True)
class Share:
    """One process's share of a micro-batch.

    Attributes:
        batch: the whole micro-batch.
        texts: this process's.
        numbers: that `Forward.view` needs, on the host.
    """

    batch: Any
    texts: Any
    numbers: Features = field(default_factory=dict)


def gathered(share: Share, queries: Tensor, documents: Tensor, group: Group) -> Encoded:
    """Return the vectors of all processes, as objectives see them, from this process's (B, D) and (B, 1 + N, D)."""
    numbers = features_on({name: of for name, of in share.numbers.items() if name in GATHERED}, queries.device)
    return Encoded(share.batch.step, group.gather(queries), group.gather(documents), **numbers)


def prepare(forward: Forward, batch: Any, group: Group) -> Share:
    """Draw up this process's share of a micro-batch."""
    return forward.prepare(batch, group)


def _arrow(rows: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.array(rows)


def compare_terms(terms: dict[str, Tensor], vectors: Tensor, group: Group, normalized: bool) -> dict[str, Tensor]:
    """Compare the gradients that the terms of a loss send to the vectors (T, D) of a micro-batch.

    Args:
        normalized: vectors have length 1, so the part of a gradient along its vector does not reach the network.

    Returns:
        `vector_gradient.<term>`, its norm, and `vector_gradient_cosine.<term>` with that of the first one, detached;
        nothing of one term.
    """
    if len(terms) < 2:
        return {}
    gradients = torch.stack([_gradient_of(value, vectors, normalized) for value in terms.values()])
    products = group.total(gradients @ gradients.T)
    norms = products.diagonal().clamp(min=0).sqrt()
    cosines = products[0] / (norms[0] * norms).clamp(min=torch.finfo(norms.dtype).tiny)
    names = list(terms)
    return {f"vector_gradient.{name}": norms[number] for number, name in enumerate(names)} | {
        f"vector_gradient_cosine.{name}": cosines[number] for number, name in enumerate(names) if number
    }


def _gradient_of(term: Tensor, vectors: Tensor, normalized: bool) -> Tensor:
    """Compute the gradient of a term, (T * D,); 0 where it does not depend on the vectors."""
    gradient = None
    if term.requires_grad:
        (gradient,) = torch.autograd.grad(term, vectors, retain_graph=True, allow_unused=True)
    if gradient is None:
        return torch.zeros_like(vectors).flatten()
    if normalized:
        rows = vectors.detach()
        gradient = gradient - rows * ((gradient * rows).sum(1) / rows.square().sum(1))[:, None]
    return gradient.flatten()


def add_gradients(
    forward: Forward,
    objective: Objective,
    share: Share,
    group: Group,
    seed: Sequence[int],
    scale: Tensor | float = 1.0,
    sums: GradientSums | None = None,
    facts: dict[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Add the gradient of the micro-batch's loss, times `scale`, to the weights; this process's part of it.

    The parts of all processes, added, are the gradient of the loss of the whole micro-batch.

    Args:
        sums: adds the parts up, where this micro-batch is the step's last one.
        facts: filled with the comparison of terms; None: they are not compared.

    Returns:
        the loss terms of the whole micro-batch, detached.
    """
    with objective.watching():
        held = forward.represent(share.texts, [*seed, group.rank], forward.totals(share.texts, group))
    turn = None if held.leaf is None else Turn(forward.view(share, held.leaf, group), held, group, scale)
    terms: dict[str, Tensor] = {}
    if turn is not None:
        objective.before(turn)
        set_random(seed, LOSS)  # a loss that draws does so alike in all processes, with and without caching
        terms = objective(turn.batch)
        if facts is not None and held.leaf is not None:
            facts |= compare_terms(terms, held.leaf, group, forward.normalized)
    if terms:
        (torch.stack(list(terms.values())).sum() * scale).backward()
    sums = sums if objective.only_vectors else None
    group_losses = held.backward(scale, sums)
    if sums is not None:
        sums.close()
    if turn is not None:
        objective.after(turn)
    direct = objective.direct(forward.model, share.batch.step, group.rank, group.world)
    if direct:
        (torch.stack(list(direct.values())).sum() * scale).backward()
    shares = {name: group.total(value.detach().clone()) for name, value in (group_losses | direct).items()}
    return {name: value.detach() for name, value in terms.items()} | shares
