"""Find archives on this machine. Only names are looked at; no file is read."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from zerodr.config.bench import Bench
from zerodr.config.registry import Collection
from zerodr.errors import ConfigError

DOWNLOADED, NORMALISED = "resources/archives", "results/collections"


def find_mirrored(rows: Iterable[Collection], mirrors: Sequence[str]) -> dict[str, str]:
    """Return the path of each archive, and of each file of a publisher, that a mirror folder has: the first one."""
    names = {name for row in rows if row.archive and row.kind != "own" for name in row.mirror_files}
    paths = ((name, Path(folder, name)) for folder in reversed(mirrors) for name in sorted(names))
    return {name: str(path) for name, path in paths if path.is_file()}


def sizes_of_unpinned(rows: Iterable[Collection], mirrored: dict[str, str]) -> dict[str, int]:
    """Return the bytes of mirrored files that no checksum pins: another file shows by them, whatever its time."""
    names = {name for row in rows if row.kind != "own" for name, pinned in row.mirror_files.items() if not pinned}
    return {name: Path(mirrored[name]).stat().st_size for name in sorted(names & mirrored.keys())}


def find_absent(rows: Iterable[Collection], mirrored: dict[str, str]) -> frozenset[str]:
    """Return the public collections that have no address and no archive here."""
    closed = [row for row in rows if row.access == "public" and row.has_archive and not row.addresses]
    return frozenset(row.name for row in closed if row.archive not in mirrored and not _is_here(row))


def _is_here(row: Collection) -> bool:
    """True if the archive or the collection is present, and a plan may fetch the archive again.

    A record next to the archive says that a mirror had it. Without a checksum, the mirror's file is an input of
    `fetch_archive`: a plan without this file would delete the archive to fetch it again. Refusing keeps it.
    """
    archive = Path(DOWNLOADED, row.archive)
    if not row.checksums and archive.with_name(f"{row.archive}.lineage.json").is_file():
        return False
    return archive.is_file() or Path(NORMALISED, row.name, "manifest.json").is_file()


def refuse_absent(bench: Bench, row: Collection) -> None:
    """Raise a ConfigError when a collection has no address and no archive here.

    Inputs of `fetch_archive` raise it; Snakemake continues without them where the collection exists.
    """
    if row.name in bench.absent:
        folders = " or ".join(bench.config.mirrors) or "a folder, and name it in mirrors of config/config.yaml"
        raise ConfigError(
            f"collection {row.name}",
            f"has no public address, and no mirror folder has {row.archive}",
            f"put the archive into {folders}, or leave the collection out",
        )
