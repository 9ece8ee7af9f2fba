"""Rehearse a run in `rehearsal/`: a checkout of links with a configuration and results of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from zerodr.artifacts.machine import die_with_parent
from zerodr.config.custom import SETTINGS, custom_folder
from zerodr.config.load import mirrors_of, read_config
from zerodr.config.pins import LOCK, named_models
from zerodr.config.user_folders import split_folders
from zerodr.config.words import read_text
from zerodr.plan import Plan

FOLDER, SUBSTITUTES = "rehearsal", "rehearsal-stand-ins"
SNAKEFILE = "Snakefile"
UNLINKED = ("config", "resources", "results", FOLDER, SUBSTITUTES)  # folders of a checkout
ARCHIVES, REPOSITORIES, CACHE = "mirror", "hub", "cache"  # of stand-ins, below resources/
SEPARATE = ("config.yaml", Path(LOCK).name, "my")  # of config/
HEAD = "# Written by a rehearsal from config/config.yaml of the checkout.\n"


def make_folder(root: Path, substitutes: bool = False) -> Path:
    """Make the folder of a rehearsal, or bring it up to date.

    Args:
        root: the checkout.
        substitutes: models and archives are made-up ones: neither archives nor locked commits are shared.
    """
    folder = root / (SUBSTITUTES if substitutes else FOLDER)
    folders = [path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for name in (SNAKEFILE, *(name for name in folders if name not in UNLINKED)):
        _link(folder / name, root / name)
    for path in (root / "config").iterdir():
        if path.name not in SEPARATE:
            _link(folder / "config" / path.name, path)
    _link_custom(folder / "config/my", custom_folder(root / "config"))
    resources = Path("resources/reference") if substitutes else Path("resources")
    _link(folder / resources, root / resources)
    if not substitutes:
        _link(folder / LOCK, root / LOCK)
    mirrors = [folder / "resources" / ARCHIVES] if substitutes else mirrors_of(root)
    changed = {"rehearse": True, "substitutes": substitutes, "mirrors": list(map(os.path.abspath, mirrors))}
    values = read_config(root / "config")
    changed |= {"byo": list(map(os.path.abspath, split_folders(values["byo"])))} if values.get("byo") else {}
    text = HEAD + yaml.safe_dump(values | changed, sort_keys=False)
    written = folder / "config/config.yaml"
    if not written.exists() or written.read_text(encoding="utf-8") != text:
        written.write_text(text, encoding="utf-8")
    if os.environ.get("ZERODR_MY"):  # linked in config/my: a relative path means another folder there
        del os.environ["ZERODR_MY"]
    return folder


def movable(word: str) -> str:
    """Write a word of a command line so that it means the same in the folder of a rehearsal: files, own folders."""
    option, equals, value = word.partition("=")
    if option == "byo" and equals:
        return f"byo={','.join(map(os.path.abspath, split_folders(read_text(value))))}"
    name = value if equals and option.startswith("-") else word
    if not Path(name).is_file() or Path(name).parts[0] == "results":
        return word  # a target is in both
    path = SNAKEFILE if os.path.abspath(name) == os.path.abspath(SNAKEFILE) else os.path.abspath(name)
    return word.removesuffix(name) + path


def _link_custom(links: Path, folder: Path | None) -> None:
    """Link the user's own files but the settings, which the rehearsal's config.yaml holds: here mirrors are others."""
    if links.is_symlink():
        links.unlink()
    paths = [path for path in folder.iterdir() if path.name != SETTINGS] if folder else []
    for link in links.glob("*"):
        if link.name not in {path.name for path in paths} and link.is_symlink():
            link.unlink()
    for path in paths:
        _link(links / path.name, path)


def _link(link: Path, target: Path) -> None:
    """Make a relative link, in place of one to elsewhere."""
    relative = os.path.relpath(target, link.parent)
    if link.is_symlink() and os.readlink(link) == relative:
        return
    link.unlink(missing_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(relative)


def rehearse(words: Sequence[str], plan: Plan, substitutes: bool, within_s: float | None) -> int:
    """Run snakemake in the folder of a rehearsal; return the exit status.

    Args:
        words: of snakemake's command line: targets and options.
        plan: of the checkout in the working directory.
        substitutes: write tiny models and archives, and serve the models on loopback.
        within_s: stop after so many seconds, as Ctrl-C does: the same command resumes.
    """
    home = Path(SUBSTITUTES if substitutes else FOLDER) / "resources"
    folder = make_folder(Path("."), substitutes)
    with _hub(plan, home.absolute()) if substitutes else _nothing() as environment:
        command = [sys.executable, "-m", "snakemake", *map(movable, words)]
        process = subprocess.Popen(
            command, cwd=folder, env=os.environ | environment, preexec_fn=_prepare, start_new_session=True
        )
        try:
            status = process.wait(within_s)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGINT)
            status = process.wait()
    if status < 0:
        name = signal.Signals(-status).name
        sys.stderr.write(f"snakemake was ended by {name}: the same command resumes, after jobs that Slurm still has\n")
    return status if status >= 0 else 128 - status  # as shells report a signal


def _prepare() -> None:
    """Listen to SIGINT, which a shell ignores for what it starts in the background (`nohup zerodr rehearse ... &`)."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with_parent()


@contextmanager
def _nothing() -> Iterator[dict[str, str]]:
    yield {}


@contextmanager
def _hub(plan: Plan, home: Path) -> Iterator[dict[str, str]]:
    """Write what stands in for published models and archives, and serve the models; give the environment."""
    from zerodr.config.starts import PACKAGE
    from zerodr.operations.stand_ins.archives import write_archives
    from zerodr.operations.stand_ins.hub import Hub, Repository
    from zerodr.operations.stand_ins.models import write_models

    write_archives(plan.bench.collections.values(), plan.chains.sources(), home / ARCHIVES)
    hub, named = home / REPOSITORIES, named_models(plan.bench.methods)
    pins = {name: pin for name, pin in named.items() if name.count("/") == 1 and not name.startswith(PACKAGE)}
    write_models(pins, hub)
    with Hub({name: Repository(hub / name, commits=[pin] if pin else []) for name, pin in pins.items()}) as served:
        settings = {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "ZERODR_MIRRORS": ""}
        yield {"HF_ENDPOINT": served.address, "HF_HOME": str(home / CACHE)} | settings
