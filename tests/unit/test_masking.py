"""Crops, whole-word masks and deletions: properties, proportions, and what the numbers depend on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.encoder_helpers import save_tokenizer
from tests.unit.model_helpers import tiny_model

from zerodr.encoders.network.tokenizing import load_tokenizer
from zerodr.encoders.pretraining.prediction import check_masking, ordinary_ids, token_words
from zerodr.errors import ModelError
from zerodr.training.pretraining.masking import NOT_MASKED, Vocabulary, Words, crop, delete, mask_words

VOCABULARY = Vocabulary(4, np.arange(5, 200))
WIDTH = 64


def text_of(sizes: list[int], first: int = 10) -> Words:
    words = np.repeat(np.arange(len(sizes)), sizes)
    return Words(first + np.arange(len(words)), words)


def masked(texts: list[Words], rate: float = 0.15, seed: tuple = (3, 1), rows=None) -> list[tuple]:
    rows = np.arange(len(texts)) if rows is None else np.asarray(rows)
    return mask_words(texts, rate, VOCABULARY, seed, rows, WIDTH)


@settings(max_examples=80, deadline=None)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=12), rate=st.floats(0, 1), seed=st.integers(0, 99))
def test_words_are_masked_whole_within_the_budget(sizes, rate, seed):
    text = text_of(sizes)
    ((ids, labels),) = masked([text], rate, (seed,))
    chosen, budget = labels != NOT_MASKED, max(1, round(rate * len(text)))
    assert chosen.any() == (min(sizes) <= budget), "a text of longer words gets no mask"
    assert (labels[chosen] == text.ids[chosen]).all() and (ids[~chosen] == text.ids[~chosen]).all()
    taken = {word for word in range(len(sizes)) if chosen[text.words == word].any()}
    assert all(chosen[text.words == word].all() for word in taken)
    assert chosen.sum() <= budget
    if chosen.sum() < budget:  # nothing that was left out would have fitted
        assert all(sizes[word] > budget - chosen.sum() for word in set(range(len(sizes))) - taken)


def test_the_proportions_are_berts():
    made = masked([text_of([1, 2, 1, 3] * 6)] * 4000)
    labels, ids = np.stack([labels for _, labels in made]), np.stack([ids for ids, _ in made])
    chosen = labels != NOT_MASKED
    assert chosen.mean() == pytest.approx(6 / 42)  # round(0.15 * 42) tokens each
    counts = np.array([(ids[chosen] == 4).sum(), ((ids != labels) & (ids != 4) & chosen).sum()]) / chosen.sum()
    assert counts == pytest.approx([0.8, 0.1 * 194 / 195], abs=0.01)
    words = text_of([1, 2, 1, 3] * 6).words
    shares = np.array([chosen[:, words == word].mean() for word in range(24)]).reshape(6, 4)
    assert np.ptp(shares, axis=0) == pytest.approx([0] * 4, abs=0.04)  # no place is preferred
    assert (np.argsort(shares.mean(0))[:2] == [3, 1]).all()  # long words are rarer


def test_numbers_depend_on_seed_step_and_row_alone():
    texts = [text_of([1, 2, 3, 1, 1, 2, 4] * 4) for _ in range(6)]
    whole, part = masked(texts), masked(texts[2:4], rows=[2, 3])
    for (ids, labels), (other, expected) in zip(whole[2:4], part, strict=True):
        np.testing.assert_array_equal(ids, other)
        np.testing.assert_array_equal(labels, expected)
    assert not np.array_equal(whole[0][1], whole[1][1])
    assert not np.array_equal(whole[0][1], masked(texts, seed=(3, 2))[0][1])
    cropped = crop(texts, 10, (3, 1), np.arange(6))
    np.testing.assert_array_equal(crop(texts[4:], 10, (3, 1), np.array([4, 5]))[1].ids, cropped[5].ids)
    lost = delete(texts, 0.6, (3, 1), np.arange(6), WIDTH)
    np.testing.assert_array_equal(delete(texts[4:], 0.6, (3, 1), np.array([4, 5]), WIDTH)[1], lost[5])


@settings(max_examples=40, deadline=None)
@given(length=st.integers(0, 40), limit=st.integers(1, 30), seed=st.integers(0, 99))
def test_a_crop_is_a_stretch_and_keeps_words_with_ids(length, limit, seed):
    text = text_of([2] * length)
    (made,) = crop([text], limit, (seed,), np.array([0]))
    assert len(made) == min(limit, len(text))
    if len(made):
        first = int(made.ids[0]) - 10
        np.testing.assert_array_equal(made.ids, text.ids[first : first + limit])
        np.testing.assert_array_equal(made.words, text.words[first : first + limit])


def test_every_crop_is_as_likely():
    starts = [int(made.ids[0]) - 10 for made in crop([text_of([1] * 12)] * 6000, 8, (1,), np.arange(6000))]
    assert np.bincount(starts) / 6000 == pytest.approx([0.2] * 5, abs=0.03)


def test_deletion_leaves_the_order_and_at_least_one_token():
    texts = [text_of([1] * 40)] * 500 + [text_of([1]), text_of([])]
    made = delete(texts, 0.6, (5,), np.arange(502), WIDTH)
    assert np.mean([len(ids) for ids in made[:500]]) == pytest.approx(16, abs=0.6)
    assert all((np.diff(ids) > 0).all() for ids in made) and made[500].tolist() == [10] and not len(made[501])
    assert [len(ids) for ids in delete(texts[:3], 1.0, (5,), np.arange(3), WIDTH)] == [1, 1, 1]


def test_empty_texts_stay_empty():
    ((ids, labels),) = masked([text_of([])])
    assert len(ids) == len(labels) == 0
    assert masked([]) == [] and crop([], 5, (1,), np.zeros(0, int)) == []


def test_tokens_know_their_words(tmp_path):
    save_tokenizer(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    ((ids, words), (none, _)) = token_words(tokenizer, ["Abc de, f", ""])
    assert words.tolist() == [0, 0, 0, 1, 1, 2, 3] and not len(none)
    assert tokenizer.convert_ids_to_tokens(ids.tolist())[:4] == ["a", "##b", "##c", "d"]
    assert set(ordinary_ids(tokenizer)) == set(range(5, len(tokenizer)))
    check_masking(tmp_path, tokenizer)


@pytest.mark.parametrize("family, pooling", [("bert", "cls"), ("roberta", "cls"), ("distilbert", "cls")])
def test_word_pieces_of_every_family_are_grouped(tmp_path, family, pooling):
    tokenizer = tiny_model(tmp_path, family, pooling=pooling).tokenizer
    check_masking(tmp_path, tokenizer)
    ((ids, words),) = token_words(tokenizer, ["stonerly forestwink mead"])
    assert len(set(words.tolist())) == 3 and len(ids) > 5


def test_t5_cannot_be_masked(tmp_path):
    tokenizer = tiny_model(tmp_path, "t5", pooling="mean").tokenizer
    with pytest.raises(ModelError, match="no mask_token"):
        check_masking("t5", tokenizer)


def test_tokens_by_themselves_are_masked_in_berts_proportions():
    """Of over 10,000 tokens 15 % +- 1 are selected, of these 80/10/10 % +- 2."""
    texts = [text_of([1, 2, 1, 3] * 6)] * 1000
    made = mask_words(texts, 0.15, VOCABULARY, (3, 1), np.arange(1000), WIDTH, "token")
    labels, ids = np.stack([labels for _, labels in made]), np.stack([ids for ids, _ in made])
    chosen = labels != NOT_MASKED
    assert chosen.mean() == pytest.approx(0.15, abs=0.01)
    true = np.broadcast_to(texts[0].ids, ids.shape)
    assert (ids[~chosen] == true[~chosen]).all() and (labels[chosen] == true[chosen]).all()
    fates = [(ids == 4)[chosen].mean(), ((ids != 4) & (ids != true))[chosen].mean(), (ids == true)[chosen].mean()]
    assert fates == pytest.approx([0.8, 0.1, 0.1], abs=0.02)
    words = texts[0].words
    whole = [
        chosen[:, words == word].all(1).sum() / max(1, chosen[:, words == word].any(1).sum())
        for word in range(24)
        if (words == word).sum() == 3
    ]
    assert np.mean(whole) < 0.05  # words are not taken whole


def test_random_windows_begin_everywhere():
    """Every offset of a window into a longer text occurs, about equally often."""
    text = text_of([1] * 20)
    starts = [int(crop([text], 16, (5, step), np.array([0]))[0].ids[0] - 10) for step in range(2000)]
    counts = np.bincount(starts, minlength=5)
    assert len(counts) == 5 and counts.min() > 0.8 * 400
