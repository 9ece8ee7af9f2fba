"""The forms in which people bring documents, queries and judgements: read with the right values, or named."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerodr.collections.access import qrels_files, read_corpus, read_qrels, read_queries
from zerodr.collections.user_folders import write_section
from zerodr.config.load import load_bench
from zerodr.config.registry import Collection
from zerodr.config.user_folders import SECTIONS, find_files, unread_files
from zerodr.errors import CollectionError, ZerodrError
from zerodr.operations.folders import examine, notices
from zerodr.plan import Plan
from zerodr.plan.collections import section_files

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ("d1", "Pies", "how pies are made"),
    ("d2", "", 'the "best" cars, all red'),
    ("d 3", "Öl", "oil; and water"),
]
QUERIES = [("q1", "pies"), ("q2", "cars, red")]
JUDGEMENTS = [("q1", "d1", 1), ("q2", "d2", 2), ("q2", "d1", 0)]
ROW = Collection(name="notes", label="notes", kind="own", format="folder")
Rows = list[tuple[Any, ...]]


def text_of(form: str, names: list[str] | None, rows: Rows) -> bytes:
    """The rows in a form; without names, a table has no header."""
    form, _, packed = form.partition(".")
    if form == "parquet":
        stream = io.BytesIO()
        pq.write_table(pa.table({name: [row[n] for row in rows] for n, name in enumerate(names or [])}), stream)
        return stream.getvalue()
    if form == "jsonl":
        lines = [json.dumps(dict(zip(names or [], row, strict=True))) + "\n" for row in rows]
        text = "".join(lines)
    else:
        written = io.StringIO()
        writer = csv.writer(written, delimiter="," if form == "csv" else "\t")
        writer.writerows([*([names] if names else []), *rows])
        text = written.getvalue()
    return gzip.compress(text.encode(), mtime=0) if packed else text.encode()


def put(folder: Path, contents: dict[str, bytes | str]) -> Path:
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def read(folder: Path) -> tuple[Rows, Rows, dict[str, Rows], list[str]]:
    """Documents, queries, judgements by split, and remarks."""
    files, remarks = find_files(folder), []
    with TemporaryDirectory() as name:
        home = Path(name)
        for section in SECTIONS:
            if section in files:
                remarks += write_section(section, str(folder), files[section], ROW, home)
        documents = [tuple(row.values()) for batch in read_corpus(home) for row in batch.to_pylist()]
        judged = {split: list(map(tuple, read_qrels(home, split).to_numpy())) for split in qrels_files(home)}
        return documents, [tuple(row.values()) for row in read_queries(home).to_pylist()], judged, remarks


BASE = {
    "corpus.jsonl": text_of("jsonl", ["_id", "title", "text"], DOCUMENTS),
    "queries.jsonl": text_of("jsonl", ["_id", "text"], QUERIES),
}
FORMS = ["jsonl", "jsonl.gz", "tsv", "tsv.gz", "csv", "csv.gz", "parquet"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("names", "query_names"),
    [
        (["_id", "title", "text"], ["_id", "text"]),
        (["docid", "title", "text"], ["qid", "query"]),
        (["doc_id", "title", "body"], ["query_id", "text"]),
        (["id", "title", "contents"], ["topic_id", "query"]),
        (["pid", "Title", "passage"], ["QID", "Question"]),
        (["DocNo", "title", "Content"], ["query-id", "Query Text"]),
    ],
)
def test_documents_and_queries_in_every_form(tmp_path, form, names, query_names):
    put(
        tmp_path,
        {f"corpus.{form}": text_of(form, names, DOCUMENTS), f"queries.{form}": text_of(form, query_names, QUERIES)},
    )
    documents, queries, _, _ = read(tmp_path)
    assert documents == DOCUMENTS and queries == QUERIES


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
@pytest.mark.parametrize("form", ["tsv", "csv"])
def test_columns_in_any_order(tmp_path, form, order):
    names = ["_id", "title", "text"]
    rows = [tuple(row[n] for n in order) for row in DOCUMENTS]
    put(tmp_path, {f"corpus.{form}": text_of(form, [names[n] for n in order], rows)})
    assert read(tmp_path)[0] == DOCUMENTS


JUDGED = ["query-id", "corpus-id", "score"]
SPACED = "".join(f"{query} 0 {document} {grade}\n" for query, document, grade in JUDGEMENTS)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((f"qrels/test.{form}", text_of(form, JUDGED, JUDGEMENTS)) for form in FORMS),
        *((f"qrels.{form}", text_of(form, ["query_id", "doc_id", "relevance"], JUDGEMENTS)) for form in FORMS),
        ("qrels/test.tsv", text_of("tsv", None, JUDGEMENTS)),
        ("qrels/test.csv", text_of("csv", None, JUDGEMENTS)),
        ("qrels/test.csv", b"\xef\xbb\xbf" + text_of("csv", JUDGED, JUDGEMENTS).replace(b",", b";")),
        ("qrels/test.csv", b"sep=;\r\n" + text_of("csv", JUDGED, JUDGEMENTS).replace(b",", b";")),
        ("qrels/test.txt", SPACED),
        ("qrels/test.tsv", SPACED),
        ("qrels/test.tsv", SPACED.replace(" ", "\t")),
        ("qrels/test.trec.gz", gzip.compress(SPACED.encode(), mtime=0)),
        ("qrels/test.qrels", SPACED.replace(" ", "   ")),
        ("qrels.test.txt", SPACED),
        ("qrels-test.tsv", text_of("tsv", JUDGED, JUDGEMENTS)),
        ("qrels/test.tsv", text_of("tsv", ["score", "corpus-id", "query-id"], [row[::-1] for row in JUDGEMENTS])),
        ("qrels/test.tsv", text_of("tsv", ["qid", "iter", "docno", "rel"], [(q, 0, d, g) for q, d, g in JUDGEMENTS])),
        ("qrels/test.jsonl", text_of("jsonl", JUDGED, [(q, d, float(g)) for q, d, g in JUDGEMENTS])),
        ("qrels/test.jsonl", text_of("jsonl", JUDGED, [(q, d, str(g)) for q, d, g in JUDGEMENTS])),
    ],
)
def test_judgements_in_every_form(tmp_path, name, content):
    put(tmp_path, BASE | {name: content})
    assert read(tmp_path)[2] == {"test": JUDGEMENTS}


@pytest.mark.parametrize("form", ["tsv", "csv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    ("names", "both"),
    [
        (["query-id", "corpus-id", "score", "relevance"], "grade of a judgement: score and relevance"),
        (["query_id", "document_id", "rel", "label"], "grade of a judgement: rel and label"),
        (["query_id", "doc_id", "passage_id", "relevance"], "document of a judgement: doc_id and passage_id"),
        (["qid", "query_id", "doc_id", "rel"], "query of a judgement: qid and query_id"),
    ],
)
def test_judgements_with_two_columns_of_a_role_are_refused(tmp_path, form, names, both):
    rows = [("q1", "d1", "d2", 1)] if "passage_id" in names else [("q1", "d1", 3, 1)]
    put(tmp_path, BASE | {f"qrels/test.{form}": text_of(form, names, rows)})
    with pytest.raises(CollectionError, match=f"has 2 columns for the {both}"):
        read(tmp_path)


@pytest.mark.parametrize("names", [["query", "qid", "docid", "score"], ["id", "query_id", "corpus-id", "label"]])
def test_ids_of_judgements_go_before_texts(tmp_path, names):
    put(tmp_path, BASE | {"qrels/test.tsv": text_of("tsv", names, [("what?", *row) for row in JUDGEMENTS])})
    assert read(tmp_path)[2] == {"test": JUDGEMENTS}


def test_four_cells_are_trec_where_nothing_else_fits(tmp_path):
    """TREC-COVID's second cells are 0.5 to 5; a grade and a confidence behind a document are none of TREC's."""
    rounds = [(query, 0.5 + n, document, grade) for n, (query, document, grade) in enumerate(JUDGEMENTS)]
    put(tmp_path, BASE | {"qrels/test.tsv": text_of("tsv", None, rounds)})
    assert read(tmp_path)[2] == {"test": JUDGEMENTS}
    put(tmp_path, {"qrels/test.tsv": text_of("tsv", None, [(q, d, g, 3) for q, d, g in JUDGEMENTS])})
    with pytest.raises(CollectionError, match="has 4 cells without a header"):
        read(tmp_path)


@pytest.mark.parametrize("judged", ["qrels", "default", "data"])
def test_data_sets_as_the_hub_keeps_them(tmp_path, judged):
    pieces = {
        "corpus/corpus-00000-of-00002": (["_id", "title", "text"], DOCUMENTS[:2]),
        "corpus/corpus-00001-of-00002": (["_id", "title", "text"], [*DOCUMENTS[2:], ("blank", "", "")]),
        "queries/queries-00000-of-00001": (["_id", "text"], QUERIES),
        f"{judged}/test-00000-of-00001": (JUDGED, JUDGEMENTS),
    }
    put(tmp_path, {f"{name}.parquet": text_of("parquet", *rows) for name, rows in pieces.items()})
    documents, queries, judgements, _ = read(tmp_path)
    assert [row[0] for row in documents] == ["d1", "d2", "d 3", "blank"]
    assert (queries, judgements) == (QUERIES, {"test": JUDGEMENTS})


def test_a_folder_may_be_named_qrels(tmp_path):
    put(tmp_path / "qrels", BASE | {"qrels/test.txt": SPACED})
    assert read(tmp_path / "qrels")[2] == {"test": JUDGEMENTS}


def test_splits_have_the_names_of_their_files(tmp_path):
    put(tmp_path, BASE | {"qrels/dev.tsv.gz": gzip.compress(SPACED.encode(), mtime=0), "qrels.dev.small.txt": SPACED})
    assert set(read(tmp_path)[2]) == {"dev", "dev.small"}


@pytest.mark.parametrize(
    "name", ["._test.tsv", ".test.tsv.swp", ".DS_Store", "~$test.csv", "README.txt", "LICENSE", "notes.md"]
)
def test_files_of_systems_and_notes_are_no_judgements(tmp_path, name):
    put(
        tmp_path,
        BASE | {"qrels/test.txt": SPACED, f"qrels/{name}": b"\x00\x05\x16\x07\xff", "._corpus.tsv": b"\xff"},
    )
    assert read(tmp_path)[2] == {"test": JUDGEMENTS} and unread_files(tmp_path) == []


OTHER_FILES = ["qrels/test.xml", "qrels/test.tsv~", "qrels/test.json", "qrels/sub/", "judgements.tsv", "Queries.jsonl"]
OTHER_FILES += ["qrels", "topics.txt", "qrels.zip", "qrels.tsv.bak", "corpus.xlsx", "relevance/"]


@pytest.mark.parametrize("name", OTHER_FILES)
def test_what_is_not_read_is_named_wherever_the_folder_is(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "notes", BASE | {f"{name}x" if name.endswith("/") else name: b"?"})
    bench = examine(load_bench(ROOT, {"byo": "notes", "collections": "notes"}))
    assert f"notes: not read: {name} (forms that are read: docs/own-corpus.md)" in notices(bench)
    made = Plan(bench)
    with pytest.raises(ZerodrError, match="no column: notes has no judgements") as caught:
        made.inputs("build_row")(SimpleNamespace(model="bm25-flat"))
    assert f"(not read: {name})" in str(caught.value)
    with pytest.raises(CollectionError, match="has no judgements") as caught:
        section_files(made, "notes", "judgements")
    assert f"(not read: {name})" in str(caught.value)


def test_a_table_without_a_header_has_its_longer_cell_as_text(tmp_path):
    put(tmp_path, {"corpus.tsv": "1\tlong words of a text\tshort\n2\tmore long words here\tnote\n"})
    documents, _, _, remarks = read(tmp_path)
    assert documents[0] == ("1", "short", "long words of a text")
    assert remarks == ["corpus.tsv: has no header; its cells are id, text, title, judging by their lengths"]
    put(tmp_path, {"corpus.tsv": "1\tshort\tlong words of a text\n2\tnote\tmore long words here\n"})
    assert read(tmp_path)[0][0] == ("1", "short", "long words of a text")


@pytest.mark.parametrize("names", ["Nummer\tTitel\tInhalt", "titulo\tcodigo\tcuerpo"])
def test_a_first_line_of_unknown_names_is_refused(tmp_path, names):
    rows = ["d1\tpies\thow pies are made", "d2\tcars\tcars, all red"]
    put(tmp_path, {"corpus.tsv": "\n".join([names, *rows])})
    with pytest.raises(CollectionError, match=r"corpus.tsv:1: looks like a header"):
        read(tmp_path)
    put(tmp_path, {"corpus.tsv": "#id\ttitle\ttext\n" + "\n".join(rows)})
    assert [key for key, _, _ in read(tmp_path)[0]] == ["d1", "d2"]
    put(tmp_path, {"corpus.tsv": "apples\tred\npears\tgreen\n"})
    assert len(read(tmp_path)[0]) == 2


@pytest.mark.parametrize("grade", ["1e3", "nan", "\u0663", "0x1", "true", "Note"])
def test_a_first_judgement_with_a_bad_grade_is_no_header(tmp_path, grade):
    put(tmp_path, BASE | {"qrels/test.tsv": f"q1\td1\t{grade}\nq2\td2\t1\n"})
    with pytest.raises(CollectionError, match=r"test.tsv:1: (holds no integer grade|looks like a header)"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ('d1\t"a ""red"" car"\nd2\tplain\n', ("d1", "", 'a "red" car')),
        ('d1\t"two\nlines"\nd2\tplain\n', ("d1", "", "two\nlines")),
        ('d1\t"Yes", she said\nd2\t"a ""red"" car"\n', ("d1", "", '"Yes", she said')),
        ('d1\t"begins\nd2\tends"\n', ("d1", "", '"begins')),
        ('d1\t5" disks\nd2\t"\n', ("d1", "", '5" disks')),
    ],
)
def test_quotation_marks_in_a_table_with_tabs(tmp_path, text, first):
    documents = read(put(tmp_path, {"corpus.tsv": text}))[0]
    assert documents[0] == first and len(documents) == 2


@pytest.mark.parametrize(
    ("row", "text", "remark"),
    [
        ({"text": "what", "instruction": "find basil"}, "what find basil", "instruction joined with the text"),
        ({"title": "basil", "text": "what"}, "basil what", "title joined with the text"),
        ({"title": "what", "text": "what"}, "what", None),
        ({"title": "", "text": "what", "instruction": None}, "what", None),
        ({"title": "basil"}, "basil", None),
        ({"text": "what", "narrative": "long"}, "what", "fields that are not read: narrative"),
        ({"text": "what", "metadata": {}}, "what", None),
    ],
)
def test_further_fields_of_queries_are_joined_or_named(tmp_path, row, text, remark):
    put(tmp_path, BASE | {"queries.jsonl": json.dumps({"_id": "q1", **row})})
    _, queries, _, remarks = read(tmp_path)
    assert queries == [("q1", text)]
    assert bool(remarks) == bool(remark) and (remark is None or remark in " ".join(remarks))


def test_letters_and_accents_meet_however_they_are_typed(tmp_path):
    put(
        tmp_path,
        BASE | {"corpus.jsonl": json.dumps({"_id": "cafe\u0301", "title": "e\u0301", "text": "cafe\u0301"})},
    )
    put(tmp_path, {"queries.jsonl": json.dumps({"_id": "q1", "text": "cafe\u0301"})})
    documents, queries, _, remarks = read(tmp_path)
    assert documents == [("cafe\u0301", "\u00e9", "caf\u00e9")] and queries == [("q1", "caf\u00e9")]
    assert remarks[0] == "corpus: letters and accents become one character (NFC) in 1 text"


@pytest.mark.parametrize(
    ("known", "written"),
    [("0002", "2"), ("q1", "Q1"), ("7", "7.0"), ("a", "a "), ("caf\u00e9", "cafe\u0301"), ("00", "0")],
)
@pytest.mark.parametrize("drop", [False, True])
def test_an_id_that_was_changed_on_the_way_is_no_absent_one(tmp_path, known, written, drop):
    put(
        tmp_path,
        BASE | {"queries.jsonl": json.dumps({"_id": known, "text": "pies"}) + '\n{"_id": "x", "text": "y"}'},
    )
    put(tmp_path, {"qrels/test.tsv": f"x\td1\t1\n{written}\td1\t1\n"})
    row = ROW.model_copy(update={"drop_missing": drop})
    with (
        TemporaryDirectory() as home,
        pytest.raises(CollectionError, match="1 query ids are nearly known ones") as caught,
    ):
        for section, files in find_files(tmp_path).items():
            write_section(section, str(tmp_path), files, row, Path(home))
    assert "test.tsv:2" in str(caught.value) and repr(known) in str(caught.value)


# ---- properties ----------------------------------------------------------------------------------------------------
LETTERS = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])
IDS = st.text(LETTERS, min_size=1, max_size=8).filter(lambda key: key.strip() == key and not key.startswith("sep="))
TEXTS = st.text(LETTERS, min_size=1, max_size=30).filter(str.strip)
COLUMNS = [
    ["_id", "title", "text"],
    ["docid", "title", "contents"],
    ["ID", "Title", "Text"],
    ["passage-id", "title", "passage"],
]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(IDS, TEXTS, TEXTS), min_size=1, max_size=4, unique_by=lambda row: row[0]),
    st.sampled_from(FORMS),
    st.sampled_from(COLUMNS),
    st.permutations([0, 1, 2]),
)
def test_any_ids_and_texts_come_back_from_any_form(rows, form, names, order):
    import unicodedata

    shuffled = [tuple(row[n] for n in order) for row in rows]
    with TemporaryDirectory() as name:
        put(Path(name), {f"corpus.{form}": text_of(form, [names[n] for n in order], shuffled)})
        composed = [(key, *(unicodedata.normalize("NFC", text) for text in texts)) for key, *texts in rows]
        assert read(Path(name))[0] == composed


WORDS = st.sampled_from(
    ["_id", "id", "docid", "doc_id", "pid", "qid", "text", "title", "query", "passage", "contents", "url", "score"]
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(WORDS, min_size=2, max_size=4),
    st.sampled_from([str.lower, str.upper, str.title]),
    st.sampled_from(["tsv", "csv"]),
)
def test_a_first_line_of_names_is_never_data(names, case, form):
    names = [case(name) for name in names]
    rows = [tuple(f"{name} {number}" for name in names) for number in range(2)]
    with TemporaryDirectory() as name:
        put(Path(name), {f"corpus.{form}": text_of(form, names, rows)})
        try:
            documents = read(Path(name))[0]
        except ZerodrError as error:
            assert f"corpus.{form}:1" in str(error)
        else:
            assert len(documents) == 2 and not {key for key, _, _ in documents} & set(names)


GRADES = st.one_of(
    st.integers(-1000, 1000).map(str), st.integers(0, 9).map(lambda grade: f"{grade}.0"), st.text(max_size=6)
)


@settings(max_examples=200, deadline=None)
@given(GRADES, st.sampled_from(["tsv", "csv", "jsonl"]))
def test_a_grade_is_a_whole_number_or_refused_with_its_line(grade, form):
    rows = [("q1", "d2", "1"), ("q1", "d1", grade)]
    with TemporaryDirectory() as name:
        put(Path(name), BASE | {f"qrels/test.{form}": text_of(form, JUDGED, rows)})
        try:
            judged = read(Path(name))[2]["test"]
        except ZerodrError as error:
            assert f"test.{form}:" in str(error) and "\n" not in str(error)
        else:
            # A separator such as \x1f is white space for `str.strip`, not for `float`.
            assert judged[1] == ("q1", "d1", int(float(grade.strip()))) and grade.strip().isascii() and "_" not in grade
