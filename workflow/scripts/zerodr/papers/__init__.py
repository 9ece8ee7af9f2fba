"""List the papers that extend the core, a folder for each. No other module names them.

A paper's modules have names that the core asks for, a layer each. The core takes what is there and names no paper:

* `settings`: fields that it adds to stages, and kinds of stages; pydantic alone.
* `checks`: what must hold between its settings and the rest of the configuration.
* `training`: what it adds to a fine-tuning stage (zerodr.training.additions).
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType

NAMES = ("coco_dr", "ddr", "modir", "moma", "berm")


def modules(layer: str) -> list[ModuleType]:
    """Import the modules `zerodr.papers.<paper>.<layer>` of the papers that have one, in the order of `NAMES`."""
    names = [f"{__name__}.{paper}.{layer}" for paper in NAMES]
    return [importlib.import_module(name) for name in names if find_spec(name) is not None]
