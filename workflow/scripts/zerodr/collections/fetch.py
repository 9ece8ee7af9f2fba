"""Archives from mirror folders or official addresses, verified before anyone reads them."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Literal

from zerodr.artifacts.digest import file_digest
from zerodr.artifacts.stage import Stage
from zerodr.collections.download import Refused, download
from zerodr.config.base import Settings, validate
from zerodr.errors import DownloadError

log = logging.getLogger("zerodr")


class FetchSettings(Settings):
    """Settings of `fetch_archive`."""

    archive: str
    """File name of the archive."""
    urls: tuple[str, ...] = ()
    """Official addresses, in order."""
    checksums: tuple[str, ...] = ()
    """`md5:...` or `sha256:...`; one of them must match. Empty: unpinned."""
    bytes: int | None = None
    """Expected size, for progress."""
    mirrors: tuple[str, ...] = ()
    """Folders that are tried first."""
    offline: bool = False
    """Never ask the network."""
    access: Literal["public", "gated"] = "public"
    """`gated`: the archive can't be downloaded without registration."""
    registration: str = ""
    """Where a gated collection is asked for."""


def fetch_archive(stage: Stage) -> None:
    """Output `archive`: the verified archive. Interrupted downloads continue from `stage.state`.

    Raises:
        DownloadError: wrong checksum, nothing could be reached, offline, or registration needed.
    """
    settings = validate(FetchSettings, stage.params | stage.spec.site, "fetch_archive")
    found, origin = obtain(settings, stage.state)
    checksum = verify(found, settings.checksums, origin)
    place(found, stage.output("archive"), keep=found.parent != stage.state)
    stage.note(origin=origin, checksum=checksum, pinned=bool(settings.checksums))
    stage.metric("archive_bytes", stage.output("archive").stat().st_size)
    log.info("%s: from %s, %s", settings.archive, origin, checksum)


def obtain(settings: FetchSettings, state: Path) -> tuple[Path, str]:
    """A local file with the archive's bytes, not yet verified, and where it came from."""
    tried = []
    for folder in settings.mirrors:
        path = Path(folder, settings.archive)
        if path.is_file():
            return path.resolve(), str(path)
        tried.append(f"{path} (not there)")
    if settings.access == "gated" and not settings.urls:
        place_of = f" at {settings.registration}" if settings.registration else ""
        raise DownloadError(
            settings.archive,
            f"needs registration{place_of}; tried {_listed(tried)}",
            f"put {settings.archive} in a mirror folder (config/config.yaml: mirrors)",
        )
    if settings.offline:
        tried += [f"{url} (offline: true)" for url in settings.urls]
        raise DownloadError(
            settings.archive,
            f"is in no mirror, and the network may not be asked; tried {_listed(tried)}",
            "put it in a mirror folder, or set offline: false",
        )
    for url in settings.urls:
        try:
            return download(url, state, settings.archive, settings.bytes), url
        except Refused as refused:
            tried.append(f"{url} ({refused})")
            log.warning("%s: %s", url, refused)
    raise DownloadError(
        settings.archive,
        f"can't be had; tried {_listed(tried)}",
        "check the network, or put the file in a mirror folder (config/config.yaml: mirrors)",
    )


def _listed(tried: list[str]) -> str:
    return ", ".join(tried) or "nothing: there is neither a mirror nor an address"


def verify(path: Path, checksums: tuple[str, ...], origin: str) -> str:
    """The checksum that matched, as `algorithm:hex`; for an unpinned archive its SHA-256, with a warning.

    A download that fails is removed, so that the next try starts anew; a mirror's file is left alone.
    """
    if not checksums:
        found = f"sha256:{file_digest(path)}"
        log.warning("%s is not pinned by a checksum: %s", origin, found)
        return found
    found_all = []
    for algorithm in dict.fromkeys(text.partition(":")[0] for text in checksums):
        found = f"{algorithm}:{file_digest(path, algorithm)}"
        if found in checksums:
            return found
        found_all.append(found)
    if "://" in origin:
        path.unlink()
    raise DownloadError(
        origin,
        f"wrong checksum: expected {' or '.join(checksums)}, found {' '.join(found_all)}",
        "replace or remove the file; if upstream changed it, update its block in config/collections",
    )


def place(found: Path, output: Path, keep: bool) -> None:
    """Move the file to `output`, or copy it when the original, a mirror's file, is to be kept.

    A link would be smaller, but Snakemake touches its outputs, and with a link it would touch the mirror.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    if keep:
        shutil.copyfile(found, output)
    else:
        found.replace(output)
