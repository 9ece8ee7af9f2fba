"""Tensors that come back from a device, here a made-up one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from zerodr.encoders.network import moving
from zerodr.encoders.network.moving import to_host


class OnCard:
    """A tensor of a GPU, which reaches the host when its event is waited for."""

    is_cuda, dtype, shape, device = True, torch.float32, torch.Size([2, 3]), "cuda:0"

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values


def test_a_tensor_of_the_host_stays_as_it_is():
    x = torch.arange(6.0).view(2, 3)
    assert torch.equal(to_host(x), x)


def test_the_host_waits_for_the_copy_and_for_nothing_else(monkeypatch):
    card, said = OnCard(torch.arange(6.0).view(2, 3)), list[Any]()
    landing = torch.empty(2, 3)

    class Landing:
        def copy_(self, tensor: OnCard, non_blocking: bool) -> None:
            said.append(("copy", non_blocking))
            self.coming = tensor.values

    class Event:
        def __init__(self, blocking: bool) -> None:
            said.append(("event", blocking))

        def record(self, stream: str) -> None:
            said.append(("record", stream))

        def synchronize(self) -> None:
            said.append("wait")
            landing.copy_(host.coming)

    host = Landing()

    def empty(shape: torch.Size, dtype: torch.dtype, pin_memory: bool) -> Landing:
        said.append(("pinned", pin_memory, shape, dtype))
        return host

    made_up = SimpleNamespace(Event=Event, current_stream=lambda device: f"stream of {device}")
    monkeypatch.setattr(moving, "torch", SimpleNamespace(empty=empty, cuda=made_up))
    assert to_host(card) is host
    assert torch.equal(landing, card.values)
    assert said == [
        ("pinned", True, card.shape, torch.float32),
        ("copy", True),
        ("event", True),
        ("record", "stream of cuda:0"),
        "wait",
    ]
