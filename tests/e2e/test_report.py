"""The HTML report in a real browser, without a network: table, figure and captions are there."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import aiohttp
import pytest
from tests.e2e.conftest import snakemake_in

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OFFLINE = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
FRAMES = "() => [...document.querySelectorAll('iframe, img')].map(e => e.outerHTML.slice(0, 80)).join()"
OPEN = """(label) => {
  const row = [...document.querySelectorAll('tr')].find(row => row.textContent.includes(label));
  row.querySelector('[iconname=eye]').click();
}"""
FOLLOW = "(t) => [...document.querySelectorAll('a,span')].filter(x => x.textContent.trim() === t).pop().click()"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium (apt-get install chromium)")]


class Page:
    """A page over the DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket, self.number = socket, 0

    async def call(self, method: str, **params: object) -> dict:
        self.number += 1
        await self.socket.send_json({"id": self.number, "method": method, "params": params})
        while True:
            answer = await self.socket.receive_json()
            if answer.get("id") == self.number:
                return answer["result"]

    async def run(self, function: str, *arguments: str) -> object:
        call = f"({function})({', '.join(json.dumps(a) for a in arguments)})"
        await asyncio.sleep(1)
        answer = await self.call("Runtime.evaluate", expression=call, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")


async def look(port: int, folder: Path) -> dict[str, str]:
    """What the report shows: texts of the start page, of the list of results, of the table, and the figure's size."""
    deadline = time.time() + 60
    while True:
        try:
            tabs = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
            break
        except urllib.error.URLError:
            assert time.time() < deadline, "the browser did not start"
            await asyncio.sleep(0.5)
    address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
    seen: dict[str, str] = {}
    text = "() => document.body.innerText"
    async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
        page = Page(socket)
        await asyncio.sleep(3)
        seen["start"] = await page.run(text)
        await page.run(FOLLOW, "Results")
        await page.run(FOLLOW, "Main table")
        seen["results"] = await page.run(text)
        for name, label in (("figure", "95 % intervals"), ("table", "every method on every collection")):
            await page.run(OPEN, label)
            seen[name] = await page.run(
                "() => [...document.querySelectorAll('iframe, img')].map(e => e.outerHTML.slice(0, 80)).join()"
            )
            shot = await page.call("Page.captureScreenshot")
            (folder / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))
    return seen


def test_a_browser_without_a_network_shows_the_report(bench, tmp_path):
    done = snakemake_in(bench)("--report", "results/report.html", "all")
    assert done.returncode == 0, done.stderr
    report = bench / "results/report.html"
    port = 9377
    command = [
        BROWSER,
        *OFFLINE,
        f"--remote-debugging-port={port}",
        f"--user-data-dir={tmp_path}/profile",
        "--window-size=1500,1000",
        report.as_uri(),
    ]
    browser = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        seen = asyncio.run(look(port, bench / "results"))
    finally:
        browser.terminate()
        browser.wait()
    assert "Every number here was" in seen["start"]
    for label in ("nDCG@10 of every method", "95 % intervals", "significance tests", "comparison with published"):
        assert label in seen["results"]
    assert seen["figure"] and seen["table"]
    assert (bench / "results/table.png").stat().st_size > 20_000
