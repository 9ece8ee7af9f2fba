"""Margin-MSE and whole-word masks against what the released code of DDR and COCO-DR answered."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.released import answers

from zerodr.config.load import load_bench
from zerodr.config.training import ObjectiveSettings
from zerodr.training.objectives.base import Encoded
from zerodr.training.objectives.ranking import make_objective
from zerodr.training.pretraining.masking import NOT_MASKED, Vocabulary, Words, mask_words

REPETITIONS = 60


@pytest.mark.parametrize("factor", [1, 20])
def test_margin_mse_scales_the_students_scores(factor):
    """Seen: loss 1e-7, gradient 2e-7, relative."""
    released = answers("ddr_losses")
    queries = released["queries"].clone().requires_grad_()
    settings = ObjectiveSettings(name="margin_mse", negatives_per_query=3, inverse_temperature=factor)
    batch = Encoded(0, queries, released["documents"], None, released["teacher"])
    loss = make_objective(settings)(batch)["margin_mse"]
    loss.backward()
    expected = released[f"margin_mse{factor}.gradient_queries"]
    assert float(loss) == pytest.approx(float(released[f"margin_mse{factor}.loss"]), rel=1e-6)
    assert float((queries.grad - expected).norm() / expected.norm()) < 2e-6


def test_the_distilled_recipes_have_the_released_factors(root):
    """1 for inner products, 20 for the cosines of the Chinese models."""
    methods = load_bench(root, {"scale": "paper"}).methods
    for name, factor, similarity in (("ddr-distill", 1.0, "dot"), ("ddr-distill+zh", 20.0, "cosine")):
        settings = methods[name].settings
        assert settings.chain["rem"].objective.inverse_temperature == factor
        start = methods[settings.encoder.init.partition("/")[0]].settings.encoder
        assert start.similarity == similarity


@pytest.fixture(scope="module")
def masks():
    """Whether each token is predicted, by repetition, and the words of 300 texts."""
    released = answers("mlm_words")
    words, offsets = released["words"].numpy(), released["offsets"].tolist()
    texts = [
        Words(np.arange(5, 5 + last - first), words[first:last])
        for first, last in zip(offsets, offsets[1:], strict=False)
    ]
    vocabulary, rows = Vocabulary(4, np.arange(5, 600)), np.arange(len(texts))
    width = max(map(len, texts))
    chosen = [
        [labels != NOT_MASKED for _, labels in mask_words(texts, 0.15, vocabulary, (6, step), rows, width)]
        for step in range(REPETITIONS)
    ]
    return released, texts, chosen


def test_a_text_of_long_words_gets_no_mask(masks):
    released, _, chosen = masks
    ever = [any(step[text].any() for step in chosen) for text in range(len(released["never"]))]
    assert [not masked for masked in ever] == released["never"].tolist()
    assert released["never"].sum() == 2


def test_words_are_chosen_as_often_by_size(masks):
    """Within 4 standard errors of both sides' repetitions; texts without any mask do not count."""
    released, texts, chosen = masks
    counted = [number for number, never in enumerate(released["never"].tolist()) if not never]
    sizes = {number: np.bincount(texts[number].words - texts[number].words.min()) for number in counted}
    total, tokens = [], sum(len(texts[number]) for number in counted)
    by_size = np.zeros((REPETITIONS, 5))
    for step, marks in enumerate(chosen):
        total.append(sum(marks[number].sum() for number in counted) / tokens)
        found = np.concatenate([np.repeat(sizes[n], sizes[n])[marks[n]] for n in counted])
        by_size[step] = np.bincount(found, minlength=6)[1:6] / np.arange(1, 6)
    words = np.bincount(np.concatenate(list(sizes.values())), minlength=6)[1:6]
    pairs = [(np.array(total), released["masked_share"].numpy())]
    pairs += [(by_size[:, k] / words[k], released["chosen_by_size"].numpy()[:, k]) for k in range(5)]
    for ours, (mean, spread) in pairs:
        error = np.sqrt((ours.var(ddof=1) + spread**2) / REPETITIONS)
        assert abs(ours.mean() - mean) < 4 * error
