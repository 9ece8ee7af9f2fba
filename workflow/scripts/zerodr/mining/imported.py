"""Read published rankings of training queries as candidates: a TREC run, or lists by system as JSON lines.

A line of the second is an object: `qid`, and `neg`, a list of document ids or such a list for each of several systems.
Lists of systems are taken in turn, rank by rank, each document once. Known positives are left out by the judgements.
"""

import gzip
import json
import logging
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from zerodr.artifacts.rankings import Rankings, RankingsWriter
from zerodr.artifacts.trec import read_run, total_order
from zerodr.errors import ArtifactError

log = logging.getLogger("zerodr")
BLOCK = 4096  # queries written together
LAYOUT = 'give a TREC run, or lines such as {"qid": 1, "neg": {"bm25": [7, 3]}}'


def import_candidates(source: Path, queries: pa.Array, depth: int, target: Path) -> dict[str, int]:
    """Write the rankings of the file `source` as candidates of `queries`, the first `depth` documents of each.

    Args:
        source: the file, gzipped or not.
        queries: ids of all queries of the split; those that the file lacks have no document.
        depth: of the candidates.
        target: the candidates file.

    Returns:
        `queries` found and `missing`.

    Raises:
        ArtifactError: the file has another layout, a query twice, or none of these queries.
    """
    rankings = read_lists(source) if _starts_with_object(source) else read_lists_of_run(source)
    known = queries.to_pylist()
    missing = sum(query not in rankings for query in known)
    if missing == len(known):
        problem = f"ranks none of the {missing} queries, the first of which is {known[0]}"
        raise ArtifactError(source, problem, "give rankings of the source's training queries")
    if missing:
        log.warning("%s: %d of %d queries have no ranking, so no negatives", source, missing, len(known))
    with RankingsWriter(target, depth) as writer:
        rows = iter(known)
        while block := list(islice(rows, BLOCK)):
            lists = [rankings.get(query, [])[:depth] for query in block]
            sizes = np.array([len(documents) for documents in lists], np.int64)
            ranks = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            documents = pa.array([document for documents in lists for document in documents], pa.string())
            writer.write(Rankings(pa.array(block, pa.string()), sizes, documents, (-ranks).astype(np.float32)))
    return {"queries": len(known) - missing, "missing": missing}


def read_lists(path: Path) -> dict[str, list[str]]:
    """Read JSON lines of negatives: documents by query, those of several systems in turn.

    Raises:
        ArtifactError: names the line that is not as expected.
    """
    by_query: dict[str, list[str]] = {}
    with _opened(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                value = json.loads(line)
                query, systems = str(value["qid"]), value["neg"]
                lists = list(systems.values()) if isinstance(systems, dict) else [systems]
                documents = list(dict.fromkeys(map(str, _in_turn(lists))))
            except (ValueError, KeyError, TypeError) as error:
                raise ArtifactError(f"{path}:{number}", f"has no qid and neg ({error!r})", LAYOUT) from None
            if query in by_query:
                raise ArtifactError(f"{path}:{number}", f"has query {query} a second time", "join its lines")
            by_query[query] = documents
    return by_query


def _in_turn(lists: Sequence[Sequence[Any]]) -> Iterator[Any]:
    """Give the first entries of all lists, then the second ones, and so on."""
    absent = object()
    for row in zip_longest(*lists, fillvalue=absent):
        yield from (entry for entry in row if entry is not absent)


def read_lists_of_run(path: Path) -> dict[str, list[str]]:
    """Read a TREC run: documents by query, best first, ties by id as everywhere."""
    run = total_order(read_run(path))
    return {str(query): list(dict.fromkeys(rows)) for query, rows in run.groupby("query", sort=False)["document"]}


def _opened(path: Path) -> Any:
    with open(path, "rb") as stream:
        zipped = stream.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8") if zipped else open(path, encoding="utf-8")


def _starts_with_object(path: Path) -> bool:
    with _opened(path) as stream:
        return str(stream.read(1)) == "{"
