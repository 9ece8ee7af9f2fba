"""Collections that are made of others: what changes, what stays, and that nothing depends on the order of reading."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from collection_helpers import QRELS, beir_zip, json_lines, normalize, stage_of
from config_helpers import copy_config, lab_plan, params

from zerodr.artifacts.manifest import file_digest
from zerodr.collections.access import read_corpus, read_qrels, read_queries
from zerodr.collections.normalize import ANSWER_SCHEMA, NormalizeSettings, write_collection
from zerodr.collections.transform import Normalized, invented, transform_collection, transformed
from zerodr.config.registry import Collection, read_family, read_registry
from zerodr.config.transform import Transform
from zerodr.errors import ConfigError
from zerodr.papers.berm.answers import read_answers

ARTICLES, SENTENCES = 40, 3


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("source")
    rows = [(a, s) for a in range(ARTICLES) for s in range(SENTENCES)]
    common = ("heart", "kidney", "lung")
    corpus = [
        {"_id": f"d{a}-{s}", "title": f"Article {a}", "text": f"The {common[s]} of case{'abcdefgh'[a % 8]} x{a}"}
        for a, s in rows
    ]
    queries = [{"_id": f"q{a}", "text": f"Which heart in article {a}?"} for a in range(ARTICLES)]
    qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"q{a}\td{a}-0\t1\nq{a}\td{a}-1\t0\n" for a in range(ARTICLES))
    path = beir_zip(root / "a.zip", json_lines(corpus), json_lines(queries), qrels)
    normalize(path, root / "toy", documents=len(rows))
    return root / "toy"


def make(source: Path, folder: Path, seed: int = 13, **settings) -> dict:
    """Transform the source into a folder; its files' contents."""
    folder.mkdir(parents=True)
    chosen = Transform(**({"sources": ["toy"]} | settings))
    readers = {name: Normalized(source) for name in chosen.sources}
    row = NormalizeSettings(name="x", kind="subset", format="transform", splits={"test": None})
    made = transformed(chosen, readers, seed)
    facts = write_collection(made, row, folder)
    return {
        "facts": facts,
        "groups": made.groups(),
        "documents": {r["id"]: r for batch in read_corpus(folder) for r in batch.to_pylist()},
        "queries": {r["id"]: r["text"] for r in read_queries(folder).to_pylist()},
        "qrels": read_qrels(folder, "test"),
    }


def test_all_words_are_ciphered_and_judgements_stay(source, tmp_path):
    new = make(source, tmp_path / "all", kind="cipher", share=1.0)
    heart = invented("heart", 13)
    assert new["documents"]["d0-0"]["text"].split()[1] == heart
    assert heart in new["queries"]["q0"] and "heart" not in new["queries"]["q0"]
    assert new["qrels"].equals(read_qrels(source, "test"))


def test_the_most_frequent_content_words_are_chosen(source, tmp_path):
    texts = [f"every {'Rare' if n < 5 else ''} {'seldom' if n < 2 else ''}" for n in range(100)]
    path = beir_zip(
        tmp_path / "b.zip",
        json_lines([{"_id": f"d{n}", "text": text} for n, text in enumerate(texts)]),
        json_lines([{"_id": "q1", "text": "rare, every seldom rarely"}]),
        "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
    )
    normalize(path, tmp_path / "toy")
    new = make(tmp_path / "toy", tmp_path / "new", kind="new_words", words=1)
    assert new["queries"]["q1"] == f"{invented('rare', 13)}, every seldom rarely"
    assert new["documents"]["d1"]["text"] == f"every {invented('rare', 13)} seldom"
    assert new["documents"]["d50"]["text"].strip() == "every"


def test_a_share_of_articles_is_ciphered_with_its_questions(source, tmp_path):
    new = make(source, tmp_path / "new", kind="cipher", share=0.3)
    changed = {key for key, row in new["documents"].items() if not row["title"].startswith("Article")}
    articles = Counter(key.split("-")[0] for key in changed)
    assert 4 <= len(articles) <= 22 and set(articles.values()) == {SENTENCES}
    asked = {key for key, text in new["queries"].items() if not text.startswith("Which")}
    assert asked == {f"q{key[1:]}" for key in articles}
    assert {query for query, group in new["groups"].items() if group == "ciphered"} == asked
    plain = Counter(group for group in new["groups"].values() if group != "ciphered")
    assert set(plain) <= {f"plain {n}" for n in range(1, 8)} and len(plain) >= 4 and len(new["groups"]) == ARTICLES


@pytest.mark.parametrize("shared", [False, True])
def test_boilerplate_stands_before_texts(source, tmp_path, shared):
    new = make(source, tmp_path / "new", kind="boilerplate", longest=9, shared=shared)
    before = {key: row["text"].split("The ")[0] for key, row in new["documents"].items()}
    assert {len(words.split()) for words in before.values()} == set(range(10))
    same = [text.split("Which")[0] == before[f"d{key[1:]}-0"] for key, text in new["queries"].items()]
    assert all(same) if shared else sum(same) < 12


def test_boilerplate_of_one_word_differs_by_its_length(source, tmp_path):
    new = make(source, tmp_path / "new", kind="boilerplate", longest=4, vocabulary=1)
    words = Counter(word for row in new["documents"].values() for word in row["text"].split("The ")[0].split())
    assert len(words) == 1 and not new["groups"]


def test_two_documents_become_one(source, tmp_path):
    new = make(source, tmp_path / "new", kind="join")
    assert len(new["documents"]) == ARTICLES * SENTENCES // 2
    name, row = next(iter(new["documents"].items()))
    first, second = name.split("+")
    texts = {r["id"]: f"{r['title']} {r['text']}" for batch in read_corpus(source) for r in batch.to_pylist()}
    assert row["text"] == f"{texts[first]}\n{texts[second]}" and row["title"] == ""
    for query, document, grade in new["qrels"].itertuples(index=False):
        assert f"d{query[1:]}-{1 - grade}" in document.split("+")
    positives = new["qrels"][new["qrels"]["grade"] > 0]
    assert len(positives) == ARTICLES


def test_answers_move_with_their_documents_and_questions_are_drawn_by_half(source, tmp_path):
    toy = tmp_path / "toy"
    shutil.copytree(source, toy)
    texts = {r["id"]: r["text"] for batch in read_corpus(source) for r in batch.to_pylist()}
    rows = [
        {"query_id": f"q{a}", "corpus_id": f"d{a}-0", "split": "test", "answers": [{"text": f"x{a}", "start": start}]}
        for a in range(ARTICLES)
        if (start := texts[f"d{a}-0"].index(f"x{a}"))
    ]
    pq.write_table(pa.Table.from_pylist(rows, ANSWER_SCHEMA), toy / "answers.parquet")
    new = make(toy, tmp_path / "new", kind="join")
    joined = {key: row["text"] for key, row in new["documents"].items()}
    spans = read_answers(tmp_path / "new", "test", joined)
    assert len(spans.spans) == ARTICLES and spans.displaced == 0
    halves = {
        name: set(make(toy, tmp_path / name, kind="join", **shares)["qrels"]["query"])
        for name, shares in {"first": {"second": 0.0}, "second": {"first": 0.0}, "half": {"first": 0.5}}.items()
    }
    assert halves["first"] | halves["second"] == set(new["queries"]) and not halves["first"] & halves["second"]
    firsts = {document.split("+")[0] for document in new["documents"]}
    assert halves["first"] == {f"q{a}" for a in range(ARTICLES) if f"d{a}-0" in firsts}
    assert halves["second"] < halves["half"] < set(new["queries"])
    assert {query for query, _ in read_answers(tmp_path / "first", "test", joined).spans} == halves["first"]


def test_a_mixture_has_as_many_questions_as_asked(source, tmp_path):
    new = make(source, tmp_path / "new", kind="mix", sources=["toy", "twin"], questions={"twin": 5})
    names = Counter(key.split("/")[0] for key in new["queries"])
    assert names == {"toy": ARTICLES, "twin": 5} == Counter(new["groups"].values())
    assert len(new["documents"]) == 2 * ARTICLES * SENTENCES
    assert set(new["qrels"]["document"]) <= new["documents"].keys()


@pytest.mark.parametrize("kind", ["new_words", "cipher", "boilerplate", "join", "mix"])
def test_equal_seeds_give_equal_bytes(source, tmp_path, kind):
    for folder, seed in (("one", 13), ("two", 13), ("three", 14)):
        make(source, tmp_path / folder, seed, kind=kind, **({"questions": {"toy": 9}} if kind == "mix" else {}))
    folders = [tmp_path / name for name in ("one", "two", "three")]
    one, two, three = ([file_digest(path) for path in sorted(folder.iterdir())] for folder in folders)
    assert one == two
    assert kind == "new_words" or one != three


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"kind": "transformed"}, "transform is for kind transformed"),
        ({"kind": "complete", "transform": {"kind": "join", "sources": ["a"]}}, "transform is for kind transformed"),
        ({"kind": "transformed", "archive": "a.zip", "transform": {"kind": "join", "sources": ["a"]}}, "no archive"),
        ({"kind": "transformed", "transform": {"kind": "join", "sources": ["a", "b"]}}, "made of one collection"),
        ({"kind": "transformed", "transform": {"kind": "join", "sources": ["a"], "share": 0.5}}, "share"),
        (
            {"kind": "transformed", "transform": {"kind": "mix", "sources": ["a"], "questions": {"b": 1}}},
            "b is not among",
        ),
        (
            {"kind": "transformed", "transform": {"kind": "mix", "sources": ["a"], "questions": {"a": -1}}},
            "greater than or equal to 0",
        ),
        ({"kind": "transformed", "transform": {"kind": "mix", "sources": ["a", "b", "a"]}}, "there twice"),
    ],
)
def test_settings_that_do_not_fit_are_refused(block, said):
    with pytest.raises(ConfigError, match=said):
        read_family({"collections": {"x": {"label": "X"} | block}}, "config/my/x.yaml")


@pytest.mark.parametrize("allowed", [{"known_gaps": 1}, {"drop_missing": True}])
@pytest.mark.parametrize("kind", ["join", "cipher", "boilerplate"])
def test_a_source_with_absent_judged_documents_is_transformed(tmp_path, monkeypatch, kind, allowed):
    path = beir_zip(tmp_path / "c.zip", qrels=QRELS.replace("q1\td1", "q1\tgone\t1\nq1\td1"))
    normalize(path, tmp_path / "results/collections/toy", known_gaps=1)
    more = {"share": 1.0} if kind == "cipher" else {"shared": True} if kind == "boilerplate" else {}
    block = {"label": "X", "kind": "transformed", "splits": {"test": None}, "evaluation_split": "test"} | allowed
    block |= {"transform": {"kind": kind, "sources": ["scifact"]} | more}
    monkeypatch.delenv("ZERODR_MY")
    monkeypatch.chdir(tmp_path)
    (copy_config(tmp_path) / "config/my").mkdir()
    (tmp_path / "config/my/x.yaml").write_text(yaml.safe_dump({"collections": {"x": block}}))
    settings = params(lab_plan(tmp_path), "transform_collection", collection="x")["settings"]
    (folder := tmp_path / "results/.x.making").mkdir()
    folders = {"sources": ["results/collections/toy/manifest.json"]}, {"collection": "results/x/manifest.json"}
    transform_collection(stage_of("x:transform_collection", settings, *folders, tmp_path / "state"))
    judged, queries = read_qrels(folder, "test"), read_queries(folder).to_pylist()
    assert ("gone" in judged["document"].tolist()) == ("known_gaps" in allowed)
    assert kind != "cipher" or not {"what", "first"} & set(queries[0]["text"].split())
    texts = {row["id"]: row["text"] for batch in read_corpus(folder) for row in batch.to_pylist()}
    assert kind != "boilerplate" or queries[0]["text"] == texts["d1"].replace("first text", "what is first")


def test_language_own_documents_and_size_follow_from_the_sources(tmp_path):
    copy_config(tmp_path)
    path = tmp_path / "config/collections/x.yaml"

    def read(sources: list[str], kind: str = "mix", **more) -> Collection:
        block = {"label": "X", "kind": "transformed", "transform": {"kind": kind, "sources": sources}} | more
        path.write_text(yaml.safe_dump({"collections": {"x": block}}))
        return read_registry(path.parent)["x"]

    assert [read([name]).language for name in ("cmrc2018-zh", "scifact")] == ["zh", "en"]
    assert [read([name, of]).exclude_self for name, of in (("nfcorpus", "scifact"), ("quora", "arguana"))] == [
        False,
        True,
    ]
    sizes = [read(["scifact"], "boilerplate"), read(["scifact"], "join"), read(["scifact", "nfcorpus"])]
    assert [row.planned_documents for row in sizes] == [5183, 2592, 5183 + 3633]
    row = read(["cmrc2018-zh", "arguana"], language="und", exclude_self=False)
    assert (row.language, row.exclude_self) == ("und", False)
    for sources, kind, problem in [
        (["cmrc2018-zh", "scifact"], "mix", "is made of collections in zh and en: set language"),
        (["fiqa", "quora"], "mix", "leaves a query's own document out for quora alone; .*: set exclude_self"),
        (["quora"], "join", "joins documents of quora, which leaves a query's own document out"),
    ]:
        with pytest.raises(ConfigError, match=problem):
            read(sources, kind)
    blocks = {
        name: {"label": name, "kind": "transformed", "transform": {"kind": "join", "sources": [of]}}
        for name, of in ("xy", "yx")
    }
    path.write_text(yaml.safe_dump({"collections": blocks}))
    with pytest.raises(ConfigError, match="sources: x is made of itself"):
        read_registry(path.parent)
