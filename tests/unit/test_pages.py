"""The leaderboard and the pages by query: content, escaping, costs, selections."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from tests.unit.page_helpers import make_pages
from tests.unit.tiny_bench import write_config

from zerodr.config.base import validate
from zerodr.config.load import load_bench, read_config
from zerodr.config.quantities import shortened
from zerodr.config.words import parse_words
from zerodr.errors import ConfigError
from zerodr.evaluation.numbers import compact
from zerodr.lineage.graph import Graph
from zerodr.pages import html
from zerodr.pages.costs import Cost, budget, cost_of
from zerodr.pages.leaderboard import CellSources, LeaderboardSettings, _links, leaderboard
from zerodr.pages.queries import CHARACTERS, Pair, _document, chosen
from zerodr.plan import Plan, paths
from zerodr.plan.plan import INPUTS, PARAMS
from zerodr.plan.reporting import leaderboard_params


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        make_pages(root)
    return root


@pytest.fixture
def page(folder: Path) -> str:
    return (folder / "results/beir/all.html").read_text()


def cells(page: str) -> dict:
    return json.loads(re.search(r'id="cells">(.*?)</script>', page, re.DOTALL).group(1))


def test_the_table_is_read_without_options_and_its_notes_are_a_file(folder):
    table = pd.read_table(folder / "results/beir/all.tsv")
    assert list(table["model"]) == ["bm25-flat", "dense"]
    assert table["toy"].between(0, 1).all()
    assert (folder / "results/beir/all.notes.md").read_text().startswith("- cells: nDCG@10")


def test_the_leaderboard_needs_no_other_file(page):
    assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=", page)
    assert "mailto:" not in page
    assert "http" not in re.sub(
        r"https?://(?:www\.w3\.org|purl\.org|creativecommons\.org|matplotlib\.org)[^\"' ]*", "", page
    )


def test_a_cell_has_interval_test_command_and_lineage(page):
    cell = cells(page)["dense"]["toy"]
    facts = dict(cell["facts"])
    assert {"nDCG@10", "95 % interval", "queries", "against BM25", "p", "by query"} <= facts.keys()
    assert facts["by query"] == "2 better, 1 worse, 1 equal"
    summary = paths.summary("dense", "toy", "standard")
    assert cell["commands"][0][1] == f"snakemake --profile config/profiles/mini {summary} --config scale=mini seed=7"
    assert cell["commands"][1][1] == f"zerodr explain {summary} --config=scale=mini --config=seed=7"
    assert cell["lineage"].startswith(f"{summary}  evaluate_run")
    assert "merge_run" in cell["lineage"]


def test_the_time_of_a_row_has_no_name_of_a_collection(page):
    (key,) = cells(page)["dense"].keys() - {"toy"}
    assert f'data-cell="{key}"' in page and " " in key, "a folder may be called cost"


def test_words_of_commands_make_the_same_cells(folder, monkeypatch):
    monkeypatch.chdir(folder)
    Path("notes").mkdir(exist_ok=True)
    Path("notes/one.md").write_text("# One\n\nA text of a folder.\n\n# Two\n\nAnother text.\n", encoding="utf-8")
    config = read_config(Path("config")) | {"seeds": [14], "measures": ["ndcg_cut_20"], "byo": ["notes"]}
    config |= {"byo_cut": {"words": 60}, "byo_columns": {"text": "the body"}, "set": ["dense.max_tokens=9"]}
    config |= {"revisions": {"organization/dense-v1.1": "1" * 40}, "collections": ["toy"]}
    plan = Plan(load_bench(Path(), config))
    words = leaderboard_params(plan, None)["words"]
    again = Plan(load_bench(Path(), read_config(Path("config")) | parse_words(words)))
    assert all(name in again.bench.methods for name in plan.ranked)
    assert again.bench.folders["notes"] == plan.bench.folders["notes"]
    assert (again.config.measures, again.config.revisions) == (plan.config.measures, plan.config.revisions)


def test_links_lead_to_pages_that_exist(folder, page):
    (link,) = cells(page)["dense"]["toy"]["links"]
    assert (folder / "results/beir" / link[1]).is_file()
    assert "links" not in cells(page)["bm25-flat"]["toy"] or not cells(page)["bm25-flat"]["toy"]["links"]


def test_no_link_leads_to_a_collection_that_the_baseline_did_not_rank(folder, monkeypatch):
    monkeypatch.chdir(folder)
    plan = Plan(load_bench(Path()))
    settings = validate(LeaderboardSettings, leaderboard_params(plan, None), "page")
    frame = pd.DataFrame({"model": ["bm25-flat", "dense", "dense"], "collection": ["toy", "toy", "other"]})
    tests = pd.DataFrame({"baseline": ["bm25-flat"]})
    sources = CellSources(Graph(), (), (), "all", settings.table, frame, tests, pd.DataFrame())
    assert [len(_links("dense", name, sources)) for name in ("toy", "other")] == [1, 0]


def test_a_page_by_query_shows_gains_texts_and_judgements(folder):
    text = (folder / "results/beir/all/queries/toy/dense.html").read_text()
    assert "2 better, 1 worse, 1 equal" in text
    gains = [float(gain) for gain in re.findall(r'class="gain \w+">([+-][\d.]+)<', text)]
    assert gains == sorted(gains, reverse=True) and len(gains) == 3
    assert "&lt;b&gt;&amp; more&lt;/b&gt;" in text and "<b>& more</b>" not in text
    for word in ("relevant (2)", "not relevant", "unjudged", "Title 1", "rank 2", "not ranked"):
        assert word in text


def test_queries_that_gained_and_lost_most_are_chosen():
    numbers = pd.DataFrame({"gain": [0.9, 0.5, 0.1, 0.0, -0.1, -0.7]}, index=list("abcdef"))
    assert chosen(numbers, 1) == ["a", "f"]
    assert chosen(numbers, 5) == ["a", "b", "c", "e", "f"]


def test_cost_adds_jobs_and_their_training():
    settings = {"training": {"steps": 20, "batch_queries": 16, "accumulation": 2}}
    record = {"rule": "finetune", "seconds": 60.0, "gpu_hours": 0.5, "energy_joules": None, "peak_memory_mib": 9.0}
    record |= {"spec": {"params": {"settings": settings}}, "notes": {}}
    cost = Cost()
    cost.add(record)
    cost.add(record | {"rule": "merge_run", "energy_joules": 7.0, "spec": {"params": {}}})
    assert (cost.seconds, cost.gpu_hours, cost.joules, cost.steps, cost.examples) == (120.0, 1.0, 7.0, 20, 320)
    assert cost.rules == {"finetune": 60.0, "merge_run": 60.0}
    assert budget(record) == (20, 320), "two micro-batches of 8 are one batch"
    assert budget(record | {"notes": {"steps": 14}}) == (14, 224), "max_epochs ended it"


def test_reading_a_folder_is_no_cost_of_a_method_but_importing_its_model_is():
    fields = {"seconds": 60.0, "gpu_hours": 0.0, "energy_joules": None, "peak_memory_mib": 9.0, "spec": {"params": {}}}
    data = ["fetch_archive", "normalize_collection", "normalize_corpus", "normalize_queries", "normalize_judgements"]
    jobs = [{"rule": rule} | fields for rule in [*data, "import_model", "import_run", "index_bm25"]]
    assert set(cost_of(jobs).rules) == {"import_model", "import_run", "index_bm25"}


def test_numbers_and_times_in_words():
    assert [html.duration(seconds) for seconds in (12.3, 200, 7600)] == ["12 s", "3.3 min", "2.1 h"]
    assert [compact(number) for number in (950, 12_800, 999_999, 3_100_000)] == ["950", "12.8 k", "1.0 M", "3.1 M"]


def selection(root: Path, **config: object) -> str:
    return Plan(load_bench(root, config)).selection


def test_each_selection_of_collections_has_its_own_path(tmp_path):
    write_config(tmp_path)
    assert selection(tmp_path) == "all"
    assert selection(tmp_path, collections=["toy"]) == "toy"
    assert selection(tmp_path, collections=["toy", "other"]) == selection(tmp_path, collections=["other", "toy"])
    many = selection(tmp_path, collections=["toy", "other"])
    assert many == "other+toy"


def test_a_selection_with_the_name_of_a_method_is_refused(tmp_path):
    write_config(tmp_path)
    own = tmp_path / "dense"
    own.mkdir()
    (own / "corpus.jsonl").write_text('{"_id": "1", "text": "a text"}\n')
    (own / "queries.jsonl").write_text('{"_id": "1", "text": "a text"}\n')
    (own / "qrels").mkdir()
    (own / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n1\t1\t1\n")
    with pytest.raises(ConfigError, match="would have the path of a method's row"):
        load_bench(tmp_path, {"byo": str(own), "collections": ["dense"]})


def test_a_row_of_published_numbers_has_no_test_cost_or_command(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    plan = Plan(load_bench(folder))
    params = PARAMS["build_leaderboard"](plan, None)
    scores = {"source": "a paper", "file": "scores.tsv", "row": "theirs"}
    params["table"]["further"] = ["recall_100"]
    params["table"]["methods"].append({"name": "theirs", "label": "Theirs", "family": "", "scores": scores})
    files = {
        name: [Path(p) for p in ([v] if isinstance(v, str) else v)]
        for name, v in INPUTS["build_leaderboard"](plan, None).items()
    }
    table = tmp_path / "all.tsv"
    table.write_text(files["table"][0].read_text() + "theirs\t0.9000\n")
    settings = validate(LeaderboardSettings, json.loads(json.dumps(params)), "test")
    context = leaderboard(files | {"table": [table]}, settings, Graph())
    row = context["rows"][-1]
    assert (row["label"], row["cost"], row["published"]) == ("Theirs", None, True)
    assert row["cells"][0]["text"] == "0.9000" and not row["cells"][0]["best"]
    assert row["details"]["toy"]["facts"][0] == ["published number", "a paper, theirs"]
    assert context["rows"][1]["cells"][0]["best"]
    assert 'class="published"' in html.fill("leaderboard.html", **context)
    text = html.fill("leaderboard.html", **context).partition("<h2>R@100</h2>")[2].partition("</table>")[0]
    assert text.count("<tr><td>") == len(context["rows"]) - 1 and "Theirs" not in text and 'data-value="' in text


def test_a_text_without_blanks_is_cut_and_not_left_out():
    assert [len(shortened("这是很长的文本" * 90, most)) for most in (60, 320)] == [60, 320]
    assert shortened("第一章 " + "文本" * 200, 60).startswith("第一章 文本")
    pair = Pair(("a", "b"), "toy", pd.DataFrame(), ({}, {}), {}, {})
    shown = _document(pair, "q", "d", {"d": ("", "第一章 " + "文本" * 400)})
    assert len(shown["text"]) == CHARACTERS
