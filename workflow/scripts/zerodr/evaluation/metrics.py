"""Measure a run by query. Pure: a run and judgements in, a frame out, inputs unchanged.

Names follow trec_eval, which computes its measures itself (pytrec_eval); the others are here:

* `recip_rank_cut_10`: reciprocal rank of the first relevant document among the first 10, else 0.
* `ndcg_cut_10_judged`: nDCG@10 after documents without a judgement were removed from the ranking (trec_eval -J).
* `hole_pair_k`: MoDIR, Table 1: share of the query-document pairs at the first k ranks that have no judgement.
* `hole_corpus_k`: BEIR: share of the first k ranks with a document that no query of the split has judged.

Averages are over judged queries. A judged query without results scores 0; so does one without a positive
judgement, as in `trec_eval -c`. Negative labels are judgements and mean not relevant. Gains are the grades themselves.
"""

import numpy as np
import pandas as pd
import pytrec_eval

from zerodr.evaluation.judged import JudgedRun

NDCG_CUTS = (1, 3, 5, 10, 20, 100, 1000)
TREC = {
    "ndcg_cut." + ",".join(map(str, NDCG_CUTS)): [f"ndcg_cut_{k}" for k in NDCG_CUTS],
    "recall.100,1000": ["recall_100", "recall_1000"],
    "map": ["map"],
    "success.5,20": ["success_5", "success_20"],
    "P.10": ["P_10"],
}
HOLE_CUTS = (10, 100)
HOLES = [f"hole_{kind}_{k}" for kind in ("pair", "corpus") for k in HOLE_CUTS]
TREC_METRICS = [name for names in TREC.values() for name in names]
METRICS = [*TREC_METRICS, "recip_rank_cut_10", "ndcg_cut_10_judged", *HOLES]
LABELS = {
    "ndcg_cut_10": "nDCG@10",
    "recall_100": "R@100",
    "recall_1000": "R@1000",
    "recip_rank_cut_10": "MRR@10",
    "map": "MAP",
    "success_5": "Success@5",
    "success_20": "Success@20",
    "P_10": "P@10",
    "ndcg_cut_10_judged": "nDCG@10 (judged only)",
    "hole_pair_10": "Hole@10 (pairs)",
    "hole_corpus_10": "Hole@10 (corpus)",
}
BLOCK = 512


def measure(run: JudgedRun) -> pd.DataFrame:
    """Compute all measures: a row a judged query, in the split's order; columns METRICS, float64 in [0, 1]."""
    frame = _trec_eval(run)
    frame["recip_rank_cut_10"] = reciprocal_rank(run, 10)
    frame["ndcg_cut_10_judged"] = judged_ndcg(run, 10)
    for k in HOLE_CUTS:
        frame[f"hole_pair_{k}"] = hole_pair(run, k)
        frame[f"hole_corpus_{k}"] = hole_corpus(run, k)
    return frame[METRICS]


def _trec_eval(run: JudgedRun) -> pd.DataFrame:
    """Compute trec_eval's measures by blocks of queries: dictionaries of a large run would exceed the memory."""
    values = np.zeros((len(run.queries), len(TREC_METRICS)))
    order = np.argsort(run.query, kind="stable")
    bounds = np.r_[0, np.cumsum(run.results)]
    judged = {
        str(query): dict(zip(rows["document"].tolist(), rows["grade"].tolist(), strict=True))
        for query, rows in run.qrels.groupby("query", sort=False)
    }
    for start in range(0, len(run.queries), BLOCK):
        rankings = {}
        for number in range(start, min(start + BLOCK, len(run.queries))):
            rows = order[bounds[number] : bounds[number + 1]]
            scored = zip(run.document[rows].tolist(), run.score[rows].tolist(), strict=True)
            rankings[run.queries[number]] = dict(scored)
        evaluator = pytrec_eval.RelevanceEvaluator({query: judged[query] for query in rankings}, set(TREC))
        measures = evaluator.evaluate(rankings)
        for number, query in enumerate(rankings, start=start):
            values[number] = [measures[query][name] for name in TREC_METRICS] if query in measures else 0.0
    return pd.DataFrame(values, index=pd.Index(run.queries, name="query"), columns=TREC_METRICS)


def _share(run: JudgedRun, rows: np.ndarray, denominator: np.ndarray | float) -> np.ndarray:
    """Divide the number of marked rows of each query by `denominator`; 0 where that is 0; (Q,)."""
    counts = np.bincount(run.query[rows], minlength=len(run.queries)).astype(float)
    return np.divide(counts, denominator, out=np.zeros_like(counts), where=np.asarray(denominator) > 0)


def hole_pair(run: JudgedRun, k: int) -> np.ndarray:
    """Return the share of pairs at the first `k` ranks without a judgement, (Q,); 0 for a query without results."""
    return _share(run, (run.rank < k) & ~run.judged, np.minimum(run.results, k))


def hole_corpus(run: JudgedRun, k: int) -> np.ndarray:
    """Return the share of the first `k` ranks whose document no query of the split has judged, (Q,)."""
    return _share(run, (run.rank < k) & ~run.known, float(k))


def reciprocal_rank(run: JudgedRun, k: int) -> np.ndarray:
    """Return 1 / rank of the first relevant document if it is among the first `k`, else 0; (Q,)."""
    values = np.zeros(len(run.queries))
    rows = np.flatnonzero((run.rank < k) & (run.grade > 0))
    np.maximum.at(values, run.query[rows], 1.0 / (run.rank[rows] + 1))
    return values


def judged_ndcg(run: JudgedRun, k: int) -> np.ndarray:
    """Compute nDCG@k of the ranking without its unjudged documents, (Q,); 0 for a query without a positive one."""
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
