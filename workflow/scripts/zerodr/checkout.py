"""Find the checkout's root, so that commands work from any folder inside it."""

import os
import tempfile
from pathlib import Path

from zerodr.errors import ConfigError

ROOT_FILES = ("Snakefile", "config/config.yaml")
OPTION = "--config"
REFUSED = "ZERODR_REFUSED_CACHE"  # the cache folder that could not be written
CACHES = Path("results/.state/cache")


def enter_root() -> Path:
    """Change to the nearest folder, from the working directory upward, that is a checkout's root.

    Returns:
        the folder that the command was called in; outside of checkouts it stays the working directory.

    Raises:
        ConfigError: that folder was deleted.
    """
    try:
        called_in = Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the working directory", "was deleted", "cd to the checkout") from None
    for folder in (called_in, *called_in.parents):
        if _is_root(folder):
            os.chdir(folder)
            break
    return called_in


def enter_installed_root() -> None:
    """Change from outside of checkouts to the one that this module is in."""
    root = Path(__file__).resolve().parents[3]
    if not _is_root(Path.cwd()) and _is_root(root):
        os.chdir(root)


def _is_root(folder: Path) -> bool:
    return all((folder / name).exists() for name in ROOT_FILES)


def provide_caches() -> str:
    """Let libraries cache in the checkout where the user's cache folder can't be written, as on many compute nodes.

    Returns:
        the folder that can't be written; empty where it can.
    """
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user id without an account
        home = Path("~/.cache")
    if _writable(home):
        return ""
    here = Path.cwd() / CACHES
    if _writable(here):
        os.environ |= {"XDG_CACHE_HOME": str(here), "MPLCONFIGDIR": str(here / "matplotlib"), REFUSED: str(home)}
    return str(home)


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def require_checkout(what: str) -> None:
    """Raise ConfigError where the working directory holds no configuration, as a checkout's root does."""
    if not Path(ROOT_FILES[1]).exists():
        step = "cd to the checkout of zerodr, which holds config/ and results/"
        raise ConfigError(what, f"needs a checkout, and {Path.cwd()} is in none", step)


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


def lost_values(words: list[str]) -> list[str]:
    """List words such as `scale=lab` that follow no option, which no command reads."""
    split = split_config(words)
    return [word for before, word in zip(["", *split], split, strict=False) if _is_lost(before, word)]


def _is_lost(before: str, word: str) -> bool:
    """Test whether a word looks like a value of the configuration, and none of an option."""
    return not before.startswith("-") and word.partition("=")[0].isidentifier() and "=" in word
