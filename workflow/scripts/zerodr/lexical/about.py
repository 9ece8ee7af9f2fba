"""What an inverted index says of itself: the settings that decide it, and `index.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from zerodr.config.base import Settings
from zerodr.errors import ArtifactError

ABOUT, LUCENE = "index.json", "lucene"


class IndexSettings(Settings):
    """What decides an index."""

    backend: Literal["lucene", "bm25s"]
    """`lucene` needs Java, `bm25s` does not."""
    fields: Literal["flat", "multifield"]
    """`flat`: title, a space and the text as one field. `multifield`: title and text as two."""
    language: str
    """Language of the texts; decides the analyzer."""


def read_about(folder: Path) -> dict[str, Any]:
    """What index.json says.

    Raises:
        ArtifactError: the folder is no index.
    """
    try:
        return json.loads((folder / ABOUT).read_text())
    except (OSError, ValueError) as error:
        raise ArtifactError(folder, f"is no BM25 index ({error})", "make the target index_bm25 again") from error
