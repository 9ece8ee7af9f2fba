"""The leaderboard, the pages by query and the report in a real browser, without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.browser import Page, needs_browser, visit
from tests.unit.page_helpers import make_pages

from zerodr.pages.report import write_report

pytestmark = [pytest.mark.slow, needs_browser]
METHODS = "[...document.querySelectorAll('#main tbody tr:not(.family):not([hidden])')].map(row => row.dataset.name)"
CLICK = "document.querySelector({!r}).click()"
TYPE = "(words => {{ words.value = {!r}; words.dispatchEvent(new Event('input')) }})(document.querySelector({!r}))"
WIDER = "document.documentElement.scrollWidth - innerWidth"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        write_report(make_pages(root))
    return root


def test_sorting_filtering_and_a_cells_details(folder, tmp_path):
    async def steps(page: Page) -> None:
        assert await page.run(METHODS) == ["bm25-flat", "dense"]
        for order in (["dense", "bm25-flat"], ["bm25-flat", "dense"], ["bm25-flat", "dense"]):
            await page.run(CLICK.format("#main thead th:nth-child(2) button"))
            assert await page.run(METHODS) == order
        await page.run(TYPE.format("den", "[data-controls=main] input"))
        assert await page.run(METHODS) == ["dense"]
        await page.run(TYPE.format("nothing", "[data-controls=main] input"))
        assert await page.run("document.querySelector('output').textContent") == "no row matches"
        await page.run(TYPE.format("", "[data-controls=main] input"))
        await page.run(CLICK.format("[data-name=dense] [data-cell=toy]"))
        text = await page.run("document.querySelector('dialog[open]').innerText")
        for words in ("Dense on Toy", "95 % interval", "against BM25", "evaluate_run", "snakemake --profile"):
            assert words in text
        link = await page.run("document.querySelector('dialog a').href")
        assert Path(link.removeprefix("file://")).is_file()
        await page.run(CLICK.format("dialog button"))
        assert await page.run("document.querySelector('dialog[open]')") is None

    visit((folder / "results/beir/all.html").as_uri(), steps, tmp_path)


def test_no_page_is_wider_than_a_phone(folder, tmp_path):
    async def steps(page: Page) -> None:
        await page.resize(420, 900)
        assert await page.run(WIDER) <= 0

    visit((folder / "results/beir/all.html").as_uri(), steps, tmp_path)
    visit((folder / "results/beir/all/queries/toy/dense.html").as_uri(), steps, tmp_path / "queries")
    visit((folder / "results/report.html").as_uri(), steps, tmp_path / "report")


def test_the_report_has_the_table(folder, tmp_path):
    async def steps(page: Page) -> None:
        await page.run(CLICK.format("[data-name=dense] [data-cell=toy]"))
        link = await page.run("document.querySelector('dialog[open] a').href")
        assert Path(link.removeprefix("file://")).is_file()

    visit((folder / "results/report.html").as_uri(), steps, tmp_path)


def test_queries_open_and_are_filtered(folder, tmp_path):
    shown = "[...document.querySelectorAll('.query:not([hidden]) summary')].length"

    async def steps(page: Page) -> None:
        assert await page.run(shown) == 3
        await page.run(TYPE.format("topic 1", "#words"))
        assert await page.run(shown) == 1
        await page.run(CLICK.format("#all"))
        assert "Title 1" in await page.run("document.body.innerText")

    visit((folder / "results/beir/all/queries/toy/dense.html").as_uri(), steps, tmp_path)
