"""A page in a headless Chromium without a network, driven over the DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync --hide-scrollbars
    --disable-background-networking --disable-component-update --remote-debugging-port=0""".split()
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
START_S = 60
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium (apt-get install chromium)")


class Page:
    """A tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket, self.number = socket, 0

    async def call(self, method: str, **params: object) -> dict:
        """Call a method of the protocol."""
        self.number += 1
        await self.socket.send_json({"id": self.number, "method": method, "params": params})
        while True:
            answer = await self.socket.receive_json()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    async def run(self, expression: str) -> Any:
        """Evaluate an expression of JavaScript."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def resize(self, width: int, height: int, dark: bool = False) -> None:
        """Set the size of the window in pixels, and light or dark colours."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def shoot(self, path: Path) -> None:
        """Write a picture of the window."""
        shot = await self.call("Page.captureScreenshot")
        path.write_bytes(base64.b64decode(shot["data"]))


def visit(address: str, steps: Callable[[Page], Awaitable[None]], folder: Path) -> None:
    """Open a page and run steps in it; `folder` is for the browser's own files."""
    profile = folder / "profile"
    command = [str(BROWSER), *FLAGS, OFFLINE, f"--user-data-dir={profile}", address]
    browser = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        asyncio.run(_drive(profile / "DevToolsActivePort", steps))
    finally:
        browser.terminate()
        browser.wait()


async def _drive(port_file: Path, steps: Callable[[Page], Awaitable[None]]) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            port = port_file.read_text().split()[0]
            tabs = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
            address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
            break
        except (OSError, urllib.error.URLError, IndexError, StopIteration):
            assert time.monotonic() < deadline, "the browser did not start"
            await asyncio.sleep(0.2)
    async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
        page = Page(socket)
        while await page.run("location.href !== 'about:blank' && document.readyState") != "complete":
            await asyncio.sleep(0.2)
        await steps(page)
