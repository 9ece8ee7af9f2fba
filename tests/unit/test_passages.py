"""Documents of several corpora: reading, the mixture, pairs of spans, held-out documents, views."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.unit.pretraining_helpers import SIZES, documents, forward, lay_out, make_spans, passages

from zerodr.errors import CollectionError, ConfigError, ModelError
from zerodr.training.pretraining.passages import (
    Passages,
    PassageStream,
    span_folders,
    split_documents,
    texts_of,
    two_spans,
    write_passages,
)
from zerodr.training.pretraining.views import ViewMaker, around, cloze


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    root = lay_out(tmp_path_factory.mktemp("passages"))
    passages(root)
    return root


def test_documents_are_found_by_number(world, monkeypatch):
    held = passages(world)
    rows = [(name, *row) for name in SIZES for row in documents(name, 1)]
    assert len(held) == 90 and held.corpora == SIZES
    numbers = np.array([89, 0, 59, 60, 0])
    assert held.spans(numbers) == [rows[number][2] for number in numbers]
    assert held.names(numbers) == [f"{rows[number][0]}/{rows[number][1]}" for number in numbers]
    assert held.spans(np.array([], np.int64)) == []
    assert held.rows_of("land").tolist() == list(range(60, 90))


def test_blocks_do_not_matter(world, tmp_path, monkeypatch):
    import zerodr.training.pretraining.passages as module

    monkeypatch.setattr(module, "BLOCK", 7)
    write_passages(tmp_path / "p.arrow", {name: module.spans_of(world / f"results/spans/{name}") for name in SIZES})
    other, held = Passages(tmp_path / "p.arrow"), passages(world)
    rows = np.random.default_rng(0).permutation(90)
    assert other.spans(rows) == held.spans(rows) and other.names(rows) == held.names(rows)


def test_whole_documents_of_a_collection(world, tmp_path):
    write_passages(tmp_path / "p.arrow", {"sea": texts_of(world / "results/collections/sea", " ")})
    held = Passages(tmp_path / "p.arrow")
    assert len(held) == 60 and held.spans(np.array([3])) == [
        [" . ".join(documents("sea", 1)[3][1])]
    ]  # the blank one is left out
    with pytest.raises(CollectionError, match="none: has no document to learn from"):
        write_passages(tmp_path / "q.arrow", {"none": iter(())})
    assert not (tmp_path / "q.json").exists()


def test_a_collection_is_given_once(tmp_path):
    folders = [make_spans(tmp_path / str(number), "sea") for number in (0, 1)]
    with pytest.raises(ConfigError, match="collection sea is given twice"):
        span_folders(folders)


def test_an_epoch_is_all_documents_of_all_corpora_once(world):
    stream = PassageStream(np.arange(90), 9, [13, 0])
    epochs = [np.concatenate([stream.batch(10 * epoch + step).rows for step in range(10)]) for epoch in (0, 1)]
    assert all(sorted(epoch) == list(range(90)) for epoch in epochs) and not np.array_equal(*epochs)
    again = PassageStream(np.arange(90), 9, [13, 0])
    assert np.array_equal(again.batch(13).rows, stream.batch(13).rows)
    assert np.array_equal(again.batch(13).draws, stream.batch(13).draws)
    assert not np.array_equal(again.batch(3).draws, stream.batch(13).draws)
    with pytest.raises(ConfigError, match="a batch of 100 documents is larger than the 90"):
        PassageStream(np.arange(90), 100, [13])


def test_corpora_are_mixed_in_proportion(world):
    """With 60 and 30 documents, two thirds of every few batches are of the first."""
    stream = PassageStream(np.arange(90), 9, [13, 0])
    shares = [np.mean(stream.batch(step).rows < 60) for step in range(400)]
    assert np.mean(shares) == pytest.approx(2 / 3) and np.std(shares) < 0.2


def test_two_spans_are_different_items_and_every_pair_is_as_likely():
    """Two different list items, uniformly without replacement, in either order."""
    spans, generator = ["a", "b", "c", "c"], np.random.default_rng(1)
    counts: dict[str, int] = {}
    for _ in range(12000):
        pair = "".join(two_spans(spans, generator.random(3)))
        counts[pair] = counts.get(pair, 0) + 1
    assert set(counts) == {"ab", "ac", "ba", "bc", "ca", "cb", "cc"}
    assert counts["ab"] / 12000 == pytest.approx(1 / 12, abs=0.01) and counts["cc"] / 12000 == pytest.approx(
        1 / 6, abs=0.015
    )
    assert two_spans(["only"], generator.random(3)) == ["only"]


def test_spans_are_drawn_anew_at_each_visit(world):
    held, stream = passages(world).spans(np.arange(90)), PassageStream(np.arange(90), 9, [13, 0])
    row = next(row for row in range(90) if len(set(held[row])) > 2)
    seen = set()
    for step in range(300):
        batch = stream.batch(step)
        seen |= {tuple(two_spans(held[row], batch.draws[place])) for place in np.flatnonzero(batch.rows == row)}
    assert len(seen) >= 6


def test_held_out_documents_depend_on_the_corpus_alone(world, tmp_path):
    held = passages(world)
    rows, dev = split_documents(held, 5, 13)
    assert {name: len(chosen) for name, chosen in dev.items()} == {"sea": 5, "land": 3}  # a tenth at most
    assert sorted([*rows, *dev["sea"], *dev["land"]]) == list(range(90))
    write_passages(tmp_path / "p.arrow", {"land": iter(_blocks(world, "land"))})
    _, alone = split_documents(Passages(tmp_path / "p.arrow"), 5, 13)
    np.testing.assert_array_equal(alone["land"] + 60, dev["land"])
    assert split_documents(held, 0, 13)[1] == {}


def _blocks(world: Path, name: str):
    from zerodr.training.pretraining.passages import spans_of

    return spans_of(world / f"results/spans/{name}")


def test_views_of_parts_are_the_views_of_the_whole(world):
    """Crops, masks and deletions belong to a document's place in the batch of all processes."""
    batch = PassageStream(np.arange(90), 8, [13, 0]).batch(2)
    for name in ("coco", "tsdae", "ict", "simcse", "mlm"):
        maker = forward(world, name, dropout=0.1, max_tokens=7).maker
        whole, parts = maker.make(batch), [maker.make(batch.shard(number, 4)) for number in range(4)]
        for field in ("tokens", "targets"):
            pieces = [row for part in parts for row in getattr(part, field)]
            assert len(pieces) == len(getattr(whole, field))
            assert all(np.array_equal(a, b) for a, b in zip(getattr(whole, field), pieces, strict=True))
        assert whole.asked == sum(part.asked for part in parts)
        assert max(map(len, whole.targets if name == "tsdae" else whole.tokens)) == 7
        assert all(row[0] == whole.tokens[0][0] for row in whole.tokens)


def test_masked_views_hold_the_span_behind_their_labels(world):
    used = forward(world, "coco")
    batch = PassageStream(np.arange(90), 8, [13, 0]).batch(0)
    views, plain = used.maker.make(batch), used.maker.plain(batch)
    for tokens, target, truth in zip(views.tokens, views.targets, plain.tokens, strict=True):
        assert len(tokens) == len(target) == len(truth)
        np.testing.assert_array_equal(np.where(target >= 0, target, tokens), truth)
        assert target[0] == target[-1] == -100 and (target >= 0).any()


def test_cloze_takes_the_span_out_or_leaves_it():
    spans = ["a", "b", "c"]
    assert cloze(spans, np.array([0.5, 0.5, 0]), 0.1) == ["b", "a c"]
    assert cloze(spans, np.array([0.99, 0.05, 0]), 0.1) == ["c", "a b c"]


def test_special_tokens_of_every_family(tmp_path):
    from tests.unit.model_helpers import tiny_model

    for family, pooling, ends in (("bert", "cls", (1, 1)), ("roberta", "cls", (1, 1)), ("t5", "mean", (0, 1))):
        tokenizer = tiny_model(tmp_path, family, pooling=pooling).tokenizer
        assert tuple(map(len, around(tokenizer))) == ends


def test_limits_are_checked(world):
    used = forward(world, "mlm")
    with pytest.raises(ModelError, match="takes 512 tokens, max_tokens asks for 600"):
        forward(world, "mlm", max_tokens=600)
    with pytest.raises(ConfigError, match="ict needs documents of several spans"):
        ViewMaker(used.model.encoder, forward(world, "ict").maker.settings, used.examples, False, [1], 10)
