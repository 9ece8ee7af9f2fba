"""Comparison with published numbers: what is compared, verdicts, bad files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_table import VALUES, collection, settings_of, write_summary

from zerodr.config.settings import Config, Reference
from zerodr.errors import ArtifactError
from zerodr.evaluation.numbers import fixed, read_tsv, tsv
from zerodr.reporting.cells import OKISH, verdict
from zerodr.reporting.grid import read_summaries
from zerodr.reporting.published import (
    COLUMNS,
    compare,
    published_section,
    published_tsv,
    read_papers,
    read_reference,
)

SOURCE = Reference(path="reference.tsv", source="a paper", tolerance=0.001)
TEXT = """method\tcollection\tndcg_at_10\trecall_at_100\trecall_at_1000
BM25\talpha\t0.5005\t\t0.1
bm25\tpart\t0.9\t\t
bm25\tdup\t0.3\t\t
bm25\tdup-a\t0.203\t\t
bm25\tunknown\t0.3\t\t
other\talpha\t0.3\t\t
dense\tbeta\t0.3\t\t
"""


def reference(folder: Path, text: str = TEXT) -> pd.DataFrame:
    path = folder / "reference.tsv"
    path.write_text(text)
    return read_reference(path, SOURCE)


@pytest.fixture
def frame(tmp_path: Path) -> pd.DataFrame:
    return read_summaries(
        [write_summary(tmp_path, model, name, value) for model, row in VALUES.items() for name, value in row.items()]
    )


def test_complete_collections_aggregates_and_their_members_are_compared(tmp_path, frame):
    table = compare(frame, reference(tmp_path), settings_of())
    assert list(table.columns) == COLUMNS
    found = {(row.method, row.collection): row.verdict for row in table.itertuples()}
    assert found == {
        ("bm25", "alpha"): "OK",
        ("bm25", "dup"): "OK",
        ("bm25", "dup-a"): "OKish",
        ("dense", "beta"): "DRIFT",
    }
    assert table.set_index("collection").loc["alpha", "difference"] == pytest.approx(-0.0005)
    assert (table["protocol"] == "standard").all() and (table["source"] == "a paper").all()


def test_measures_beyond_the_depth_are_left_out(tmp_path, frame):
    text = "method\tcollection\tndcg_at_10\trecall_at_1000\nbm25\talpha\t0.5\t0.5\n"
    assert compare(frame, reference(tmp_path, text), settings_of())["metric"].tolist() == ["ndcg_cut_10"]


def test_a_part_of_an_aggregate_is_not_compared_but_its_members_are(tmp_path, frame):
    settings = settings_of(aggregates={"dup": ["dup-a", "dup-b", "dup-c"]})
    assert set(compare(frame, reference(tmp_path), settings)["collection"]) == {"alpha", "beta", "dup-a"}


@pytest.mark.parametrize("kind", ["subset", "pool", "own"])
def test_other_kinds_are_never_compared(tmp_path, kind):
    frame = read_summaries([write_summary(tmp_path, "bm25", "alpha", 0.5)])
    settings = settings_of(collections=[collection("alpha", kind)], methods=[{"name": "bm25", "label": "BM25"}])
    assert compare(frame, reference(tmp_path), settings).empty


@given(st.floats(-1, 1), st.floats(1e-5, 0.01))
def test_verdicts_grow_with_the_difference(difference, tolerance):
    assert verdict(difference, tolerance) == verdict(-difference, tolerance)
    expected = "OK" if abs(difference) <= tolerance else "OKish" if abs(difference) <= OKISH * tolerance else "DRIFT"
    if abs(abs(difference) - tolerance) > 1e-8 and abs(abs(difference) - OKISH * tolerance) > 1e-8:
        assert verdict(difference, tolerance) == expected


def test_a_difference_at_the_tolerance_is_ok():
    assert verdict(0.6789 - 0.6784, 0.0005) == "OK"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("method\tcollection\tndgc_at_10\nbm25\ta\t1\n", "unknown column 'ndgc_at_10'.*did you mean ndcg_at_10"),
        ("method\tndcg_at_10\nbm25\t1\n", "columns method and collection are needed"),
        ("method\tcollection\tndcg_at_10\nbm25\ta\t1\nBM25\ta\t2\n", "two numbers"),
        ("method\tcollection\tndcg_at_10\nbm25\ta\t.x\n", "is no number"),
    ],
)
def test_bad_reference_files_are_refused(tmp_path, text, words):
    with pytest.raises(ArtifactError, match=words):
        reference(tmp_path, text)


def test_a_line_without_source_or_kind_has_those_of_the_file(tmp_path):
    read = reference(
        tmp_path, "method\tcollection\tndcg_at_10\tsource\tkind\ndpr\ta\t0.5\t\t\nance\ta\t0.6\tX\tindependent"
    )
    assert read[["source", "kind"]].values.tolist() == [[SOURCE.source, "published"], ["X", "independent"]]


def test_independent_numbers_are_not_called_published(tmp_path, frame):
    text = "method\tcollection\tndcg_at_10\tkind\nbm25\talpha\t0.5\tindependent\ndense\tbeta\t0.3\tpublished\n"
    settings = settings_of()
    table = compare(frame, reference(tmp_path, text), settings)
    independent, published = published_section(table, settings)[::-1]
    assert independent.startswith("## Against numbers of an independent script, which nobody published")
    assert published.startswith("## Against published numbers") and "BM25" not in published
    assert "# independent: numbers of an independent script" in published_tsv(table, settings)
    with pytest.raises(ArtifactError, match="unknown kind 'independant': did you mean independent"):
        reference(tmp_path, text.replace("independent", "independant"))


def test_values_of_papers_come_once_with_all_their_sources(tmp_path):
    row = {
        "row": "BM25",
        "method": "bm25",
        "column": "alpha",
        "metric": "ndcg_cut_10",
        "ours": 0.5,
        "published": "0.501",
    }
    row |= {"difference": -0.001, "verdict": "OK", "tolerance": 0.002, "protocol": "standard", "note": ""}
    paths = []
    for paper in ("one", "two"):
        others = [{"metric": "hole_pair_10"}, {"column": "part"}, {"ours": None, "verdict": "not run"}]
        rows = [row | {"source": f"{paper}, table1"} | other for other in ({}, *others)]
        paths.append(tmp_path / f"{paper}.tsv")
        pd.DataFrame(rows).to_csv(paths[-1], sep="\t", index=False)
    (line,) = read_papers(paths, settings_of()).to_dict("records")
    assert list(line) == COLUMNS and line["source"] == "one, table1; two, table1"
    assert (line["reference"], line["kind"], line["verdict"]) == (0.501, "published", "OK")
    assert read_papers([], settings_of()).empty


def test_the_files_that_are_shipped_can_be_read(root):
    for shipped in Config().references:
        frame = read_reference(root / shipped.path, shipped)
        assert frame["reference"].between(0, 1).all() and len(frame)


def test_the_table_lists_what_drifted(tmp_path, frame):
    settings = settings_of(references=[SOURCE.model_dump()])
    table = compare(frame, reference(tmp_path), settings)
    text = published_tsv(table, settings)
    assert "# DRIFT: dense beta ndcg_cut_10 +0.0500" in text
    (tmp_path / "published.tsv").write_text(text)
    assert len(pd.read_csv(tmp_path / "published.tsv", sep="\t", comment="#")) == len(table)
    (section,) = published_section(table, settings)
    assert "| BM25" in section and "OKish" in section


def test_a_number_rounds_alike_in_the_table_the_section_and_the_file(tmp_path, frame):
    frame.loc[frame["model"] == "bm25", "value"] = 0.3254498644
    settings = settings_of()
    text = reference(tmp_path, "method\tcollection\tndcg_at_10\nbm25\talpha\t0.32545\n")
    table = compare(frame, text, settings)
    (section,) = published_section(table, settings)
    assert "| 0.3254 |" in section and "+0.0000" in section and "-0.0000" not in section
    (tmp_path / "published.tsv").write_text(published_tsv(table, settings))
    read = pd.read_csv(tmp_path / "published.tsv", sep="\t", comment="#")
    assert fixed(read["ours"].iloc[0]) == "0.3254"


def test_nothing_to_compare_is_told(tmp_path, frame):
    table = compare(frame, reference(tmp_path).iloc[:0], settings_of())
    assert list(table.columns) == COLUMNS and table.empty
    assert published_section(table, settings_of()) == [
        "No published number of these methods and collections is known.\n"
    ]


def test_numbers_of_other_measures_alone_are_named(tmp_path, frame):
    table = compare(frame, reference(tmp_path), settings_of())
    (text,) = published_section(table, settings_of(metric="ndcg_cut_15"))
    assert "is known for nDCG@15; those of nDCG@10 are in published.tsv." in text


def test_an_address_with_an_anchor_ends_no_line_of_a_table(tmp_path):
    source = "https://example.org/readme.md#results"
    frame = pd.DataFrame({"method": ["dpr", "2024"], "source": [source, "a # b"], "verdict": ["OK", "DRIFT"]})
    (tmp_path / "table.tsv").write_text(tsv(frame, ["difference: ours minus published", "#1"]))
    assert read_tsv(tmp_path / "table.tsv").equals(frame)


def test_a_quote_in_a_source_takes_no_lines_with_it(tmp_path):
    text = 'method\tcollection\tndcg_at_10\tsource\nbm25\ta\t.7\t"A paper, table 1\nbm25\tb\t.3\tx\nbm25\tc\t.2\tB" y\n'
    assert reference(tmp_path, text)["collection"].tolist() == ["a", "b", "c"]
