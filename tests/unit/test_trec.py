"""Run files: exact round trip, equal bytes, total order, ids with odd characters, refusals."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerodr.artifacts import trec
from zerodr.artifacts.trec import order_rows, read_run, run_writer, total_order, write_run
from zerodr.errors import ArtifactError

ODD = [
    "#1",
    '"quoted"',
    "it's",
    "a,b",
    "NA",
    "nan",
    "null",
    "1e5",
    "007",
    "-",
    "naïve",
    "文档",
    "🙂",
    "a\u00a0b",
    "a\u2028b",
    "\ufeffbom",
    "x\\y",
    "%20",
    "</tag>",
    "A" * 300,
]
IDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\r\n\x00"), min_size=1, max_size=8)
SCORES = st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0)


def frame(rows: list[tuple[str, str, float]]) -> pd.DataFrame:
    made = pd.DataFrame(rows, columns=["query", "document", "score"])
    return made.astype({"query": "str", "document": "str", "score": "float32"})


def same(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    bits = [run["score"].to_numpy(np.float32).view(np.int32) for run in (one, other)]
    return np.array_equal(*bits) and all(one[name].tolist() == other[name].tolist() for name in ("query", "document"))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(IDS, IDS, SCORES), max_size=30))
def test_round_trip_keeps_every_bit(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("run")
    run = total_order(frame(sorted(rows, key=lambda row: row[0])))
    write_run(folder / "a.trec.gz", run, "tag")
    write_run(folder / "b.trec.gz", run, "tag")
    assert (folder / "a.trec.gz").read_bytes() == (folder / "b.trec.gz").read_bytes()
    assert same(read_run(folder / "a.trec.gz"), run)


def test_ids_with_odd_characters(tmp_path):
    run = total_order(frame([(query, document, 0.1 * n) for query in ODD for n, document in enumerate(ODD)]))
    write_run(tmp_path / "a.trec.gz", run, "+".join(["dense", "variant"]))
    assert same(read_run(tmp_path / "a.trec.gz"), run)


def test_float32_extremes_and_neighbours(tmp_path):
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, 50000, dtype=np.uint32).view(np.float32)
    values = np.concatenate([bits[np.isfinite(bits)], [1e-45, 3.4028235e38, -1e-45, 0.0, 16777217, 0.1]]).astype(
        np.float32
    )
    run = frame([("q", f"d{n}", 0.0) for n in range(len(values))]).assign(score=np.sort(values)[::-1])
    write_run(tmp_path / "a.trec.gz", run, "t")
    assert same(read_run(tmp_path / "a.trec.gz"), run)


def test_lines_are_those_of_trec(tmp_path):
    write_run(tmp_path / "a.trec.gz", frame([("q1", "d2", 1.5), ("q1", "d1", 0.25), ("q0", "d1", -3.0)]), "m")
    lines = gzip.decompress((tmp_path / "a.trec.gz").read_bytes()).decode().splitlines()
    assert lines == ["q1 Q0 d2 1 1.5 m", "q1 Q0 d1 2 0.25 m", "q0 Q0 d1 1 -3 m"]


def test_pieces_give_the_bytes_of_the_whole(tmp_path):
    run = frame([(f"q{q}", f"d{d}", -d) for q in range(50) for d in range(40)])
    write_run(tmp_path / "whole.gz", run, "t")
    with run_writer(tmp_path / "pieces.gz", "t") as writer:
        for start in range(0, 2000, 200):
            part = run.iloc[start : start + 200]
            writer.write(pa.array(part["query"], pa.string()), pa.array(part["document"], pa.string()), part["score"])
    assert (tmp_path / "pieces.gz").read_bytes() == (tmp_path / "whole.gz").read_bytes()


@given(st.lists(st.tuples(st.sampled_from("pq"), IDS, st.sampled_from([0.0, -1.5, 2.0])), max_size=25))
def test_total_order_is_that_of_trec_eval(rows):
    ordered = total_order(frame(rows))
    first_seen = list(dict.fromkeys(row[0] for row in rows))
    expected = sorted(rows, key=lambda row: row[1].encode(), reverse=True)
    expected = sorted(expected, key=lambda row: (first_seen.index(row[0]), -row[2]))
    assert list(ordered.itertuples(index=False, name=None)) == expected


@given(st.permutations([(q, d, s) for q in (0, 1) for d, s in (("a", 1.0), ("b", 1.0), ("é", 1.0), ("z", 2.0))]))
def test_order_does_not_depend_on_the_rows_places(rows):
    query, document, score = (list(column) for column in zip(*rows, strict=True))
    order = order_rows(np.array(query), np.array(score, np.float32), pa.array(document))
    assert [rows[place][:2] for place in order] == [(q, d) for q in (0, 1) for d in ("z", "é", "b", "a")]


def test_white_space_in_ids_is_escaped_reversibly(tmp_path):
    """Every character that some tool takes for the end of a word, and texts that look escaped already."""
    breaks = [letter for letter in map(chr, range(0x110000)) if letter.isspace() or letter in "\0\\"]
    names = [f"a{letter}b" for letter in breaks] + ["\\u0020", "x\\", " ", "plain"]
    run = frame([(query, name, -n) for query in ("q 1", "q\t2") for n, name in enumerate(names)])
    write_run(tmp_path / "a.gz", run, "t")
    assert same(read_run(tmp_path / "a.gz"), run)
    lines = gzip.decompress((tmp_path / "a.gz").read_bytes()).decode().split("\n")
    assert [len(line.split()) for line in lines] == [6] * len(run) + [0]
    assert lines[0] == "q\\u00201 Q0 a\\u0000b 1 0 t"


@pytest.mark.parametrize("bad", ["", "a b", "a\nb"])
def test_empty_ids_and_broken_tags_are_refused(tmp_path, bad):
    for row in ((bad, "d", 1.0), ("q", bad, 1.0)) if not bad else ():
        with pytest.raises(ArtifactError, match="is empty"):
            write_run(tmp_path / "a.gz", frame([("q0", "d0", 2.0), row]), "t")
    with pytest.raises(ArtifactError, match="tag"):
        write_run(tmp_path / "a.gz", frame([("q", "d", 1.0)]), bad)


def test_reads_runs_of_other_tools(tmp_path):
    path = tmp_path / "other.trec"
    path.write_text("q1\tQ0\td1\t1\t12.500000\tLucene\nq1 Q0  d2   2 3e-1 Lucene\n")
    assert same(read_run(path), frame([("q1", "d1", 12.5), ("q1", "d2", 0.3)]))


def test_ids_that_pandas_keeps_in_chunks(tmp_path):
    parts = [frame([(f"q{n}", "d", 1.0), (f"q{n}", "e", 1.0)]) for n in range(3)]
    run = pd.concat(
        [part.astype({name: pd.ArrowDtype(pa.string()) for name in ("query", "document")}) for part in parts]
    )
    write_run(tmp_path / "a.gz", total_order(run), "t")
    assert read_run(tmp_path / "a.gz")["document"].tolist() == ["e", "d"] * 3


def test_empty_run(tmp_path):
    write_run(tmp_path / "a.trec.gz", frame([]), "t")
    assert read_run(tmp_path / "a.trec.gz").shape == (0, 3)


def broken(path: Path, kind: str) -> Path:
    good = gzip.compress(b"q1 Q0 d1 1 0.5 tag\n" * 2000)
    content = {
        "truncated": good[:-20],
        "flipped": good[:20] + bytes([good[20] ^ 255]) + good[21:],
        "not gzip": b"q1 Q0 d1 1 0.5 tag\n",
        "words": gzip.compress(b"q1 Q0 d1 1 high tag\n"),
        "short": gzip.compress(b"q1 Q0 d1 1\n"),
        "long": gzip.compress(b"q1 Q0 d1 1 0.5 tag\nq1 Q0 d 2 2 0.5 tag more\n"),
        "not utf-8": gzip.compress(b"q1 Q0 d\xff\xfe 1 0.5 tag\n"),
    }[kind]
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("kind", ["truncated", "flipped", "not gzip", "words", "short", "long", "not utf-8"])
def test_broken_runs_are_refused(tmp_path, kind):
    with pytest.raises(ArtifactError, match="is no TREC run"):
        read_run(broken(tmp_path / "a.trec.gz", kind))


def test_missing_run(tmp_path):
    with pytest.raises(ArtifactError, match="is no TREC run"):
        read_run(tmp_path / "none.trec.gz")


def test_ids_that_pandas_keeps_in_chunks_are_ordered_too():
    """Ties in a concatenated frame: pandas hands Arrow a chunked column."""
    parts = [pd.DataFrame({"query": ["q"], "document": [name], "score": np.float32([1])}) for name in ("a", "c", "b")]
    chunked = pd.concat(parts, ignore_index=True)
    chunked["document"] = pd.array(pa.chunked_array([["a"], ["c"], ["b"]]), dtype="string[pyarrow]")
    assert list(total_order(chunked)["document"]) == ["c", "b", "a"]


@pytest.mark.parametrize("name", ["run.trec", "run.trec.gz"])
def test_both_ways_of_reading_give_the_same_frame(tmp_path, name):
    lines = ["q1 Q0 nan 1 2.5 t", "q1 Q0 d\\u0020x 2 1e-3 t", 'q\u00fc Q0 "d 1 -0.1 t', "q1 Q0 NULL 3 7 t"]
    text = "".join(f"{line}\n" for line in lines)
    for file, content in (("spaces", text), ("tabs", text.replace(" ", "\t"))):
        path = tmp_path / file / name
        path.parent.mkdir()
        path.write_bytes(gzip.compress(content.encode()) if name.endswith("gz") else content.encode())
    assert trec._read_spaced(tmp_path / "spaces" / name) is not None
    assert trec._read_spaced(tmp_path / "tabs" / name) is None
    spaces, tabs = (read_run(tmp_path / file / name) for file in ("spaces", "tabs"))
    pd.testing.assert_frame_equal(spaces, tabs)
    assert spaces["document"].tolist() == ["nan", "d x", '"d', "NULL"] and spaces["score"].dtype == np.float32


@pytest.mark.parametrize(
    "line", ["q  d 1 0.5 t", "q Q0 d 1 0.5 t ", "q\u00a0 Q0 d 1 0.5 t", "q Q0 d 1 x t", "q Q0 d 1  t"]
)
def test_lines_that_the_fast_way_leaves_to_the_other(tmp_path, line):
    (tmp_path / "run").write_text(f"q1 Q0 d1 1 0.5 t\n{line}\n", encoding="utf-8")
    assert trec._read_spaced(tmp_path / "run") is None


def test_a_gzip_file_of_two_parts_is_read_whole(tmp_path):
    parts = [gzip.compress(f"q{n} Q0 d 1 0.5 t\n".encode()) for n in (1, 2)]
    (tmp_path / "run.gz").write_bytes(b"".join(parts))
    assert read_run(tmp_path / "run.gz")["query"].tolist() == ["q1", "q2"]


@pytest.mark.parametrize(
    "text",
    [
        "q1 Q0 d1 1 0.5 tag more words\nq1 Q0 d2 2 0.25 tag\n",
        "q1 Q0 d1 1 0.5 tag\nq1 Q0 d2 2 0.25 tag more\n",
        "q1 Q0 d1 1 0.5 tag # 1\nq1 Q0 d2 2 0.25 tag # 2\n",
        "q1\tQ0\td1\t1\t0.5\ttag\tx\n\n q1 Q0 d2 2 0.25 tag\r\n",
    ],
)
def test_words_after_the_sixth_count_for_nothing(tmp_path, text):
    (tmp_path / "a.trec").write_text(text, newline="")
    assert read_run(tmp_path / "a.trec").to_numpy().tolist() == [["q1", "d1", 0.5], ["q1", "d2", 0.25]]
    assert read_run(tmp_path / "a.trec", ranks=True)["rank"].tolist() == [1, 2]


@pytest.mark.parametrize("blank", [" ", "  "])
def test_ranks_that_are_no_numbers(tmp_path, blank):
    (tmp_path / "a.trec").write_text(blank.join(["q1", "Q0", "d1", "first", "0.5", "tag"]))
    assert np.isnan(read_run(tmp_path / "a.trec", ranks=True)["rank"]).all()


@pytest.mark.parametrize("blank", [" ", "\t"])
def test_some_queries_of_a_run(tmp_path, blank):
    path = tmp_path / "run.txt"
    lines = ["q\\u0020x Q0 d1 1 2.0 t", "q2 Q0 d1 1 2.0 t", "q2 Q0 d2 2 1.0 t", "q3 Q0 d2 1 1.0 t"]
    path.write_text("".join(f"{line.replace(' ', blank)}\n" for line in lines))
    whole, chosen = read_run(path), {"q2", "q x", "no query of the run"}
    pd.testing.assert_frame_equal(read_run(path, queries=chosen), whole[whole["query"] != "q3"].reset_index(drop=True))
    assert read_run(path, queries=()).empty
