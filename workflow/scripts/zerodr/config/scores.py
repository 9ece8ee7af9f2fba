"""Check files of published numbers before the first job: their columns, the row's system, collections and values."""

import csv
from collections.abc import Iterable
from pathlib import Path

from zerodr.config.methods import ScoreSettings
from zerodr.errors import ConfigError, nearest

COLUMN = "ndcg_at_10"
NEEDED = ("method", "collection", COLUMN)


def check_scores(where: str, root: Path, settings: ScoreSettings, known: Iterable[str]) -> None:
    """Refuse a file that gives the row no number, or a wrong one.

    Args:
        where: names the method, for errors.
        root: that the file's path starts from.
        settings: of the row.
        known: collections and columns of the registry.

    Raises:
        ConfigError: names the file, its line, and what was expected there.
    """
    path, names = Path(root, settings.file), dict.fromkeys(known)
    if not path.is_file():
        hint = f"give a file with the tab-separated columns {', '.join(NEEDED)}"
        raise ConfigError(f"{where}: file", f"{settings.file} is no file", hint)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        absent = [name for name in NEEDED if name not in (reader.fieldnames or ())]
        if absent:
            header = ", ".join(map(repr, reader.fieldnames or ())) or "nothing"
            problem = f"lacks column {absent[0]}: its first line has {header}"
            raise ConfigError(f"{where}: {settings.file}", problem, "separate the columns by tabs")
        rows = list(enumerate(reader, 2))
    lines = [(number, line) for number, line in rows if (line["method"] or "").lower() == settings.row.lower()]
    if not lines:
        problem = f"holds no numbers of {settings.row!r}, the row that is shown"
        others = dict.fromkeys(line["method"] or "" for _, line in rows)
        raise ConfigError(f"{where}: {settings.file}", problem, nearest(settings.row, others))
    for number, line in lines:
        position = f"{where}: {settings.file}:{number}"
        if line["collection"] not in names:
            problem = f"collection {line['collection']!r} is not in the registry"
            raise ConfigError(position, problem, f"{nearest(line['collection'] or '', names)} Else remove the line")
        _check_value(position, line[COLUMN] or "")


def _check_value(position: str, text: str) -> None:
    """Refuse what is no share: nDCG@10 lies between 0 and 1; an empty cell is none."""
    try:
        is_share = not text or 0 <= float(text) <= 1
    except ValueError:
        is_share = False
    if not is_share:
        raise ConfigError(position, f"{COLUMN} is {text!r}, expected a number from 0 to 1", "write 0.712 for 71.2 %")
