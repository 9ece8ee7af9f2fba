"""Find the folders with archives that belong to a machine, and not to the configuration. No package is needed."""

import os
from pathlib import Path

VARIABLE = "ZERODR_MIRRORS"
SHARED = "../shared/collections"  # next to checkouts that share their archives


def shared_mirrors(root: Path = Path()) -> list[str]:
    """List the folders with archives besides those of the configuration: those that ZERODR_MIRRORS names, else SHARED.

    They are no part of `config/config.yaml`, which is the same on every machine.

    Args:
        root: of the checkout, which relative folders start from.
    """
    names = os.environ.get(VARIABLE)
    folders = [SHARED] if names is None else [name for name in names.split(os.pathsep) if name]
    return [folder for folder in map(os.path.expanduser, folders) if (root / folder).is_dir()]
