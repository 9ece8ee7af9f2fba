"""Count what a training step asks of a GPU, without one: on the meta device, where tensors have shapes and no numbers.

`waits`: times that the host waits for the device: numbers that it reads, choices whose size depends on numbers, and
tensors that go to the device other than asynchronously. `operations`: operations of torch that the host issues. With
`--processes` W it is one of W processes whose collectives do nothing.

Run from the project's root: python benchmarks/counting.py [--optimizer lamb] [--processes 2]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow" / "scripts"))

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READS = {"item": 1.0, "tolist": None, "__float__": 1.0, "__bool__": True, "__int__": 1}
SIZED = {"aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::equal"}
COPIES = {"aten::_to_copy", "aten::copy_"}


class Counts(TorchDispatchMode):
    """Counts of one stretch of code."""

    def __init__(self) -> None:
        super().__init__()
        self.operations, self.waits = Counter[str](), Counter[str]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function._schema.name
        result = function(*args, **kwargs)
        tensors = [value for value in tree_leaves((args, result)) if isinstance(value, Tensor)]
        if any(tensor.is_meta for tensor in tensors) or name.startswith("aten::_foreach"):
            self.operations[name] += 1
            if name in SIZED:
                self.waits[name] += 1
            mixed = any(not tensor.is_meta and tensor.dim() for tensor in tensors)  # single numbers go with the call
            copies = name in COPIES and not all(tensor.is_meta for tensor in tensors)
            if copies or mixed:
                self.waits[f"{name} from the host"] += not (copies and _asynchronous(args, kwargs))
        return result


def _asynchronous(args: Any, kwargs: Any) -> bool:
    return bool(kwargs.get("non_blocking")) or (len(args) > 2 and args[2] is True)


@contextmanager
def counted() -> Iterator[Counts]:
    """Count; numbers that are read from the meta device are ones."""
    counts = Counts()

    def reader(name: str, plain: Callable[..., Any], answer: Any) -> Callable[..., Any]:
        def read(tensor: Tensor) -> Any:
            if not tensor.is_meta:
                return plain(tensor)
            counts.waits[name] += 1
            return torch.ones(tensor.shape).tolist() if answer is None else answer

        return read

    plain_tensor = torch.tensor

    def tensor(data: Any, **how: Any) -> Tensor:
        counts.waits["tensor from the host"] += torch.device(how.get("device") or "cpu").type == "meta"
        return plain_tensor(data, **how)

    with ExitStack() as stack:
        for name, answer in READS.items():
            stack.enter_context(mock.patch.object(Tensor, name, reader(name, getattr(Tensor, name), answer)))
        stack.enter_context(mock.patch.object(torch, "tensor", tensor))
        stack.enter_context(counts)
        yield counts
    counts.waits += Counter()  # drops what was counted 0 times


class _Done:
    """A collective that has ended."""

    def wait(self) -> None:
        """Return at once."""


def _collective(*_: Any, **how: Any) -> _Done | None:
    return _Done() if how.get("async_op") else None


@contextmanager
def one_of(processes: int) -> Iterator[Any]:
    """A group of so many processes whose collectives do nothing."""
    from zerodr.training.distributed.processes import Group

    group, names = Group(), ("all_reduce", "all_gather")
    group.world = processes
    with ExitStack() as stack:
        for name in names if processes > 1 else ():
            stack.enter_context(mock.patch.object(torch.distributed, name, _collective))
        yield group


def step_counts(forward: Any, objective: Any, stream: Any, changes: dict[str, Any], processes: int = 1) -> Counts:
    """Counts of the second step of a training on the meta device, in one of several processes."""
    from zerodr.config.training import TrainingSettings
    from zerodr.training.data import batches
    from zerodr.training.loop.engine import Engine, Position, Run
    from zerodr.training.loop.feed import Feed
    from zerodr.training.optimizers import make_optimizer, schedule

    settings = TrainingSettings(**({"steps": 1000, "learning_rate": 1e-3, "checkpoint_steps": 1000} | changes))
    forward.device, forward.chunk = "meta", settings.cache_chunk
    forward.model.to("meta").train()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(mock.patch.dict(batches.WASTE, meta=batches.WASTE["cuda"]))
        stack.enter_context(
            mock.patch.object(torch, "autocast", lambda *_, **__: nullcontext())
        )  # knows no meta device
        stack.enter_context(mock.patch("torch.optim.adam._device_dtype_check_for_fused"))  # nor does this
        group = stack.enter_context(one_of(processes))
        optimizer = make_optimizer(forward.model, settings)
        run, factor = Run("count", Path(folder), "x", [0]), schedule("constant", 0, 1000)
        engine = Engine(forward, objective, stream, optimizer, factor, settings, run, group)
        position, feed = Position(), Feed(engine._shares, 2)
        objective.on_start(forward.model, "meta")
        with counted() as counts:
            engine._one(position, feed)
            counts.operations.clear(), counts.waits.clear()
            engine._one(position, feed)
        feed.close()
    return counts


def lamb_operations() -> int:
    """Operations of one update by LAMB of a model of BERT-base's shapes."""
    from transformers import BertConfig, BertModel

    from zerodr.config.training import TrainingSettings
    from zerodr.training.optimizers import make_optimizer

    with torch.device("meta"):
        model = BertModel(BertConfig(), add_pooling_layer=False)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer = make_optimizer(model, TrainingSettings(steps=1, optimizer="lamb", learning_rate=1e-3, batch_queries=1))
    with counted() as counts:
        optimizer.step()
        counts.operations.clear()
        optimizer.step()
    return counts.operations.total()


def main() -> None:
    """Print counts of a step of each kind."""
    import feed
    from train import quiet, say

    from zerodr.training.objectives.ranking import InfoNCE
    from zerodr.training.pretraining.span_forward import make_span_objective

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--processes", type=int, default=1)
    chosen = parser.parse_args()
    quiet()
    say(f"LAMB, BERT-base: {lamb_operations()} operations an update")
    for name, batch in (("queries", 32), ("mlm", 128), ("coco", 64), ("tsdae", 32)):
        with tempfile.TemporaryDirectory() as folder:
            if name == "queries":
                forward, stream = feed.finetuning(batch, Path(folder))
                objective: Any = InfoNCE()
            else:
                forward, stream = feed.pretraining(name, batch, Path(folder), max_tokens=100)
                objective = make_span_objective(forward.maker.settings)
            changes = {"batch_queries": batch, "optimizer": chosen.optimizer}
            counts = step_counts(forward, objective, stream, changes, chosen.processes)
        say(
            f"{name}, batch {batch}: the host waits {counts.waits.total()} times {dict(counts.waits)}, "
            f"{counts.operations.total()} operations a step"
        )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    main()
