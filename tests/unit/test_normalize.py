from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from collection_helpers import CORPUS, QRELS, QUERIES, beir_zip, json_lines, normalize, stage_of, write_zip

from zerodr.artifacts.manifest import file_digest
from zerodr.collections.access import CORPUS_SCHEMA, QUERY_SCHEMA, corpus_size, read_qrels, split_queries
from zerodr.collections.normalize import normalize_collection
from zerodr.config.registry import read_registry
from zerodr.errors import CollectionError, ConfigError, DownloadError


def test_files_of_a_normalised_collection(tmp_path):
    facts = normalize(beir_zip(tmp_path / "a.zip"), tmp_path / "out", documents=2, queries=2, splits={"test": 2})
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "audit.json",
        "corpus.parquet",
        "qrels.test.tsv",
        "queries.parquet",
    ]
    corpus = pq.read_table(tmp_path / "out/corpus.parquet")
    assert corpus.schema.equals(CORPUS_SCHEMA)
    assert corpus.to_pylist() == [{"id": r["_id"], "title": r["title"], "text": r["text"]} for r in CORPUS]
    assert pq.read_schema(tmp_path / "out/queries.parquet").equals(QUERY_SCHEMA)
    assert (tmp_path / "out/qrels.test.tsv").read_text() == QRELS
    assert json.loads((tmp_path / "out/audit.json").read_text()) == facts
    assert read_qrels(tmp_path / "out", "test")["grade"].tolist() == [1, 2]
    assert split_queries(tmp_path / "out", "test")["id"].tolist() == ["q1", "q2"]


def test_texts_are_kept_to_the_byte(tmp_path):
    text = "  tabs\t, newlines\n, \u2028, \U0001f600 and NUL \x00 "
    path = beir_zip(tmp_path / "a.zip", corpus=json_lines([{"_id": "d1", "title": None, "text": text}, CORPUS[1]]))
    normalize(path, tmp_path / "out")
    assert pq.read_table(tmp_path / "out/corpus.parquet")["text"][0].as_py() == text


def test_lone_surrogates_are_mended_and_counted(tmp_path):
    path = beir_zip(tmp_path / "a.zip", corpus='{"_id": "d1", "text": "bad \\ud83d end"}\n' + json_lines(CORPUS[1:]))
    assert normalize(path, tmp_path / "out")["repaired_documents"] == 1
    assert pq.read_table(tmp_path / "out/corpus.parquet")["text"][0].as_py() == "bad \ufffd end"


def test_row_groups_of_4096(tmp_path):
    path = beir_zip(tmp_path / "a.zip", corpus=json_lines([{"_id": f"d{i}", "text": "t"} for i in range(9000)]))
    normalize(path, tmp_path / "out")
    metadata = pq.read_metadata(tmp_path / "out/corpus.parquet")
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [4096, 4096, 808]


def test_equal_input_gives_equal_bytes(tmp_path):
    path = beir_zip(tmp_path / "a.zip")
    for folder in ("one", "two"):
        normalize(path, tmp_path / folder)
    for file in (tmp_path / "one").iterdir():
        assert file_digest(file) == file_digest(tmp_path / "two" / file.name)


def test_grades_are_kept_negative_ones_too(tmp_path):
    qrels = "query-id\tcorpus-id\tscore\nq1\td1\t-1\nq1\td2\t3\nq2\td1\t0\n"
    facts = normalize(beir_zip(tmp_path / "a.zip", qrels=qrels), tmp_path / "out", splits={"test": 1})
    assert (tmp_path / "out/qrels.test.tsv").read_text() == qrels
    assert facts["splits"]["test"]["grades"] == {"-1": 1, "0": 1, "3": 1}


def test_counted_not_refused(tmp_path):
    corpus = [*CORPUS, {"_id": "d3", "title": "", "text": " "}, {"_id": "q1", "text": "What is first "}]
    queries = [*QUERIES, {"_id": "q3", "text": ""}]
    facts = normalize(beir_zip(tmp_path / "a.zip", json_lines(corpus), json_lines(queries)), tmp_path / "out")
    assert facts["empty_documents"] == {"count": 1, "first": ["d3"]}
    assert facts["empty_queries"] == {"count": 1, "first": ["q3"]}
    assert facts["overlap"] == {"query_ids_in_corpus": 1, "query_texts_in_corpus": 1}


GOOD = json_lines(CORPUS[:1])
BAD = {
    "no JSON": ({"corpus": GOOD + "{oops\n"}, r"a.zip/x/corpus.jsonl:2: is no JSON"),
    "no object": ({"corpus": GOOD + "[1]\n"}, r"2: expected a JSON object, found list: write one whole object a line"),
    "over lines": ({"corpus": '{\n "_id": "d"\n}\n'}, r"corpus.jsonl:1: is no JSON .*: write one whole object a line"),
    "a list": ({"corpus": '{"_id": "d", "text": ["a", "b"]}\n'}, r"expected a string, found .*: write it as one text"),
    "lacks a key": ({"corpus": GOOD + '{"_id": "d2"}\n'}, r"corpus.jsonl:2: lacks key 'text'"),
    "lacks an id": ({"queries": '{"id": "q1", "text": "t"}\n'}, r"queries.jsonl:1: lacks key '_id'"),
    "duplicate id": ({"corpus": GOOD + "\n" + GOOD}, r"corpus.jsonl:3: document id 'd1' appears twice, first at .*:1"),
    "duplicate query": (
        {"queries": json_lines([*QUERIES, QUERIES[0]])},
        r"queries.jsonl:3: query id 'q1' appears twice",
    ),
    "non-string id": (
        {"corpus": GOOD + '{"_id": 2, "text": "t"}\n'},
        r"corpus.jsonl:2: key '_id': expected a string, found 2",
    ),
    "non-string text": (
        {"corpus": '{"_id": "d1", "text": null}\n'},
        r"corpus.jsonl:1: key 'text': expected a string, found None",
    ),
    "not UTF-8": ({"corpus": GOOD.encode() + b'{"_id": "d2", "text": "\xff"}\n'}, r"corpus.jsonl:2: is not UTF-8"),
    "empty corpus": ({"corpus": ""}, r"x: has an empty corpus"),
    "empty id": ({"queries": '{"_id": "", "text": "t"}\n'}, r"queries.jsonl:1: id is empty"),
    "bad grade": (
        {"qrels": "query-id\tcorpus-id\tscore\nq1\td1\tyes\n"},
        r"test.tsv:2: expected an integer grade, found 'yes'",
    ),
    "huge grade": ({"qrels": QRELS + "q1\td2\t5000000000\n"}, r"test.tsv:4: the grade 5000000000 is no degree of"),
    "huge negative grade": ({"qrels": QRELS + "q1\td2\t-1001.0\n"}, r"test.tsv:4: the grade -1001.0 is no degree of"),
    "endless grade": ({"qrels": QRELS + f"q1\td2\t{'9' * 5000}\n"}, r"test.tsv:4: the grade 9{24} is no degree of"),
    "grade of Python": ({"qrels": QRELS + "q1\td2\t1_0\n"}, r"test.tsv:4: expected an integer grade, found '1_0'"),
    "id with a tab": ({"corpus": GOOD + '{"_id": "d\\t2", "text": "t"}\n'}, r"corpus.jsonl:2: id 'd\\t2' holds a tab"),
    "query id with a line break": (
        {"queries": '{"_id": "q\\n1", "text": "t"}\n'},
        r"queries.jsonl:1: id 'q\\n1' holds a tab",
    ),
    "bad qrels line": ({"qrels": QRELS + "q1 d2 1\n"}, r"test.tsv:4: expected 3 cells"),
    "no judgements": ({"qrels": "query-id\tcorpus-id\tscore\n"}, r"x/test: holds no judgement"),
    "judged query absent": (
        {"qrels": QRELS + "q9\td1\t1\n"},
        r"x/test: 1 judged queries have no text \('q9' at .*test.tsv:4\)",
    ),
    "judged query empty": (
        {"queries": json_lines([{"_id": "q1", "text": ""}, QUERIES[1]])},
        r"judged query 'q1' .* empty text",
    ),
    "judged document absent": (
        {"qrels": QRELS + "q1\td9\t1\n"},
        r"x/test: 1 judged document is missing .*'d9' at .*test.tsv:4",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_error(tmp_path, case):
    content, message = BAD[case]
    with pytest.raises(CollectionError, match=message) as error:
        normalize(beir_zip(tmp_path / "a.zip", **content), tmp_path / "out")
    assert "\n" not in str(error.value) and error.value.next_step


@pytest.mark.parametrize(
    ("promised", "message"),
    [
        ({"documents": 3}, "x: expected 3 documents, found 2"),
        ({"queries": 1}, "x: expected 1 queries, found 2"),
        ({"splits": {"test": 1}}, "x/test: expected 1 queries with a positive, found 2"),
        ({"splits": {"dev": None}}, "no judgements for split 'dev': known: test"),
    ],
)
def test_other_content_than_promised(tmp_path, promised, message):
    with pytest.raises(CollectionError, match=message):
        normalize(beir_zip(tmp_path / "a.zip"), tmp_path / "out", **promised)


def test_only_listed_splits_are_written(tmp_path):
    path = beir_zip(tmp_path / "a.zip", **{"qrels/train.tsv": "query-id\tcorpus-id\tscore\nnobody\td1\t1\n"})
    assert list(normalize(path, tmp_path / "out", splits={"test": 2})["splits"]) == ["test"]


def test_memory_is_a_corpus_alone(tmp_path):
    facts = normalize(beir_zip(tmp_path / "a.zip"), tmp_path / "out", kind="memory")
    assert facts["queries"] == 0 and facts["splits"] == {} and corpus_size(tmp_path / "out") == 2
    corpus_only = write_zip(tmp_path / "b.zip", {"m/corpus.jsonl": json_lines(CORPUS)})
    assert normalize(corpus_only, tmp_path / "b")["documents"] == 2


def test_a_memory_may_keep_a_part(tmp_path):
    """Documents that a split judges relevant, then as many as asked for, spread over the file."""
    corpus = [{"_id": f"d{n}", "title": "", "text": f"text {n}"} for n in range(10)]
    qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"q1\td{n}\t{int(n != 3)}\n" for n in (7, 3, 1, 5))
    archive = beir_zip(tmp_path / "a.zip", corpus=json_lines(corpus), qrels=qrels)

    def kept(name: str, **settings) -> list[str]:
        normalize(archive, tmp_path / name, kind="memory", **settings)
        return pq.read_table(tmp_path / name / "corpus.parquet")["id"].to_pylist()

    assert kept("judged", judged_split="test") == ["d1", "d5", "d7"]
    assert kept("both", judged_split="test", cut=2) == ["d5", "d7"]
    assert kept("half", cut=5) == ["d1", "d3", "d5", "d7", "d9"]
    assert [len(kept(f"cut{size}", cut=size)) for size in (1, 3, 7, 10, 99)] == [1, 3, 7, 10, 10]
    with pytest.raises(ConfigError, match="judged_split 'tset': is not known: did you mean test"):
        kept("wrong", judged_split="tset")


def test_extras_come_along(tmp_path):
    answers = [
        {
            "query_id": "q1",
            "corpus_id": "d1",
            "split": "test",
            "answers": [{"text": "first", "start": 0, "occurrences": 1}],
        }
    ]
    path = beir_zip(
        tmp_path / "a.zip",
        **{"queries_unlabelled.jsonl": json_lines([{"_id": "u", "text": "v"}]), "answers.jsonl": json_lines(answers)},
    )
    facts = normalize(path, tmp_path / "out")
    assert facts["unlabelled_queries"] == 1 and facts["answers"] == 1
    assert pq.read_table(tmp_path / "out/answers.parquet").to_pylist() == answers


@pytest.mark.parametrize("packed", [True, False])
def test_the_archive_says_which_reader_it_needs(tmp_path, packed):
    files = {"CISI.ALL": ".I 1\n.W\na text\n", "CISI.QRY": ".I 7\n.W\nwhy\n", "CISI.REL": "7 1 0 0\n"}
    path = write_zip(tmp_path / "c.zip", files) if packed else beir_zip(tmp_path / "c.zip")
    params = {
        "name": "c",
        "kind": "complete",
        "format": "beir",
        "archive": "c.zip",
        "original": "cisi",
        "pinned": False,
    }
    outputs = {"collection": str(tmp_path / "c/manifest.json")}
    stage = stage_of("m:normalize_collection", params, {"archive": [str(path)]}, outputs, tmp_path / "state")
    stage.output("collection").mkdir(parents=True)
    normalize_collection(stage)
    audit = stage.notes["audit"]
    assert (audit["format"], audit["documents"]) == (("cisi", 1) if packed else ("beir", 2))
    assert ("unpinned" in audit) == packed


def test_truncated_archive_leaves_one_error(tmp_path):
    path = beir_zip(tmp_path / "a.zip")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DownloadError, match="truncated or corrupt"):
        normalize(path, tmp_path / "out")


@pytest.mark.parametrize("name", ["scifact", "nfcorpus", "arguana"])
def test_real_collections_are_what_the_registry_says(tmp_path, mirror: Path, root: Path, name: str):
    row = read_registry(root / "config/collections")[name]
    facts = normalize(
        mirror / row.archive,
        tmp_path,
        name=name,
        documents=row.documents,
        queries=row.queries,
        splits=row.splits,
        known_gaps=row.known_gaps,
    )
    assert facts["splits"]["test"]["missing_documents"]["count"] == row.known_gaps
    assert facts["empty_documents"]["count"] == 0
    if name == "arguana":
        assert facts["overlap"] == {"query_ids_in_corpus": 1298, "query_texts_in_corpus": 1406}
        with pytest.raises(CollectionError, match="arguana/test: 5 judged documents are missing"):
            normalize(mirror / row.archive, tmp_path, name=name)
