from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerodr.collections.audit import IdIndex, Listing, TextScan, audit_split, check_count
from zerodr.collections.readers.base import Judgement
from zerodr.config.loose_files import MOST_FILES
from zerodr.config.registry import Content
from zerodr.errors import CollectionError

TEXTS = {"q1": "one", "q2": "two", "empty": "  "}


def index(*keys: str) -> IdIndex:
    made = IdIndex()
    for line, key in enumerate(keys, start=1):
        made.add(key, "corpus.jsonl", line)
    return made


def audit(rows, gaps=0, drop=False, splits=None):
    judged = [Judgement(q, d, g, "qrels/test.tsv", line) for line, (q, d, g) in enumerate(rows, start=2)]
    expected = Content(name="x", splits=splits or {}, known_gaps=gaps, drop_missing=drop)
    return audit_split("test", judged, index("d1", "d2"), TEXTS, expected)


def test_counts_of_a_split():
    facts = audit([("q1", "d1", 2), ("q1", "d2", 0), ("q2", "d1", -1)]).facts
    assert facts["judgements"] == 3 and facts["queries"] == 2 and facts["queries_with_positive"] == 1
    assert facts["grades"] == {"-1": 1, "0": 1, "2": 1} and facts["negative_grades"] == 1


def test_missing_documents_above_known_gaps():
    rows = [("q1", "d1", 1), ("q2", "gone", 1), ("q1", "gone", 1)]
    with pytest.raises(
        CollectionError, match=r"x/test: 1 judged document is missing .*'gone' at qrels/test.tsv:3.*known_gaps is 0"
    ):
        audit(rows)
    result = audit(rows, gaps=1)
    assert len(result.judgements) == 3 and result.facts["missing_documents"] == {"count": 1, "first": ["gone"]}


def test_fewer_missing_than_known_gaps_is_fine_and_said(caplog):
    with caplog.at_level(logging.INFO, "zerodr"):
        audit([("q1", "d1", 1)], gaps=5)
    assert "known_gaps allows 5" in caplog.text


def test_drop_missing_drops_documents_and_queries():
    result = audit([("q1", "d1", 1), ("q1", "gone", 1), ("nobody", "d1", 1)], drop=True)
    assert [(row.query, row.document) for row in result.judgements] == [("q1", "d1")]
    assert result.facts["dropped"] == 2


def test_queries_that_lose_every_positive_judgement_are_counted():
    result = audit([("q1", "d1", 1), ("q2", "gone", 1), ("q2", "d2", 0)], drop=True)
    assert result.facts["lost_queries"] == 1 and result.facts["queries"] == 2
    assert "lost_queries" not in audit([("q1", "d1", 1), ("q2", "d2", 0)], drop=True).facts


def test_a_split_without_a_positive_judgement_is_refused():
    with pytest.raises(CollectionError, match="x/test: none of its 2 judgements has a grade above 0"):
        audit([("q1", "d1", 0), ("q2", "d1", -1)])
    dropped = "none of its 1 judgements has a grade above 0.* .1 with one name absent documents or queries"
    with pytest.raises(CollectionError, match=dropped):
        audit([("q1", "gone", 1), ("q1", "d1", 0)], drop=True)
    with pytest.raises(CollectionError, match="holds no judgement but 1 of absent documents or queries"):
        audit([("q1", "gone", 1)], drop=True)


def test_equal_texts_and_queries_that_are_documents_are_counted():
    scan = TextScan({"a": "One text ", "b": "two", "c": "three", "q": "THREE"})
    rows = ["a||one text", "x||one text", "b|two|", "c|t|other", "d||three", "e||", "f||"]
    for row in rows:
        scan.add(*row.split("|"))
    judged = [Judgement(query, "x", 1, "f", 1) for query in "abcq"]
    counts = {"identical_documents": 2, "copied_queries": 2, "equal_documents": 2}
    assert scan.facts(judged) == counts | {"equal_judged": 1, "judged_documents": 1}
    assert scan.facts(judged[1:2])["identical_documents"] == 1
    assert TextScan({}).facts(judged) == {}


def test_unknown_query():
    with pytest.raises(CollectionError, match=r"1 judged queries have no text \('nobody' at qrels/test.tsv:2\)"):
        audit([("nobody", "d1", 1)])


def test_judged_query_without_text():
    with pytest.raises(CollectionError, match=r"judged query 'empty' \(qrels/test.tsv:2\) has an empty text"):
        audit([("empty", "d1", 1)])


def test_pair_judged_twice_takes_the_last_grade(caplog):
    result = audit([("q1", "d1", 1), ("q1", "d2", 1), ("q1", "d1", 0)])
    assert [(row.document, row.grade) for row in result.judgements] == [("d1", 0), ("d2", 1)]
    assert result.facts["repeated"] == 1 and result.facts["conflicting"] == 1
    assert "two grades" in caplog.text


def test_promised_number_of_queries():
    with pytest.raises(CollectionError, match="expected 2 queries with a positive, found 1"):
        audit([("q1", "d1", 1), ("q2", "d1", 0)], splits={"test": 2})
    check_count("x", "documents", None, 7)
    with pytest.raises(CollectionError, match="x: expected 8 documents, found 7"):
        check_count("x", "documents", 8, 7)


def test_split_without_judgements():
    with pytest.raises(CollectionError, match="holds no judgement"):
        audit([])


def test_an_id_needs_a_letter():
    assert len(index(" ", "a b", "a\u2028", "é")) == 4
    with pytest.raises(CollectionError, match="corpus.jsonl:1: id is empty"):
        index("")


@pytest.mark.parametrize("character", ["\t", "\n", "\r", "\x00", "\x1f", "\x7f"])
def test_an_id_fits_into_a_line_of_a_table(character):
    with pytest.raises(CollectionError, match=r"corpus.jsonl:2: id 'a.*b' holds a tab, the end of a line or"):
        index("a", f"a{character}b")


@given(st.lists(st.text("abcdé-_/:.", min_size=1, max_size=3), max_size=60))
def test_index_knows_its_members_and_duplicates(keys):
    made = index(*keys)
    assert len(made) == len(keys)
    assert all(key in made for key in keys)
    assert "zz" not in made
    wanted: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        wanted.setdefault(key, []).append(row)
    twice = sorted((rows for rows in wanted.values() if len(rows) > 1), key=lambda rows: rows[1])
    assert made.duplicates() == twice


def test_places_over_several_files():
    made = IdIndex()
    made.add("a", "part-0", 1)
    made.add("b", "part-1", 7)
    assert [made.position(0), made.position(1)] == ["part-0:1", "part-1:7"]


def test_listing_is_short():
    listing = Listing()
    for number in range(50):
        listing.add(str(number))
    assert listing.plain()["count"] == 50 and len(listing.plain()["first"]) == 20


def test_ids_of_as_many_files_as_a_folder_may_hold():
    made = IdIndex()
    for number in range(MOST_FILES):
        made.add(f"{number}.txt#1", f"{number}.txt", 1)
    assert made.position(MOST_FILES - 1) == f"{MOST_FILES - 1}.txt:1"
