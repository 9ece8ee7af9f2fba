"""BERM's variants `released` against what the released code answered, with the recipes' own settings."""

from __future__ import annotations

import pytest
import torch
from tests.unit.released import answers

from zerodr.config.load import load_bench
from zerodr.papers.berm.losses import mean_without_last, pool_units
from zerodr.papers.berm.settings import BermSettings
from zerodr.papers.berm.training import BermTerms, EncodedUnits, Units
from zerodr.papers.berm.unit_spans import Token, by_full_stop

BEGIN, PADDING, END, FULL_STOP = 0, 1, 2, 4


@pytest.fixture(scope="module")
def stages(root):
    """Stages of the released recipes at scale paper."""
    methods = load_bench(root, {"scale": "paper"}).methods
    return {
        name: next(iter(methods[name].settings.chain.values())) for name in ("berm-dpr+released", "berm-ance+released")
    }


def tokens_of(released: dict[str, torch.Tensor], text: int) -> list[Token]:
    """Tokens of a text that stand for characters."""
    rows = zip(*(released[name][text].tolist() for name in ("ids", "starts", "ends")), strict=True)
    places = enumerate(rows)
    return [Token(place, *row) for place, row in places if row[0] not in (BEGIN, PADDING, END)]


def test_units_are_those_of_the_released_code(stages):
    """All 65 units of 20 texts; 5 of them are a full stop that follows another or stands first."""
    assert all(stage.find("units").cut.segmenter == "full_stop" for stage in stages.values())
    released = answers("berm_units")
    found = [
        [text, unit.first, unit.stop]
        for text in range(len(released["ids"]))
        for unit in by_full_stop(tokens_of(released, text), FULL_STOP)
    ]
    assert found == released["units"].tolist() and len(found) == 65


def test_the_last_passage_with_a_unit_does_not_count():
    released = answers("berm_units")
    counts = torch.bincount(released["units"][:, 0].long(), minlength=20)
    valid = torch.arange(int(counts.max())) < counts[:, None]
    for text, counted in enumerate(released["counted"].tolist()):
        losses = torch.zeros(20)
        losses[text] = 1.0
        assert float(mean_without_last(losses, valid)) == pytest.approx(counted / 19)  # 18 count, and 1 is added


def batch(released: dict[str, torch.Tensor], labels: torch.Tensor) -> EncodedUnits:
    """The batch whose losses were written down."""
    vectors, valid = pool_units(released["states"], released["unit_ids"], 4)
    passages = released["passages"].unsqueeze(1)
    return EncodedUnits(0, released["queries"], passages, units=Units(vectors, valid, labels))


def test_losses_of_a_batch_are_those_of_the_released_code(stages):
    """Seen: R1 1e-8, R2 4e-8. All passages counted alike give 0.0783 and 0.9949 for 0.0738 and 0.8093."""
    stage, released = stages["berm-ance+released"], answers("berm_losses")
    settings = stage.find("berm")
    assert isinstance(settings, BermSettings)
    terms = BermTerms(settings)(batch(released, released["labels"]))
    assert float(terms["r1"]) == pytest.approx(float(released["released.R1"]), abs=2e-7)
    assert float(terms["r2"]) == pytest.approx(0.1 * float(released["released.R2"]), abs=2e-7)


def test_the_released_dpr_learns_from_r1_alone(stages):
    released = answers("berm_losses")
    terms = BermTerms(stages["berm-dpr+released"].find("berm"))(batch(released, released["labels"]))
    assert float(terms["r1"]) == pytest.approx(float(released["released.R1"]), abs=2e-7) and "r2" not in terms


def test_schedules_end_where_the_released_ones_do(stages):
    """35 million triples twice in batches of 32; a million steps with own negatives from a fifth of the queries."""
    dpr, ance = (stages[f"berm-{name}+released"] for name in ("dpr", "ance"))
    assert dpr.training.schedule_steps == 2 * 35_000_000 // 32 == 2_187_500
    assert ance.training.schedule_steps == 1_000_000 and ance.negatives.queries == 100_000
