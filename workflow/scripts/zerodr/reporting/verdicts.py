"""Judge the difference between our number and a printed one: verdicts and tolerances."""

from collections.abc import Mapping

OKISH = 4
BY_KIND = {"lexical": 0.002, "encoder": 0.002, "fusion": 0.005, "feedback": 0.005, "trained": 0.01}
"""Largest absolute difference of a measure in [0, 1] that is OK, by kind of row: a choice. Printed values have three
decimals; trained rows differ by their random numbers too."""
RELATIVE = 0.1
"""The same for other measures, as a share of the printed value."""
WORDS = 0.02
"""The same for mean lengths of texts, whose splitting into words the papers leave open."""
MEASURES = ("ndcg_cut", "recall", "recip_rank", "success", "hole", "map", "P_")
COUNTS = ("documents", "queries", "train_pairs", "dev_queries")
LIKENESS = ("jaccard_unigrams", "query_intent_similarity", "document_lexical_similarity")
"""Measures of a collection and the source."""
DATA = (*COUNTS, *LIKENESS, "documents_per_query", "query_words", "document_words")
"""Measures of collections, which need no method."""
UNMEASURED = (
    *("ndcg_cut_10_gain_case", "loss_of_accuracy", "finetuning_times", "adaptation_steps", "clusters_with_lower_loss"),
    *("augmenting_documents_from_mesh", "hours", "count", "seconds"),
)
"""Beginnings of what papers print and no item measures."""
OK, OKISH_WORD, DRIFT = "OK", "OKish", "DRIFT"
NOT_RUN, ALONE, NO_MEASURE, OPEN = "not run", "no method here", "no measure here", "open"
BUDGET, PROTOCOL, MACHINE, SOURCE = "other budget", "other protocol", "other machine", "other source"
TIMES = ("milliseconds", "seconds", "hours")
LEGEND = {
    OK: "within the tolerance",
    OKISH_WORD: f"within {OKISH} times the tolerance",
    DRIFT: "beyond that",
    BUDGET: "ours was trained with less than the paper",
    SOURCE: "ours is the likeness to another source",
    MACHINE: "ours was timed on another machine",
    PROTOCOL: "ours was ranked under another protocol than the paper's",
    OPEN: "the paper leaves open what the value is of",
    NOT_RUN: "ours is not among the inputs",
    ALONE: "the value is shown alone",
    NO_MEASURE: "the value is shown alone",
}


def verdict(difference: float, tolerance: float) -> str:
    """Return `OK` within the tolerance, `OKish` within OKISH times it, else `DRIFT`."""
    size = abs(difference) - 1e-9
    return OK if size <= tolerance else OKISH_WORD if size <= OKISH * tolerance else DRIFT


def tolerance_of(metric: str, kind: str, printed: float | None, percent: bool) -> float | None:
    """Return the largest difference that is OK, in the unit of the printed value; None where it is no number.

    Args:
        metric: measure here.
        kind: of the row's recipe, `settings`, or `data`.
        printed: the printed value.
        percent: it is printed as a percentage.
    """
    if printed is None:
        return None
    if kind == "settings" or metric in COUNTS:
        return 0.0
    if kind == "data":
        return (WORDS if metric.endswith("_words") else RELATIVE) * abs(printed)
    if metric.startswith(MEASURES) and not metric.endswith("_gain"):
        return BY_KIND.get(kind, BY_KIND["encoder"]) * (100 if percent else 1)
    return RELATIVE * abs(printed)


def judge(obstacles: Mapping[str, bool], difference: float | None, equal: bool, tolerance: float | None) -> str:
    """Choose the verdict of a cell: the first obstacle to a comparison, else that of the difference.

    Args:
        obstacles: verdicts of LEGEND, and whether each holds, in order.
        difference: ours minus printed; None where one of them is text.
        equal: both are the same text.
        tolerance: largest difference that is OK.
    """
    for reason, holds in obstacles.items():
        if holds:
            return reason
    if difference is None or tolerance is None:
        return OK if equal else DRIFT
    return verdict(difference, tolerance)
