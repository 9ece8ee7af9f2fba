"""Domain-Acc over seeds: what is planned, and the item."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.unit.paper_helpers import drawn, told

from zerodr.config.load import load_bench
from zerodr.config.papers import item_of
from zerodr.errors import ConfigError
from zerodr.papers.modir.report_accuracy import domain_accuracy
from zerodr.plan import Plan, paths
from zerodr.plan.items import read_item

ITEM = {"kind": "domain_accuracy", "methods": ["ours"], "baseline": "plain"}
BOTH = ["plain", "ours"]
SEEDS = tuple({"seed": seed, "names": dict(zip(BOTH, BOTH, strict=True)), "drawing": BOTH} for seed in (13, 14, 15))
CONVERGED = {"plain": (0.95, 0.94, 0.96), "ours": (0.85, 0.86, 0.87)}  # differences -.10, -.08, -.09
OWN = {"plain": 0.95, "ours": 0.80}


@pytest.fixture
def inputs(tmp_path):
    files = []
    for number in range(3):
        for method in BOTH:
            files.append(tmp_path / f"{method}-{number}.tsv")
            converged, own = CONVERGED[method][number], OWN[method]
            rows = {f"converged_{kind}": converged + side for kind, side in (("queries", 0.02), ("documents", -0.02))}
            rows |= {"own_queries": own, "own_documents": own}
            lines = ["metric\tvalue", *(f"domain_accuracy_{name}\t{value}" for name, value in rows.items())]
            files[-1].write_text("\n".join(lines) + "\n")
    return {"measures": files}


def test_accuracies_are_compared_seed_by_seed(inputs, tmp_path):
    stage, settings = told(ITEM, inputs, tmp_path, methods=tuple(BOTH), values=SEEDS)
    table = domain_accuracy(stage, settings, item_of(settings.item, "x"))
    ours = table.frame.set_index("method").loc["ours"]
    assert (ours["accuracy"], ours["difference"], ours["gap"]) == pytest.approx((0.86, -0.09, -0.06))
    assert ours["difference_seed14"] == pytest.approx(-0.08)
    half = 4.302653 * 0.01 / 3**0.5  # Student's t of two degrees of freedom
    assert (ours["difference_low"], ours["difference_high"]) == pytest.approx((-0.09 - half, -0.09 + half), abs=1e-6)
    row = ["0.860", "-0.090", "[-0.115, -0.065]", "0.800", "-0.060", "-0.100", "-0.080", "-0.090"]
    assert table.shown[1][1][2:] == row
    assert "own accuracy more than 0.02 below converged: Ours" in table.notes


def test_a_figure_is_drawn(inputs, tmp_path):
    drawn(tmp_path, inputs, ITEM, methods=tuple(BOTH), values=SEEDS)


@pytest.fixture(scope="module")
def plan(root):
    return Plan(load_bench(root, {"scale": "lab", "seeds": "14,15"}))


def test_every_seed_is_measured_and_nothing_is_ranked(plan):
    files = plan.inputs("build_item")(SimpleNamespace(paper="lab", item="momentum"))
    arms, ends = ("-none", "", "-one-update", "-repeat", "-single", "-oracle"), ("", "-seed14", "-seed15")
    names = [f"modir-dpr{end}+slow{arm}" for end in ends for arm in arms]
    assert files == {"measures": [paths.domains(name, "nfcorpus", "measures.tsv") for name in names]}


def test_a_method_without_an_adversary_is_refused(plan):
    item = {"kind": "domain_accuracy", "title": "x", "methods": ["modir-dpr+slow"], "baseline": "dpr"}
    with pytest.raises(ConfigError, match="has no stage with an adversary"):
        read_item(plan, item_of(item, "x"), ["nfcorpus"])
