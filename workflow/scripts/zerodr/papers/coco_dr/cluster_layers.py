"""Record what passes the compared layers: inputs and gradients of outputs, sorted by the cluster of each text.

A text belongs to one cluster, so a token's contribution to a weight's gradient does, too: of inputs a and output
gradients delta of a cluster's tokens, delta^T a is that cluster's gradient. Gradients of outputs come
from hooks on tensors; one weight's contributions of all passes of a step are taken together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zerodr.errors import ModelError

LIKE = 0.75  # clusters are multiplied together when the smaller has at least this part of the larger's rows


def compared_layers(model: Any, count: int) -> dict[str, list[nn.Module]]:
    """Select the last `count` transformer layers of each tower (all, where there are fewer), first ones first.

    Raises:
        ModelError: a tower has no list of its layers.
    """
    layers = {}
    for name, tower in model.towers.items():
        transformer = tower.transformer
        depth = getattr(transformer.config, "num_hidden_layers", None)
        stacks = [m for m in transformer.modules() if isinstance(m, nn.ModuleList) and len(m) == depth]
        if not stacks:
            problem = f"has no stack of {depth} layers, groups compare gradients of the last ones"
            raise ModelError(model.contract.source, problem, "set groups.layers: all")
        layers[name] = list(stacks[-1])[-count:]
    return layers


@dataclass
class Record:
    """One linear layer or layer norm, and what passed it in a step, pass by pass.

    Attributes:
        module: the layer.
        tower: whose it is; `shared` where both sides have one.
        inputs: (n, L, in) of each pass.
        outputs: (n, L, out), with graph.
        deltas: (n, L, out) gradient of the loss with respect to each output.
    """

    module: nn.Module
    tower: str
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    deltas: dict[int, Tensor] = field(default_factory=dict)

    def keep(self, spare: bool, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Forward hook."""
        number = len(self.inputs)
        self.inputs.append(inputs[0].detach())
        self.outputs.append(output)
        if spare:
            output.register_hook(partial(self.deltas.__setitem__, number))

    def clear(self) -> None:
        """Forget the step."""
        self.inputs, self.outputs, self.deltas = [], [], {}


def leaves(layer: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """List modules of a layer that hold trained weights themselves."""
    for name, module in layer.named_modules():
        if any(weight.requires_grad for weight in module.parameters(recurse=False)):
            yield name, module


class Watch:
    """Records what passes the compared layers of a model.

    Args:
        model: a BiEncoder.
        count: last layers of each tower.

    Raises:
        ModelError: a layer holds weights of another kind than linear layers and layer norms.
    """

    def __init__(self, model: Any, count: int) -> None:
        self.records: list[Record] = []
        for tower, layers in compared_layers(model, count).items():
            for layer in layers:
                for name, module in leaves(layer):
                    if not isinstance(module, nn.Linear | nn.LayerNorm):
                        raise ModelError(
                            f"{model.contract.source}, {name}",
                            f"is a {type(module).__name__}, engine segment reads linear layers and layer norms",
                            "set similarity: dot and layers: all of groups, without exclude_self",
                        )
                    self.records.append(Record(module, tower))
        recorded = {id(weight) for record in self.records for weight in record.module.parameters(recurse=False)}
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        self.carries = bool(trained) and id(trained[0]) not in recorded  # gradients pass the layers for others below

    @contextmanager
    def open(self, spare: bool) -> Iterator[None]:
        """Record while open.

        Args:
            spare: the backward pass brings output gradients here, and leaves these layers' weights out: their gradients
                follow from the records (`Sums`), at no second cost.
        """
        weights = [w for r in self.records for w in r.module.parameters(recurse=False) if w.requires_grad]
        hooks = []
        for record in self.records:
            record.clear()
            hooks.append(record.module.register_forward_hook(partial(record.keep, spare)))
        for weight in weights:
            weight.requires_grad_(not spare)
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            for weight in weights:
                weight.requires_grad_(True)

    def clear(self) -> None:
        """Forget the step."""
        for record in self.records:
            record.clear()


@dataclass(frozen=True)
class Layout:
    """Rows (tokens) of all passes, sorted by cluster: clusters with most rows first, like sizes padded to one length.

    Attributes:
        positions: for each pass the position of each of its rows; the one after the last is for rows that don't count.
        empty: (E,) positions that no row has, which hold zeros.
        clusters: (m,) the batch's clusters that have rows here, in this order.
        numbers: the same, on the host.
        runs: (clusters, length) of each run of clusters of one padded length.
        sizes: rows of each of `clusters`, padding not counted.
    """

    positions: list[Tensor]
    empty: Tensor
    clusters: Tensor
    numbers: list[int]
    runs: list[tuple[int, int]]
    sizes: list[int]

    @classmethod
    def of(cls, owners: Sequence[np.ndarray], device: torch.device) -> Layout:
        """Make a layout from the cluster of every row of each pass, -1 for rows that count for none (padding)."""
        owner = np.concatenate(owners)
        rows = np.flatnonzero(owner >= 0)
        sizes = np.bincount(owner[rows])
        clusters = np.argsort(-sizes, kind="stable")[: int((sizes > 0).sum())]
        order = rows[np.argsort(owner[rows], kind="stable")]
        starts = np.cumsum(sizes) - sizes
        runs: list[tuple[int, int]] = []
        first = size = 0
        position = np.empty(len(owner), np.int64)
        filled = []
        while first < len(clusters):
            length = int(sizes[clusters[first]])
            last = first + int((sizes[clusters[first:]] >= LIKE * length).sum())
            for number in clusters[first:last]:
                filled.append(np.arange(size, size + sizes[number]))
                position[order[starts[number] : starts[number] + sizes[number]]] = filled[-1]
                size += length
            runs.append((last - first, length))
            first = last
        position[owner < 0] = size
        empty = np.setdiff1d(np.arange(size), np.concatenate(filled), assume_unique=True)
        cuts = np.cumsum([len(owned) for owned in owners])[:-1]
        return cls(
            [torch.from_numpy(owned).to(device) for owned in np.split(position, cuts)],
            torch.from_numpy(empty).to(device),
            torch.from_numpy(clusters).to(device),
            clusters.tolist(),
            runs,
            sizes[clusters].tolist(),
        )

    @property
    def size(self) -> int:
        """R, rows with padding."""
        return sum(clusters * length for clusters, length in self.runs)

    def rows(self, passes: Sequence[Tensor]) -> Tensor:
        """Sort and pad rows of tensors (n, L, d) of each pass, (R, d)."""
        ordered = passes[0].new_empty(self.size + 1, passes[0].shape[-1])
        ordered.index_fill_(0, self.empty, 0)
        for x, positions in zip(passes, self.positions, strict=True):
            ordered.index_copy_(0, positions, x.reshape(-1, x.shape[-1]))
        return ordered[:-1]

    def blocks(self, rows: Tensor) -> list[Tensor]:
        """View sorted rows (R, d) as (clusters, length, d) of each run."""
        runs = rows.split([clusters * length for clusters, length in self.runs])
        return [run.view(clusters, length, -1) for run, (clusters, length) in zip(runs, self.runs, strict=True)]

    def sums(self, rows: Tensor) -> Tensor:
        """Sum each cluster's rows, (R, d) -> (m, d) float32."""
        return torch.cat([block.sum(1, dtype=torch.float32) for block in self.blocks(rows)])


class Layouts:
    """Layouts of a step.

    Args:
        texts: what was encoded (gradcache.Texts).
        owner: (T,) cluster of each text.
        device: of the model.
    """

    def __init__(self, texts: Any, owner: np.ndarray, device: torch.device) -> None:
        self.texts, self.owner, self.device = texts, owner, device
        self.layouts: dict[tuple, Layout] = {}
        self.last: tuple[list[Any], Tensor] = ([], torch.empty(0))

    def inputs(self, record: Record) -> Tensor:
        """Sort rows of a layer's inputs, (R, in); layers that follow each other may have the same."""
        layout, key = self.of(record), [(x.data_ptr(), x.shape) for x in record.inputs]
        if key != self.last[0]:
            self.last = (key, layout.rows(record.inputs))
        return self.last[1]

    def of(self, record: Record) -> Layout:
        """Return the layout of what passed one layer."""
        passes = [numbers for side, numbers in self.texts.groups if record.tower in ("shared", side)]
        if len(passes) != len(record.inputs):
            problem = f"a compared layer was passed {len(record.inputs)} times, expected {len(passes)}"
            raise ModelError(
                record.tower, problem, "set similarity: dot and layers: all of groups, without exclude_self"
            )
        widths = tuple(x.shape[:-1].numel() // len(numbers) for x, numbers in zip(record.inputs, passes, strict=True))
        key = (record.tower, widths)
        if key not in self.layouts:
            owners = [self._owners(numbers, width) for numbers, width in zip(passes, widths, strict=True)]
            self.layouts[key] = Layout.of(owners, self.device)
        return self.layouts[key]

    def _owners(self, numbers: list[int], width: int) -> np.ndarray:
        """Return the cluster of each row of a pass; padding, where rows are tokens, has none."""
        lengths = np.array([len(self.texts.tokens[number]) for number in numbers])
        owners = np.repeat(self.owner[numbers][:, None], width, axis=1)
        if width == lengths.max():
            owners[np.arange(width)[None, :] >= lengths[:, None]] = -1
        return owners.ravel()
