"""Units of passages: sentences, tokens, truncation, the two stages, and input that is refused or counted."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.training_helpers import seal, tiny_model
from tests.unit.unit_helpers import CHINESE, QUERIES, label, lay_out, segment, sentences

from zerodr.config.base import validate
from zerodr.encoders.inference.encoder import load_encoder
from zerodr.encoders.network.tokenizing import Call, load_tokenizer
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.errors import ArtifactError, CollectionError, ConfigError, ModelError
from zerodr.papers.berm.answers import has_answers, read_answers
from zerodr.papers.berm.segment_units import UnitCutter
from zerodr.papers.berm.settings import BermSettings, CutSettings, UnitSettings
from zerodr.papers.berm.unit_scores import IGNORED, UnitScorer, essential_unit, hybrid
from zerodr.papers.berm.unit_spans import Token, Unit, by_count, by_full_stop, by_spans, merged, rule_spans
from zerodr.papers.berm.unit_table import READ_SCHEMA

PARIS = "Paris is the capital of France. It has many museums! It costs 3.5 euros"


def cut(text: str, begin: int = 0) -> list[str]:
    return [text[start:end].strip() for start, end in rule_spans(text, begin)]


def tokens_of(text: str) -> list[Token]:
    """A token for each word and each full stop; 7 is the full stop's id."""
    import re

    return [
        Token(place + 1, 7 if match.group() == "." else 9, *match.span())
        for place, match in enumerate(re.finditer(r"[^\s.]+|\.", text))
    ]


def test_units_by_rule():
    assert cut(PARIS) == ["Paris is the capital of France.", "It has many museums!", "It costs 3.5 euros"]


def test_units_by_full_stop():
    tokens = tokens_of(PARIS)
    units = by_full_stop(tokens, 7)
    assert [PARIS[unit.start : unit.end] for unit in units] == [
        "Paris is the capital of France",
        "It has many museums! It costs 3",
    ]
    assert units[0][2:] == (1, 7)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("He saw Fig. 3 e.g. here. Dr. Smith left.", ["He saw Fig. 3 e.g. here.", "Dr. Smith left."]),
        ("A line\nand another. End", ["A line", "and another.", "End"]),
        ("今天很好。去公园吧！好吗？“好的。”他说。", ["今天很好。", "去公园吧！", "好吗？", "“好的。”他说。"]),
        ("वह आया है। वह गया है॥ क्या? हाँ।", ["वह आया है।", "वह गया है॥", "क्या?", "हाँ।"]),
        ("هل تحب القطط؟ نعم (حقا؟) أحبها.", ["هل تحب القطط؟", "نعم (حقا؟) أحبها."]),
        ("他来了吗?来了!好", ["他来了吗?", "来了!", "好"]),
        ("no boundary at all", ["no boundary at all"]),
        ("the jet mixes . it spreads (see fig. 3) . why?", ["the jet mixes .", "it spreads (see fig. 3) .", "why?"]),
        ("", []),
    ],
    ids=str,
)
def test_sentences(text, expected):
    assert cut(text) == expected


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab .!?\n。3'\t", max_size=60), st.integers(0, 5))
def test_spans_cover_the_text_without_gap_or_overlap(text, begin):
    spans = rule_spans(text, begin)
    assert "".join(text[start:end] for start, end in spans) == text[begin:]
    assert all(start < end for start, end in spans)


def test_tokens_go_to_the_unit_of_their_first_letter():
    text = "One two. Three"
    tokens = [Token(1, 0, 0, 3), Token(2, 0, 3, 7), Token(3, 0, 7, 8), Token(4, 0, 8, 14)]  # " Three" begins at a space
    assert by_spans(tokens, [(0, 9), (9, 14)], text) == [Unit(0, 9, 1, 4), Unit(9, 14, 4, 5)]


def test_a_cut_unit_ends_with_its_last_token_and_lost_ones_are_gone():
    text = "One two. Three four. Five"
    tokens = [token for token in tokens_of(text) if token.start < 14]
    assert by_spans(tokens, rule_spans(text), text) == [Unit(0, 9, 1, 4), Unit(9, 14, 4, 5)]


def test_many_units_are_merged_into_the_last():
    units = by_count([Token(place, 0, place, place + 1) for place in range(1, 8)], 2)
    assert [unit[2:] for unit in units] == [(1, 3), (3, 5), (5, 7), (7, 8)]
    assert [unit[2:] for unit in merged(units, 2)] == [(1, 3), (3, 8)]


def scorer(mean: float, holders: dict[str, int] | None = None) -> UnitScorer:
    known = holders or {"capital": 10, "france": 20, "paris": 15, "the": 900, "of": 900, "is": 800}
    return UnitScorer(1000, lambda term: known.get(term, 0), mean)


def as_released(query: list[str], units: list[list[str]]) -> list[float]:
    """The released code's formula: times the length factor instead of over it, no term frequency, another idf."""
    known = scorer(100.0)
    idf = {term: math.log(known.documents / (known.holders(term) + 1)) for term in query}
    long = [1 - known.b + known.b * len(unit) / 100 for unit in units]
    return [
        sum(idf[term] for term in query if term in unit) * (known.k1 + 1) / known.k1 * factor
        for unit, factor in zip(units, long, strict=True)
    ]


def test_bm25():
    sentences = ["france is a country in europe", "the capital of france is paris", "it has many museums"]
    query, units = "what is the capital of france".split(), [sentence.split() for sentence in sentences]
    scores = scorer(16 / 3).scores(query, units)
    assert scores.tolist() == pytest.approx([3.892874, 8.407893, 0.0], abs=1e-6)
    assert essential_unit(scores) == 1
    wrong = as_released(query, units)
    assert wrong == pytest.approx([2.008521, 4.328381, 0.0], abs=1e-6)
    assert all(abs(own - other) > 1 for own, other in zip(scores[:2], wrong[:2], strict=True))


def test_longer_units_score_lower():
    """With the released formula it is the other way round."""
    units = [["france", "a", "b"], ["france", *["a"] * 200]]
    scores = scorer(100.0).scores(["france"], units)
    assert scores.tolist() == pytest.approx([6.900, 2.673], abs=1e-3)
    assert as_released(["france"], units) == pytest.approx([1.755, 11.316], abs=1e-3)
    assert essential_unit(scores) == 0 and essential_unit(np.array(as_released(["france"], units))) == 1


def test_labels_of_units():
    bm25, reader = np.array([3.0, 3.05]), np.array([0.9, 0.1])
    assert hybrid(bm25, reader, 0.1).tolist() == pytest.approx([3.09, 3.06])
    assert essential_unit(hybrid(bm25, reader, 0.1)) == 0 and essential_unit(hybrid(bm25, None, 0.1)) == 1
    assert essential_unit(np.zeros(3)) == IGNORED and essential_unit(np.array([4.0])) == IGNORED
    assert essential_unit(np.array([1.0, 2.0, 2.0])) == 1
    assert essential_unit(np.zeros(3), "first") == 0, "as the released code's argmax"
    assert essential_unit(np.array([0.0]), "first") == IGNORED and essential_unit(np.array([0.0, 1.0]), "first") == 1


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return lay_out(tmp_path_factory.mktemp("units"))


@pytest.fixture
def project(built, tmp_path, monkeypatch) -> Path:
    import shutil

    shutil.copytree(built / "results", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows_of(folder: Path, name: str = "units.parquet") -> dict[str, dict]:
    return {row["document"]: row for row in pq.read_table(folder / name).to_pylist()}


def test_segmentation_names_characters_and_tokens(project):
    folder = segment()
    rows, corpus = (
        rows_of(folder),
        {row["id"]: row for row in pq.read_table("results/source/corpus.parquet").to_pylist()},
    )
    assert len(rows) == QUERIES
    for number in range(QUERIES - 1):
        text = " ".join(filter(None, (corpus[f"d{number}"]["title"], corpus[f"d{number}"]["text"])))
        row = rows[f"d{number}"]
        cuts = [text[a:b].strip() for a, b in zip(row["char_start"], row["char_end"], strict=True)]
        assert cuts == sentences(number)
        ids = load_encoder(project / "results/init", device="cpu").tokenize([text], max_tokens=64)[0]
        whole = sum(b - a for a, b in zip(row["token_start"], row["token_end"], strict=True))
        title = 0 if not number % 2 else row["token_start"][0] - 1
        assert whole + title + 2 == len(ids) and row["token_end"][-1] == len(ids) - 1
    facts = json.loads((folder / "statistics.json").read_text())
    assert (facts["with_units"], facts["with_one_unit"], facts["without_boundary"]) == (QUERIES - 1, 1, 1)


def test_units_of_lowered_texts_have_the_tokens_of_training(tmp_path):
    tiny_model(tmp_path)
    text, model = "[MASK] The sea is red. The moon [SEP] is here.", BiEncoder.load(tmp_path)
    ids = Call(limit=32, lowercase=True).ids(model.tokenizer, [text])[0]
    contract = model.contract.model_copy(update={"lowercase": True})
    units = UnitCutter(load_tokenizer(tmp_path), contract, CutSettings(), " ").cut([""], [text])[0]
    tokens = [model.tokenizer.convert_ids_to_tokens(ids[unit.first : unit.stop]) for unit in units]
    assert [text[unit.start : unit.end] for unit in units] == ["[MASK] The sea is red. ", "The moon [SEP] is here."]
    assert tokens[0][0] == "[MASK]"
    assert "[SEP]" in tokens[1] and units[1].stop == len(ids) - 1


def test_truncation_loses_units_and_says_so(tmp_path, monkeypatch, caplog):
    lay_out(tmp_path, tokens=16)
    monkeypatch.chdir(tmp_path)
    facts = json.loads((segment() / "statistics.json").read_text())
    assert facts["truncated"] > 0 and facts["units_lost_by_truncation"] > 0
    (told,) = [record.message for record in caplog.records if "lost" in record.message]
    assert told.startswith(f"source: {facts['units_lost_by_truncation']} units are lost, they lie behind the first 16 ")
    assert told.endswith(f"({facts['truncated']} of 40 passages are truncated)")
    for row in rows_of(Path("results/units")).values():
        assert all(end <= 15 for end in row["token_end"])


def test_chinese_passages_are_cut_and_labelled_by_punctuation(tmp_path, monkeypatch, caplog):
    """Full stops, exclamation and question marks without spaces end units; bigrams find the one that is asked for."""
    lay_out(tmp_path, language="zh")
    monkeypatch.chdir(tmp_path)
    tokenizer = load_encoder(tmp_path / "results/init", device="cpu").tokenizer
    rows = rows_of(segment())
    for key, (title, parts) in CHINESE.items():
        text, row = " ".join(filter(None, (title, "".join(parts)))), rows[key]
        cuts = [text[a:b] for a, b in zip(row["char_start"], row["char_end"], strict=True)]
        assert cuts == parts
        (ids,) = Call(limit=64).ids(tokenizer, [text])
        own = [ids[a:b] for a, b in zip(row["token_start"], row["token_end"], strict=True)]
        assert own == Call().ids(tokenizer, parts)
    assert not [record for record in caplog.records if "lost" in record.message]
    facts = json.loads(Path("results/units/statistics.json").read_text())
    assert facts["histogram_units"] | {"1": 1, "3": 1, "4": 1} == facts["histogram_units"] and facts["units"] == 8
    labels = {row["query"]: row for row in pq.read_table(label() / "labels.parquet").to_pylist()}
    assert {key: row["label"] for key, row in labels.items()} == {"q0": 0, "q1": 3, "q2": 1, "q3": -100, "q4": -100}
    assert [score > 0 for score in labels["q0"]["bm25"]] == [True, False, False, False]
    facts = json.loads(Path("results/labels/statistics.json").read_text())
    assert facts["ignored"] == {"few_units": 1, "no_overlap": 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"segmenter": "full_stop"},
        {"segmenter": "fixed_tokens", "tokens_per_unit": 5},
        {"max_units": 2},
        {"min_tokens": 30},
    ],
    ids=str,
)
def test_other_ways_to_cut(project, changes):
    if changes.get("min_tokens"):
        with pytest.raises(CollectionError, match="none of its 40 positives has two units"):
            segment(**changes)
        return
    rows = rows_of(segment(**changes)).values()
    for row in rows:
        starts, ends = row["token_start"], row["token_end"]
        assert all(a < b for a, b in zip(starts, ends, strict=True))
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
        assert len(starts) <= changes.get("max_units", 32)
        assert "tokens_per_unit" not in changes or all(b - a == 5 for a, b in zip(starts[:-1], ends[:-1], strict=True))


def test_labels_find_the_sentence_that_the_query_asks_for(project):
    segment()
    table = pq.read_table(label() / "labels.parquet")
    assert table.schema.names == ["query", "document", "bm25", "reader", "hybrid", "label", "units"]
    rows = {row["query"]: row for row in table.to_pylist()}
    assert [rows[f"q{i}"]["label"] for i in range(QUERIES - 1)] == [i % 3 for i in range(QUERIES - 1)]
    assert rows[f"q{QUERIES - 1}"]["label"] == IGNORED
    facts = json.loads(Path("results/labels/statistics.json").read_text())
    assert facts["ignored"] == {"few_units": 1, "no_overlap": 0} and facts["bm25_holds_answer"] == 1.0
    assert facts["random_guess"] == pytest.approx(1 / 3)
    lines = Path("results/labels/examples.tsv").read_text().splitlines()
    assert lines[0].split("\t")[:4] == ["query", "document", "unit", "essential"] and "*" in lines[1].split("\t")


def test_answers_can_be_the_labels(project):
    segment()
    labels = pq.read_table(label(by="answers") / "labels.parquet")["label"].to_pylist()
    assert labels == [*(i % 3 for i in range(QUERIES - 1)), IGNORED]
    (project / "results/source/answers.parquet").unlink()
    seal(project / "results/source")
    with pytest.raises(CollectionError, match="has no answers, by which its units are to be labelled"):
        label(by="answers")


def make_read(folder: Path, favourite: int, drop: int = 0) -> None:
    """Reader scores that favour one unit of every document."""
    units = rows_of(Path("results/units"))
    rows = []
    for number in range(QUERIES):
        scores = np.zeros(len(units[f"d{number}"]["char_start"]))
        scores[min(favourite, len(scores) - 1)] = 1.0
        rows.append({"query": f"q{number}", "document": f"d{number}", "scores": scores[: len(scores) - drop]})
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, READ_SCHEMA), folder / "reader_scores.parquet")
    seal(folder)


def test_a_reader_joins_bm25_by_delta(project):
    segment()
    make_read(project / "results/read", 2)
    weak = pq.read_table(label("weak", read="read") / "labels.parquet")
    strong = pq.read_table(label("strong", read="read", delta=100.0) / "labels.parquet")
    assert weak["label"].to_pylist()[: QUERIES - 1] == [i % 3 for i in range(QUERIES - 1)]
    assert strong["label"].to_pylist()[: QUERIES - 1] == [2] * (QUERIES - 1)
    row = strong.to_pylist()[0]
    np.testing.assert_allclose(row["hybrid"], np.array(row["bm25"]) + 100 * np.array(row["reader"]), rtol=1e-6)
    assert json.loads(Path("results/strong/statistics.json").read_text())["changed_by_reader"] > 0


def test_reader_scores_of_other_units_are_refused(project):
    segment()
    make_read(project / "results/read", 1, drop=1)
    with pytest.raises(ArtifactError, match="has 3 units of d0, of which the reader scored 2 for query q0"):
        label(read="read")


def test_units_of_another_title_join_are_refused(project):
    segment()
    with pytest.raises(ArtifactError, match="title is joined by another string than None"):
        label(title_join=None)


def test_full_stop_needs_a_full_stop_in_the_vocabulary(project):
    seal(tiny_model(project / "results/letters"))
    with pytest.raises(ModelError, match="no token for a full stop"):
        segment(model="letters", segmenter="full_stop")


def test_answers_that_stand_elsewhere_are_left_out(project, caplog):
    source = Path("results/source")
    table = pq.read_table(source / "answers.parquet").to_pylist()
    texts = {row["id"]: row["text"] for row in pq.read_table(source / "corpus.parquet").to_pylist()}
    table[0]["answers"][0]["start"] += 1
    pq.write_table(pa.Table.from_pylist(table, pq.read_schema(source / "answers.parquet")), source / "answers.parquet")
    answers = read_answers(source, "train", texts)
    assert answers.displaced == 1 and ("q0", "d0") not in answers.spans and "q0" in answers.texts
    assert "1 answers do not stand where" in caplog.text
    caplog.clear()
    some = read_answers(source, "train", {"d1": texts["d1"]})
    assert some.displaced == 0 and {document for _, document in some.spans} == {"d1"} and not caplog.text
    assert has_answers(source) and has_answers(source, "train") and not has_answers(source, "dev")
    with pytest.raises(CollectionError, match="none of its 40 answers stands"):
        read_answers(source, "train", dict.fromkeys(texts, ""))
    with pytest.raises(CollectionError, match=r"has no answers \(have: train\)"):
        read_answers(source, "dev", texts)


@pytest.mark.parametrize(
    "kind, value, said",
    [
        (CutSettings, {"segmenter": "fixed_tokens"}, "needs tokens_per_unit"),
        (CutSettings, {"tokens_per_unit": 4}, "only it uses it"),
        (UnitSettings, {"label": {"delta": 0.2}}, "reader is not set"),
        (UnitSettings, {"label": {"by": "answers"}, "reader": "reader"}, "leave reader out"),
        (BermSettings, {"w_r1": 0.0, "preset": "released_dpr"}, "both 0"),
        (BermSettings, {"preset": "offical_ance"}, "preset"),
        (BermSettings, {"preset": "released_ance", "heavier": "r2"}, "heavier has no effect"),
    ],
    ids=str,
)
def test_settings_that_can_not_be_meant(kind, value, said):
    with pytest.raises(ConfigError, match=said):
        validate(kind, value, "units")


def test_presets_and_schedules():
    assert BermSettings().weights(0) == (1.0, 0.1) and BermSettings(heavier="r2").weights(0) == (0.1, 1.0)
    assert BermSettings(heavier="r2").how[:2] == BermSettings().how[:2] == ("sum", 1), (
        "the paper's forms in both orders"
    )
    assert "heavier" not in BermSettings(heavier="r1").model_dump(), "models that were made before stay"
    released = BermSettings(preset="released_dpr")
    assert released.weights(10**6) == (1.0, 0.0) and released.how.softmaxes == 2
    schedule = BermSettings(preset="released_dpr_schedule")
    found = [schedule.weights(step)[1] for step in (0, 19999, 20000, 39999, 40000, 49999, 50000)]
    assert found == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.1]
    assert math.isclose(BermSettings(w_r1=0.0).weights(3)[0], 0.0)
