"""Stored tokens: those of the tokenizer, whoever stored them; whole segments or none; used by every kind of job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoder_helpers import embed_spec, import_spec, make_collection, tiny_bert
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.pretraining_helpers import batch_of, forward, lay_out
from tests.unit.training_helpers import load_tiny, tiny_examples, tiny_model

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import run_spec
from zerodr.encoders.inference import token_store
from zerodr.encoders.inference.token_store import TokenStore, call_facts
from zerodr.encoders.network.tokenizing import Call, load_tokenizer
from zerodr.training.data.batches import Stream
from zerodr.training.data.tokens import SharedTokens
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.gradcache import Forward

FACTS = {"tokenizer": "letters"}


def letters(seen: list[str] | None = None, width: int = 1) -> Callable[[list[str]], list[Any]]:
    """A tokenizer of letters that notes what it is asked."""

    def tokenize(texts: list[str]) -> list[Any]:
        if seen is not None:
            seen.extend(texts)
        rows = [np.array([ord(letter) for letter in text], np.int64) for text in texts]
        return rows if width == 1 else [np.stack([row + number for number in range(width)], 1) for row in rows]

    return tokenize


@pytest.fixture(autouse=True)
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_store, "WORTH", 1)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.arrow"))


@settings(max_examples=30, deadline=None)
@given(
    calls=st.lists(st.lists(st.text(max_size=8), max_size=12), max_size=6),
    width=st.integers(1, 4),
    segment=st.sampled_from([1, 60, 10**6]),
)
def test_rows_are_those_of_the_tokenizer(tmp_path_factory, calls, width, segment):
    folder, seen = tmp_path_factory.mktemp("tokens"), list[str]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(token_store, "SEGMENT", segment)
        stores = [TokenStore(folder, FACTS, width) for _ in range(2)]
        for number, texts in enumerate([*calls, *calls]):
            rows, expected = stores[number % 2].of(texts, letters(seen, width)), letters(width=width)(texts)
            assert len(rows) == len(texts)
            assert all(np.array_equal(a, b) and a.dtype == np.int32 for a, b in zip(rows, expected, strict=True))
        for store in stores:
            store.close()
    every = {text for texts in calls for text in texts}
    later = TokenStore(folder, FACTS, width)
    stored = later.of(sorted(every), letters([], width))
    assert [row.tolist() for row in stored] == [row.tolist() for row in letters(width=width)(sorted(every))]
    if any(every):
        assert later.tokenized <= 1  # of only empty texts nothing is stored


def test_another_job_tokenises_only_what_is_new(tmp_path):
    first = TokenStore(tmp_path, FACTS)
    first.of(["one", "two", "two"], letters())
    first.close()
    seen: list[str] = []
    second = TokenStore(tmp_path, FACTS)
    rows = second.of(["two", "three", "one", "three"], letters(seen))
    assert seen == ["three"] and second.tokenized == 1
    assert [bytes(row.astype(np.uint8)) for row in rows] == [b"two", b"three", b"one", b"three"]


def test_what_is_not_written_yet_is_known(tmp_path):
    store, seen = TokenStore(tmp_path, FACTS), list[str]()
    store.of(["one"], letters(seen))
    store.of(["one"], letters(seen))
    assert seen == ["one"] and not segments(tmp_path)


def test_few_tokens_are_not_worth_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(token_store, "WORTH", 100)
    store = TokenStore(tmp_path, FACTS)
    store.of(["few"], letters())
    store.close()
    assert not segments(tmp_path)


def test_a_killed_or_damaged_write_is_left_out(tmp_path, caplog):
    store = TokenStore(tmp_path, FACTS)
    store.of(["one"], letters())
    store.close()
    (path,) = segments(tmp_path)
    whole = path.read_bytes()
    path.with_name(f".{'0' * 32}.arrow.making").write_bytes(whole[:50])
    for damaged in (whole[: len(whole) // 2], b""):
        caplog.clear()
        path.write_bytes(damaged)
        seen: list[str] = []
        TokenStore(tmp_path, FACTS).of(["one"], letters(seen))
        assert seen == ["one"] and "delete it" in caplog.text
    path.unlink()
    assert TokenStore(tmp_path, FACTS).of(["one"], letters())[0].tolist() == [ord(letter) for letter in "one"]


def test_a_store_ends_at_its_share_of_the_disk_and_at_errors(tmp_path, monkeypatch, caplog):
    with caplog.at_level("INFO", "zerodr"), monkeypatch.context() as patched:
        patched.setattr(token_store, "SHARE", 0.0)
        store = TokenStore(tmp_path / "a", FACTS)
        store.of(["one"], letters())
        store.close()
        assert not segments(tmp_path) and "may have a tenth of the free disk" in caplog.text
    (tmp_path / "b").write_text("no folder")
    store = TokenStore(tmp_path / "b", FACTS)
    store.of(["one"], letters())
    store.close()
    assert store.full and store.of(["two"], letters())[0].tolist() == [ord(letter) for letter in "two"]


def test_facts_tell_tokenizers_and_calls_apart_but_not_earlier_calls(tmp_path):
    tokenizer = load_tokenizer(tiny_model(tmp_path / "model"))
    facts = call_facts(tokenizer, Call("", 16))
    tokenizer(["a text"], truncation=True, max_length=3, padding=True)
    assert facts is not None and call_facts(tokenizer, Call("", 16)) == facts
    others = [call_facts(tokenizer, Call(*call)) for call in (("q ", 16, False), ("", 17, False), ("", 16, True))]
    tokenizer.add_tokens(["newword"])
    others.append(call_facts(tokenizer, Call("", 16)))
    tokenizer.split_special_tokens = True
    others.append(call_facts(tokenizer, Call("", 16)))
    assert others[-1] != others[-2]
    assert all(other != facts for other in others) and call_facts(object(), Call("", 16)) is None


def test_embeddings_of_a_second_model_tokenise_nothing_and_have_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = str(tiny_bert(tmp_path / "source"))
    for name in ("tiny", "other"):
        run_spec(import_spec(source, name))
    make_collection(
        Path("results/collections/small"), [(f"d{n}", "", f"text {n}") for n in range(30)], [("q", "words")]
    )
    specs = [embed_spec("small", model=name) for name in ("tiny", "other")]
    for spec in specs:
        run_spec(spec)
    first, second = (Path(spec.outputs["embeddings"]) for spec in specs)
    assert len(segments(Path("results/.state/tokens"))) == 1 and first.read_bytes() == second.read_bytes()
    notes = [(read_record(path) or {})["notes"]["tokenized"] for path in (first, second)]
    assert notes == [30, 0]


def digests(views: Any) -> list[list[int]]:
    return [row.tolist() for row in [*views.tokens, *views.targets, *views.marks]]


@pytest.mark.parametrize(
    "name, balance",
    [("coco", None), ("mlm", None), ("coco", {"cut": {"segmenter": "fixed_tokens", "tokens_per_unit": 3}})],
)
def test_views_of_pretraining_are_the_same(tmp_path, name, balance):
    lay_out(tmp_path)
    plain = [digests(forward(tmp_path, name, balance=balance).maker.make(batch_of(step))) for step in range(2)]
    for attempt in range(2):
        used = forward(tmp_path, name, balance=balance)
        store = used.maker.take_stored(tmp_path / "tokens")
        assert [digests(used.maker.make(batch_of(step))) for step in range(2)] == plain
        assert store is not None and (store.tokenized == 0) == bool(attempt)
        store.close()


def test_batches_of_finetuning_are_the_same_and_no_epoch_tokenises_again(tmp_path, monkeypatch):
    monkeypatch.setattr("zerodr.training.data.tokens.MEMORY", 0)
    monkeypatch.setattr(token_store, "SEGMENT", 64)
    examples, model = tiny_examples(tmp_path), load_tiny(tiny_model(tmp_path / "model"))
    stream = Stream(examples, np.arange(8), 8, 2, [0])
    plain = [Forward(model, examples, "cpu").prepare(stream.batch(step), Group()).texts for step in range(3)]
    used = Forward(model, examples, "cpu", shared=SharedTokens(tmp_path / "tokens"))
    for step, texts in enumerate(plain):
        got = used.prepare(stream.batch(step), Group()).texts
        assert all(map(np.array_equal, got.tokens, texts.tokens)) and got.groups == texts.groups
    queries = used.shared.stores[0]
    assert queries.tokenized == 8  # of three epochs
    used.close()
    assert segments(tmp_path / "tokens")
