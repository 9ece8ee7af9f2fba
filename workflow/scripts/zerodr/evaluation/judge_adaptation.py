"""Stage `judge_adaptation`: compare all candidates on a folder, decide, and choose what a person should judge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import Field

from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import read_run
from zerodr.collections.access import read_qrels, read_queries, read_texts, split_queries
from zerodr.config.base import Settings, validate
from zerodr.config.params import SENTENCES, Candidate
from zerodr.evaluation.adaptation import JUDGED, Comparison, QueryKind, agreement, decide, merge_equal, sentences
from zerodr.evaluation.advice import advice, replaced, right_first
from zerodr.evaluation.evaluate import read_measures
from zerodr.evaluation.findings import WORDS, read_findings
from zerodr.evaluation.grades import COLUMNS, id_cell, read_grades, text_cell
from zerodr.evaluation.judged import judge
from zerodr.evaluation.metrics import measure
from zerodr.evaluation.numbers import tsv

METRIC, JUDGED_METRIC, CUT = "ndcg_cut_10", "ndcg_cut_10_judged", 10
PAIRS, SHOWN_LETTERS, EXAMPLES = 50, 1000, 5
CLEAR = 25  # queries that read as searches, from which on the others are left out
AROUND = 200  # letters that are shown before a sentence, and behind it
Runs = dict[tuple[str, str], pd.DataFrame]  # by collection and method, the first CUT documents of each query


class JudgedCollection(Settings):
    """A collection with judgements that decide."""

    name: str
    """Its name."""
    split: str
    """Split of the judgements."""
    proxy: bool
    """Its queries were held out of documents."""


class JudgeSettings(Settings):
    """Settings of `judge_adaptation`."""

    collection: str
    """Name of the folder's collection."""
    methods: tuple[Candidate, ...] = Field(min_length=2)
    """The candidates."""
    collections: tuple[JudgedCollection, ...] = Field(min_length=1)
    """Collections of the comparison; judgements, where there are some, decide alone."""


def judge_adaptation(stage: Stage) -> None:
    """Read `per_query`, `runs`, `collections`, `whole`, optional `asked_runs`, `asked`, `judged`; write `answer`.

    It holds comparison.tsv, answer.json, examples.json and, where nothing is decided, to_judge.tsv.
    """
    settings = validate(JudgeSettings, stage.params, stage.spec.name())
    folder, names = stage.output("answer"), [method.name for method in settings.methods]
    runs: Runs = {}
    excluded: dict[str, bool] = {}
    for (collection, method), path in zip(_cells(settings), stage.paths("runs"), strict=True):
        run = read_run(path)
        excluded.setdefault(collection, not bool((run["query"] == run["document"]).any()))
        runs[collection, method] = run[run.groupby("query", sort=False).cumcount() < CUT].reset_index(drop=True)
    manifests = zip(settings.collections, stage.paths("collections"), strict=True)
    homes = {row.name: manifest.parent for row, manifest in manifests}
    known_by = [*homes.values(), *([stage.path("asked")] if "asked" in stage.spec.inputs else [])]
    grades, outdated = None, ""
    if "judged" in stage.spec.inputs:
        grades, outdated = read_grades(stage.path("judged"), known_by, stage.path("whole"))
    kinds = [
        kind for row in settings.collections for kind in read_kinds(stage, settings, row, homes[row.name], runs, grades)
    ]
    asked = {}
    if "asked" in stage.spec.inputs:
        asked = {name: read_run(path) for name, path in zip(names, stage.paths("asked_runs"), strict=True)}
        kinds += judged_queries(asked, grades, stage.path("asked"))
    comparison = Comparison(kinds, stage.seed)
    alone = [method.name for method in settings.methods if method.kind not in ("fusion", "lexical")]
    adapted = [method.name for method in settings.methods if method.adapted]
    answer = decide(comparison, adapted, alone)
    table = comparison.table()
    (folder / "comparison.tsv").write_text(tsv(table, digits="%.6f"), encoding="utf-8")
    pair = answer.choice, replaced(answer.choice, settings.methods) or answer.choice
    row = next((row for row in settings.collections if not row.proxy), settings.collections[-1])
    tops = {name: runs[row.name, name] for name in pair}
    shown = examples(kinds, pair, tops, homes[row.name], stage.path("whole"), row)
    write_json(folder / "examples.json", {"left": pair[0], "right": pair[1], "queries": shown})
    if answer.verdict == "undecided" and answer.compared:
        home, split = (stage.path("asked"), "") if asked else (homes[row.name], row.split)
        known = read_qrels(home, split) if split else None
        rankings = asked or gradable({name: runs[row.name, name] for name in names}, row.proxy)
        pairs = pairs_to_judge(rankings, [frame for frame in (known, grades) if frame is not None])
        searches = asked_for(pairs, home, stage.path("whole") if row.proxy and not asked else None)
        write_pairs(folder / "to_judge.tsv", pairs, searches, stage.path("whole"))
    labels = {method.name: method.label for method in settings.methods}
    words = [*sentences(answer, kinds, labels), *filter(None, [outdated])]
    proxies = [replace(kind, decides=True) for kind in kinds if kind.proxy and not kind.decides]
    if proxies:
        by_proxy = Comparison(proxies, stage.seed)
        words.append(f"The proxy alone says: {sentences(decide(by_proxy, adapted, alone), proxies, labels)[0]}")
        if (tau := agreement(comparison, by_proxy)) is not None:
            words.append(f"Kendall's tau of the candidates' orders by proxy and by judgements: {tau:.2f}.")
    words += [sentence for row in settings.collections if not row.proxy for sentence in _findings(row, homes, excluded)]
    sizes = {kind.name: len(kind.values) for kind in kinds if kind.decides}
    first = right_first(kinds) if comparison.queries >= comparison.needed else {}
    plain = {"kinds": sizes, "sentences": words, "first": first, "advice": advice(answer, settings.methods, first)}
    write_json(folder / "answer.json", answer.plain() | plain)
    for line in table.itertuples():
        stage.metric(f"{line.kind}_{line.method.replace('@', '.')}", line.value)
    stage.note(answer=answer.plain())


def _cells(settings: JudgeSettings) -> list[tuple[str, str]]:
    """Collection and method of each run, in the order of the inputs."""
    return [(row.name, method.name) for row in settings.collections for method in settings.methods]


def _findings(row: JudgedCollection, homes: dict[str, Path], excluded: dict[str, bool]) -> Iterator[str]:
    """Say what the audit of a collection found that changes its measures."""
    for name, finding in read_findings(homes[row.name], row.split, exclude_self=excluded[row.name]).items():
        yield f"{row.name}, {WORDS[name]}: {finding.cases} of {finding.total}."


# ---- kinds of queries ------------------------------------------------------------------------------------------
def read_kinds(
    stage: Stage,
    settings: JudgeSettings,
    row: JudgedCollection,
    home: Path,
    runs: dict[tuple[str, str], pd.DataFrame],
    grades: pd.DataFrame | None,
) -> list[QueryKind]:
    """Read the measures of a collection by query; grades of a person are added to its judgements first."""
    names = [method.name for method in settings.methods]
    if grades is not None:
        columns = {name: measured(runs[row.name, name], home, row.split, grades) for name in names}
    else:
        paths = zip(_cells(settings), stage.paths("per_query"), strict=True)
        columns = {
            method: read_measures(path, METRIC).set_index("query")[METRIC]
            for (collection, method), path in paths
            if collection == row.name
        }
    values = pd.DataFrame(columns)[names]
    decides = row.proxy == all(other.proxy for other in settings.collections)
    both = pd.concat([frame for frame in (grades, read_qrels(home, row.split)) if frame is not None])
    first = right_at_first({name: runs[row.name, name] for name in names}, both, values.index)
    texts = query_texts(home)
    if not row.proxy:
        return [merge_equal(QueryKind(row.split, False, values, decides, first), texts)]
    kinds = pd.Series(values.index).str.partition("-")[0].to_numpy()
    return [
        merge_equal(QueryKind(str(kind), True, values[kinds == kind], decides, first[kinds == kind]), texts)
        for kind in dict.fromkeys(kinds)
    ]


def right_at_first(runs: dict[str, pd.DataFrame], grades: pd.DataFrame, queries: pd.Index) -> pd.DataFrame:
    """Tell by query and method whether the first document of a run is right; of a pair's grades the first counts."""
    known = grades.drop_duplicates(["query", "document"])
    right = pd.MultiIndex.from_frame(known.loc[known["grade"] > 0, ["query", "document"]])
    tops = {name: run.drop_duplicates("query")[["query", "document"]] for name, run in runs.items()}
    hits = {name: set(top["query"][pd.MultiIndex.from_frame(top).isin(right)]) for name, top in tops.items()}
    return pd.DataFrame({name: queries.isin(hits[name]) for name in runs}, index=queries)


def measured(run: pd.DataFrame, home: Path, split: str, grades: pd.DataFrame) -> pd.Series:
    """Measure a run with the judgements of a split and a person's grades, which replace them."""
    texts = split_queries(home, "")["id"]
    both = pd.concat([grades, read_qrels(home, split)]).drop_duplicates(["query", "document"])
    queries = texts[texts.isin(set(both.loc[both["grade"] > 0, "query"]))].tolist()
    ranked = run[run["query"].isin(queries)].reset_index(drop=True)
    return measure(judge(ranked, both, queries), [METRIC])[METRIC]


def judged_queries(asked: dict[str, pd.DataFrame], grades: pd.DataFrame | None, home: Path) -> list[QueryKind]:
    """Compare rankings of a folder's queries by a person's grades, over judged documents alone."""
    present = set() if grades is None else set(grades.loc[grades["grade"] > 0, "query"])
    queries = [key for key in split_queries(home, "")["id"] if key in present]
    if grades is None or not queries:
        return []
    chosen = {name: run[run["query"].isin(queries)].reset_index(drop=True) for name, run in asked.items()}
    values = {
        name: measure(judge(run, grades, queries), [JUDGED_METRIC])[JUDGED_METRIC] for name, run in chosen.items()
    }
    frame = pd.DataFrame(values)
    kind = QueryKind(JUDGED, False, frame, first=right_at_first(chosen, grades, frame.index))
    return [merge_equal(kind, query_texts(home))]


def query_texts(home: Path) -> dict[str, str]:
    """Read the texts of all queries of a collection by id."""
    return read_queries(home).to_pandas().set_index("id")["text"].to_dict()


# ---- what a person should judge --------------------------------------------------------------------------------
def discounts(run: pd.DataFrame) -> pd.DataFrame:
    """Return query, document, weight = 1 / log2(rank + 1) and rank (from 1) of the first CUT documents."""
    rank = run.groupby("query", sort=False).cumcount().to_numpy() + 1
    top = run[["query", "document"]].assign(rank=rank, weight=1 / np.log2(rank + 1))
    return top[rank <= CUT]


def pairs_to_judge(runs: dict[str, pd.DataFrame], judged: list[pd.DataFrame]) -> pd.DataFrame:
    """Choose the pairs whose judgement can move the differences between all candidates most.

    A judgement moves the difference of two candidates by the difference of the document's discounts, so a pair counts
    by its largest and least discount. Each query gives as many pairs as keep the candidates level: for each candidate
    the document that it alone puts highest. Queries come in the order of how much their pairs can move.

    Args:
        runs: rankings of all candidates. Pairs of two of them alone would judge the others by what these two found.
        judged: frames with columns query and document, of pairs that are known.

    Returns:
        columns query, document, ranks (in words), at most PAIRS rows.
    """
    tops = {name: discounts(run).set_index(["query", "document"]) for name, run in runs.items()}
    weights = pd.concat({name: top["weight"] for name, top in tops.items()}, axis=1).fillna(0.0)
    ranks = pd.concat({name: top["rank"] for name, top in tops.items()}, axis=1)
    for known in judged:
        weights = weights[~weights.index.isin(pd.MultiIndex.from_frame(known[["query", "document"]]))]
    weights = weights[weights.max(axis=1) > weights.min(axis=1)].sort_index()
    chosen = weights.iloc[_strongest(weights.sub(weights.mean(axis=1), axis=0))]
    moves = (chosen.max(axis=1) - chosen.min(axis=1)).rename("moves").reset_index()
    moves["total"] = moves.groupby("query")["moves"].transform("sum")
    order = moves.sort_values(["total", "query", "moves", "document"], ascending=[False, True, False, True])
    order = order[["query", "document"]].head(PAIRS).reset_index(drop=True)
    ordered = ranks.loc[pd.MultiIndex.from_frame(order)]
    return order.assign(
        ranks=[", ".join(f"{name} {_rank(row[name])}" for name in runs) for _, row in ordered.iterrows()]
    )


def _strongest(values: pd.DataFrame) -> np.ndarray:
    """Positions of the first row with a query's largest value in each column, each row once; rows are by query."""
    numbers, code = values.to_numpy(), values.index.codes[0]
    starts = np.flatnonzero(np.diff(code, prepend=-1))
    if not len(starts):
        return starts
    query = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(code))))
    largest = numbers == np.maximum.reduceat(numbers, starts)[query]
    rows = [np.flatnonzero(column) for column in largest.T]
    return pd.unique(np.concatenate([row[np.unique(query[row], return_index=True)[1]] for row in rows]))


def _rank(value: float) -> str:
    return f"below {CUT}" if np.isnan(value) else str(int(value))


def gradable(runs: dict[str, pd.DataFrame], proxy: bool) -> dict[str, pd.DataFrame]:
    """Leave out known items that are sentences, where there are titles and questions enough: these read as searches."""
    clear = {query for run in runs.values() for query in run["query"] if query.partition("-")[0] != SENTENCES}
    if not proxy or len(clear) < CLEAR:
        return runs
    return {name: run[run["query"].isin(clear)].reset_index(drop=True) for name, run in runs.items()}


def asked_for(pairs: pd.DataFrame, home: Path, whole: Path | None) -> dict[str, str]:
    """Map each query of pairs to what a person reads; a sentence that was held out comes with its surroundings.

    Args:
        pairs: with a column `query`.
        home: of the collection with the queries.
        whole: folder of the unshortened documents, where queries are known items; None: they are not.
    """
    texts = split_queries(home, "").set_index("id")["text"]
    searches = {query: str(texts[query]) for query in dict.fromkeys(pairs["query"])}
    split_up = {query: query.partition("-") for query in searches}
    sources = {query: key for query, (kind, _, key) in split_up.items() if kind == SENTENCES}
    documents = read_texts(whole, set(sources.values())) if whole is not None else {}
    for query, key in sources.items():
        if key in documents:
            title, text = documents[key]
            passage = around(searches[query], " ".join(text.split()))
            searches[query] = f'more about: "{passage}" (said in {f"{title}, " if title else ""}{key})'
    return searches


def around(sentence: str, text: str) -> str:
    """Return a sentence with whole words of the text before and behind it.

    >>> around("It rains.", "Look out. It rains. Take a coat.")
    'Look out. It rains. Take a coat.'
    """
    at = text.find(sentence)
    if at < 0:
        return sentence
    first, last = max(0, at - AROUND), min(len(text), at + len(sentence) + AROUND)
    before, after = text[first:at], text[at + len(sentence) : last]
    before = f"... {before.partition(' ')[2]}" if first else before
    after = f"{after.rpartition(' ')[0]} ..." if last < len(text) else after
    return f"{before}{sentence}{after}"


def write_pairs(path: Path, pairs: pd.DataFrame, searches: dict[str, str], whole: Path) -> None:
    """Write a table that a person fills in: column `grade` is empty.

    Args:
        searches: what a person reads of each query.
        whole: folder of the unshortened documents.
    """
    texts = texts_of(whole, set(pairs["document"]))
    with open(path, "w", encoding="utf-8") as stream:
        stream.write("\t".join(COLUMNS) + "\n")
        for row in pairs.itertuples():
            ids = id_cell("query", row.query), id_cell("document", row.document)
            cells = ["", *ids, searches[row.query], texts[row.document], row.ranks]
            stream.write("\t".join(text_cell(str(cell)) for cell in cells) + "\n")


# ---- examples --------------------------------------------------------------------------------------------------
def examples(
    kinds: list[QueryKind],
    pair: tuple[str, str],
    runs: dict[str, pd.DataFrame],
    home: Path,
    whole: Path,
    row: JudgedCollection,
) -> list[dict]:
    """Describe the queries on which the first of two methods gained and lost most, with unshortened texts."""
    deciding = [kind for kind in kinds if kind.decides and kind.proxy == row.proxy]
    if pair[0] == pair[1] or not deciding:
        return []
    values = pd.concat([kind.values.assign(kind=kind.name) for kind in deciding])
    qrels, queries = read_qrels(home, row.split), split_queries(home, "").set_index("id")["text"]
    ranks = {name: discounts(run).set_index(["query", "document"])["rank"] for name, run in runs.items()}
    best = qrels[qrels["grade"] > 0].sort_values("grade", ascending=False, kind="stable")
    values = values[values.index.isin(best["query"])]
    change = (values[pair[0]] - values[pair[1]]).rename("change").sort_values(kind="stable")
    chosen = [*change[change > 0].index[::-1][:EXAMPLES], *change[change < 0].index[:EXAMPLES]]
    tops = {name: run.drop_duplicates("query").set_index("query")["document"] for name, run in runs.items()}
    relevant = {key: rows["document"].tolist() for key, rows in best[best["query"].isin(chosen)].groupby("query")}
    wanted = {relevant[key][0] for key in chosen} | {top.get(key, "") for key in chosen for top in tops.values()}
    texts = texts_of(whole, wanted)
    described = []
    for key in chosen:
        right = relevant[key][0]
        entry = {"query": queries[key], "kind": values.loc[key, "kind"], "change": float(change[key])}
        entry |= {"document": texts.get(right, ""), "document_id": right}
        for side, name in zip(("left", "right"), pair, strict=True):
            top = tops[name].get(key, "")
            rank = ranks[name].get((key, right))
            entry[side] = {"rank": None if rank is None else int(rank), "top_id": top, "top": texts.get(top, "")}
        described.append(entry)
    return described


def texts_of(home: Path, ids: set[str]) -> dict[str, str]:
    """Read title and start of the text of some documents."""
    whole = {key: f"{title}. {text}" if title else text for key, (title, text) in read_texts(home, ids).items()}
    return {key: text if len(text) <= SHOWN_LETTERS else f"{_whole_words(text)} ..." for key, text in whole.items()}


def _whole_words(text: str) -> str:
    """Return the start of a text, up to a blank where there is one."""
    return text[:SHOWN_LETTERS].rpartition(" ")[0] or text[:SHOWN_LETTERS]
