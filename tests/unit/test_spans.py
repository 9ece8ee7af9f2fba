"""Spans of documents: sentences, merging, what is dropped, and the stage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.encoder_helpers import make_collection
from tests.unit.training_helpers import seal, tiny_model, words

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.errors import CollectionError, ConfigError
from zerodr.mining.cut import draws_for, joined, merge, sentences_of, sentences_of_all

OUT = "results/spans/manifest.json"


def never() -> float:
    return 1.0


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "He saw Fig. 3 e.g. here. Dr. Smith left at 5 p.m. on Monday.",
            ["He saw Fig. 3 e.g. here.", "Dr. Smith left at 5 p.m. on Monday."],
        ),
        ("A heading\n\nTwo   words\nand more. End", ["A heading", "Two words and more.", "End"]),
        ("今天很好。去公园吧！好吗？“好的。”他说。", ["今天很好。", "去公园吧！", "好吗？", "“好的。”他说。"]),
        ("वह आया है। वह गया है॥ क्या? हाँ।", ["वह आया है।", "वह गया है॥", "क्या?", "हाँ।"]),
        ("هل تحب القطط؟ نعم (حقا؟) أحبها.", ["هل تحب القطط؟", "نعم (حقا؟) أحبها."]),
        (
            "one jet . it mixes (see fig. 3) . does it?  'yes.'",
            ["one jet .", "it mixes (see fig. 3) .", "does it?", "'yes.'"],
        ),
        ("so groß. ßen bleibt, ŉ auch. und gut", ["so groß. ßen bleibt, ŉ auch.", "und gut"]),
        ("One jet . it mixes. it does not.", ["One jet . it mixes. it does not."]),
        ("", []),
        (" \n ", []),
        ("no end", ["no end"]),
    ],
    ids=str,
)
def test_sentences(text, expected):
    assert sentences_of(text) == expected


def test_a_title_is_the_first_sentence():
    assert sentences_of_all([("A  title", "One. Two."), (" ", "One."), ("T", "")]) == [
        ["A title", "One.", "Two."],
        ["One."],
        ["T"],
    ]


def test_merging_is_greedy():
    assert merge([10, 15, 6, 40, 3, 27, 1], 30, 0.0, never) == [
        range(0, 2),
        range(2, 3),
        range(3, 4),
        range(4, 6),
        range(6, 7),
    ]
    assert merge([1, 1, 1], 30, 1.0, lambda: 0.999) == [range(0, 1), range(1, 2), range(2, 3)]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=30),
    limit=st.integers(2, 60),
    early=st.floats(0, 1),
    seed=st.integers(0, 9),
)
def test_spans_cover_all_sentences_and_only_single_ones_are_long(lengths, limit, early, seed):
    parts = merge(lengths, limit, early, draws_for("d", seed))
    assert [place for part in parts for place in part] == list(range(len(lengths)))
    assert all(sum(lengths[place] for place in part) <= limit or len(part) == 1 for part in parts)
    assert parts == merge(lengths, limit, early, draws_for("d", seed))


def test_two_short_sentences_are_mostly_one_span():
    """A document of two sentences below 30 tokens is dropped with probability 0.9."""
    parts = [len(merge([10, 10], 30, 0.1, draws_for(f"d{number}", 13))) for number in range(4000)]
    assert np.mean(np.array(parts) == 1) == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 4000))


def test_east_asian_sentences_are_joined_without_space():
    assert joined(["好吗？", "好的。", "Yes.", "No."]) == "好吗？好的。Yes. No."
    assert joined(["क्या?", "हाँ।", "नहीं।"]) == "क्या? हाँ। नहीं।"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(2)
    documents = [
        ("empty", "", ""),
        ("one", "A title", "aaaa bbbb cccc."),
        ("short", "", "Ab\n\n" + "Bcde fghi jklm. " * 2),
    ]
    for number in range(600):
        text = " ".join(f"{words(generator, 1, 4).capitalize()}." for _ in range(generator.integers(2, 6)))
        documents.append((f"d{number}", f"title {number}", text))
    make_collection(tmp_path / "results/corpus", documents)
    make_collection(tmp_path / "results/titles", [(f"t{i}", "Aaaa bbbb", "cccc dddd") for i in range(50)])
    seal(tiny_model(tmp_path / "results/init"))
    return tmp_path


def spec(collection: str = "corpus", place: str = "spans", threads: int = 1, seed: int = 13, **params) -> StageSpec:
    inputs = {"collection": f"results/{collection}/manifest.json", "model": "results/init/manifest.json"}
    return StageSpec(
        "cut_spans",
        1,
        {"collection": collection},
        inputs,
        {"spans": f"results/{place}/manifest.json"},
        params,
        seed,
        threads,
    )


def rows(place: str = "spans") -> dict[str, list[str]]:
    table = pq.read_table(f"results/{place}/spans.parquet")
    return dict(zip(table["id"].to_pylist(), table["spans"].to_pylist(), strict=True))


def test_the_stage(project):
    run_spec(spec(early_split=0.1))
    made, facts = rows(), json.loads(Path("results/spans/statistics.json").read_text())
    texts = dict(
        zip(*(pq.read_table("results/corpus/corpus.parquet")[name].to_pylist() for name in ("id", "text")), strict=True)
    )
    assert all(len(spans) >= 2 and " ".join(spans) == " ".join(texts[name].split()) for name, spans in made.items())
    assert list(made) == [name for name in texts if name in made]
    assert facts["dropped"]["empty"] == 1 and facts["dropped"]["one_sentence"] >= 1
    assert facts["documents"] == len(texts) == facts["kept"] + sum(facts["dropped"].values())
    assert facts["kept"] == len(made) and facts["drop_rate"] == pytest.approx(1 - len(made) / len(texts))
    spans = [span for own in made.values() for span in own]
    tokens = [sum(len(word.strip(".")) + word.count(".") for word in span.split()) for span in spans]
    assert facts["tokens_per_span"] == pytest.approx(np.mean(tokens))  # a letter and a full stop are a token each
    assert facts["longer_than_max_tokens"] == sum(length > 30 for length in tokens)
    assert sum(part["count"] for part in facts["histogram_tokens"]) == facts["spans"] == len(spans)
    assert sum(part["count"] for part in facts["histogram_spans"]) == len(made)
    assert [metric["value"] for metric in read_record(OUT)["metrics"] if metric["name"] == "kept"] == [len(made)]


def test_a_first_span_of_two_tokens_drops_the_document(project):
    run_spec(spec(early_split=1.0))
    facts = json.loads(Path("results/spans/statistics.json").read_text())
    assert "short" not in rows() and facts["dropped"]["short_start"] == 1


def test_processes_and_blocks_do_not_matter_but_the_seed_does(project, monkeypatch):
    import zerodr.mining.spans as module

    run_spec(spec())
    monkeypatch.setattr(module, "BLOCK", 100)
    monkeypatch.setattr(module, "TASK", 7)
    run_spec(spec(place="two", threads=2))
    run_spec(spec(place="other", seed=14))
    bytes_of = [Path(f"results/{name}/spans.parquet").read_bytes() for name in ("spans", "two", "other")]
    assert bytes_of[0] == bytes_of[1] != bytes_of[2]


def test_titles_may_be_sentences(project):
    with pytest.raises(
        CollectionError,
        match="titles: none of its 50 documents gives two spans .drop rate 100 %: "
        "one_sentence 50. with max_tokens 30, early_split 0.1: lower max_tokens, raise early_split, or "
        "set title: join",
    ):
        run_spec(spec("titles"))
    assert not Path(OUT).exists()
    run_spec(spec("titles", title="join", max_tokens=8))
    assert set(map(tuple, rows().values())) == {("Aaaa bbbb", "cccc dddd")} and len(rows()) == 50
    with pytest.raises(CollectionError, match="one_span"):
        run_spec(spec("titles", title="join", early_split=0.0))


@pytest.mark.parametrize(
    "params, message",
    [({"max_tokens": 1}, "max_tokens"), ({"early_split": 2}, "early_split"), ({"titel": "join"}, "did you mean title")],
)
def test_bad_settings(project, params, message):
    with pytest.raises(ConfigError, match=message):
        run_spec(spec(**params))
