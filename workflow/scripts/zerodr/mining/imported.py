"""Read published rankings of training queries as candidates: a TREC run, lists by system as JSON lines, scored lists.

A line of the second is an object: `qid`, and `neg`, a list of document ids or such a list for each of several systems.
Lists of systems are taken in turn, rank by rank, each document once. The third is a Parquet file with a row a query, as
MS MARCO's cross-encoder scores are published. Known positives are left out by the judgements.
"""

import gzip
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zerodr.artifacts.rankings import Rankings, RankingsWriter
from zerodr.artifacts.trec import order_rows, read_run, total_order
from zerodr.errors import ArtifactError

log = logging.getLogger("zerodr")
BLOCK = 4096  # queries written together
LAYOUT = 'give a TREC run, lines such as {"qid": 1, "neg": {"bm25": [7, 3]}}, or Parquet with a row a query'
PARQUET = b"PAR1"
COLUMNS = {  # what a Parquet file calls its columns
    "query": ("query_id", "qid", "query"),
    "documents": ("corpus_id", "document_id", "doc_ids", "documents"),
    "scores": ("score", "scores", "labels"),
}
LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)  # Polars writes the second
Ranking = tuple[list[str], "np.ndarray | None"]  # documents, best first, and their scores where the file has them


def import_candidates(
    source: Path, queries: pa.Array, depth: int, target: Path, scored: bool = False
) -> dict[str, int]:
    """Write the rankings of the file `source` as candidates of `queries`, the first `depth` documents of each.

    Args:
        source: the file, gzipped or not.
        queries: ids of all queries of the split; those that the file lacks have no document.
        depth: of the candidates.
        target: the candidates file.
        scored: the file must have scores. Where it has none, candidates have minus the rank.

    Returns:
        `queries` found and `missing`.

    Raises:
        ArtifactError: the file has another layout, a query twice, none of these queries, or no scores.
    """
    rankings, known = read_file(source), queries.to_pylist()
    missing = sum(query not in rankings for query in known)
    if missing == len(known):
        problem = f"ranks none of the {missing} queries, the first of which is {known[0]}"
        raise ArtifactError(source, problem, "give rankings of the source's training queries")
    if missing:
        log.warning("%s: %d of %d queries have no ranking, so no negatives", source, missing, len(known))
    with RankingsWriter(target, depth) as writer:
        rows = iter(known)
        while block := list(islice(rows, BLOCK)):
            ranked = [rankings.get(query, ([], np.zeros(0, np.float32))) for query in block]
            if scored and any(scores is None for _, scores in ranked):
                raise ArtifactError(source, "has no scores", "give a TREC run or a Parquet file with scores")
            sizes = np.array([min(len(documents), depth) for documents, _ in ranked], np.int64)
            given = [
                -np.arange(n) if scores is None else scores[:n] for (_, scores), n in zip(ranked, sizes, strict=True)
            ]
            documents = pa.array([text for texts, _ in ranked for text in texts[:depth]], pa.string())
            scores = np.concatenate([np.zeros(0), *given]).astype(np.float32)
            writer.write(Rankings(pa.array(block, pa.string()), sizes, documents, scores))
    return {"queries": len(known) - missing, "missing": missing}


def read_file(path: Path) -> Mapping[str, Ranking]:
    """Read rankings by query, in whichever layout they are."""
    with open(path, "rb") as stream:
        if stream.read(4) == PARQUET:
            return ScoredLists(path)
    return read_lists(path) if _starts_with_object(path) else read_lists_of_run(path)


class ScoredLists(Mapping[str, Ranking]):
    """Rankings of a Parquet file: a row a query with its id, document ids and their scores, in any order.

    Raises:
        ArtifactError: names the columns that are missing, or a query that is there twice.
    """

    def __init__(self, path: Path) -> None:
        try:
            names = pq.read_schema(path).names
        except pa.ArrowInvalid as error:
            raise ArtifactError(path, f"is a damaged Parquet file ({error})", "fetch it again") from None
        chosen = {key: next((name for name in known if name in names), None) for key, known in COLUMNS.items()}
        if lacking := [" or ".join(COLUMNS[key]) for key, name in chosen.items() if name is None]:
            problem = f"has no column {'; '.join(lacking)}, found {', '.join(names)}"
            raise ArtifactError(path, problem, "rename its columns: a query, a list of documents, a list of scores")
        table = pq.read_table(path, columns=list(chosen.values())).combine_chunks()
        self._queries, self._documents, self._scores = (table[chosen[key]].combine_chunks() for key in COLUMNS)
        if not all(any(is_kind(column.type) for is_kind in LISTS) for column in (self._documents, self._scores)):
            kinds = f"{self._documents.type} and {self._scores.type}"
            raise ArtifactError(path, f"holds documents and scores as {kinds}, expected lists", "give a row a query")
        self._row = {str(query): row for row, query in enumerate(self._queries.to_pylist())}
        if len(self._row) < len(table):
            raise ArtifactError(path, f"has {len(table) - len(self._row)} queries twice", "join their lists")
        sizes = [pc.list_value_length(column) for column in (self._documents, self._scores)]
        if not sizes[0].equals(sizes[1]):
            raise ArtifactError(path, "has more or fewer scores than documents for a query", "mend the file")

    def __getitem__(self, query: str) -> Ranking:
        """Return documents by score, best first, ties by id descending as everywhere."""
        row = self._row[query]
        documents = self._documents[row].values.cast(pa.string())
        scores = self._scores[row].values.to_numpy(zero_copy_only=False).astype(np.float32)
        order = order_rows(np.zeros(len(scores), np.int64), scores, documents)
        ranked = documents.take(pa.array(order)).to_pylist()
        firsts = sorted({text: number for number, text in reversed(list(enumerate(ranked)))}.values())
        return [ranked[number] for number in firsts], scores[order][firsts]

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)


def read_lists(path: Path) -> dict[str, Ranking]:
    """Read JSON lines of negatives: documents by query, those of several systems in turn.

    Raises:
        ArtifactError: names the line that is not as expected.
    """
    by_query: dict[str, Ranking] = {}
    once: dict[str, str] = {}  # 13 systems rank 160 million documents, of which 9 million are different
    with _opened(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                value = json.loads(line)
                query, systems = str(value["qid"]), value["neg"]
                lists = list(systems.values()) if isinstance(systems, dict) else [systems]
                documents = [once.setdefault(text, text) for text in dict.fromkeys(map(str, _in_turn(lists)))]
            except (ValueError, KeyError, TypeError) as error:
                raise ArtifactError(f"{path}:{number}", f"has no qid and neg ({error!r})", LAYOUT) from None
            if query in by_query:
                raise ArtifactError(f"{path}:{number}", f"has query {query} a second time", "join its lines")
            by_query[query] = documents, None
    return by_query


def _in_turn(lists: Sequence[Sequence[Any]]) -> Iterator[Any]:
    """Give the first entries of all lists, then the second ones, and so on."""
    absent = object()
    for row in zip_longest(*lists, fillvalue=absent):
        yield from (entry for entry in row if entry is not absent)


def read_lists_of_run(path: Path) -> dict[str, Ranking]:
    """Read a TREC run: documents by query, best first, ties by id as everywhere."""
    run = total_order(read_run(path, ranks=True)).drop_duplicates(["query", "document"])
    by_query = run.groupby("query", sort=False, observed=True)
    return {str(query): (rows["document"].tolist(), rows["score"].to_numpy(np.float32)) for query, rows in by_query}


def _opened(path: Path) -> Any:
    """Open a file as text, unzipped; bytes that are no UTF-8 become U+FFFD, which no layout accepts."""
    with open(path, "rb") as stream:
        zipped = stream.read(2) == b"\x1f\x8b"
    how: dict[str, Any] = {"mode": "rt", "encoding": "utf-8", "errors": "replace"}
    return gzip.open(path, **how) if zipped else open(path, **how)


def _starts_with_object(path: Path) -> bool:
    with _opened(path) as stream:
        return str(stream.read(1)) == "{"
