"""Take pictures of pages in a headless Chromium: `python docs/pictures/screens.py` writes `docs/pictures/*.png`.

The pages are those of this checkout's results: one of an adapted folder, and, where the main table is finished, others.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.e2e.browser import BROWSER, Page, visit  # noqa: E402

FOLDER = ROOT / "docs/pictures"
PORT, START_S, SETTLE_S = 5099, 120, 8.0
QUERY = "does vitamin D prevent cancer"
TIDY = "for (const button of document.querySelectorAll('button[aria-label=Close]')) button.click()"
OPEN = """(name => [...document.querySelectorAll('a')].find(a => a.textContent.trim().split(' (')[0] === name)
  .closest('.ag-cell-wrapper').querySelector('button').click())({})"""


def newest_page() -> Path | None:
    """Find the page of the main table, or of the newest other selection."""
    pages = sorted((ROOT / "results/beir").glob("*.html"), key=lambda path: (path.stem == "all", path.stat().st_mtime))
    return pages[-1] if pages else None


def take(name: str, address: str, width: int, height: int, *steps: str, settle: float = 0.5) -> None:
    """Write a picture of a page after some steps of JavaScript."""

    async def drive(page: Page) -> None:
        await page.resize(width, height)
        await asyncio.sleep(settle)
        for step in steps:
            await page.run(step)
            await asyncio.sleep(settle)
        await page.shoot(FOLDER / f"{name}.png")

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        visit(address, drive, Path(folder))


@contextmanager
def served(*words: str) -> Iterator[str]:
    """Run a server of this checkout, `python -m WORDS --port PORT`; give its address."""
    command = [sys.executable, "-m", *words, "--port", str(PORT)]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and not _answers(f"http://127.0.0.1:{PORT}/"):
            time.sleep(1)
        yield f"http://127.0.0.1:{PORT}"
    finally:
        server.terminate()
        server.wait()


def _answers(address: str) -> bool:
    try:
        return urllib.request.urlopen(address, timeout=5).status == 200
    except OSError:
        return False


def take_mlflow(page: Path) -> None:
    """Write pictures of the lineage in MLflow: methods, groups, and all that used a collection."""
    link = urllib.parse.urlparse(json.loads((ROOT / "results/lineage/link.json").read_text(encoding="utf-8"))).fragment
    runs = link.partition("?")[0]
    collection, method = corner(page)
    digest = json.loads((ROOT / f"results/collections/{collection}/lineage.json").read_text(encoding="utf-8"))[
        "digest"
    ][:36]
    search = urllib.parse.quote(f"dataset.digest = '{digest}'")
    store = f"sqlite:///{ROOT / 'results/lineage/mlflow.db'}"
    with served("mlflow", "ui", "--workers", "1", "--backend-store-uri", store) as address:
        take("mlflow-methods", f"{address}/#{link}", 1200, 620, TIDY, settle=SETTLE_S)
        groups = [OPEN.format(json.dumps(name)) for name in (method, "evaluate_run")]
        one = urllib.parse.quote(f"tags.method = '{method}'")  # the page loads a hundred runs: all would not fit
        take("mlflow-groups", f"{address}/#{runs}?searchFilter={one}", 1200, 900, TIDY, *groups, settle=SETTLE_S)
        take("mlflow-users", f"{address}/#{runs}?searchFilter={search}", 1200, 700, TIDY, settle=SETTLE_S)


def corner(page: Path) -> tuple[str, str]:
    """Return the last collection and the last method of a page's table."""
    table = page.with_suffix(".tsv").read_text(encoding="utf-8").splitlines()
    names = [name.partition(" ")[0] for name in table[0].split("\t")[1:] if not name.startswith("Avg")]
    return names[-1], table[-1].partition("\t")[0]


def take_search(page: Path) -> None:
    """Write a picture of the search page: the last method of the table next to BM25."""
    collection, method = corner(page)
    ask = f"query.value = {json.dumps(QUERY)}; form.requestSubmit()"
    with served("zerodr", "serve", f"{method}/{collection}", "--with", "bm25") as address:
        take("search", address, 1100, 760, ask, settle=SETTLE_S)


def main() -> None:
    """Take all pictures that this checkout has pages for."""
    page = newest_page()
    if BROWSER is not None:
        for adapted in sorted((ROOT / "results/adapted").glob("*/index.html"))[:1]:
            take("adapted", adapted.as_uri(), 1100, 800)
    if BROWSER is None or page is None:
        sys.stderr.write("no pictures of other pages: they need Chromium and a finished main table (make mini)\n")
        return
    cell = "[...document.querySelectorAll('#main tbody tr')].pop().querySelector('[data-cell]').click()"
    take("leaderboard-cell", page.as_uri(), 1100, 760, cell)
    queries = sorted(page.with_suffix("").glob("queries/*/*.html"))
    if queries:
        take("queries", queries[0].as_uri(), 1100, 700, "document.querySelector('details.query').open = true")
    if (ROOT / "results/lineage/link.json").exists():
        take_mlflow(page)
    take_search(page)


if __name__ == "__main__":
    main()
