from __future__ import annotations

import gzip
import hashlib
import io
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from collection_helpers import CORPUS, QUERIES, beir_zip, json_lines, write_tar, write_zip

from zerodr.collections.access import joined_texts
from zerodr.collections.archives import FolderArchive, open_archive
from zerodr.collections.readers import READERS, open_reader
from zerodr.config.registry import read_registry
from zerodr.errors import CollectionError, ConfigError


def documents(reader):
    return [(d.id, d.title, d.text) for d in reader.documents()]


def queries(reader):
    return [(q.id, q.text) for q in reader.queries()]


def judgements(reader, split):
    return [(j.query, j.document, j.grade) for j in reader.judgements(split)]


def test_beir(tmp_path):
    path = beir_zip(
        tmp_path / "a.zip",
        **{
            "qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq1\td2\t-1\n",
            "qrels/._dev.tsv": "\x00\x05\x16\x07",
            "queries_unlabelled.jsonl": json_lines([{"_id": "u", "text": "v"}]),
        },
    )
    reader = open_reader("beir", open_archive(path))
    assert documents(reader) == [("d1", "One", "first text"), ("d2", "", "second text")]
    assert queries(reader) == [("q1", "what is first"), ("q2", "second")]
    assert reader.splits() == ["dev", "test"]
    assert judgements(reader, "dev") == [("q1", "d2", -1)]
    assert [q.id for q in reader.unlabelled()] == ["u"]
    assert reader.answers() is None


def test_cqadupstack_forums_share_an_archive(tmp_path):
    members = {}
    for forum in ("android", "gis"):
        members |= {
            f"cqadupstack/{forum}/corpus.jsonl": json_lines([{"_id": forum, "text": "t"}]),
            f"cqadupstack/{forum}/queries.jsonl": json_lines([{"_id": "q", "text": forum}]),
            f"cqadupstack/{forum}/qrels/test.tsv": f"query-id\tcorpus-id\tscore\nq\t{forum}\t1\n",
        }
    archive = open_archive(write_zip(tmp_path / "cqadupstack.zip", members))
    reader = open_reader("beir", archive, "cqadupstack/gis")
    assert documents(reader) == [("gis", "", "t")] and queries(reader) == [("q", "gis")]
    assert judgements(reader, "test") == [("q", "gis", 1)]


def test_lotte(tmp_path):
    base = "lotte/writing/test"
    path = write_tar(
        tmp_path / "lotte.tar.gz",
        {
            f"{base}/collection.tsv": "0\tA passage.\n1\tAnother\twith a tab\n",
            f"{base}/questions.search.tsv": "0\tnot this one\n",
            f"{base}/questions.forum.tsv": "0\tWhy so?\n1\tHow?\n",
            f"{base}/qas.forum.jsonl": json_lines(
                [{"qid": 0, "query": "Why so?", "answer_pids": [1, 0]}, {"qid": 1, "query": "How?", "answer_pids": [1]}]
            ),
        },
    )
    reader = open_reader("lotte", open_archive(path), f"{base}/questions.forum.tsv")
    assert documents(reader) == [("0", "", "A passage."), ("1", "", "Another\twith a tab")]
    assert queries(reader) == [("0", "Why so?"), ("1", "How?")]
    assert reader.splits() == ["test"]
    assert judgements(reader, "test") == [("0", "1", 1), ("0", "0", 1), ("1", "1", 1)]


def test_one_of_several_corpora_is_named_by_the_row(tmp_path):
    corpora = {f"forums/{name}/corpus.jsonl": json_lines([{"_id": name, "text": "t"}]) for name in ("android", "gis")}
    archive = open_archive(write_zip(tmp_path / "forums.zip", corpora))
    with pytest.raises(CollectionError, match=r"holds 2 corpora \(forums/android, forums/gis\): name one .* member: "):
        open_reader("beir", archive)
    assert documents(open_reader("beir", archive, "forums/gis")) == [("gis", "", "t")]
    inner = {"corpus.jsonl": json_lines([{"_id": "a", "text": "t"}]), "old/corpus.jsonl": ""}
    assert documents(open_reader("beir", open_archive(write_zip(tmp_path / "b.zip", inner)))) == [("a", "", "t")]


def test_oag_qa_matches_titles(tmp_path):
    path = write_zip(
        tmp_path / "oag.zip",
        {
            "oagqa-topic-v2/matrix-papers-10k.tsv": "id\ttext\ttitle\n"
            "p1\tAbout matrices.\tOn  Matrix-Norms\np2\tMore.\tOther work\n",
            "oagqa-topic-v2/matrix-questions.tsv": "What is a norm?\t['on matrix norms', 'absent paper']\n"
            'Nothing?\t["It\'s not here"]\n',
        },
    )
    reader = open_reader("oag-qa", open_archive(path), "matrix")
    assert documents(reader) == [("p1", "On  Matrix-Norms", "About matrices."), ("p2", "Other work", "More.")]
    assert queries(reader) == [("matrix-1", "What is a norm?"), ("matrix-2", "Nothing?")]
    assert judgements(reader, "test") == [("matrix-1", "p1", 1)]


def test_oag_qa_runs_no_code(tmp_path):
    path = write_zip(
        tmp_path / "oag.zip", {"m-papers-10k.tsv": "p\tx\ty\n", "m-questions.tsv": "q\t__import__('os').getcwd()\n"}
    )
    with pytest.raises(CollectionError, match="m-questions.tsv:1: expected a list of titles"):
        judgements(open_reader("oag-qa", open_archive(path), "m"), "test")


def inner_zip(name: str, content: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def test_cmedqav2_in_nested_zips(tmp_path):
    files = {
        "answer.csv": 'ans_id,question_id,content\n10,1,多喝水，休息\n11,1,"看, 医生"\n',
        "question.csv": "question_id,content\n1,头痛,怎么办\n2,发烧\n",
        "train_candidates.txt": "question_id,pos_ans_id,neg_ans_id\n2,10,11\n",
        "dev_candidates.txt": "question_id,ans_id,num,label\n1,10,0,1\n1,11,1,0\n",
        "test_candidates.txt": "question_id,ans_id,num,label\n1,11,0,1\n",
    }
    path = write_zip(
        tmp_path / "c.zip",
        {f"cMedQA2-master/{name.rpartition('.')[0]}.zip": inner_zip(name, text) for name, text in files.items()},
    )
    reader = open_reader("cmedqav2", open_archive(path))
    assert documents(reader) == [("10", "", "多喝水，休息"), ("11", "", "看, 医生")]
    assert queries(reader) == [("1", "头痛,怎么办"), ("2", "发烧")]
    assert judgements(reader, "train") == [("2", "10", 1)]
    assert judgements(reader, "dev") == [("1", "10", 1)]
    assert judgements(reader, "test") == [("1", "11", 1)]


def test_multi_cpr_with_a_split_corpus(tmp_path):
    base = "Multi-CPR-main/data/medical"
    path = write_zip(
        tmp_path / "cpr.zip",
        {
            f"{base}/corpus_split_0.tsv": "1\t甲\n",
            f"{base}/corpus_split_1.tsv": "2\t乙\n",
            f"{base}/dev.query.txt": "900\t查询\n",
            f"{base}/qrels.dev.tsv": "900\t0\t2\t1\n",
            f"{base}/train.query.txt": "5\t训练\n",
            f"{base}/qrels.train.tsv": "5\t0\t1\t1\n",
            "Multi-CPR-main/data/ecom/corpus.tsv": "7\tx\n",
        },
    )
    reader = open_reader("multi-cpr", open_archive(path), "data/medical")
    assert documents(reader) == [("1", "", "甲"), ("2", "", "乙")]
    assert queries(reader) == [("900", "查询"), ("5", "训练")]
    assert judgements(reader, "dev") == [("900", "2", 1)]
    with pytest.raises(CollectionError, match="data/video/corpus.tsv"):
        open_reader("multi-cpr", open_archive(path), "data/video")


def test_dureader_retrieval(tmp_path):
    base = "dureader-retrieval-baseline-dataset"
    dev = {
        "question_id": "q",
        "question": "几天",
        "answer_paragraphs": [{"paragraph_id": "bb", "paragraph_text": "乙"}],
    }
    path = write_tar(
        tmp_path / "d.tar.gz",
        {
            f"{base}/passage-collection/part-00": "-\t\t甲\t0\n",
            f"{base}/passage-collection/part-01": "-\t\t乙\t0\n",
            f"{base}/passage-collection/passage2id.map.json": json.dumps({"0": "aa", "1": "bb"}),
            f"{base}/dev/dev.json": json_lines([dev]),
        },
    )
    reader = open_reader("dureader-retrieval", open_archive(path))
    assert documents(reader) == [("aa", "", "甲"), ("bb", "", "乙")]
    assert queries(reader) == [("q", "几天")] and judgements(reader, "dev") == [("q", "bb", 1)]


def test_dureader(tmp_path):
    """Questions, and the most related paragraph of each document that holds an answer, as DDR makes pairs of them."""
    answered = {
        "question": "几 天\n",
        "answer_docs": [1, 0],
        "documents": [
            {"title": "甲", "paragraphs": ["一", "二"], "most_related_para": 1},
            {"title": "", "paragraphs": ["三"], "most_related_para": 0},
        ],
    }
    unanswered = {"question": "什么", "answer_docs": [], "documents": [answered["documents"][0]]}
    files = {
        "preprocessed/trainset/search.train.json": json_lines([answered, unanswered, answered]),
        "preprocessed/trainset/zhidao.train.json": json_lines([answered | {"question": "别的", "answer_docs": [0]}]),
        "preprocessed/devset/zhidao.dev.json": json_lines([answered | {"answer_docs": [1]}]),
    }
    reader = open_reader("dureader", open_archive(write_tar(tmp_path / "d.tar.gz", files)))
    assert reader.splits() == ["train", "dev"]
    assert [(title, text) for _, title, text in documents(reader)] == [("", "三"), ("甲", "二")]
    first, second = (key for key, _ in queries(reader))
    third, title = (key for key, _, _ in documents(reader))
    assert [text for _, text in queries(reader)] == ["几 天", "别的"]
    assert judgements(reader, "train") == [(first, third, 1), (first, title, 1), (second, title, 1)]
    assert judgements(reader, "dev") == [(first, third, 1)]
    assert title == hashlib.md5("甲 二".encode()).hexdigest()
    with pytest.raises(CollectionError, match="has no trainset/search.train.json"):
        open_reader("dureader", open_archive(write_tar(tmp_path / "other.tar.gz", {"a": "b"})))
    files["preprocessed/devset/zhidao.dev.json"] = json_lines([answered | {"answer_docs": [5]}])
    reader = open_reader("dureader", open_archive(write_tar(tmp_path / "bad.tar.gz", files)))
    with pytest.raises(CollectionError, match="zhidao.dev.json:1: answer_docs names document 5 of 2"):
        judgements(reader, "dev")


def test_dpr_wikipedia(tmp_path):
    text = 'id\ttext\ttitle\n1\t"He said ""no""."\tAaron\n2\tplain text\tBoron\n'
    (tmp_path / "psgs_w100.tsv.gz").write_bytes(gzip.compress(text.encode()))
    reader = open_reader("dpr-wikipedia", open_archive(tmp_path / "psgs_w100.tsv.gz"))
    assert documents(reader) == [("wiki:1", "Aaron", 'He said "no".'), ("wiki:2", "Boron", "plain text")]
    assert reader.splits() == [] and queries(reader) == []


def test_quoted_cells_hold_line_breaks_as_their_publishers_read_them(tmp_path):
    papers = 'id\ttext\ttitle\np1\t"One line\nand the next\n\nend"\tOn norms\r\n'
    path = write_zip(tmp_path / "oag.zip", {"m-papers-10k.tsv": papers, "m-questions.tsv": "\nq?\t['On norms']\n"})
    reader = open_reader("oag-qa", open_archive(path), "m")
    assert documents(reader) == [("p1", "On norms", "One line\nand the next\n\nend")]
    assert queries(reader) == [("m-1", "q?")] and judgements(reader, "test") == [("m-1", "p1", 1)]
    (tmp_path / "psgs_w100.tsv.gz").write_bytes(gzip.compress(papers.encode()))
    reader = open_reader("dpr-wikipedia", open_archive(tmp_path / "psgs_w100.tsv.gz"))
    assert documents(reader) == [("wiki:p1", "On norms", "One line\nand the next\n\nend")]
    path = write_zip(tmp_path / "cut.zip", {"m-papers-10k.tsv": "a\tb\rc\td\n", "m-questions.tsv": "q\t[]\n"})
    with pytest.raises(CollectionError, match=r"papers-10k.tsv:1: is no row of a table \(new-line character"):
        documents(open_reader("oag-qa", open_archive(path), "m"))


MESH = """<?xml version="1.0"?>
<!DOCTYPE DescriptorRecordSet SYSTEM "https://www.nlm.nih.gov/databases/dtd/nlmdescriptorrecordset_20260101.dtd">
<DescriptorRecordSet LanguageCode="eng"><DescriptorRecord DescriptorClass="1"><DescriptorUI>D000001</DescriptorUI>
<ConceptList>
 <Concept PreferredConceptYN="Y"><ConceptUI>M0000001</ConceptUI><ConceptName><String>Calcimycin</String></ConceptName>
  <ScopeNote>An ionophorous,
   polyether antibiotic.</ScopeNote></Concept>
 <Concept PreferredConceptYN="N"><ConceptUI>M0353609</ConceptUI><ConceptName><String>A-23187</String></ConceptName>
  </Concept>
</ConceptList></DescriptorRecord>
<DescriptorRecord><ConceptList><Concept><ConceptUI>M0000001</ConceptUI><ConceptName><String>Calcimycin</String></ConceptName>
 <ScopeNote>Again.</ScopeNote></Concept></ConceptList></DescriptorRecord></DescriptorRecordSet>"""


def test_mesh(tmp_path):
    (tmp_path / "desc2026.xml").write_text(MESH)
    reader = open_reader("mesh-xml", open_archive(tmp_path / "desc2026.xml"))
    assert documents(reader) == [("mesh:M0000001", "Calcimycin", "An ionophorous, polyether antibiotic.")]
    (one,) = reader.documents()
    rows = read_registry(Path(__file__).parents[2] / "config/collections")
    for name in ("memory-mesh-descriptors", "memory-mesh-qualifiers", "memory-mesh"):
        block = pa.RecordBatch.from_pydict({"title": [one.title], "text": [one.text]})
        told = joined_texts(block, rows[name].title_join).to_pylist()
        assert told == ["Calcimycin. An ionophorous, polyether antibiotic."], "name and note (MoMA appendix A.3)"
    (tmp_path / "qual2026.xml").write_text(MESH.replace("Descriptor", "Qualifier")[:-30])
    with pytest.raises(CollectionError, match="no well-formed XML"):
        documents(open_reader("mesh-xml", open_archive(tmp_path / "qual2026.xml")))


def own(folder):
    return open_reader("folder", FolderArchive(folder, sorted(p for p in folder.rglob("*") if p.is_file())))


@pytest.mark.parametrize("ending", ["jsonl", "tsv", "parquet"])
def test_own_folder_in_each_form(tmp_path, ending):
    for stem, rows in (("corpus", CORPUS), ("queries", QUERIES)):
        path = tmp_path / f"{stem}.{ending}"
        if ending == "jsonl":
            path.write_text(json_lines(rows))
        elif ending == "tsv":
            path.write_text("\t".join(rows[0]) + "\n" + "".join("\t".join(row.values()) + "\n" for row in rows))
        else:
            pq.write_table(pa.Table.from_pylist(rows), path)
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels/test.tsv").write_text("q1\td1\t1\n")
    reader = own(tmp_path)
    assert documents(reader) == [("d1", "One", "first text"), ("d2", "", "second text")]
    assert queries(reader) == [("q1", "what is first"), ("q2", "second")]
    assert reader.splits() == ["test"] and judgements(reader, "test") == [("q1", "d1", 1)]


def test_own_folder_needs_no_queries(tmp_path):
    (tmp_path / "corpus.tsv").write_text("a\tsome text\nb\tother text\n")
    reader = own(tmp_path)
    assert documents(reader) == [("a", "", "some text"), ("b", "", "other text")]
    assert queries(reader) == [] and reader.splits() == []


def test_own_folder_problems(tmp_path):
    with pytest.raises(CollectionError, match="holds no corpus"):
        documents(own(tmp_path))
    (tmp_path / "corpus.tsv").write_text("a\tx\nb\n")
    with pytest.raises(CollectionError, match="corpus.tsv:2: expected 2 cells"):
        documents(own(tmp_path))
    (tmp_path / "corpus.jsonl").write_text("")
    with pytest.raises(CollectionError, match="expected one of them"):
        documents(own(tmp_path))
    (tmp_path / "corpus.tsv").unlink()
    (tmp_path / "corpus.jsonl").unlink()
    (tmp_path / "corpus.parquet").write_bytes(b"no parquet")
    with pytest.raises(CollectionError, match="no parquet file"):
        documents(own(tmp_path))
    pq.write_table(pa.table({"id": [1.5], "text": ["x"]}), tmp_path / "corpus.parquet")
    with pytest.raises(CollectionError, match="corpus.parquet:1: key 'id': expected a string, found 1.5"):
        documents(own(tmp_path))
    pq.write_table(pa.table({"id": [17], "text": ["x"]}), tmp_path / "corpus.parquet")
    assert documents(own(tmp_path)) == [("17", "", "x")]


def test_unknown_format():
    with pytest.raises(ConfigError, match="did you mean lotte"):
        open_reader("lote", None)
    registry = read_registry(Path(__file__).parents[2] / "config/collections").values()
    used = {row.format for row in registry} | {row.originals.format for row in registry if row.originals}
    assert used | {"folder"} == set(READERS)
