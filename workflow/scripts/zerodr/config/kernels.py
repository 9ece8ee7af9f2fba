"""Choices between two ways to compute the same numbers, by name, and the ways that a user pins."""

import re
from typing import NamedTuple

from zerodr.errors import nearest


class Kind(NamedTuple):
    """A kind of choice.

    Attributes:
        ways: names of the two ways.
        detail: pattern of what may follow the kind in a choice's name, such as a shape.
    """

    ways: tuple[str, str]
    detail: str


KINDS = {
    "arithmetic": Kind(("bf16", "fp32"), r"(writer)?"),
    "linear": Kind(("onednn", "torch"), r"(\d+x\d+)?"),
    "forward": Kind(("packed", "transformers"), r"((fp32|bf16)( \d+x\d+x\d+ \w+)?)?"),
    "attention": Kind(("fused", "plain"), r"((fp32|bf16)( \d+x\d+)?)?"),
    "estimates": Kind(("bf16", "float32"), r"(\d+)?"),
}


def check_pins(pins: dict[str, str]) -> dict[str, str]:
    """Return `pins`, way by name of a choice or its beginning.

    Raises:
        ValueError: no choice has this name, or it has no such way.
    """
    for name, way in pins.items():
        kind, _, detail = name.partition(" ")
        if kind not in KINDS:
            raise ValueError(f"{name!r} is no choice of kernels: {nearest(kind, KINDS)}")
        if not re.fullmatch(KINDS[kind].detail, detail):
            raise ValueError(f"{name!r} names no {kind}: copy the name from kernel_choices of a lineage record")
        if way not in KINDS[kind].ways:
            raise ValueError(f"{name!r} is computed by {' or '.join(KINDS[kind].ways)}, found {way!r}")
    return pins


def pinned(pins: dict[str, str], name: str) -> str | None:
    """Return the way of the longest pin that `name` begins with, by whole words; None: there is none."""
    words = name.split(" ")
    beginnings = (" ".join(words[:count]) for count in range(len(words), 0, -1))
    return next((pins[beginning] for beginning in beginnings if beginning in pins), None)
