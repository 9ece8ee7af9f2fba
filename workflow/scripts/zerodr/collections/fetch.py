"""Fetch archives from mirror folders or official addresses, and verify them before any stage reads them.

A collection without an archive of its own has originals: the publisher's files, which are packed into one archive.
A download resumes after an interruption; status, size and kind of content are checked.
"""

import logging
import shutil
import time
import zipfile
from pathlib import Path
from typing import Any

from zerodr.artifacts.manifest import file_digest, object_digest
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.record import read_state, write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.archives import open_archive
from zerodr.config.base import validate
from zerodr.config.registry import Origin, Original, Originals
from zerodr.errors import DownloadError

log = logging.getLogger("zerodr")
BLOCK = 1 << 16
TIMEOUT_S = (15, 60)
ATTEMPTS = 3


class FetchSettings(Origin):
    """Settings of `fetch_archive`."""

    archive: str
    """File name of the archive."""
    bytes: int | None = None
    """Expected size, for progress."""
    mirror_bytes: dict[str, int] = {}
    """Sizes of mirrored files that no checksum pins: with another size the archive is fetched again."""
    mirrors: tuple[str, ...] = ()
    """Folders that are searched first."""
    offline: bool = False
    """Do not use the network."""


def fetch_archive(stage: Stage) -> None:
    """Write output `archive`, verified. Interrupted downloads resume from `stage.state`.

    Raises:
        DownloadError: wrong checksum, no address answers, offline, or registration needed.
    """
    site = {key: value for key, value in stage.spec.site.items() if key in ("mirrors", "offline")}
    settings = validate(FetchSettings, stage.params | site, stage.spec.rule)
    output = stage.output("archive")
    if settings.originals and not any(Path(folder, settings.archive).is_file() for folder in settings.mirrors):
        facts = fetch_originals(settings, settings.originals, stage.state, output)
    else:
        path, origin = obtain(settings, stage.state)
        checksum = verify(path, settings.checksums, origin)
        deliver(path, output, copy=path.parent != stage.state)
        facts = {"origin": origin, "checksum": checksum, "pinned": bool(settings.checksums)}
    stage.note(**facts)
    stage.metric("archive_bytes", output.stat().st_size)
    log.info("%s: from %s, %s", settings.archive, facts["origin"], facts["checksum"])


def fetch_originals(settings: FetchSettings, originals: Originals, state: Path, output: Path) -> dict[str, Any]:
    """Fetch and verify the publisher's files, pack them into `output`; return facts for the record."""
    fetched = []
    for file in originals.files:
        checksums = (file.checksum,) if file.checksum else ()
        name, urls = originals.mirrored_as(settings.archive, file), (originals.address_of(file),)
        update = {"archive": name, "urls": urls, "checksums": checksums, "bytes": None}
        path, origin = obtain(settings.model_copy(update=update), state)
        fetched.append((file, path, origin, verify(path, checksums, origin)))
    output.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as packed:
        for file, path, origin, _ in fetched:
            pack(packed, file, path, origin)
    return {
        "origin": ", ".join(origin for *_, origin, _ in fetched),
        "checksum": f"sha256:{file_digest(output)}",
        "pinned": originals.pinned,
        "originals": {file.path: checksum for file, *_, checksum in fetched},
    }


def pack(packed: zipfile.ZipFile, file: Original, path: Path, origin: str) -> None:
    """Add the members of a publisher's file, with a fixed time so that equal files make equal archives.

    Raises:
        DownloadError: the file is damaged, or lacks a member.
    """
    archive = open_archive(path, file.path)
    names = [name for name in archive.names() if not file.members or name.endswith(file.members)]
    absent = [ending for ending in file.members if not any(name.endswith(ending) for name in names)]
    if absent:
        raise DownloadError(origin, f"has no member {' and no member '.join(absent)}", "replace the file")
    for name in names:
        member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        member.compress_type = zipfile.ZIP_DEFLATED
        with archive.open(name) as source, packed.open(member, "w", force_zip64=True) as target:
            shutil.copyfileobj(source, target)


def obtain(settings: FetchSettings, state: Path) -> tuple[Path, str]:
    """Return a local file with the archive's bytes, not yet verified, and its origin."""
    tried = []
    for folder in settings.mirrors:
        path = Path(folder, settings.archive)
        if path.is_file():
            return path.resolve(), str(path)
        tried.append(f"{path} (missing)")
    if settings.access == "gated" and not settings.urls:
        address = f" at {settings.registration}" if settings.registration else ""
        step = f"put {settings.archive} in a mirror folder (config/config.yaml: mirrors)"
        raise DownloadError(settings.archive, f"needs registration{address}; tried {_listed(tried)}", step)
    if settings.offline:
        tried += [f"{url} (offline: true)" for url in settings.urls]
        problem = f"is in no mirror, and offline: true forbids the network; tried {_listed(tried)}"
        raise DownloadError(settings.archive, problem, "put it in a mirror folder, or set offline: false")
    for url in settings.urls:
        try:
            return download(url, state, settings.archive, settings.bytes), url
        except Refused as refused:
            tried.append(f"{url} ({refused})")
            log.warning("%s: %s", url, refused)
    step = "put the file in a mirror folder (config/config.yaml: mirrors)"
    step = f"check the network, or {step}" if settings.urls else step
    raise DownloadError(settings.archive, f"is not available; tried {_listed(tried)}", step)


def _listed(tried: list[str]) -> str:
    return ", ".join(tried) or "nothing: there is neither a mirror nor an address"


def verify(path: Path, checksums: tuple[str, ...], origin: str) -> str:
    """Return the checksum that matches, as `algorithm:hex`; for an unpinned archive its SHA-256, with a warning.

    A download that fails is removed, so that the next attempt starts from zero; a mirror's file stays.
    """
    if not checksums:
        checksum = f"sha256:{file_digest(path)}"
        log.warning("%s is not pinned by a checksum: %s", origin, checksum)
        return checksum
    computed = []
    for algorithm in dict.fromkeys(text.partition(":")[0] for text in checksums):
        computed.append(f"{algorithm}:{file_digest(path, algorithm)}")
        if computed[-1] in checksums:
            return computed[-1]
    if "://" in origin:
        path.unlink()
    problem = f"wrong checksum: expected {' or '.join(checksums)}, found {' '.join(computed)}"
    step = "replace or remove the file; if upstream changed it, update its block in config/collections"
    raise DownloadError(origin, problem, step)


def deliver(path: Path, output: Path, copy: bool) -> None:
    """Move the file to `output`, or copy it when the original is a mirror's file.

    A link would be smaller, but Snakemake touches its outputs, and with a link it would touch the mirror.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    if copy:
        shutil.copyfile(path, output)
    else:
        path.replace(output)


class Refused(Exception):
    """An address does not deliver the file; the message is the reason in a few words."""


def download(url: str, state: Path, name: str, size: int | None = None, pause_s: float = 1.0) -> Path:
    """Download `url` to a file in the folder `state`, which survives a kill; an interrupted download is resumed.

    Args:
        name: the file's name in progress lines.
        size: expected bytes, for servers that do not report them.
        pause_s: wait before the first retry; doubled each time without progress.

    Raises:
        Refused: bad status, a web page instead of a file, or no complete transfer after some attempts without progress.
    """
    import requests

    state.mkdir(parents=True, exist_ok=True)
    partial = state / f"{object_digest(url)[:12]}.part"
    failures, reason = 0, ""
    while failures < ATTEMPTS:
        before = partial.stat().st_size if partial.exists() else 0
        try:
            if _transfer(url, partial, name, size):
                return partial
            reason = "the transfer ended early"
        except requests.RequestException as error:
            reason = _short(error)
        gained = partial.exists() and partial.stat().st_size > before
        failures = 0 if gained else failures + 1
        if failures < ATTEMPTS:
            time.sleep(pause_s * 2 ** max(failures - 1, 0))
    raise Refused(reason)


def _short(error: Exception) -> str:
    """Return the reason in a few words."""
    import requests

    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the transfer broke off"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return f"{type(error).__name__}: {str(error)[:160]}"


def _transfer(url: str, partial: Path, name: str, size: int | None) -> bool:
    """Send one request; return True when the file is complete."""
    import requests

    notes = partial.with_suffix(".json")
    known = (read_state(notes) if partial.exists() else None) or {}
    present = partial.stat().st_size if known else 0
    # Compressed transfer would make sizes and byte ranges those of the compressed stream.
    headers = {"User-Agent": "zerodr", "Accept-Encoding": "identity"}
    if present:
        headers |= {"Range": f"bytes={present}-"} | ({"If-Range": known["tag"]} if known["tag"] else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as answer:
        # 416: the range starts at the end, so an earlier attempt had received everything.
        if answer.status_code == 416 and present == known.get("total"):
            return True
        if answer.status_code == 416:
            partial.unlink(missing_ok=True)
            return False
        _check_answer(answer)
        # Servers may ignore Range, or If-Range found a changed file: the body starts at byte 0 again.
        if answer.status_code != 206:
            present = 0
        length = answer.headers.get("Content-Length")
        total = present + int(length) if length else size
        write_json(notes, {"url": url, "tag": _tag(answer), "total": total})
        progress = Progress(f"download {name}", total or 0, "bytes", done=present)
        with open(partial, "ab" if present else "wb") as stream:
            for block in answer.iter_content(BLOCK):
                stream.write(block)
                progress.add(len(block))
    received = partial.stat().st_size
    if total is not None and received > total:
        partial.unlink()
        raise Refused(f"sent {received} bytes, announced {total}")
    if total is not None and received < total:
        return False
    progress.finish()
    return True


def _check_answer(answer: Any) -> None:
    if answer.status_code not in (200, 206):
        raise Refused(f"HTTP status {answer.status_code}")
    if answer.headers.get("Content-Type", "").startswith("text/html"):
        raise Refused("answers with a web page instead of the file")


def _tag(answer: Any) -> str:
    """Return a strong validator for `If-Range`, or nothing."""
    tag = answer.headers.get("ETag", "")
    # HTTP forbids weak tags in If-Range: they say nothing about bytes.
    return tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified", "")
