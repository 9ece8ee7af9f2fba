"""Publishers' formats give the rows of the mirror's archives, ids included."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import original_helpers as helpers
import pytest
from collection_helpers import write_zip

from zerodr.collections.archives import open_archive
from zerodr.collections.readers import open_reader
from zerodr.errors import CollectionError


def digest(rows: helpers.Excerpt) -> str:
    return hashlib.sha256(json.dumps([rows.documents, rows.queries, rows.judgements]).encode()).hexdigest()


def before(*starts: str):
    """Choose the documents whose id starts with one of `starts`."""
    return lambda key: key.startswith(starts)


FORMATS = {
    "squad-v1.1": ("squad", helpers.squad, before("squad-train-000", "squad-train-001", "squad-dev-000")),
    "squadshifts-new-wiki": ("squadshifts", helpers.squadshifts, before("squadshifts-new-wiki-000")),
    "squadshifts-reddit": ("squadshifts", helpers.squadshifts, before("squadshifts-reddit-0000-00")),
    "cmrc2018-zh": ("cmrc2018", helpers.cmrc, before("cmrc2018-zh-000")),
    "mlquestions": ("mlquestions", helpers.mlquestions, before("mlq-p")),
    "nq-pairs": ("nq-pairs", helpers.nq_pairs, before("nq-mcgill-0000", "nq-qed--11", "nq-qed-11")),
    "medquad": ("medquad", helpers.medquad, before("medquad-1-0000001_1-", "medquad-1-0000001_2-")),
    "cranfield": ("cranfield", helpers.cranfield, before("")),
    "cisi": ("cisi", helpers.cisi, before("")),
    "memory-wordnet": ("wordnet", helpers.wordnet, before("wn30-n-0000", "wn30-v-0000", "wn30-a-0001", "wn30-r-0000")),
    "memory-wikipedia-vital": ("wikipedia-summaries", helpers.summaries, before("wiki-000")),
    "memory-mesh": ("mesh-thesaurus", helpers.mesh, before("mesh-D00000", "mesh-D077155")),
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_publishers_format_gives_the_rows_of_the_mirror(tmp_path: Path, mirror: Path, name: str):
    form, write, chosen = FORMATS[name]
    ours = helpers.mirrored(mirror, name)
    splits = [split for split in ours.splits() if split != "trial"]
    expected = helpers.excerpt(ours, chosen, splits)
    assert expected.documents and (expected.queries or name.startswith("memory"))
    reader = open_reader(form, open_archive(write_zip(tmp_path / "a.zip", write(expected))))
    found = helpers.rows_of(reader, splits)
    assert found.documents == expected.documents and found.queries == expected.queries
    assert digest(found) == digest(expected)


def test_equal_passages_are_one_document(tmp_path):
    article = {"title": "B", "paragraphs": [{"context": "same", "qas": []}, {"context": "other", "qas": []}]}
    asked = [{"id": "d", "question": "who", "answers": [{"text": "sa", "answer_start": 0}]}]
    files = {
        "train-v1.1.json": json.dumps({"data": [article]}),
        "dev-v1.1.json": json.dumps({"data": [{"title": "A", "paragraphs": [{"context": "same", "qas": asked}]}]}),
    }
    reader = open_reader("squad", open_archive(write_zip(tmp_path / "a.zip", files)))
    assert [(row.id, row.title) for row in reader.documents()] == [
        ("squad-train-000-000", "B"),
        ("squad-train-000-001", "B"),
    ]
    assert [(row.query, row.document) for row in reader.judgements("dev")] == [("d", "squad-train-000-000")]
    assert list(reader.answers()) == [
        {
            "query_id": "d",
            "corpus_id": "squad-train-000-000",
            "split": "dev",
            "answers": [{"text": "sa", "start": 0}],
        }
    ]


def test_medquad_numbers_ids_that_repeat(tmp_path):
    pair = '<QAPair pid="{0}"><Question qid="1-1">Q{0}</Question><Answer>A{0}</Answer></QAPair>'
    body = "".join(pair.format(number) for number in (1, 2, 3))
    files = {"M/3_GHR_QA/1.xml": f"<Document><Focus>F</Focus><QAPairs>{body}</QAPairs></Document>"}
    reader = open_reader("medquad", open_archive(write_zip(tmp_path / "a.zip", files)))
    assert [row.id for row in reader.documents()] == ["medquad-3-1-1", "medquad-3-1-1-2", "medquad-3-1-1-3"]


@pytest.mark.parametrize(
    ("form", "files", "message"),
    [
        ("squad", {"train-v1.1.json": "{}", "dev-v1.1.json": "{}"}, "train-v1.1.json: is not in SQuAD's format"),
        ("medquad", {"1_X_QA/a.xml": "<Document>"}, "a.xml: is no well-formed XML"),
        ("cranfield", {"cran.all.1400": "hello\n"}, "cran.all.1400:1: expected '.I <number>', found 'hello'"),
        ("mlquestions", {"test_passages.tsv": "\tinput_text\n0\n"}, "test_passages.tsv:2: expected 2 cells"),
        ("wordnet", {"data.noun": "00001740 03 n\n"}, "data.noun:1: is no synset"),
        ("wikipedia-summaries", {"summaries_en-us.json": "["}, "summaries_en-us.json: is no JSON"),
        ("cisi", {"CISI.QRY": ".I 1\n"}, "has no member CISI.ALL"),
    ],
)
def test_a_bad_file_is_one_error(tmp_path, form, files, message):
    reader = open_reader(form, open_archive(write_zip(tmp_path / "a.zip", files)))
    with pytest.raises(CollectionError, match=message.replace(".", "[.]").replace("[.]I <", ".I <")):
        list(reader.documents())


def test_a_table_of_another_format_is_one_error(tmp_path):
    files = {"data_mesh_thesaurus.rds": gzip.compress(b"A\n1"), "data_mesh_trees.rds": b""}
    reader = open_reader("mesh-thesaurus", open_archive(write_zip(tmp_path / "a.zip", files)))
    with pytest.raises(CollectionError, match="is no table that R saved"):
        list(reader.documents())
