"""Siblings of reports from the field that were wrong when they were tried: read with the right values, or named."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from test_folder_forms import BASE, DOCUMENTS, JUDGEMENTS, QUERIES, ROOT, SPACED, put, read, text_of

from zerodr.checkout import enter_root
from zerodr.collections.texts import blocks_of
from zerodr.config.load import load_bench
from zerodr.config.user_folders import label_of, read_folders, unread_files
from zerodr.config.words import parse_texts, parse_words
from zerodr.errors import CollectionError, ConfigError
from zerodr.evaluation.grades import read_rows
from zerodr.operations.folders import examine

JUDGED = ["query-id", "corpus-id", "score"]
CZECH = "Příliš žluťoučký kůň"


def split_that_counts(folder: Path, *names: str) -> str:
    put(folder, BASE | {f"qrels/{name}.txt": SPACED for name in names})
    return read_folders([str(folder)], {}, None, {})[0][folder.name].evaluation_split


@pytest.mark.parametrize(
    ("names", "split"),
    [
        (("Test", "dev"), "Test"),
        (("train", "validation"), "validation"),
        (("dev", "test_small", "train"), "dev"),
        (("train", "val", "test-2024"), "test-2024"),
        (("train",), "train"),
        (("a", "b", "test"), "test"),
    ],
)
def test_the_split_that_counts_is_no_training_split_where_there_is_another(tmp_path, names, split):
    assert split_that_counts(tmp_path / "notes", *names) == split


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_tables_with_a_mark_of_their_encoding(tmp_path, encoding):
    sections = {
        "corpus.csv": text_of("csv", ["_id", "title", "text"], DOCUMENTS),
        "queries.tsv": text_of("tsv", ["_id", "text"], QUERIES),
        "qrels/test.csv": text_of("csv", JUDGED, JUDGEMENTS),
    }
    put(tmp_path, {name: content.decode().encode(encoding) for name, content in sections.items()})
    documents, queries, judged, _ = read(tmp_path)
    assert (documents, queries, judged) == (DOCUMENTS, QUERIES, {"test": JUDGEMENTS})


def test_queries_in_an_encoding_that_must_be_guessed_are_refused_as_documents_are(tmp_path):
    put(tmp_path, {"corpus.jsonl": BASE["corpus.jsonl"], "queries.tsv": "q1\tcafé\n".encode("latin-1")})
    with pytest.raises(CollectionError, match=r"queries.tsv:1: is not UTF-8 \(byte 7\)"):
        read(tmp_path)


def test_one_bad_byte_does_not_change_the_encoding_of_all_others(tmp_path):
    blocks, remark = blocks_of(".txt", ("größte Übel " * 9).encode() + b"\xe4 end")
    assert blocks[0].text == "größte Übel " * 9 + "end" and remark == "bytes that are no UTF-8 are left out"
    put(tmp_path, {"faq.csv": ("id,text\n" + "1,café crème brûlée\n" * 3).encode() + b"9,bad \xff\n"})
    with pytest.raises(CollectionError, match=r"faq.csv:5: is not UTF-8 \(byte 7\)"):
        read(tmp_path)


@pytest.mark.parametrize("name", ['<meta charset="iso-8859-2">', "<?xml version='1.0' encoding='ISO-8859-2'?>"])
def test_a_page_is_read_in_the_encoding_that_it_names(name):
    blocks, remark = blocks_of(".html", f"{name}<p>{CZECH}</p>".encode("iso-8859-2"))
    assert [block.text for block in blocks] == [CZECH] and not remark
    assert blocks_of(".html", f"{name}<p>{CZECH}</p>".encode())[0][0].text == CZECH  # UTF-8 shows that it is


def test_endings_may_be_capital_letters(tmp_path):
    put(tmp_path, {"A.CSV": "id,text\n1,a b\n", "B.JSONL.GZ": gzip.compress(b'{"id": "2", "text": "c d"}\n')})
    assert read(tmp_path)[0] == [("1", "", "a b"), ("2", "", "c d")]


def test_the_line_by_which_excel_names_tabs_is_no_document(tmp_path):
    put(tmp_path, {"corpus.tsv": "sep=\t\n_id\ttitle\ttext\nd1\tPies\thow pies\n"})
    assert read(tmp_path)[0] == [("d1", "Pies", "how pies")]


def test_files_with_judgements_under_any_name_are_named(tmp_path):
    put(tmp_path, BASE | dict.fromkeys(["gold.tsv", "labels.csv", "test.tsv", "README.txt", "notes.txt", "a.png"], "x"))
    assert unread_files(tmp_path) == ["gold.tsv", "labels.csv", "test.tsv"]


def test_a_link_to_nothing_is_named(tmp_path):
    put(tmp_path, {"a.txt": "hello there"})
    os.symlink("nowhere", tmp_path / "b.txt")
    assert read(tmp_path)[0] == [("a.txt#1", "a", "hello there")]
    assert read_folders([str(tmp_path)], {}, None, {}, "notes")[1]["notes"].unread == "not read: b.txt"


def test_a_folder_of_collections_names_them(tmp_path):
    put(tmp_path, {f"{name}/{file}": content for name in ("a", "b") for file, content in BASE.items()})
    with pytest.raises(ConfigError, match="holds no corpus, its subfolders do: .*/a, .*/b: give one of them"):
        read_folders([str(tmp_path)], {}, None, {}, "notes")


def test_a_file_that_is_given_alone_may_be_called_corpus(tmp_path):
    put(tmp_path, BASE)
    assert read(tmp_path / "corpus.jsonl")[0] == DOCUMENTS


def test_a_linked_folder_has_the_name_of_the_link(tmp_path):
    put(tmp_path / "v{2}", BASE)
    os.symlink("v{2}", tmp_path / "current")
    assert label_of(tmp_path / "current") == "current" and list(
        read_folders([str(tmp_path / "current")], {}, None, {})[0]
    ) == ["current"]


@pytest.mark.parametrize("long", ["a" * 81, "a" * 300])
def test_names_that_no_file_system_takes_are_refused_before_any_job(tmp_path, long):
    put(tmp_path, BASE)
    with pytest.raises(ConfigError, match="at most 80 small letters"):
        read_folders([str(tmp_path)], {}, None, {}, long)
    put(tmp_path, {f"qrels/{long[:90]}.txt": SPACED})
    with pytest.raises(ConfigError, match="the split a+... has more than 80 letters"):
        read_folders([str(tmp_path)], {}, None, {}, "notes")


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"corpus.jsonl": '{"_id": "d1", "text": "", "contents": "x"}\n'}, "none of its 1 documents has a text"),
        (
            {"qrels/test.txt": SPACED, "queries.jsonl": '{"_id": "q1", "text": "\u200b"}\n{"_id": "q2", "text": "x"}'},
            "judged query 'q1' .* has an empty text",
        ),
        ({"qrels/test.txt": "q1 0 d1\u200b 1\n"}, "1 document ids are nearly known ones"),
        ({"qrels/test.txt": "q1 0 dX 1\n"}, "add them or leave them out: --config byo_drop_missing=true"),
    ],
)
def test_what_nobody_sees_is_refused_in_words_of_the_folder(tmp_path, contents, message):
    with pytest.raises(CollectionError, match=message):
        read(put(tmp_path, BASE | contents))


# ---- settings ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "word",
    ["seed=on", "seeds=[true]", "gpus=yes", "held_out=true", "set=bm25-flat.k1=true", "set=dpr.ep0.training.steps=on"],
)
def test_yes_and_on_are_no_numbers(word):
    with pytest.raises(ConfigError, match="is a number, found true"):
        load_bench(ROOT, {"mirrors": []} | parse_words([word]))


@pytest.mark.parametrize(
    "word", ["held_out=010", "held_out=1_000", "held_out=1:30", "set=bm25-flat.k1=1_0", "byo_cut={words: 0100}"]
)
def test_a_number_means_the_same_on_the_command_line_and_in_a_file(word):
    """Snakemake takes 010 for 10, YAML for 8."""
    with pytest.raises(ConfigError, match="is no usual number"):
        load_bench(ROOT, parse_words([word]))
    if not word.startswith("set="):
        with pytest.raises(ConfigError, match="is no usual number"):
            parse_texts([word, "scale=lab"])
    assert parse_texts(["held_out=10", "scale=lab"]) == {"scale": "lab"}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("bootstrap_samples=1", "greater than or equal to 40"),
        ("randomization_samples=99999999999999", "less than or equal to 10000000"),
        ("measures=ndcg_cut_010", "'ndcg_cut_010' is no measure"),
        ("measures=ndcg_cut_99999999999", "is no measure"),
        ("measures=mrr@10", "'mrr@10' is no measure, write recip_rank_cut_10"),
        ("measures=recall@20", "'recall@20' is no measure, write recall_20"),
        ("measures=recall_20,recall_20", "is named twice in measures"),
        ("measures=hole_pair_10,recall_20", r"hole_pair_10.* are not better: .*measures=\[ndcg_cut_10,hole_pair_10\]"),
        ("measures=recall_1001", "looks for documents below rank 1000, where rankings of protocol standard end"),
        ("collections=nfcorpus,nfcorpus", "is named twice in collections"),
    ],
)
def test_settings_whose_tables_would_say_what_is_not_so(word, message):
    with pytest.raises(ConfigError, match=message):
        load_bench(ROOT, parse_words([word]))


def test_an_empty_language_is_guessed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "notes", {"corpus.jsonl": '{"_id": "1", "text": "как приготовить пирог с яблоками"}\n'})
    bench = examine(load_bench(ROOT, {"byo": "notes", "byo_language": ""}))
    assert bench.collections["notes"].language == "ru"


def test_a_working_directory_that_was_deleted_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigError, match="the working directory: was deleted: cd to the checkout"):
        enter_root()


def test_a_column_of_grades_that_is_there_twice_is_refused(tmp_path):
    put(tmp_path, {"to_judge.tsv": "grade\tgrade\tquery-id\tcorpus-id\n0\t1\tquery:q1\tdocument:d1\n"})
    with pytest.raises(CollectionError, match="has column 'grade' twice"):
        read_rows(tmp_path / "to_judge.tsv")
