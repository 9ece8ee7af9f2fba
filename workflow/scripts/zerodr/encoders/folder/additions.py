"""Collect the papers' additions to model folders: one record a paper, for loading and publishing.

A paper registers it as `FOLDERS` of its module `folders`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from zerodr.config.params import ExportParams
from zerodr.papers import modules


class CardSection(NamedTuple):
    """A section of a model card before its section on use with sentence-transformers.

    Attributes:
        text: Markdown.
        without: limits of such use, behind the heading `Use`.
    """

    text: str
    without: str


@dataclass(frozen=True)
class PaperFolders:
    """Additions of a paper to model folders.

    Attributes:
        insert: (folder of `contract.modules`, transformers module) -> None: put the modules into the network.
        subfolders: next to a plain model; a saved step of training has them, too.
        export: (model folder, exported folder, params) -> None: add files to an exported model.
        describe: params -> a section of its card, or None.
    """

    insert: Callable[[Path, Any], None] | None = None
    subfolders: tuple[str, ...] = ()
    export: Callable[[Path, Path, ExportParams], None] | None = None
    describe: Callable[[ExportParams], CardSection | None] | None = None


def papers() -> list[PaperFolders]:
    """List the additions of all papers, in their order."""
    return [module.FOLDERS for module in modules("folders")]


def insert_modules(folder: Path, transformer: Any) -> None:
    """Insert the modules of a folder into a transformers module."""
    for paper in papers():
        if paper.insert is not None:
            paper.insert(folder, transformer)
