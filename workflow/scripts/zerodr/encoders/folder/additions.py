"""What papers add to model folders: one record a paper, over which loading and publishing fold.

A paper registers it as `FOLDERS` of its module `folders`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from zerodr.config.params import ExportParams
from zerodr.papers import modules


class CardSection(NamedTuple):
    """What a model card says before it tells how to use the model with sentence-transformers.

    Attributes:
        text: Markdown.
        without: what such use lacks, as it follows the heading `Use`.
    """

    text: str
    without: str


@dataclass(frozen=True)
class PaperFolders:
    """What a paper adds to model folders.

    Attributes:
        insert: (folder of `contract.modules`, transformers module) -> None: put the modules into the network.
        subfolders: beside a plain model; a step that training saves has them, too.
        export: (model folder, exported folder, params) -> None: add files to an exported model.
        describe: params -> a section of its card, or None.
    """

    insert: Callable[[Path, Any], None] | None = None
    subfolders: tuple[str, ...] = ()
    export: Callable[[Path, Path, ExportParams], None] | None = None
    describe: Callable[[ExportParams], CardSection | None] | None = None


def papers() -> list[PaperFolders]:
    """What all papers add, in their order."""
    return [module.FOLDERS for module in modules("folders")]


def insert_modules(folder: Path, transformer: Any) -> None:
    """Put the modules of a folder into a transformers module."""
    for paper in papers():
        if paper.insert is not None:
            paper.insert(folder, transformer)
