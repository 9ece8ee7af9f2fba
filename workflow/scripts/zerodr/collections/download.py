"""Download one file over HTTP: resume, status, size and content checks, progress."""

import json
import logging
import time
from pathlib import Path
from typing import Any

from zerodr.artifacts.digest import object_digest
from zerodr.artifacts.progress import Progress
from zerodr.artifacts.record import write_json

log = logging.getLogger("zerodr")
BLOCK = 1 << 16
TIMEOUT_S = (15, 60)
ATTEMPTS = 3


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
    known = json.loads(notes.read_text()) if notes.exists() and partial.exists() else {}
    present = partial.stat().st_size if known else 0
    headers = {"User-Agent": "zerodr", "Accept-Encoding": "identity"}
    if present:
        headers |= {"Range": f"bytes={present}-"} | ({"If-Range": known["tag"]} if known["tag"] else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as answer:
        if answer.status_code == 416 and present == known.get("total"):
            return True
        if answer.status_code == 416:
            partial.unlink(missing_ok=True)
            return False
        _check_answer(answer)
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
    return tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified", "")
