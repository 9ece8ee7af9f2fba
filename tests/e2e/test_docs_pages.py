"""The documentation as a user opens it: built into a folder, from `file://`, in a browser without a network."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.browser import Page, needs_browser, visit

pytestmark = [pytest.mark.slow, needs_browser]
LINKS = "[...document.querySelectorAll('.md-nav--primary a.md-nav__link[href]')].map(a => a.href)"
TITLES = "[...document.querySelectorAll('.md-search-result__article h1')].map(h => h.textContent)"


@pytest.fixture(scope="module")
def site(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=root, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    return folder


async def open_page(page: Page, address: str) -> None:
    await page.call("Page.navigate", url=address)
    while await page.run(f"document.readyState !== 'complete' || location.href.split('#')[0] !== '{address}'"):
        await asyncio.sleep(0.05)


async def search(page: Page, words: str) -> list[str]:
    """Type words into the search field; the titles of what it finds."""
    await page.run("document.querySelector('[data-md-component=search-query]').focus()")
    await page.call("Input.insertText", text=words)
    for _ in range(100):
        await asyncio.sleep(0.1)
        if titles := await page.run(TITLES):
            return titles
    return []


def test_every_page_of_the_menu_opens_from_a_folder(site, tmp_path):
    async def steps(page: Page) -> None:
        links = sorted({link.split("#")[0] for link in await page.run(LINKS)})
        assert len(links) > 30
        for link in links:
            assert link.startswith("file://") and link.endswith(".html"), link
            await open_page(page, link)
            assert await page.run("document.querySelector('article h1') !== null"), link
            assert not await page.run("document.title.startsWith('Index of')"), link

    visit((site / "index.html").as_uri(), steps, tmp_path)


def test_a_search_finds_pages_without_a_server(site, tmp_path):
    async def steps(page: Page) -> None:
        await page.resize(1280, 900)
        titles = await search(page, "csv")
        assert any("corpus" in title.lower() for title in titles), titles
        first = "document.querySelector('.md-search-result__link')"
        address = await page.run(f"{first}.href")
        await page.run(f"{first}.click()")
        await open_page(page, address.split("#")[0].split("?")[0])
        assert "csv" in (await page.run("document.body.innerText")).lower()

    visit((site / "index.html").as_uri(), steps, tmp_path)
