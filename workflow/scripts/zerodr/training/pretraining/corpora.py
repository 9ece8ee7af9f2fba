"""Write the documents of corpora to the state of a stage that learns from them, once."""

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from zerodr.artifacts.record import write_json
from zerodr.encoders.folder.contract import read_contract
from zerodr.encoders.inference.encoder import load_tokenizer
from zerodr.training.pretraining.passages import Blocks, sizes_path, texts_of, write_passages
from zerodr.training.pretraining.screening import screened

log = logging.getLogger("zerodr")
PASSAGES, LEFT_OUT = "passages.arrow", "left_out.json"
Counts = dict[str, Counter[str]]  # of documents that are left out, by corpus and reason


def store_passages(state: Path, corpora: Callable[[Counts], Mapping[str, Blocks]]) -> dict[str, dict[str, int]]:
    """Write `passages.arrow` of corpora, unless an earlier attempt of the stage has done so.

    Args:
        state: folder of the stage's state.
        corpora: makes the blocks of each corpus, and fills what it is given while they are read.

    Returns:
        numbers of documents that were left out, by corpus and reason.

    Raises:
        CollectionError: a corpus without a document.
    """
    file, counts, left_out = state / PASSAGES, state / LEFT_OUT, Counts()
    if not (sizes_path(file).exists() and counts.exists()):
        write_passages(file, corpora(left_out))
        write_json(counts, left_out)
    read: dict[str, dict[str, int]] = json.loads(counts.read_text())
    return read


def whole_documents(
    folders: Sequence[Path], model: Path, title_join: str | None, left_out: Counts
) -> dict[str, Blocks]:
    """Read whole documents of normalised collections, screened.

    Args:
        folders: of the collections.
        model: folder whose tokenizer counts tokens.
        title_join: text between title and text; None: text alone.
        left_out: gets the numbers of documents that are left out.
    """
    tokenizer, corpora = load_tokenizer(_any_tower(model)), dict[str, Blocks]()
    for folder in folders:
        left_out[folder.name] = Counter()
        read = partial(texts_of, folder, title_join)
        corpora[folder.name] = screened(folder.name, read, tokenizer, left_out[folder.name])
    return corpora


def warn_of_gated(name: str, left_out: Sequence[str]) -> None:
    """Warn that a stage learns without gated corpora that it names."""
    if left_out:
        log.warning(
            "%s: %s gated and left out: download them as the registry says, put them into a mirror folder and "
            "name them in `gated`",
            name,
            ", ".join(left_out),
        )


def _any_tower(folder: Path) -> Path:
    return folder / "document" if read_contract(folder).towers == "separate" else folder
