"""List the papers that extend the core, a folder for each. No other module names them.

The core asks for modules by the name of a layer, takes what is there, and names no paper. Layers that Snakemake parses:

* `settings`: `SETTINGS`, fields that a paper adds to stages and params, kinds of stages and of recipes.
* `checks`: `check_recipe`, and `check_row` where a row of the table needs more: what must hold between these and the
  rest of the configuration.
* `items`: `ITEMS`, kinds of tables and figures.
* `plan`: rules, their inputs and params.

Layers that stages import:

* `training`: `TRAINING`, what it adds to a fine-tuning stage (zerodr.training.additions), and objectives.
* `pretraining`: `token_loss`, a loss next to pretraining (zerodr.training.pretraining.masking).
* `folders`: `FOLDERS`, what it adds to model folders and cards (zerodr.encoders.folder.contract).
* `lookup`: `LOOKUP`, what embeds single queries as the paper's rules do (zerodr.lookup.sources).
* `report`: `REPORT`, functions that build and draw its items.
"""

import importlib
from functools import cache
from importlib.util import find_spec
from types import ModuleType

NAMES = ("coco_dr", "ddr", "modir", "moma", "berm", "udalm")


@cache
def modules(layer: str) -> tuple[ModuleType, ...]:
    """Import the modules `zerodr.papers.<paper>.<layer>` of the papers that have one, in the order of `NAMES`."""
    names = [f"{__name__}.{paper}.{layer}" for paper in NAMES]
    return tuple(importlib.import_module(name) for name in names if find_spec(name) is not None)
