"""Measure a run by query. Pure: a run and judgements in, a frame out, inputs unchanged.

Names follow trec_eval, which computes its measures itself (pytrec_eval); the others are here:

* `recip_rank_cut_10`: reciprocal rank of the first relevant document among the first 10, else 0.
* `ndcg_cut_10_judged`: nDCG@10 after documents without a judgement were removed from the ranking (trec_eval -J).
* `hole_pair_k`: MoDIR, Table 1: share of the query-document pairs at the first k ranks that have no judgement.
* `hole_corpus_k`: BEIR: share of the first k ranks with a document that no query of the split has judged.

A judged query without results scores 0, as in `trec_eval -c`; so does one without a positive judgement, which the means
leave out (`evaluate_run`). Negative labels are judgements and mean not relevant: bpref alone is then another than
trec_eval's, which leaves them out. Gains are the grades themselves.
"""

from collections.abc import Iterable
from dataclasses import fields, replace
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytrec_eval

from zerodr.config.custom import load_code
from zerodr.config.measures import CUSTOM, FIRST, measure_of
from zerodr.errors import ConfigError
from zerodr.evaluation.judged import JudgedRun

BLOCK = 512
NUMBERS = "return an array with one number in [0, 1] for each query, in the order of run.queries (docs/add-metric.md)"
ROUNDING = 1e-9


def measure(run: JudgedRun, names: Iterable[str] = FIRST) -> pd.DataFrame:
    """Compute measures by query: a row a judged query, in the split's order; a column a measure, float64 in [0, 1].

    >>> from zerodr.evaluation.judged import judge
    >>> judged = judge(pd.DataFrame({"query": ["q"], "document": ["b"], "score": [2.0]}),
    ...                pd.DataFrame({"query": ["q", "q"], "document": ["a", "b"], "grade": [1, 1]}), ["q"])
    >>> measure(judged, ["recall_100", "recip_rank_cut_10"]).loc["q"].to_dict()
    {'recall_100': 0.5, 'recip_rank_cut_10': 1.0}
    """
    named = {name: measure_of(name) for name in names}
    frame = _trec_eval(run, [name for name, one in named.items() if not one.function])
    for name, one in named.items():
        if one.function:
            module, function = one.function.split(":")
            if module == CUSTOM:
                frame[name] = _one_a_query(load_code(CUSTOM, function)(_read_only(run), one.cut), run, name)
            else:
                frame[name] = getattr(import_module(f"zerodr.evaluation.{module}"), function)(run, one.cut)
    return frame[list(named)]


def _read_only(run: JudgedRun) -> JudgedRun:
    """Return a run that the user's code can't change: the measures after it read the same one."""
    held = {field.name: getattr(run, field.name) for field in fields(run)}
    views = {name: value.view() for name, value in held.items() if isinstance(value, np.ndarray)}
    for view in views.values():
        view.flags.writeable = False
    return replace(run, **views, qrels=run.qrels.copy())


def _one_a_query(returned: Any, run: JudgedRun, name: str) -> np.ndarray:
    """Check what a measure of the user's returns: a number in [0, 1] for each query; a Series by its index of ids."""
    if isinstance(returned, pd.Series) and not isinstance(returned.index, pd.RangeIndex):
        unknown = [str(query) for query in returned.index.difference(run.queries)][:1]
        if unknown or returned.index.has_duplicates:
            problem = f"returned a Series with index {unknown[0]!r}" if unknown else "returned a query twice"
            raise ConfigError(f"measure {name}", problem, "index it by run.queries, each once")
        returned = returned.reindex(run.queries)
    try:
        values = np.asarray(returned, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"measure {name}", f"returned {type(returned).__name__}, no numbers", NUMBERS) from None
    if values.shape != (len(run.queries),):
        problem = f"returned an array of shape {list(values.shape)}, expected [{len(run.queries)}]"
        raise ConfigError(f"measure {name}", problem, NUMBERS)
    wrong = values[~((values >= -ROUNDING) & (values <= 1 + ROUNDING))]  # not a number, too
    if len(wrong):
        raise ConfigError(f"measure {name}", f"returned {wrong[0]:g}", NUMBERS)
    return values


def _trec_eval(run: JudgedRun, names: list[str]) -> pd.DataFrame:
    """Compute trec_eval's measures by blocks of queries: dictionaries of a large run would exceed the memory."""
    values = np.zeros((len(run.queries), len(names)))
    order = np.argsort(run.query, kind="stable")
    bounds = np.r_[0, np.cumsum(run.results)]
    judged = {
        str(query): dict(zip(rows["document"].tolist(), rows["grade"].tolist(), strict=True))
        for query, rows in run.qrels.groupby("query", sort=False)
    }
    for start in range(0, len(run.queries) if names else 0, BLOCK):
        rankings = {}
        for number in range(start, min(start + BLOCK, len(run.queries))):
            rows = order[bounds[number] : bounds[number + 1]]
            scored = zip(run.document[rows].tolist(), run.score[rows].tolist(), strict=True)
            rankings[run.queries[number]] = dict(scored)
        evaluator = pytrec_eval.RelevanceEvaluator({query: judged[query] for query in rankings}, set(names))
        measures = evaluator.evaluate(rankings)
        for number, query in enumerate(rankings, start=start):
            values[number] = [measures[query][name] for name in names] if query in measures else 0.0
    return pd.DataFrame(values, index=pd.Index(run.queries, name="query"), columns=names)


def _share(run: JudgedRun, rows: np.ndarray, denominator: np.ndarray | float) -> np.ndarray:
    """Divide the number of marked rows of each query by `denominator`; 0 where that is 0; (Q,)."""
    counts = np.bincount(run.query[rows], minlength=len(run.queries)).astype(float)
    return np.divide(counts, denominator, out=np.zeros_like(counts), where=np.asarray(denominator) > 0)


def hole_pair(run: JudgedRun, k: int) -> np.ndarray:
    """Return the share of pairs at the first `k` ranks without a judgement, (Q,); 0 for a query without results.

    >>> from zerodr.evaluation.judged import judge
    >>> run = pd.DataFrame({"query": ["q", "q"], "document": ["b", "a"], "score": [2.0, 1.0]})
    >>> qrels = pd.DataFrame({"query": ["q", "other"], "document": ["a", "b"], "grade": [1, 1]})
    >>> hole_pair(judge(run, qrels, ["q", "other"]), 2)
    array([0.5, 0. ])
    """
    return _share(run, (run.rank < k) & ~run.judged, np.minimum(run.results, k))


def hole_corpus(run: JudgedRun, k: int) -> np.ndarray:
    """Return the share of the first `k` ranks whose document no query of the split has judged, (Q,).

    >>> from zerodr.evaluation.judged import judge
    >>> run = pd.DataFrame({"query": ["q", "q"], "document": ["b", "a"], "score": [2.0, 1.0]})
    >>> qrels = pd.DataFrame({"query": ["q", "other"], "document": ["a", "b"], "grade": [1, 1]})
    >>> hole_corpus(judge(run, qrels, ["q", "other"]), 2)
    array([0., 0.])
    """
    return _share(run, (run.rank < k) & ~run.known, float(k))


def reciprocal_rank(run: JudgedRun, k: int) -> np.ndarray:
    """Return 1 / rank of the first relevant document if it is among the first `k`, else 0; (Q,).

    >>> from zerodr.evaluation.judged import judge
    >>> run = pd.DataFrame({"query": ["q", "q"], "document": ["b", "a"], "score": [2.0, 1.0]})
    >>> qrels = pd.DataFrame({"query": ["q", "other"], "document": ["a", "b"], "grade": [1, 1]})
    >>> reciprocal_rank(judge(run, qrels, ["q", "other"]), 2)
    array([0.5, 0. ])
    """
    values = np.zeros(len(run.queries))
    rows = np.flatnonzero((run.rank < k) & (run.grade > 0))
    np.maximum.at(values, run.query[rows], 1.0 / (run.rank[rows] + 1))
    return values


def judged_ndcg(run: JudgedRun, k: int) -> np.ndarray:
    """Compute nDCG@k of the ranking without its unjudged documents, (Q,); 0 for a query without a positive one.

    >>> from zerodr.evaluation.judged import judge
    >>> run = pd.DataFrame({"query": ["q", "q"], "document": ["b", "a"], "score": [2.0, 1.0]})
    >>> qrels = pd.DataFrame({"query": ["q", "other"], "document": ["a", "b"], "grade": [1, 1]})
    >>> judged_ndcg(judge(run, qrels, ["q", "other"]), 2)
    array([1., 0.])
    """
    query, grade = run.query[run.judged], run.grade[run.judged]
    gained = _discounted(query, _rank_in_group(query), grade, k, len(run.queries))
    ideal = run.qrels.assign(row=pd.Index(run.queries).get_indexer(run.qrels["query"]))
    ideal = ideal.sort_values(["row", "grade"], ascending=[True, False], kind="stable")
    rows = ideal["row"].to_numpy()
    best = _discounted(rows, _rank_in_group(rows), ideal["grade"].to_numpy(), k, len(run.queries))
    return np.divide(gained, best, out=np.zeros_like(gained), where=best > 0)


def _rank_in_group(group: np.ndarray) -> np.ndarray:
    """Return the position of each entry in its group, from 0, in order."""
    return pd.Series(group).groupby(group).cumcount().to_numpy()


def _discounted(query: np.ndarray, rank: np.ndarray, grade: np.ndarray, k: int, queries: int) -> np.ndarray:
    """Sum grade / log2(rank + 2) over the first `k` ranks, ranks from 0; (Q,)."""
    top = rank < k
    gains = grade[top] / np.log2(rank[top] + 2.0)
    return np.bincount(query[top], weights=gains, minlength=queries).astype(float)
