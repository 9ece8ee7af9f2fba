"""Look up the ways to multiply of a kind of processor, in the table `kernels.yaml`.

Two ways to compute the same numbers differ in the last bits, so they follow from the kind of processor alone, never
from what else runs on it.
"""

from collections.abc import Set
from functools import cache
from pathlib import Path
from typing import Literal

import yaml

from zerodr.config.base import Settings, validate

TABLE = Path(__file__).with_name("kernels.yaml")


class ProcessorKind(Settings):
    """A kind of processor, and what it gets."""

    name: str
    """Its name in lineage."""
    vendor: str | None
    """As Linux lists it. None: any, for the row that all others fall back to."""
    flags: tuple[str, ...]
    """Instructions that it has."""
    bf16: Literal["faster", "slower", "absent"]
    """bf16 against fp32. `absent`: it has no instructions for bf16."""
    linear: Literal["onednn", "torch"]
    """Multiplications of training in fp32."""


@cache
def kinds() -> dict[str, ProcessorKind]:
    """Read the table, by name."""
    rows = [validate(ProcessorKind, row, str(TABLE)) for row in yaml.safe_load(TABLE.read_text(encoding="utf-8"))]
    return {row.name: row for row in rows}


def nearest_kind(vendor: str, flags: Set[str]) -> ProcessorKind:
    """Choose the row of a vendor with the most flags among those whose flags are all there; else the row for any."""
    fitting = [kind for kind in kinds().values() if kind.vendor in (vendor, None) and flags >= set(kind.flags)]
    return max(fitting, key=lambda kind: len(kind.flags))
