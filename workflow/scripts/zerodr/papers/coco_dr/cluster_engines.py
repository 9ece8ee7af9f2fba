"""Compute the agreement of cluster gradients (COCO-DR eq. 12): two engines with the same results.

`segment` reads the backward pass of training itself where it can, or takes one of its own through the compared layers.
`jvp` needs no assumption on the model or on which cluster a text belongs to.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from zerodr.papers.coco_dr import cluster_sums
from zerodr.papers.coco_dr.cluster_layers import Layouts, Watch, compared_layers
from zerodr.papers.coco_dr.settings import EngineName, GroupSettings
from zerodr.training.objectives.base import Turn

Gradients = tuple[Tensor | None, ...]


@dataclass(frozen=True)
class Agreement:
    """Inner products of the gradients of the batch's n clusters.

    Attributes:
        gram: (n, n) float64, or None.
        rows: (n,) float64 product of each with sum_j coefficients_j gradient_j; without `gram`, of unit vectors or
            without itself where the settings compare so.
    """

    gram: Tensor | None
    rows: Tensor


class ClusterEngine:
    """Base of engines.

    Attributes:
        by_group: each text must belong to one group.
        rides: can read the backward pass of training.
    """

    by_group = False
    rides = False

    def watching(self, spare: bool) -> AbstractContextManager[None]:
        """Open while texts are encoded; `spare`: the backward pass of training will be read."""
        return nullcontext()

    def products(self, turn: Turn, members: Tensor, losses: Tensor, coefficients: Tensor) -> Agreement:
        """Compute products by separate passes, before the backward pass of training.

        Args:
            members: (B,) cluster of each query, 0 to n - 1.
            losses: (n,) cluster means, with graph to the vectors.
            coefficients: (n,) float64.
        """
        raise NotImplementedError

    def read(self, turn: Turn, members: Tensor, factors: Tensor, coefficients: Tensor) -> Agreement:
        """Read products from training's backward pass, with cluster k's gradient scaled by factors_k; (n,) float64."""
        raise NotImplementedError

    def fill(self, turn: Turn, members: Tensor) -> None:
        """Gradients that the backward pass of training left out, when it is not read."""

    def forget(self) -> None:
        """Drop the step's records."""


class SegmentEngine(ClusterEngine):
    """Products with each cluster's gradient: all of them in one process, in several those with one sum.

    Attributes:
        owners: cluster of each of the batch's parts, whose gradients are added up; None: parts are clusters.
        clusters: their number.

    Args:
        settings: whether gradients are compared as unit vectors, and whether with themselves.
    """

    by_group = True

    def __init__(self, model: Any, layers: int, settings: GroupSettings) -> None:
        self.watch = Watch(model, layers)
        self.rides = self.watch.carries
        self.unit, self.exclude_self = settings.similarity == "cosine", settings.exclude_self
        self.room = cluster_sums.Room()
        self.owners: Tensor | None = None
        self.clusters = 0

    def watching(self, spare: bool) -> AbstractContextManager[None]:
        """Record the compared layers."""
        return self.watch.open(spare)

    def products(self, turn: Turn, members: Tensor, losses: Tensor, coefficients: Tensor) -> Agreement:
        """Compute products by a backward pass from the vectors to the compared layers."""
        upstream = vector_gradients(turn, (losses * turn.scale).sum())
        outputs = [output for record in self.watch.records for output in record.outputs]
        vectors = [vectors for vectors, _ in turn.held.passes]
        gradients = iter(torch.autograd.grad(vectors, outputs, upstream, retain_graph=True, allow_unused=True))
        for record in self.watch.records:
            for number, output in enumerate(record.outputs):
                delta = next(gradients)
                record.deltas[number] = torch.zeros_like(output) if delta is None else delta
        factors = torch.full((len(losses),), float(turn.scale), dtype=torch.float64)
        return self._take(turn, members, factors, coefficients, spare=False)

    def read(self, turn: Turn, members: Tensor, factors: Tensor, coefficients: Tensor) -> Agreement:
        """Read products from output gradients that hooks recorded; add the weights' gradients, too."""
        return self._take(turn, members, factors, coefficients, spare=True)

    def fill(self, turn: Turn, members: Tensor) -> None:
        """Add the compared weights' gradients."""
        cluster_sums.add_plain(self.watch.records, self._layouts(turn, members))

    def forget(self) -> None:
        """Drop activations."""
        self.watch.clear()

    def _layouts(self, turn: Turn, members: Tensor) -> Layouts:
        documents = turn.held.texts.documents
        first = turn.group.rank * len(documents)
        of_queries = members[first : first + len(documents)].cpu().numpy()
        owner = np.zeros(len(turn.held.texts.tokens), np.int64)
        owner[: len(of_queries)] = of_queries
        if len(owner) > len(of_queries):  # else documents keep their vectors (keep_index) and are not encoded
            owner[len(of_queries) + documents] = of_queries[:, None]
        return Layouts(turn.held.texts, owner, turn.held.leaf.device)

    def _take(self, turn: Turn, members: Tensor, factors: Tensor, coefficients: Tensor, spare: bool) -> Agreement:
        layouts = self._layouts(turn, members)
        if self.owners is not None:
            how = (self.owners, factors, self.clusters, turn.group, spare, self.room)
            whole = cluster_sums.summed_gram(self.watch.records, layouts, *how)
            return Agreement(whole, whole.sum(1))
        if turn.group.world == 1:
            gram = cluster_sums.gram(self.watch.records, layouts, len(factors), spare, self.room)
            gram = gram / factors[:, None] / factors[None, :]
            return Agreement(gram, gram @ coefficients)
        presence = functional.one_hot(members.cpu().view(turn.group.world, -1), len(factors)).amax(1)
        split = (presence.sum(0) > 1).tolist()
        norms = cluster_sums.norms(self.watch.records, layouts, split, turn.group, spare, self.room)
        scales = torch.where(norms > 0, 1 / norms, 0.0) if self.unit else 1 / factors
        rows = scales * cluster_sums.rows(self.watch.records, layouts, coefficients * scales, turn.group)
        return Agreement(None, rows - coefficients * (scales * norms).square() if self.exclude_self else rows)


class Weights(ClusterEngine):
    """Base of engines that differentiate with respect to weights."""

    def __init__(self, model: Any, layers: int | None) -> None:
        chosen = (
            model
            if layers is None
            else nn.ModuleList([nn.ModuleList(stack) for stack in compared_layers(model, layers).values()])
        )
        self.weights = [weight for weight in chosen.parameters() if weight.requires_grad]
        mine = {id(weight) for weight in self.weights}
        self.locations = [
            (module, name)
            for module in model.modules()
            for name, weight in module.named_parameters(recurse=False)
            if id(weight) in mine
        ]

    def gradients(self, turn: Turn, upstream: Sequence[Tensor]) -> list[Tensor]:
        """Compute gradients of the weights from those of vectors, `upstream`; add them up over processes."""
        held = turn.held
        if held.passes:
            vectors = [vectors for vectors, _ in held.passes]
            sums = _filled(
                torch.autograd.grad(vectors, self.weights, upstream, retain_graph=True, allow_unused=True), self.weights
            )
        else:
            sums = [torch.zeros_like(weight) for weight in self.weights]
            for number, gradient in enumerate(upstream):
                vectors = held.forward.encode(held.texts, number, held.seed)
                gradients = torch.autograd.grad(vectors, self.weights, gradient, allow_unused=True)
                sums = [total + one for total, one in zip(sums, _filled(gradients, self.weights), strict=True)]
        turn.group.add_gradients(sums)
        return sums


class DirectionalEngine(Weights):
    """s_i as the derivative of loss i along the sum of all clusters' gradients: one backward and one forward-mode pass.

    The forward-mode pass replays dropout. On a GPU it takes torch's plain attention, whose dropout draws otherwise.
    """

    def products(self, turn: Turn, members: Tensor, losses: Tensor, coefficients: Tensor) -> Agreement:
        """Compute products with the sum."""
        together = (losses * coefficients.to(losses)).sum() * turn.scale
        direction = self.gradients(turn, vector_gradients(turn, together))
        length = torch.stack([component.double().square().sum() for component in direction]).sum().sqrt()
        if not bool(length > 0) or not bool(length.isfinite()):
            return Agreement(None, torch.full((len(losses),), 0.0 if bool(length == 0) else torch.nan).double())
        tangents = self._tangents(turn, [component / length.to(component) for component in direction])
        units = torch.ones_like(losses, requires_grad=True)
        (slopes,) = torch.autograd.grad((units * losses).sum(), turn.held.leaf, create_graph=True)
        (gradient,) = torch.autograd.grad((slopes * tangents).sum(), units, retain_graph=True)
        rows = gradient.double()
        turn.group.add_gradients([rows])
        return Agreement(None, rows.cpu() * length.cpu() / float(turn.scale))

    def _tangents(self, turn: Turn, direction: list[Tensor]) -> Tensor:
        """Compute derivatives of this process's vectors along `direction`, (T, D)."""
        held = turn.held
        tangents = torch.zeros_like(held.leaf)
        along = {id(weight): component for weight, component in zip(self.weights, direction, strict=True)}
        for number in range(len(held.texts.groups)):
            with torch.no_grad(), forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH), self._moved(along):
                tangent = forward_ad.unpack_dual(held.forward.encode(held.texts, number, held.seed)).tangent
                if tangent is not None:
                    tangents[held.forward.rows(held.texts, number)] = tangent
        return tangents.detach()

    @contextmanager
    def _moved(self, along: dict[int, Tensor]) -> Iterator[None]:
        """Give the model weights that carry tangents."""
        originals = [module._parameters[name] for module, name in self.locations]
        try:
            for (module, name), weight in zip(self.locations, originals, strict=True):
                assert weight is not None
                module._parameters[name] = forward_ad.make_dual(weight.detach(), along[id(weight)])  # type: ignore
            yield
        finally:
            for (module, name), weight in zip(self.locations, originals, strict=True):
                module._parameters[name] = weight


def make_engine(name: EngineName, model: Any, settings: GroupSettings) -> ClusterEngine:
    """Make the engine of a name for a model."""
    if name == "segment":
        assert settings.layers != "all", "of choose_engine"
        return SegmentEngine(model, settings.layers, settings)
    return DirectionalEngine(model, None if settings.layers == "all" else settings.layers)


def vector_gradients(turn: Turn, loss: Tensor) -> list[Tensor]:
    """Compute the gradient of a loss with respect to the vectors of each pass."""
    (gradient,) = torch.autograd.grad(loss, turn.held.leaf, retain_graph=True)
    held = turn.held
    return [gradient[held.forward.rows(held.texts, number)] for number in range(len(held.texts.groups))]


def _filled(gradients: Gradients, weights: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(weight) if g is None else g for g, weight in zip(gradients, weights, strict=True)]
