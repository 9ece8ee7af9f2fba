from __future__ import annotations

import ast
import re
from pathlib import Path

import bm25s
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lexical_helpers import from_mirror

from zerodr.collections.access import read_corpus, split_queries
from zerodr.errors import ConfigError
from zerodr.lexical import topk
from zerodr.lexical.analysis import analyze_cjk, analyze_english, analyzer_of, stem, words
from zerodr.lexical.jvm import java_class
from zerodr.lexical.light import LightIndex, coded_lengths, count_terms, term_scores
from zerodr.lexical.lucene import LuceneSearcher, LuceneWriter, analyze, analyzer
from zerodr.lexical.topk import greatest, search_terms
from zerodr.retrieval import kernels

TEXTS = ["foxes run", "the quick brown fox", "quick quick fox", "", "lazy dogs run quickly home", "quick brown foxes"]


@pytest.fixture(scope="module")
def scifact(mirror, tmp_path_factory):
    return from_mirror(mirror, "scifact", tmp_path_factory.mktemp("scifact") / "scifact")


@pytest.fixture(scope="module")
def documents(scifact):
    return [f"{row['title']} {row['text']}" for batch in read_corpus(scifact) for row in batch.to_pylist()]


def test_terms_of_scifact_are_lucenes(documents):
    lucene = analyzer("en")
    assert all(analyze_english(text) == analyze(lucene, text) for text in documents)


@pytest.mark.parametrize(
    "language, text",
    [
        ("en", "Don't stop the U.S.A.'s 3.14 e-mails: O\u2019Neil's A_B_C _x_ 1,000.5 foo.bar caf\u00e9s na\u00efve"),
        ("en", 'ΣΊΣΥΦΟΣ İstanbul ﬁne straße ①② ½ 𝒳 x\u0301y ☃ 👍🏽 🇩🇪 1️⃣ 漢字かなカナ 한국어 ภาษาไทย שלום "ש"ע'),
        ("en", "analogies probably sensibilities hopping falling filing happy sky generalizations oscillators ties"),
        ("en", "a" * 600 + " ___ __init__ 'quoted' rock'n'roll ... -- x:y 3:4 a:b:c"),
        ("zh", "北京大学ＡＢＣ１２３ is in 中国, 首都。ｶﾞｷﾞ カタカナ ひらがな 한국어 the 的 www"),
        ("zh", "中" + "x" * 300 + " " + "1" * 600 + " " + "한국어abc" * 100),
        ("zh", "佐々木和人々 삼성SDI 한국어_ABC K팝 カ_タ カ_a 々don't"),
    ],
)
def test_terms_of_hard_texts_are_lucenes(language, text):
    assert analyzer_of(language)(text) == analyze(analyzer(language), text)


@given(st.text(st.characters(max_codepoint=0x24F, exclude_characters="\u00b8"), max_size=80))
def test_terms_of_latin_texts_are_lucenes(text):
    assert analyze_english(text) == analyze(analyzer("en"), text)


PICTURES = "©☃👍🏽🏴🇩🇪1#\u20e3 z\u200d\ufe0e\ufe0f\u00ad\u0301\U000e0067\U000e007f"  # and what may follow them


@given(st.text(PICTURES, max_size=8))
def test_terms_of_pictures_are_lucenes(text):
    assert analyze_english(text) == analyze(analyzer("en"), text)


@given(st.text("aeiouybcdlstz", min_size=1, max_size=12))
def test_stems_are_lucenes(word):
    assert [stem(word)] == analyze(analyzer("en"), word) or analyze(analyzer("en"), word) == []


SENTENCES = {
    "de": ["Die Bücher der Häuser stehen im Garten", "Der Garten des Hauses", "Häuser am Wald"],
    "ru": ["Книги стояли в домах", "В доме была книга", "Лес и сад"],
    "ko": ["도서관의 책", "책을 읽는 사람", "숲과 정원"],
}


@pytest.mark.parametrize("language", SENTENCES)
def test_other_languages_are_analysed_by_lucene(language):
    texts = SENTENCES[language]
    assert list(map(analyzer_of(language), texts)) == [analyze(analyzer(language), text) for text in texts]
    (hits,) = LightIndex.build(texts, language=language).search_texts([texts[1]], 3)
    assert hits.documents.tolist()[0] == 1


def test_scripts_without_blanks_are_compared_by_pairs():
    khmer = ["ភាសាខ្មែរជាភាសា", "សៀវភៅនៅក្នុងផ្ទះ"]
    (hits,) = LightIndex.build(khmer, language="und").search_texts(["សៀវភៅផ្ទះ"], 2)
    assert hits.documents.tolist()[0] == 1
    assert analyzer_of("th")("คนไทย ABC") == ["คน", "นไ", "ไท", "ทย", "abc"]
    with pytest.raises(ConfigError, match="language 'th': Lucene has no analyzer for it"):
        analyzer("th")


def test_unknown_languages_are_refused():
    with pytest.raises(ConfigError, match="language 'xx': Lucene has no analyzer for it"):
        analyzer_of("xx")


def test_long_rows_of_links_take_no_time():
    assert words("_" * 200_000) == [] and words("_" * 50_000 + "é") != []


def test_single_characters_of_chinese_stay():
    assert analyze_cjk("中 国家") == ["中", "国家"]


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50))
def test_coded_lengths_are_lucenes(lengths):
    small = java_class("org.apache.lucene.util.SmallFloat")
    expected = [small.byte4ToInt(small.intToByte4(length)) for length in lengths]
    assert coded_lengths(np.array(lengths)).tolist() == expected


def test_scores_are_lucenes_on_1000_pairs(documents, scifact, tmp_path):
    """1,000 query-document pairs of SciFact, spread over queries and ranks: equal to 4 decimals."""
    writer = LuceneWriter(tmp_path / "lucene", "en", vectors=False)
    writer.add({"id": f"{number:05d}", "contents": text} for number, text in enumerate(documents))
    writer.close()
    queries = list(split_queries(scifact, "test")["text"])[:100]
    lucene = LuceneSearcher(tmp_path / "lucene", "en").search(queries, 1000, 2)
    light = LightIndex.build(documents).search_texts(queries, 1000, 2)
    pairs = []
    for theirs, ours in zip(lucene, light, strict=True):
        own = dict(zip(ours.documents.tolist(), ours.scores.tolist(), strict=True))
        chosen = np.linspace(0, len(theirs.documents) - 1, 10).astype(int)
        pairs += [(float(theirs.scores[at]), own[int(theirs.documents[at])]) for at in chosen]
    assert len(pairs) == 1000
    differences = np.abs(np.diff(np.array(pairs), axis=1))
    assert differences.max() < 5e-5


def test_short_documents_score_as_bm25s_itself_scores_them():
    """Up to 39 terms Lucene's length code is exact, so bm25s's own index gives the same scores."""
    terms = [analyze_english(text) for text in TEXTS if text]
    theirs = bm25s.BM25(k1=0.9, b=0.4, method="lucene")
    theirs.index(terms, show_progress=False)
    ours = LightIndex.build([text for text in TEXTS if text])
    for query in ("quick fox", "run", "brown quick home"):
        expected = theirs.get_scores(analyze_english(query))
        found, scores, counts = ours.search([query], len(terms))
        np.testing.assert_allclose(scores[0, : counts[0]], expected[found[0, : counts[0]]], atol=1e-6)
        assert counts[0] == (expected > 0).sum()


def test_the_matrix_is_usable_by_bm25s():
    index = LightIndex.build(TEXTS)
    theirs = bm25s.BM25(k1=index.k1, b=index.b, method="lucene", backend="numba")
    matrix = {"data": index.scores, "indices": index.postings.documents, "indptr": index.postings.ends}
    theirs.scores, theirs.nonoccurrence_array = matrix | {"num_docs": len(index)}, None
    theirs.vocab_dict, theirs.unique_token_ids_set = (vocabulary := index.postings.vocabulary), set(vocabulary.values())
    documents, scores = theirs.retrieve([analyze_english("quick fox")], k=3, show_progress=False)
    _, ours, counts = index.search(["quick fox"], 3)
    assert counts[0] == 3
    np.testing.assert_allclose(scores[0], ours[0], atol=1e-6)


def test_repeated_query_terms_count_twice():
    index = LightIndex.build(TEXTS)
    (_, once, _), (_, twice, _) = index.search(["quick"], 1), index.search(["quick quick"], 1)
    assert twice[0, 0] == pytest.approx(2 * once[0, 0])


def test_queries_without_terms_have_no_hits():
    _, _, counts = LightIndex.build(TEXTS).search(["", "the", "zebra", "fox"], 4)
    assert counts.tolist() == [0, 0, 0, 4]


def test_no_texts_at_all():
    _, _, counts = LightIndex.build([""]).search(["fox"], 4)
    assert counts.tolist() == [0]


@given(st.data())
def test_search_is_the_sorted_sum(data):
    """Against a plain sum and sort: scores descending, equal scores by number, any depth, any number of threads."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    total, terms = int(rng.integers(1, 3000)), 6
    columns = [np.sort(rng.choice(total, int(rng.integers(0, total + 1)), replace=False)) for _ in range(terms)]
    ends = np.concatenate([[0], np.cumsum([len(column) for column in columns])]).astype(np.int64)
    scores = rng.integers(1, 4, ends[-1]).astype(np.float32) / 8
    asked = [rng.choice(terms, int(rng.integers(0, terms)), replace=False) for _ in range(4)]
    sizes = np.concatenate([[0], np.cumsum([len(rows) for rows in asked])]).astype(np.int64)
    depth = data.draw(st.sampled_from([1, 2, 7, 300, 5000]))
    found, best, counts = search_terms(
        ends,
        np.concatenate(columns).astype(np.int32),
        scores,
        sizes,
        np.concatenate(asked).astype(np.int64),
        np.ones(sizes[-1], np.float32),
        total,
        depth,
        data.draw(st.sampled_from([1, 2])),
    )
    for query, rows in enumerate(asked):
        sums = np.zeros(total)
        for row in rows:
            sums[columns[row]] += scores[ends[row] : ends[row + 1]]
        order = np.lexsort((np.arange(total), -sums))[: min(depth, int((sums > 0).sum()))]
        assert counts[query] == len(order)
        assert found[query, : len(order)].tolist() == order.tolist()
        np.testing.assert_array_equal(best[query, : len(order)], sums[order].astype(np.float32))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.data())
def test_the_kth_greatest_is_that_of_the_sorted_values(values, data):
    k = data.draw(st.integers(1, len(values)))
    array = np.array(values, np.float32)
    assert greatest(array, k) == sorted(values)[-k]
    assert sorted(array[:k].tolist()) == sorted(values)[-k:], "the greatest come to the front"


@pytest.mark.parametrize("module", [kernels, topk])
def test_compiled_loops_go_without_what_compiles_for_seconds(module):
    code = ast.unparse(ast.parse(Path(module.__file__).read_text()).body[1:])
    assert not re.findall(r"np\.(?:sort|argsort|partition|unique)|numba\.prange|parallel=True", code)


def test_zero_k1_ignores_counts():
    postings = count_terms([["a", "a"], ["a", "b"], ["b"]])
    assert len(set(term_scores(postings, 0.0, 0.4).tolist())) == 1
