"""Queries generated from documents: forms, even draws, determinism, the collection that they make."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from encoder_helpers import make_collection

from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import read_qrels, split_queries
from zerodr.config.base import validate
from zerodr.errors import CollectionError, ConfigError
from zerodr.mining.questions import MakeSettings, phrase_of, queries_of

TEXT = (
    "The first sentence has six words. Short one. The second long sentence has seven words. A third one of six words."
)
DOCUMENTS = [("d0", "A title", TEXT), ("d1", "", "Nothing long here."), ("d2", "A title", f"Another text. {TEXT}")]


def settings_of(**changed) -> MakeSettings:
    return validate(MakeSettings, {"split": "made"} | changed, "generate_queries")


def generate(folder: Path, seed: int = 13, documents: list[tuple[str, str, str]] = DOCUMENTS, **changed) -> Path:
    if not (folder / "collection").exists():
        make_collection(folder / "collection", documents, [("q", "a query")])
    inputs = {"collection": str(folder / "collection/manifest.json")}
    outputs = {"collection": str(folder / f"generated-{seed}/manifest.json")}
    run_spec(StageSpec("generate_queries", 1, {}, inputs, outputs, {"split": "made"} | changed, seed))
    return folder / f"generated-{seed}"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_folder_is_a_collection(tmp_path):
    folder = generate(tmp_path)
    assert pq.read_table(folder / "corpus.parquet").equals(pq.read_table(tmp_path / "collection/corpus.parquet"))
    queries, judged = split_queries(folder, "made"), read_qrels(folder, "made")
    assert set(queries["text"]) <= {one for one in TEXT.split(". ")} | {f"{one}." for one in TEXT.split(". ")}
    assert judged["query"].tolist() == queries["id"].tolist() and set(judged["grade"]) == {1}
    assert not {"d1"} & set(judged["document"]), "it has no sentence of five words"


def test_every_document_gives_one_before_any_gives_two(tmp_path):
    documents = [(f"d{i}", "", f"Here is sentence {i} of one. And then sentence {i} of two.") for i in range(20)]
    judged = read_qrels(generate(tmp_path, documents=documents, count=20), "made")
    assert judged["document"].nunique() == 20


def test_a_count_takes_a_part_of_the_documents(tmp_path):
    documents = [(f"d{i}", "", f"Here is the sentence number {i}.") for i in range(20)]
    judged = read_qrels(generate(tmp_path, documents=documents, count=6), "made")
    assert len(judged) == 6 == judged["document"].nunique()


def test_queries_depend_on_the_seed_alone(tmp_path):
    documents = [(f"d{i}", "", f"Here is the sentence number {i}. {TEXT}") for i in range(20)]
    first = generate(tmp_path, documents=documents, count=6)
    other = generate(tmp_path, seed=14, count=6)
    (tmp_path / "again").mkdir()
    again = generate(tmp_path / "again", documents=documents[::-1], count=6)
    texts = [sorted(split_queries(folder, "made")["text"]) for folder in (first, again, other)]
    assert texts[0] == texts[1] != texts[2]


def test_forms_share_the_count_and_no_text_comes_twice(tmp_path):
    folder = generate(tmp_path, forms=["titles", "sentences"], count=4)
    ids = split_queries(folder, "made")["id"].tolist()
    assert [key.partition("-")[0] for key in ids] == ["titles", "sentences", "sentences"], "both titles are the same"


def test_phrases_are_neighbouring_words():
    draw = random.Random(1)
    for _ in range(50):
        phrase = phrase_of("One, two three-four (five).", (2, 3), draw)
        assert phrase in "One, two three-four (five)" and phrase[0].isalnum() and phrase[-1].isalnum()
        assert 2 <= len(phrase.replace("-", " ").split()) <= 3


def test_a_language_without_spaces_has_words():
    text = "这是一个比较长的中文句子。短。"
    assert queries_of("", text, "sentences", 3, settings_of(), random.Random(1)) == ["这是一个比较长的中文句子。"]
    assert len(queries_of("", text, "phrases", 1, settings_of(phrase_words=[3, 3]), random.Random(1))[0]) == 3


def test_nothing_to_make_is_an_error(tmp_path):
    with pytest.raises(CollectionError, match="gives no query of the forms sentences"):
        generate(tmp_path, documents=[("d0", "", "Too short.")])


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"forms": ["titles", "titles"]}, "names one twice"), ({"phrase_words": [3, 2]}, "fewest and the most")],
)
def test_impossible_settings(changed, message):
    with pytest.raises(ConfigError, match=message):
        settings_of(**changed)
