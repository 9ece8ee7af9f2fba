"""Stage `import_run`: read a ranking of another system, sort it in total order, and record its source."""

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import (
    CUT_WORDS,
    DOUBTS,
    count_cut,
    count_doubts,
    find_line,
    read_run,
    strings,
    total_order,
    write_run,
)
from zerodr.collections.access import SplitSettings, corpus_ids, read_queries, split_queries
from zerodr.collections.audit import near_id
from zerodr.config.base import validate
from zerodr.config.measures import FIRST, beyond, label_of
from zerodr.errors import ArtifactError

log = logging.getLogger(__name__)


class ImportRunSettings(SplitSettings):
    """Settings of `import_run`."""

    tag: str
    """Last word of every line: the method."""
    source: str
    """Who made the run."""


def import_run(stage: Stage) -> None:
    """Read inputs `file` (a TREC run, in any order) and `collection`; write `run` in total order.

    Raises:
        ArtifactError: the file is no run of this collection, or ranks a document twice.
    """
    settings = validate(ImportRunSettings, stage.params, stage.spec.name())
    path, folder = stage.path("file"), stage.path("collection")
    queries = split_queries(folder, settings.split)["id"]
    whole = read_run(path, ranks=True)
    check_queries(whole, set(read_queries(folder)["id"].to_pylist()), set(queries), path, settings.collection)
    run, dropped = take(whole, queries, settings, path)
    wanted = whole[whole["query"].isin(queries)]
    for name, count in count_doubts(wanted).items():
        log.warning("%s: %s", path, DOUBTS[name] % (count.queries, count.all_queries))
    corpus = corpus_ids(folder)
    check_documents(run, corpus, path, settings.collection)
    for cut in count_cut(wanted, min(settings.depth, len(corpus) - settings.exclude_self)).values():
        log.warning("%s: %s", path, CUT_WORDS % (*cut, ", ".join(map(label_of, beyond(FIRST, cut.depth)))))
    write_run(stage.output("run"), run, settings.tag)
    stage.note(source=settings.source, queries=int(run["query"].nunique()), lines=len(run), dropped=dropped)


def take(
    run: pd.DataFrame, queries: pd.Series, settings: ImportRunSettings, path: Path
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return the entries of the split's queries in total order, cut to the depth, and the number of others by reason.

    The score decides about the order, then the document id; ranks and order of the file do not.

    Raises:
        ArtifactError: no query is of the split, a document is ranked twice, or a score is no finite number.
    """
    entries = run[run["query"].isin(queries)]
    if entries.empty:
        example = f"its first query is {run['query'].iloc[0]!r}" if len(run) else "it is empty"
        problem = f"ranks no query of {settings.collection}/{settings.split}: {example}"
        raise ArtifactError(path, problem, "name the run of this collection and split, with the ids of its queries")
    repeated = entries[entries.duplicated(["query", "document"])]
    if len(repeated):
        query, document = repeated.iloc[0][["query", "document"]]
        raise ArtifactError(path, f"ranks document {document!r} twice for query {query!r}", "remove one of the lines")
    strange = entries[~entries["score"].abs().le(np.finfo(np.float32).max)]
    if len(strange):
        query, document, score = strange.iloc[0][["query", "document", "score"]]
        problem = f"scores document {document!r} of query {query!r} {score}, which is NaN or infinite in float32"
        raise ArtifactError(path, problem, "correct the line")
    entries = entries.assign(score=entries["score"].astype(np.float32))
    others, dropped = len(run) - len(entries), 0
    if settings.exclude_self:
        itself = entries["query"] == entries["document"]
        entries, dropped = entries[~itself], int(itself.sum())
    positions = pd.Index(queries).get_indexer(entries["query"])
    ordered = total_order(entries.assign(position=positions).sort_values("position", kind="stable"))
    ordered = ordered[["query", "document", "score"]]
    first = ordered[ordered.groupby("query", sort=False).cumcount() < settings.depth].reset_index(drop=True)
    counts = {"of_other_queries": others, "own_documents": dropped, "below_depth": len(ordered) - len(first)}
    return first, counts


def check_queries(run: pd.DataFrame, known: set[str], wanted: set[str], path: Path, collection: str) -> None:
    """Name the queries of a run that the collection does not hold.

    Raises:
        ArtifactError: one of them is a query of the split whose id was changed on the way.
    """
    asked = dict.fromkeys(run["query"].unique())
    unknown, lacking = [query for query in asked if query not in known], wanted - asked.keys()
    for query in unknown:
        if near := near_id(query, lacking):
            problem = f"ranks query {query!r}, which {collection} does not hold; it holds {near!r}, which is not ranked"
            raise ArtifactError(find_line(path, "query", query), problem, "write the ids of queries as they were")
    if unknown:
        location = find_line(path, "query", unknown[0])
        problem = "%s: the first of %d queries that %s does not hold, and that count for nothing: %r"
        log.warning(problem, location, len(unknown), collection, unknown[0])


def check_documents(run: pd.DataFrame, corpus: pa.Array, path: Path, collection: str) -> None:
    """Refuse a run of another corpus.

    Raises:
        ArtifactError: names a document that the collection does not hold.
    """
    ranked = strings(run["document"]).unique()
    unknown = ranked.filter(pc.invert(pc.is_in(ranked, value_set=corpus)))
    if len(unknown):
        count = "1 document" if len(unknown) == 1 else f"{len(unknown)} documents"
        first = unknown[0].as_py()
        near = near_id(first, set(corpus.to_pylist()))
        problem = f"ranks {count} that {collection} does not hold, such as {first!r}"
        problem += f" (it holds {near!r})" if near else ""
        step = "name the run of this collection, with the ids of its documents"
        raise ArtifactError(find_line(path, "document", first), problem, step)
