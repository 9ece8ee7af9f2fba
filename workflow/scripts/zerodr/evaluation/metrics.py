"""Measure a run by query. Pure: a run and judgements in, a frame out, inputs unchanged.

Names follow trec_eval, which computes its measures itself (pytrec_eval); the others are here:

* `recip_rank_cut_10`: reciprocal rank of the first relevant document among the first 10, else 0.
* `ndcg_cut_10_judged`: nDCG@10 after documents without a judgement were removed from the ranking (trec_eval -J).
* `hole_pair_k`: MoDIR, Table 1: share of the query-document pairs at the first k ranks that have no judgement.
* `hole_corpus_k`: BEIR: share of the first k ranks with a document that no query of the split has judged.

A judged query without results scores 0, as in `trec_eval -c`; so does one without a positive judgement, which the means
leave out (`evaluate_run`). Negative labels are judgements and mean not relevant. Gains are the grades themselves.

`judge` checks a run against the judgements of a split, and holds both as arrays: the only input of the measures.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytrec_eval

from zerodr.artifacts.trec import strings
from zerodr.config.custom import load_code
from zerodr.config.measures import CUSTOM, FIRST, measure_of
from zerodr.errors import ArtifactError, ConfigError, ProtocolError

STEP = "write runs through artifacts.trec.total_order"


class EncodedColumn(NamedTuple):
    """A column of ids: codes (N,) int of names (V,) object."""

    codes: np.ndarray
    names: np.ndarray


@dataclass(frozen=True)
class JudgedRun:
    """One row an entry of the run; rows of a query are contiguous and in total order.

    Attributes:
        queries: ids of the split's judged queries, (Q,). The denominator of every mean.
        query: row of `queries`, (N,) int.
        document: document ids, (N,).
        score: (N,) float32.
        rank: rank within the query, from 0, (N,) int.
        grade: relevance grade, negative labels raised to 0; 0 where there is no judgement, (N,) int.
        judged: the query-document pair has a judgement, (N,) bool.
        known: some query of the split has judged the document, (N,) bool.
        qrels: columns `query`, `document`, `grade` (negative labels raised to 0), of the split's queries.
    """

    queries: np.ndarray
    query: np.ndarray
    document: np.ndarray
    score: np.ndarray
    rank: np.ndarray
    grade: np.ndarray
    judged: np.ndarray
    known: np.ndarray
    qrels: pd.DataFrame

    @property
    def results(self) -> np.ndarray:
        """Number of documents retrieved for each query, (Q,) int."""
        return np.bincount(self.query, minlength=len(self.queries))

    @property
    def positives(self) -> np.ndarray:
        """Number of documents with a positive grade for each query, (Q,) int."""
        positive = self.qrels.loc[self.qrels["grade"] > 0, "query"]
        return positive.value_counts().reindex(self.queries, fill_value=0).to_numpy()


def judge(run: pd.DataFrame, qrels: pd.DataFrame, queries: list[str], where: str = "run") -> JudgedRun:
    """Join the judgements with the run. Neither frame is changed.

    Args:
        run: columns `query`, `document`, `score`, in total order (score descending, then document id descending).
        qrels: columns `query`, `document`, `grade`.
        queries: the judged queries of the split; the run may lack some of them, but holds no others.
        where: the run's name in errors.

    Raises:
        ProtocolError: the run has a query that is not of the split.
        ArtifactError: the run is not in total order, has a document twice for a query or a score that is no number;
            the judgements have a pair twice.

    >>> run = pd.DataFrame({"query": ["q", "q"], "document": ["b", "a"], "score": [2.0, 1.0]})
    >>> judge(run, pd.DataFrame({"query": ["q"], "document": ["a"], "grade": [1]}), ["q"]).results.tolist()
    [2]
    """
    ids, query_ids, document_ids = pd.Index(queries), _encoded(run["query"]), _encoded(run["document"])
    query = ids.get_indexer(query_ids.names)[query_ids.codes]
    if (query < 0).any():
        names = run["query"][query < 0].unique()
        problem = f"{len(names)} queries are not of the evaluated split ({names[0]}, ...)"
        raise ProtocolError(where, problem, "search and evaluate the same split of the same collection")
    document, score = document_ids.names[document_ids.codes], run["score"].to_numpy(np.float32)
    _check_order(run, query, document, score, where)
    pairs = np.sort(query.astype(np.int64) * len(document_ids.names) + document_ids.codes)
    if (pairs[1:] == pairs[:-1]).any():
        raise ArtifactError(where, "a query has the same document twice", STEP)
    qrels = qrels.assign(grade=qrels["grade"].clip(lower=0))[qrels["query"].isin(ids)].reset_index(drop=True)
    documents = pd.Index(qrels["document"].unique())
    column = documents.get_indexer(document_ids.names)[document_ids.codes]
    width = len(documents)
    keys = ids.get_indexer(qrels["query"]).astype(np.int64) * width + documents.get_indexer(qrels["document"])
    grade, judged = _look_up(query.astype(np.int64) * width + column, keys, qrels["grade"].to_numpy(np.int64), where)
    grade, judged = np.where(column >= 0, grade, 0), judged & (column >= 0)
    first = np.searchsorted(np.flatnonzero(_starts(query)), np.arange(len(query)), side="right") - 1
    rank = np.arange(len(query)) - np.flatnonzero(_starts(query))[first]
    return JudgedRun(ids.to_numpy(object), query, document, score, rank, grade, judged, column >= 0, qrels)


def _encoded(column: pd.Series) -> EncodedColumn:
    words = strings(column).dictionary_encode()
    return EncodedColumn(words.indices.to_numpy(), words.dictionary.to_numpy(zero_copy_only=False))


def _starts(query: np.ndarray) -> np.ndarray:
    """Mark the first row of each query, (N,) bool."""
    return np.r_[True, query[1:] != query[:-1]] if len(query) else np.zeros(0, bool)


def _check_order(run: pd.DataFrame, query: np.ndarray, document: np.ndarray, score: np.ndarray, where: str) -> None:
    if not np.isfinite(score).all():
        row = int(np.flatnonzero(~np.isfinite(score))[0])
        raise ArtifactError(where, f"the score in line {row + 1} is no finite number", STEP)
    same = ~_starts(query)[1:]
    tied = np.flatnonzero(same & (score[1:] == score[:-1]))
    wrong = same & (score[1:] > score[:-1])
    wrong[tied] |= document[tied + 1] >= document[tied]
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0]) + 1
        problem = f"line {row + 1} (query {run['query'].iloc[row]}, document {document[row]}) is out of order"
        raise ArtifactError(where, f"{problem}; expected score descending, then document id descending", STEP)
    if len(np.unique(query)) != _starts(query).sum():
        raise ArtifactError(where, "the lines of a query are not contiguous", STEP)


def _look_up(pairs: np.ndarray, keys: np.ndarray, grades: np.ndarray, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the grade (0 without one) of each pair, and whether `keys`, the judged pairs, contain it."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    if (keys[1:] == keys[:-1]).any():
        raise ArtifactError(where, "the judgements have a query-document pair twice", "remove one of them")
    if not len(keys):
        return np.zeros(len(pairs), np.int64), np.zeros(len(pairs), bool)
    row = np.minimum(np.searchsorted(keys, pairs), len(keys) - 1)
    judged = keys[row] == pairs
    return np.where(judged, grades[order][row], 0), judged


BLOCK = 512
NUMBERS = "return an array with one number in [0, 1] for each query, in the order of run.queries (docs/add-metric.md)"
ROUNDING = 1e-9


def measure(run: JudgedRun, names: Iterable[str] = FIRST) -> pd.DataFrame:
    """Compute measures by query: a row a judged query, in the split's order; a column a measure, float64 in [0, 1].

    >>> from zerodr.evaluation.metrics import judge
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

    >>> from zerodr.evaluation.metrics import judge
    >>> run = pd.DataFrame({"query": ["q", "q"], "document": ["b", "a"], "score": [2.0, 1.0]})
    >>> qrels = pd.DataFrame({"query": ["q", "other"], "document": ["a", "b"], "grade": [1, 1]})
    >>> hole_pair(judge(run, qrels, ["q", "other"]), 2)
    array([0.5, 0. ])
    """
    return _share(run, (run.rank < k) & ~run.judged, np.minimum(run.results, k))


def hole_corpus(run: JudgedRun, k: int) -> np.ndarray:
    """Return the share of the first `k` ranks whose document no query of the split has judged, (Q,).

    >>> from zerodr.evaluation.metrics import judge
    >>> run = pd.DataFrame({"query": ["q", "q"], "document": ["b", "a"], "score": [2.0, 1.0]})
    >>> qrels = pd.DataFrame({"query": ["q", "other"], "document": ["a", "b"], "grade": [1, 1]})
    >>> hole_corpus(judge(run, qrels, ["q", "other"]), 2)
    array([0., 0.])
    """
    return _share(run, (run.rank < k) & ~run.known, float(k))


def reciprocal_rank(run: JudgedRun, k: int) -> np.ndarray:
    """Return 1 / rank of the first relevant document if it is among the first `k`, else 0; (Q,).

    >>> from zerodr.evaluation.metrics import judge
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

    >>> from zerodr.evaluation.metrics import judge
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
