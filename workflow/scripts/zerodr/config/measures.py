"""Name the measures of rankings: a line each, with what tables call it and what computes it (docs/add-metric.md)."""

from typing import Annotated, NamedTuple

from pydantic import AfterValidator

from zerodr.errors import nearest


class Measure(NamedTuple):
    """A measure of a ranking, by query.

    Attributes:
        label: its name in tables and figures.
        function: `module:function` of zerodr.evaluation, called with a judged run and `cut`; empty: trec_eval computes
            the measure under its key.
        cut: rank at which the function stops.
    """

    label: str
    function: str = ""
    cut: int = 10


MEASURES = {
    **{f"ndcg_cut_{k}": Measure(f"nDCG@{k}" if k == 10 else f"ndcg_cut_{k}") for k in (1, 3, 5, 10, 20, 100, 1000)},
    "recall_100": Measure("R@100"),
    "recall_1000": Measure("R@1000"),
    "map": Measure("MAP"),
    "success_5": Measure("Success@5"),
    "success_20": Measure("Success@20"),
    "P_10": Measure("P@10"),
    "recip_rank_cut_10": Measure("MRR@10", "metrics:reciprocal_rank"),
    "ndcg_cut_10_judged": Measure("nDCG@10 (judged only)", "metrics:judged_ndcg"),
    "hole_pair_10": Measure("Hole@10 (pairs)", "metrics:hole_pair"),
    "hole_pair_100": Measure("hole_pair_100", "metrics:hole_pair", 100),
    "hole_corpus_10": Measure("Hole@10 (corpus)", "metrics:hole_corpus"),
    "hole_corpus_100": Measure("hole_corpus_100", "metrics:hole_corpus", 100),
}
FIRST = tuple(MEASURES)
"""Measures of every evaluation. Those added below are settings of evaluations: adding one evaluates again, no more."""
MEASURES |= {
    # yours
}


def added() -> list[str]:
    """List the measures beyond FIRST."""
    return [name for name in MEASURES if name not in FIRST]


def label_of(name: str) -> str:
    """Return what tables call a measure; the name itself of a number that is no measure of rankings.

    >>> label_of("recip_rank_cut_10"), label_of("seconds")
    ('MRR@10', 'seconds')
    """
    return MEASURES[name].label if name in MEASURES else name


def _known(name: str) -> str:
    if name not in MEASURES:
        raise ValueError(f"{name!r} is no measure, {nearest(name, MEASURES)}")
    return name


MeasureName = Annotated[str, AfterValidator(_known)]
