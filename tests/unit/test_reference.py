"""The generated reference of settings: whole, described, and the same as the page in docs/."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.config_helpers import project
from typer.testing import CliRunner

from zerodr.config.training import TrainingSettings
from zerodr.operations.lookup_commands import app
from zerodr.operations.reference import INDEX, render, render_pages

__all__ = ["project"]


@pytest.fixture(scope="module")
def page(root):
    return render(root)


def test_the_page_in_docs_is_the_generated_one(root, page):
    written = {name: (root / "docs" / name).read_text() for name in render_pages(root)}
    assert "\n".join(written.values()) == page, "run: zerodr settings --write"
    assert {path.name for path in (root / "docs/settings").iterdir()} == {Path(name).name for name in written} - {INDEX}


def test_recipes_of_ones_own_leave_the_page_as_it_is(project, page):
    """Who adds a loss writes the page next to a recipe that tries it (docs/add-loss.md)."""
    (project / "config/my").mkdir()
    training = "training: {lora_rank: 2}"
    (project / "config/my/mine.yaml").write_text(f"like: dpr\nsettings: {{chain: {{ep0: {{{training}}}}}}}\n")
    assert render(project) != page
    assert CliRunner().invoke(app, ["settings", "--markdown"]).stdout == page


def test_every_key_is_described_and_shows_its_default(page):
    rows = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 200
    assert [row[0] for row in rows if len(row) != 4 or not row[3].strip()] == []


def test_limits_choices_and_links_are_in_words(page):
    assert "| `steps` | whole number, ≥ 1 | `1000` |" in page
    assert "`adamw` or `lamb`" in page
    assert f"[{TrainingSettings.__name__}](#{TrainingSettings.__name__.lower()})" in page
    links = set(re.findall(r"\]\([a-z.]*#([a-z]+)\)", page))
    assert links <= {heading.lower() for heading in re.findall(r"(?m)^## (\w+)", page)}


def test_each_block_is_on_the_page_once(page):
    headings = re.findall(r"(?m)^## (\w+)", page)
    assert len(headings) == len(set(headings)) > 40


def test_options_that_no_recipe_sets_are_marked(page):
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| ")}
    assert "*Advanced.*" in rows["`hnsw_links`"] and "*Advanced.*" not in rows["`learning_rate`"]
