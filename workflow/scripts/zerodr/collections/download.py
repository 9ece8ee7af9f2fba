"""One file over HTTP: resume, status, size and content checks, progress."""

from __future__ import annotations

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
    """An address did not give the file; the message is the reason in a few words."""


def download(url: str, state: Path, name: str, size: int | None = None, pause_s: float = 1.0) -> Path:
    """`url` as a file in folder `state`. Bytes of an earlier, interrupted run are kept and continued.

    Args:
        url: the address.
        state: folder that survives a kill.
        name: what progress lines say.
        size: expected bytes where the server does not tell.
        pause_s: wait before the first retry; doubled each time without progress.

    Raises:
        Refused: bad status, a web page instead of a file, or no complete transfer after some attempts without progress.
    """
    import requests

    state.mkdir(parents=True, exist_ok=True)
    part = state / f"{object_digest(url)[:12]}.part"
    failures, reason = 0, ""
    while failures < ATTEMPTS:
        before = part.stat().st_size if part.exists() else 0
        try:
            if _transfer(url, part, name, size):
                return part
            reason = "the transfer ended early"
        except requests.RequestException as error:
            reason = _short(error)
        gained = part.exists() and part.stat().st_size > before
        failures = 0 if gained else failures + 1
        if failures < ATTEMPTS:
            time.sleep(pause_s * 2 ** max(failures - 1, 0))
    raise Refused(reason)


def _short(error: Exception) -> str:
    """The reason in a few words."""
    import requests

    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the transfer broke off"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return f"{type(error).__name__}: {str(error)[:160]}"


def _transfer(url: str, part: Path, name: str, size: int | None) -> bool:
    """One request. True when the file is complete."""
    import requests

    notes = part.with_suffix(".json")
    known = json.loads(notes.read_text()) if notes.exists() and part.exists() else {}
    have = part.stat().st_size if known else 0
    headers = {"User-Agent": "zerodr", "Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-"} | ({"If-Range": known["tag"]} if known["tag"] else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as answer:
        if answer.status_code == 416 and have == known.get("total"):
            return True
        if answer.status_code == 416:
            part.unlink(missing_ok=True)
            return False
        _check_answer(answer)
        if answer.status_code != 206:
            have = 0
        total = _total(answer, have) or size
        write_json(notes, {"url": url, "tag": _tag(answer), "total": total})
        progress = Progress(f"download {name}", total or 0, "bytes", done=have)
        with open(part, "ab" if have else "wb") as stream:
            for block in answer.iter_content(BLOCK):
                stream.write(block)
                progress.add(len(block))
    got = part.stat().st_size
    if total is not None and got > total:
        part.unlink()
        raise Refused(f"sent {got} bytes, announced {total}")
    if total is not None and got < total:
        return False
    progress.finish()
    return True


def _check_answer(answer: Any) -> None:
    if answer.status_code not in (200, 206):
        raise Refused(f"HTTP status {answer.status_code}")
    if answer.headers.get("Content-Type", "").startswith("text/html"):
        raise Refused("answers with a web page instead of the file")


def _tag(answer: Any) -> str:
    """A strong validator for `If-Range`, or nothing."""
    tag = answer.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified", "")


def _total(answer: Any, have: int) -> int | None:
    length = answer.headers.get("Content-Length")
    return have + int(length) if length else None
