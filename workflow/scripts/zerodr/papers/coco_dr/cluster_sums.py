"""Gradients of clusters from records of the compared layers: the Gram matrix (`gram`), or products with a sum (`rows`).

All go weight by weight and keep nothing of it: `gram` and `norms` hold the clusters' gradients of one weight at a time,
`rows` those of a few clusters and one vector.

Of K clusters and P compared weights, several processes never add up K x P numbers. Rows of cosines need no Gram matrix:
row i is g_i / |g_i| . sum_j c_j g_j / |g_j|. `rows` adds up that sum, P numbers, and K products. `norms` adds up K
numbers, and gradients of the clusters that lie on several processes: at most W - 1 of them with W processes, since a
batch is sorted by cluster (training/data/batches.py) before processes share it out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from zerodr.papers.coco_dr.cluster_layers import Layout, Layouts, Record
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.speed import FastLinear, multiply


class Room:
    """Memory for the clusters' gradients of one weight, reused for all weights and steps."""

    def __init__(self) -> None:
        self.held = torch.empty(0)

    def take(self, rows: int, columns: int, device: torch.device) -> Tensor:
        """(rows, columns) float32, not initialised; valid until the next call."""
        if self.held.numel() < rows * columns or self.held.device != device:
            self.held = torch.empty(rows * columns, device=device)
        return self.held[: rows * columns].view(rows, columns)


@dataclass(frozen=True)
class WeightRecord:
    """One weight's view of a layer's records, rows sorted by cluster.

    Attributes:
        weight: the parameter.
        layout: of the rows.
        deltas: (R, out) output gradients.
        inputs: (R, in) of a matrix; None for vectors, whose cluster gradients are sums of `deltas`.
        fast: multiply as the layer itself does (training/loop/speed.py).
    """

    weight: nn.Parameter
    layout: Layout
    deltas: Tensor
    inputs: Tensor | None
    fast: bool = False

    def blocks(self, out: Tensor | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Runs of clusters with their gradients, (clusters, numel) float32; given `out` (m, numel), in its rows."""
        if self.inputs is None:
            run, gradients = slice(0, len(self.layout.clusters)), self.layout.sums(self.deltas)
            yield run, gradients if out is None else out.copy_(gradients)
            return
        first = 0
        for delta, a in zip(self.layout.blocks(self.deltas), self.layout.blocks(self.inputs), strict=True):
            run = slice(first, first + len(delta))
            first = run.stop
            gradients = (
                delta.new_empty((len(delta), self.weight.numel()), dtype=torch.float32) if out is None else out[run]
            )
            if self.fast and delta.dtype == torch.float32:
                for line, size, its_delta, its_input in zip(gradients, self.layout.sizes[run], delta, a, strict=True):
                    line.view_as(self.weight).copy_(multiply(its_delta[:size].t(), its_input[:size].t(), None))
            elif delta.dtype == torch.float32:
                torch.bmm(delta.transpose(1, 2), a, out=gradients.view(len(delta), *self.weight.shape))
            else:
                gradients.copy_(torch.bmm(delta.transpose(1, 2), a.to(delta.dtype)).flatten(1))
            yield run, gradients

    def whole(self, room: Room) -> Tensor:
        """Compute gradients of all clusters of the layout, (m, numel) float32."""
        out = room.take(len(self.layout.clusters), self.weight.numel(), self.deltas.device)
        for _ in self.blocks(out):
            pass
        return out

    def along(self, vector: Tensor) -> Tensor:
        """Compute the inner product of each cluster's gradient with `vector`, as the weight; (m,) float32."""
        if self.inputs is None:
            return self.layout.sums(self.deltas) @ vector.flatten()
        inputs, vector = self.inputs.to(self.deltas.dtype), vector.to(self.deltas.dtype)
        fast = self.fast and inputs.dtype == torch.float32
        moved = multiply(inputs, vector, None) if fast else functional.linear(inputs, vector)
        return self.layout.sums(moved.float().mul_(self.deltas).sum(1, keepdim=True))[:, 0]


def weight_records(records: list[Record], layouts: Layouts) -> Iterator[WeightRecord]:
    """List the trained weights of the compared layers, each with its layer's record."""
    for record in records:
        yield from _weights_of(record, layouts)


def _weights_of(record: Record, layouts: Layouts) -> Iterator[WeightRecord]:
    layout, module = layouts.of(record), record.module
    deltas = layout.rows([record.deltas[number] for number in range(len(record.inputs))])
    weight, bias = module.weight, module.bias
    if isinstance(weight, nn.Parameter) and weight.requires_grad:
        inputs = layouts.inputs(record)
        if isinstance(module, nn.LayerNorm):
            unit = functional.layer_norm(inputs.float(), module.normalized_shape, None, None, module.eps)
            yield WeightRecord(weight, layout, deltas * unit, None)
        else:
            yield WeightRecord(weight, layout, deltas, inputs, isinstance(module, FastLinear))
    if isinstance(bias, nn.Parameter) and bias.requires_grad:
        yield WeightRecord(bias, layout, deltas, None)


def add_to(weight: nn.Parameter, gradient: Tensor) -> None:
    """Add a gradient, (numel,), to a weight's."""
    gradient = gradient.view_as(weight).to(weight.dtype)
    weight.grad = gradient.clone() if weight.grad is None else weight.grad + gradient


def add_plain(records: list[Record], layouts: Layouts) -> None:
    """Add the weights' gradients alone, where similarities were computed otherwise."""
    for view in weight_records(records, layouts):
        total: Tensor | float = 0.0
        for _, block in view.blocks():
            total = total + block.sum(0)
        add_to(view.weight, torch.as_tensor(total))


def whole_gradients(
    records: list[Record], layouts: Layouts, spare: bool, room: Room
) -> Iterator[tuple[WeightRecord, Tensor]]:
    """Give the clusters' gradients of each weight, (m, numel), which last until the next; `spare`: add their sum."""
    for view in weight_records(records, layouts):
        whole = view.whole(room)
        if spare:
            add_to(view.weight, torch.ones(1, len(whole), device=whole.device) @ whole)
        yield view, whole


def gram(records: list[Record], layouts: Layouts, count: int, spare: bool, room: Room) -> Tensor:
    """Compute inner products of the clusters' gradients as they came (scaled) in one process, (n, n) float64.

    Args:
        count: n, clusters of the batch.
        spare: also add the weights' gradients.
        room: for the clusters' gradients of one weight.
    """
    products = torch.zeros(count, count, dtype=torch.float64)
    for view, whole in whole_gradients(records, layouts, spare, room):
        here = view.layout.clusters.cpu()
        products[here[:, None], here[None, :]] += (whole @ whole.T).double().cpu()
    return products


def summed_gram(
    records: list[Record],
    layouts: Layouts,
    owners: Tensor,
    factors: Tensor,
    clusters: int,
    group: Group,
    spare: bool,
    room: Room,
) -> Tensor:
    """Compute products of the clusters' gradients, added up over parts of the batch, (clusters, clusters) float64.

    As the released code it adds up `clusters` gradients over processes.

    Args:
        owners: (n,) cluster of each part; factors: (n,) what its gradient was scaled by.
        group: the processes.
        spare: also add the weights' gradients.
        room: for the parts' gradients of one weight.
    """
    products = torch.zeros(clusters, clusters, dtype=torch.float64)
    for view, whole in whole_gradients(records, layouts, spare, room):
        here = view.layout.clusters
        unscaled = whole / factors.to(whole)[here, None]
        sums = whole.new_zeros(clusters, whole.shape[1]).index_add_(0, owners.to(here)[here], unscaled)
        group.add_gradients([sums])
        products += (sums @ sums.T).double().cpu()
    return products


def norms(
    records: list[Record], layouts: Layouts, split: Sequence[bool], group: Group, spare: bool, room: Room
) -> Tensor:
    """Compute norms of the clusters' gradients as they came (scaled), (n,) float64.

    Args:
        split: (n,) whether a cluster lies on several processes.
        group: the processes; gradients are those of the whole batch.
        spare: also add the weights' gradients.
        room: for the clusters' gradients of one weight.
    """
    squares = torch.zeros(len(split), dtype=torch.float64, device=layouts.device)
    shared = [number for number, several in enumerate(split) if several]
    alone = torch.tensor([not several for several in split], device=layouts.device)
    for view, whole in whole_gradients(records, layouts, spare, room):
        here = view.layout.clusters
        squares[here] += whole.square().sum(1).double() * alone[here]
        if shared:
            local = [number for number in shared if number in view.layout.numbers]
            sums = whole.new_zeros(len(shared), whole.shape[1])
            sums[[shared.index(number) for number in local]] = whole[
                [view.layout.numbers.index(number) for number in local]
            ]
            group.add_gradients([sums])
            if group.rank == 0:
                squares[shared] += sums.square().sum(1).double()
    group.add_gradients([squares])
    return squares.sqrt().cpu()


def rows(records: list[Record], layouts: Layouts, coefficients: Tensor, group: Group) -> Tensor:
    """Compute the product of each cluster's gradient, as it came, with sum_j coefficients_j gradient_j; (n,) float64.

    Args:
        coefficients: (n,) factors of the clusters' gradients as they came.
        group: the processes; gradients are those of the whole batch.
    """
    products = torch.zeros(len(coefficients), dtype=torch.float64, device=layouts.device)
    for view in weight_records(records, layouts):
        clusters = view.layout.clusters
        factors = coefficients.to(clusters.device, torch.float32)[None, clusters]
        together = view.deltas.new_zeros((1, view.weight.numel()), dtype=torch.float32)
        for run, block in view.blocks():
            together.addmm_(factors[:, run], block)
        group.add_gradients([together])
        products[clusters] += view.along(together.view_as(view.weight)).double()
    group.add_gradients([products])
    return products.cpu()
