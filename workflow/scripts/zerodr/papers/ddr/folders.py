"""Add DDR's files to model folders: modules to insert, and the relevance module next to a plain model."""

from zerodr.encoders.folder.additions import PaperFolders
from zerodr.papers.ddr.rem_files import REM, insert_from

FOLDERS = PaperFolders(insert=insert_from, subfolders=(REM,))
