"""The two components of a model whose queries are augmented: main model at the root, augmenter in a subfolder."""

from pathlib import Path

from zerodr.encoders.folder.checkpoint import all_model_files, copy_files
from zerodr.encoders.folder.contract import CONTRACT, read_contract
from zerodr.errors import ModelError

AUGMENTER = "augmenter"


def augmenter_of(folder: Path, separate: bool) -> Path:
    """The folder of what augments a model's queries.

    Args:
        folder: of the whole model.
        separate: it has an augmenter of its own; else the model itself augments.

    Raises:
        ModelError: there is none.
    """
    if not separate:
        return folder
    if not (folder / AUGMENTER / CONTRACT).exists():
        raise ModelError(
            folder,
            f"has no subfolder {AUGMENTER}, which retrieves augmentation documents",
            "take the model of a moma stage with augmenter.mode learned or frozen",
        )
    return folder / AUGMENTER


def copy_model(source: Path, target: Path) -> None:
    """Copy what a bi-encoder is made of, and nothing beside it."""
    target.mkdir(parents=True, exist_ok=True)
    copy_files(all_model_files(source, read_contract(source)), source, target)
