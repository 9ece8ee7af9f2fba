"""What DDR adds to model folders: modules to insert, and the relevance module beside a plain model."""

from __future__ import annotations

from zerodr.encoders.folder.additions import PaperFolders
from zerodr.papers.ddr.rem_files import REM, insert_from

FOLDERS = PaperFolders(insert=insert_from, subfolders=(REM,))
