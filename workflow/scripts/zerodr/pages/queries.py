"""Show two methods query by query: gains, what each ranked with texts, what is judged and what is not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import Field

from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import read_run
from zerodr.collections.access import read_qrels, read_texts, split_queries
from zerodr.config.base import Settings, validate
from zerodr.config.measures import label_of
from zerodr.config.quantities import shortened
from zerodr.evaluation.evaluate import read_measures
from zerodr.pages import html

METRIC = "ndcg_cut_10"
CHARACTERS = 320  # of a document's text
Ranking = list[str]
Texts = dict[str, tuple[str, str]]


class ShownCollection(Settings):
    """A collection of the pages."""

    name: str
    """Name in the registry."""
    label: str
    """Name in printed tables."""
    split: str
    """The split that is evaluated."""


class QueriesSettings(Settings):
    """Settings of `build_queries` and `build_query_page`."""

    runs: tuple[tuple[str, str], ...]
    """Method and collection of each input `runs`, in its order."""
    labels: dict[str, str]
    """Names of the methods in print."""
    collections: tuple[ShownCollection, ...]
    """Collections of the inputs `collections`, in their order."""
    baseline: str
    """The method that the others are compared with."""
    queries: int = Field(ge=1)
    """Queries with texts on a page: at most so many that gained, and as many that lost."""
    documents: int = Field(ge=1)
    """Documents of a ranking that are shown."""


@dataclass(frozen=True)
class Pair:
    """Two methods on one collection.

    Attributes:
        labels: names of the method and of the baseline in print.
        collection: the collection's label and split.
        numbers: by query id: columns `method`, `baseline`, `gain`.
        rankings: of the method and the baseline: documents by query, best first.
        grades: grade by query and document.
        queries: text by query id.
    """

    labels: tuple[str, str]
    collection: str
    numbers: pd.DataFrame
    rankings: tuple[Mapping[str, Ranking], Mapping[str, Ranking]]
    grades: Mapping[str, Mapping[str, int]]
    queries: Mapping[str, str]


def build_queries(stage: Stage) -> None:
    """Read `runs`, `collections` and `per_query`; write `pages`, `<collection>/<method>.html` against the baseline."""
    settings = validate(QueriesSettings, stage.params, stage.spec.rule)
    for collection, method, pair, texts in _pairs(stage, settings):
        path = stage.output("pages") / collection / f"{method}.html"
        path.parent.mkdir(exist_ok=True)
        path.write_text(page(pair, texts, settings), encoding="utf-8")


def build_query_page(stage: Stage) -> None:
    """Read `runs`, `collections` and `per_query` of two methods; write `page`."""
    settings = validate(QueriesSettings, stage.params, stage.spec.rule)
    for _, _, pair, texts in _pairs(stage, settings):
        stage.output("page").write_text(page(pair, texts, settings), encoding="utf-8")


def _pairs(stage: Stage, settings: QueriesSettings) -> Iterator[tuple[str, str, Pair, Texts]]:
    """Yield collection, method, their pair with the baseline, and the texts that its page shows.

    Of runs, judgements and texts only what the pages show is in memory.
    """
    numbers = pd.concat([read_measures(path, METRIC) for path in stage.paths("per_query")])
    numbers = numbers.drop_duplicates(["model", "collection", "query"])
    runs = dict(zip(settings.runs, stage.paths("runs"), strict=True))
    for row, manifest in zip(settings.collections, stage.paths("collections"), strict=True):
        methods = [name for name, collection in runs if collection == row.name]
        if settings.baseline not in methods:
            continue
        values = numbers[numbers["collection"] == row.name].pivot(index="query", columns="model", values=METRIC)
        gains = {
            name: _gains(values[name], values[settings.baseline])
            for name in methods
            if name != settings.baseline or len(methods) == 1
        }
        shown = {name: set(chosen(frame, settings.queries)) for name, frame in gains.items()}
        every, folder = set().union(*shown.values()), manifest.parent
        grades, queries = _grades(read_qrels(folder, row.split), every), split_queries(folder, row.split)
        asked = dict(queries[queries["id"].isin(every)].itertuples(index=False))
        base, where = _rankings(runs[settings.baseline, row.name], every), f"{row.label} ({row.split})"
        pairs = {}
        for name, frame in gains.items():
            labels = settings.labels[name], settings.labels[settings.baseline]
            rankings = _rankings(runs[name, row.name], shown[name]), base
            pairs[name] = Pair(labels, where, frame, rankings, grades, asked)
        texts = read_texts(folder, {document for pair in pairs.values() for document in _documents(pair, settings)})
        for name, pair in pairs.items():
            yield row.name, name, pair, texts


def _gains(method: pd.Series, baseline: pd.Series) -> pd.DataFrame:
    """Measures of both by query, and the difference, the largest first."""
    frame = pd.DataFrame({"method": method, "baseline": baseline, "gain": method - baseline})
    return frame.sort_values("gain", ascending=False, kind="stable")


def _grades(qrels: pd.DataFrame, queries: set[str]) -> dict[str, dict[str, int]]:
    """Grades of these queries, by query and document."""
    grades: dict[str, dict[str, int]] = {}
    for query, document, grade in qrels[qrels["query"].isin(queries)].itertuples(index=False):
        grades.setdefault(query, {})[document] = grade
    return grades


def _rankings(path: Path, queries: set[str]) -> dict[str, Ranking]:
    """Documents of these queries in a run, best first."""
    run = read_run(path, queries=queries)
    return {str(query): rows["document"].tolist() for query, rows in run.groupby("query", sort=False)}


def chosen(numbers: pd.DataFrame, count: int) -> list[str]:
    """List the queries that gained most and lost most, at most `count` of each, by gain."""
    gained = numbers.index[numbers["gain"] > 0][:count]
    lost = numbers.index[numbers["gain"] < 0][-count:]
    return [*map(str, gained), *map(str, lost)]


def _documents(pair: Pair, settings: QueriesSettings) -> Iterator[str]:
    for query in chosen(pair.numbers, settings.queries):
        for ranking in pair.rankings:
            yield from ranking.get(query, [])[: settings.documents]
        yield from _relevant(pair, query)


def _relevant(pair: Pair, query: str) -> list[str]:
    return [document for document, grade in pair.grades.get(query, {}).items() if grade > 0]


def page(pair: Pair, texts: Texts, settings: QueriesSettings) -> str:
    """Fill the page of two methods."""
    numbers = pair.numbers
    shown = chosen(numbers, settings.queries)
    counts = {
        "better": int((numbers["gain"] > 0).sum()),
        "worse": int((numbers["gain"] < 0).sum()),
        "equal": int((numbers["gain"] == 0).sum()),
    }
    return html.fill(
        "queries.html",
        title=f"{pair.labels[0]} against {pair.labels[1]}: {pair.collection}",
        labels=pair.labels,
        collection=pair.collection,
        metric=label_of(METRIC),
        means=numbers[["method", "baseline"]].mean().to_dict(),
        counts=counts,
        queries=[_query(pair, query, texts, settings.documents) for query in shown],
        depth=settings.documents,
        left_out=counts["better"] + counts["worse"] - len(shown),
    )


def _query(pair: Pair, query: str, texts: Texts, depth: int) -> dict[str, Any]:
    row = pair.numbers.loc[query]
    ranks = [{document: n for n, document in enumerate(r.get(query, []), start=1)} for r in pair.rankings]
    sides = []
    for here, there in (ranks, ranks[::-1]):
        documents = [_document(pair, query, name, texts) for name in list(here)[:depth]]
        sides.append([d | {"rank": here[d["id"]], "other": there.get(d["id"])} for d in documents])
    low = [name for name in _relevant(pair, query) if all(r.get(name, depth + 1) > depth for r in ranks)]
    missed = [_document(pair, query, name, texts) | {"ranks": [r.get(name) for r in ranks]} for name in low[:depth]]
    return {"id": query, "text": pair.queries.get(query, ""), "sides": sides, "missed": missed} | row.to_dict()


def _document(pair: Pair, query: str, name: str, texts: Texts) -> dict[str, Any]:
    title, text = texts.get(name, ("", "the collection has no such document"))
    return {
        "id": name,
        "title": title,
        "text": shortened(text, CHARACTERS),
        "grade": pair.grades.get(query, {}).get(name),
    }
