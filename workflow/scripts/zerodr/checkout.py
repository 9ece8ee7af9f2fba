"""Find the checkout's root, so that commands work from any folder inside it."""

import os
from pathlib import Path

ROOT_FILES = ("Snakefile", "config/config.yaml")
OPTION = "--config"


def enter_root() -> Path:
    """Change to the nearest folder, from the working directory upward, that is a checkout's root.

    Returns:
        the folder that the command was called in; outside of checkouts it stays the working directory.
    """
    called_in = Path.cwd()
    for folder in (called_in, *called_in.parents):
        if all((folder / name).exists() for name in ROOT_FILES):
            os.chdir(folder)
            break
    return called_in


def from_root(text: str, called_in: Path) -> str:
    """Return a path relative to the root when `text` names a file below the folder the command was called in."""
    path = called_in / text
    if not text or Path(text).is_absolute() or not path.exists() or not path.is_relative_to(Path.cwd()):
        return text
    return os.path.relpath(path, Path.cwd())


def split_config(words: list[str]) -> list[str]:
    """Let `--config a=1 b=2` mean `--config a=1 --config b=2`, as for snakemake."""
    split: list[str] = []
    in_values = False
    for word in words:
        is_value = "=" in word and not word.startswith("-")
        if in_values and is_value and split[-1] != OPTION:
            split.append(OPTION)
        split.append(word)
        in_values = word == OPTION or (in_values and is_value)
    return split
