"""Name the measures of rankings: a line each, with what tables call it and what computes it (docs/add-metric.md)."""

import re
from collections.abc import Iterable
from typing import Annotated, NamedTuple

from pydantic import AfterValidator

from zerodr.config.custom import defined, kind_of, parameters
from zerodr.errors import ConfigError, nearest


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
    **{f"ndcg_cut_{k}": Measure(f"nDCG@{k}") for k in (1, 3, 5, 10, 20, 100, 1000)},
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
CUT = {
    **{
        "ndcg_cut": ("nDCG", ""),
        "recall": ("R", ""),
        "P": ("P", ""),
        "success": ("Success", ""),
        "map_cut": ("MAP", ""),
    },
    **{"recip_rank_cut": ("MRR", "metrics:reciprocal_rank"), "hole_pair": ("Hole (pairs)", "metrics:hole_pair")},
}
"""Measures that need no line: with any cutoff after `_`."""
WHOLE = {"Rprec": "R-precision", "bpref": "bpref", "ndcg": "nDCG", "recip_rank": "MRR"}
"""Measures of trec_eval without a cutoff that need no line, with their labels."""
CUSTOM = "measures.py"
"""Functions of a judged run and a cutoff in the user's own folder: `best_grade_10` calls `best_grade(run, 10)`."""
COLUMNS = {
    "ndcg_at_10": "ndcg_cut_10",
    "recall_at_100": "recall_100",
    "recall_at_1000": "recall_1000",
    "mrr_at_10": "recip_rank_cut_10",
}
"""Columns of files of published numbers, and the measures that they are of."""
FIRST = tuple(MEASURES)
"""Measures of every evaluation. Those added below are settings of evaluations: adding one evaluates again, no more."""
MEASURES |= {
    # yours
}


def measure_of(name: str) -> Measure:
    """Return a measure: of the table above, of trec_eval with another cutoff, or the user's own.

    Raises:
        ValueError: there is none, with the nearest.

    >>> measure_of("recall_20"), measure_of("recip_rank_cut_5").cut
    (Measure(label='R@20', function='', cut=20), 5)
    """
    stem, _, cut = name.rpartition("_")
    if name in MEASURES:
        return MEASURES[name]
    if name in WHOLE:
        return Measure(WHOLE[name])
    if re.fullmatch("[1-9][0-9]{0,8}", cut):
        if stem in CUT:
            label, function = CUT[stem]
            return Measure(f"{label}@{cut}", function, int(cut))
        if kind_of(CUSTOM, stem) == "function":
            return Measure(f"{stem}@{cut}", f"{CUSTOM}:{stem}", int(cut))
    custom = defined(CUSTOM)
    labels = {one.label.lower(): key for key, one in MEASURES.items()}
    if "@" in name and is_measure(meant := labels.get(name.lower(), name.replace("@", "_"))):
        raise ValueError(f"{name!r} is no measure, write {meant}")
    known = {*MEASURES, *WHOLE, *(f"{stem}_20" for stem in CUT), *(f"{stem}_10" for stem in custom)}
    raise ValueError(f"{name!r} is no measure, {nearest(name, known)}")


def is_measure(name: str) -> bool:
    """Test whether there is a measure of that name."""
    try:
        measure_of(name)
    except ValueError:
        return False
    return True


def added(chosen: Iterable[str] = ()) -> list[str]:
    """List the measures beyond FIRST: those added above, and those that a configuration names."""
    return [name for name in dict.fromkeys([*MEASURES, *chosen]) if name not in FIRST]


def beyond(names: Iterable[str], depth: int) -> list[str]:
    """List the measures that look for documents below a rank.

    >>> beyond(["ndcg_cut_10", "recall_20", "map", "hole_pair_100"], 10)
    ['recall_20', 'map']
    """
    cuts = {name: name.rpartition("_")[2] for name in names if not name.startswith("hole")}
    return [name for name, cut in cuts.items() if not cut.isdigit() or int(cut) > depth]


def require_depth(where: str, name: str, protocol: str, depth: int) -> None:
    """Refuse a measure whose cutoff is below the last rank of a protocol's rankings, `depth`; yours may have any.

    Raises:
        ConfigError: its cutoff is.
    """
    cut = name.rpartition("_")[2]
    if cut.isdigit() and int(cut) > depth and not is_custom(name):
        problem = f"looks for documents below rank {depth}, where rankings of protocol {protocol} end"
        raise ConfigError(where, problem, "choose a smaller cutoff, or a deeper protocol")


def is_custom(name: str) -> bool:
    """Whether a measure is a function of the user's own file."""
    return measure_of(name).function.startswith(f"{CUSTOM}:")


def custom_functions(names: Iterable[str]) -> list[str]:
    """List the functions of the user's own file that measures call."""
    return [measure_of(name).function.partition(":")[2] for name in names if is_custom(name)]


def label_of(name: str) -> str:
    """Return what tables call a measure; the name itself of a number that is no measure of rankings.

    >>> label_of("recip_rank_cut_10"), label_of("seconds"), label_of("recall_20")
    ('MRR@10', 'seconds', 'R@20')
    """
    return measure_of(name).label if is_measure(name) else name


def _known(name: str) -> str:
    for function in custom_functions([name]):
        takes = parameters(CUSTOM, function)
        if takes is not None and (not takes or sum(one.needed for one in takes.values()) > 1):
            raise ValueError(f"{function} of {CUSTOM} takes a judged run and a cutoff: def {function}(run, cut)")
    return name


MeasureName = Annotated[str, AfterValidator(_known)]
