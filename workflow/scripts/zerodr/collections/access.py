"""Read normalised collections. Every other room reads collections through this module.

A normalised collection is a folder artifact: `corpus.parquet` (id, title, text), `queries.parquet` (id, text),
`qrels.<split>.tsv` (query-id, corpus-id, score, with a header) and `audit.json`; `queries_unlabelled.parquet` where
the source has such. Rows keep the source's order. Of a user's own folder, queries and judgements are artifacts of
their own inside it: `queries/`, `judgements/`.

Several collections are behind one space of ids, `<memory>:<document id>`, as memories: normalised collections whose
queries are not used (MoMA section 3.1). Names of collections hold no colon, so the first one ends the memory's name.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from zerodr.artifacts.parquet import AGAIN, open_parquet
from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings
from zerodr.config.registry import EVERY
from zerodr.errors import ArtifactError, CollectionError

SCHEMA = pa.schema([("query", pa.string())])
INPUT = "sample"


class RankingSettings(Settings):
    """Settings that stages with rankings of a split share."""

    collection: str
    """Name of the collection."""
    split: str
    """Split whose queries are ranked."""
    depth: int = Field(ge=1)
    """Upper limit of documents in a ranking."""


class SplitSettings(RankingSettings):
    """Settings that stages share whose rankings are evaluated."""

    exclude_self: bool
    """Leave out, or refuse, the document whose id is the query's."""


def write_sample(path: Path, queries: pa.Array) -> None:
    """Write the ids of a sample."""
    pq.write_table(pa.table([queries], schema=SCHEMA), path, compression="zstd")


def ranked_queries(stage: Stage, queries: pd.DataFrame) -> pd.DataFrame:
    """Choose the queries that a stage ranks: those of its input `sample`, all where it has none.

    Args:
        stage: the stage.
        queries: of the split, as `split_queries` reads them.

    Returns:
        rows of `queries`, in their order and with their index.

    Raises:
        ArtifactError: the sample is damaged, or of another split.
    """
    if INPUT not in stage.spec.inputs:
        return queries
    path = stage.path(INPUT)
    with open_parquet(path, SCHEMA) as file:
        drawn = file.read()["query"].to_pylist()
    chosen = queries[queries["id"].isin(set(drawn))]
    if len(chosen) != len(drawn):
        known = set(queries["id"])
        unknown = [query for query in drawn if query not in known]
        problem = f"holds {len(drawn)} queries, of which {len(chosen)} are in this split"
        raise ArtifactError(path, f"{problem}{f'; {unknown[0]} is not' if unknown else ''}", AGAIN)
    return chosen


CORPUS_SCHEMA = pa.schema([("id", pa.string()), ("title", pa.string()), ("text", pa.string())])
QUERY_SCHEMA = pa.schema([("id", pa.string()), ("text", pa.string())])
QRELS_COLUMNS = ("query-id", "corpus-id", "score")  # as BEIR has them
ROW_GROUP = 4096
GROUPS = "groups.tsv"  # of a collection that is made of others: the group of each query
QUERIES, JUDGEMENTS = "queries", "judgements"
UNLABELLED = "queries_unlabelled.parquet"


def corpus_size(folder: Path) -> int:
    """Count the documents, from the parquet footer."""
    return pq.read_metadata(folder / "corpus.parquet").num_rows


def shard_rows(documents: int, shard: int, shards: int) -> tuple[int, int]:
    """Return first and last-plus-one corpus row of shard `shard` (from 0) of `shards`; all rows are covered once."""
    return shard * documents // shards, (shard + 1) * documents // shards


def read_corpus(
    folder: Path,
    start: int = 0,
    stop: int | None = None,
    columns: tuple[str, ...] = ("id", "title", "text"),
    block: int = ROW_GROUP,
) -> Iterator[pa.RecordBatch]:
    """Read rows `start..stop` of the corpus as batches of at most `block` rows, from the needed row groups only."""
    with pq.ParquetFile(folder / "corpus.parquet") as file:
        stop = file.metadata.num_rows if stop is None else stop
        first = 0
        for group in range(file.num_row_groups):
            last = first + file.metadata.row_group(group).num_rows
            if last > start and first < stop:
                table = file.read_row_group(group, columns=list(columns))
                table = table.slice(max(start - first, 0), min(stop, last) - max(start, first))
                yield from table.combine_chunks().to_batches(max_chunksize=block)
            first = last


def read_rows(
    folder: Path, rows: np.ndarray, columns: tuple[str, ...] = ("title", "text"), block: int = ROW_GROUP
) -> Iterator[pa.RecordBatch]:
    """Read the corpus rows `rows`, ascending, with one walk through the corpus, as batches that are not empty."""
    first = 0
    for batch in read_corpus(folder, columns=columns, block=block):
        low, high = np.searchsorted(rows, [first, first + len(batch)])
        if high > low:
            yield batch.take(pa.array(rows[low:high] - first))
        first += len(batch)


def read_texts(folder: Path, ids: set[str]) -> dict[str, tuple[str, str]]:
    """Read title and text of some documents by id, from one walk through the corpus; unknown ids are left out."""
    wanted = pc.SetLookupOptions(value_set=pa.array(sorted(ids), pa.string()))
    texts: dict[str, tuple[str, str]] = {}
    for batch in read_corpus(folder):
        for row in batch.filter(pc.is_in(batch.column("id"), options=wanted)).to_pylist():
            texts[row["id"]] = row["title"] or "", row["text"] or ""
    return texts


def corpus_ids(folder: Path, start: int = 0, stop: int | None = None) -> pa.Array:
    """Read the document ids of rows `start..stop` as an Arrow string array (compact, unlike a list)."""
    batches = list(read_corpus(folder, start, stop, columns=("id",)))
    return pa.concat_arrays([b.column(0) for b in batches]) if batches else pa.array([], pa.string())


def queries_file(folder: Path) -> Path:
    """Return the file with the queries; it may be absent in a user's own folder."""
    whole = folder / "queries.parquet"
    return whole if whole.exists() else folder / QUERIES / "queries.parquet"


def read_queries(folder: Path) -> pa.Table:
    """Read all queries: columns `id`, `text`; no row without a file."""
    path = queries_file(folder)
    return pq.read_table(path) if path.exists() else QUERY_SCHEMA.empty_table()


def unlabelled_queries(folder: Path) -> list[str]:
    """Read the texts of queries that no split judges, then those that the source keeps apart; none is a judged text."""
    judged = {query for name in qrels_files(folder) for query in read_qrels(folder, name)["query"]}
    table = read_queries(folder).to_pandas()
    labelled = table["id"].isin(judged)
    known = {text.strip().casefold() for text in table.loc[labelled, "text"]}
    apart = folder / UNLABELLED
    texts = table.loc[~labelled, "text"].tolist()
    texts += pq.read_table(apart)["text"].to_pylist() if apart.exists() else []
    return [text for text in texts if text.strip().casefold() not in known]


def qrels_files(folder: Path) -> dict[str, Path]:
    """Return the files with judgements by split, sorted."""
    paths = [*folder.glob("qrels.*.tsv"), *(folder / JUDGEMENTS).glob("qrels.*.tsv")]
    return {path.name[6:-4]: path for path in sorted(paths)}


def write_qrels(folder: Path, split: str, rows: Iterable[tuple[str, str, int]]) -> None:
    """Write the judgements of a split: query, document, grade. Ids hold no tab and no end of a line (`IdIndex.add`)."""
    with open(folder / f"qrels.{split}.tsv", "w", encoding="utf-8", newline="") as stream:
        stream.write("\t".join(QRELS_COLUMNS) + "\n")
        stream.writelines(f"{query}\t{document}\t{grade}\n" for query, document, grade in rows)


def write_generated_queries(folder: Path, split: str, rows: Sequence[tuple[str, str, str]]) -> None:
    """Write queries that were made from documents, each (id, text, document) with its document as relevant."""
    table = pa.table([[key for key, _, _ in rows], [text for _, text, _ in rows]], schema=QUERY_SCHEMA)
    pq.write_table(table, folder / "queries.parquet", compression="zstd")
    write_qrels(folder, split, ((key, document, 1) for key, _, document in rows))


def read_qrels(folder: Path, split: str) -> pd.DataFrame:
    """Read the judgements of a split: columns `query` (str), `document` (str), `grade` (int)."""
    files = qrels_files(folder)
    if split not in files:
        splits = ", ".join(files) or "none"
        problem = f"there are no judgements for this split (available: {splits})"
        raise CollectionError(f"{folder.name}/{split}", problem, "set evaluation_split to one of these, or add qrels")
    types = dict(zip(QRELS_COLUMNS, (str, str, int), strict=True))
    frame = pd.read_csv(files[split], sep="\t", dtype=types, keep_default_na=False, quoting=csv.QUOTE_NONE)
    return frame.rename(columns=dict(zip(QRELS_COLUMNS, ("query", "document", "grade"), strict=True)))


def split_queries(folder: Path, split: str) -> pd.DataFrame:
    """Read the queries with a judgement in `split`: columns `id`, `text`, in the order of queries.parquet.

    With split EVERY, and without one (`""`: no judgements), all queries that have a text. The order is the row order of
    query embeddings and of every run.
    """
    table, judged = read_queries(folder).to_pandas(), split not in ("", EVERY)
    chosen = table["id"].isin(set(read_qrels(folder, split)["query"])) if judged else table["text"].str.strip() != ""
    queries = table[chosen].reset_index(drop=True)
    if queries.empty:
        where = f"{folder.name}/{split or 'all queries'}"
        raise CollectionError(where, "there is no query with a text", "add queries (and qrels, to evaluate)")
    return queries


COLON = ":"
TEXT = pa.large_string()  # all texts of a corpus may pass 2 GiB


def namespaced(memory: str, ids: pa.Array) -> pa.Array:
    """Return `<memory>:<id>` of each id."""
    return pc.binary_join_element_wise(pa.scalar(memory), ids.cast(pa.string()), COLON)


def memory_of(document: str) -> str:
    """Return the memory that holds a document."""
    return document.partition(COLON)[0]


def memories_of(documents: pa.Array) -> pa.DictionaryArray:
    """Return the memory of each document."""
    return pc.replace_substring_regex(documents.cast(pa.string()), "^([^:]*):(?s:.*)$", r"\1").dictionary_encode()


def joined_texts(block: pa.RecordBatch, title_join: str | None) -> pa.Array:
    """Join title and text of each document; without a join or a title, return the text alone."""
    title, text = block.column("title").cast(TEXT), block.column("text").cast(TEXT)
    if title_join is None:
        return text
    both = pc.binary_join_element_wise(title, text, pa.scalar(title_join, TEXT))
    return pc.if_else(pc.equal(title, ""), text, both)


def folded(text: str) -> str:
    """Remove differences of case and blanks from a text, to recognise equal ones."""
    return " ".join(text.split()).casefold()


class MemoryTexts:
    """Read texts of documents of several memories from their corpora.

    Args:
        folders: collection folder of each memory.
        joins: separator between title and text in each; None leaves titles out.
    """

    def __init__(self, folders: Mapping[str, Path], joins: Mapping[str, str | None]) -> None:
        self.folders, self.joins = dict(folders), dict(joins)

    def texts(self, documents: pa.Array, where: object) -> pa.Array:
        """Return the texts of namespaced `documents`, in their order.

        Raises:
            ArtifactError: `where` names a memory that is not plugged in, or a document that its memory lacks.
        """
        texts = np.empty(len(documents), object)
        names = memories_of(documents)
        numbers = names.indices.to_numpy()
        for number, name in enumerate(names.dictionary.to_pylist()):
            if name not in self.folders:
                problem = f"names documents of memory {name!r}, plugged in are {', '.join(self.folders) or 'none'}"
                raise ArtifactError(where, problem, "plug it in")
            rows = np.flatnonzero(numbers == number)
            texts[rows] = self._of(name, documents.take(pa.array(rows)), where)
        return pa.array(texts, TEXT)

    def _of(self, name: str, documents: pa.Array, where: object) -> np.ndarray:
        """Read texts of documents of one memory, with one pass over the needed row groups."""
        ids = pc.utf8_slice_codeunits(documents.cast(pa.string()), len(name) + 1)
        corpus_rows = pc.index_in(ids, value_set=corpus_ids(self.folders[name]))
        if corpus_rows.null_count:
            first = ids.filter(pc.is_null(corpus_rows))[0]
            problem = f"names {corpus_rows.null_count} documents that memory {name} lacks, the first is {first}"
            raise ArtifactError(where, problem, "retrieve from this memory again")
        rows, order = np.unique(corpus_rows.to_numpy(), return_inverse=True)
        texts = list[str]()
        for block in read_rows(self.folders[name], rows):
            texts += joined_texts(block, self.joins[name]).to_pylist()
        return np.array(texts, object)[order] if texts else np.empty(0, object)


def equal_rows(
    folder: Path, start: int, stop: int, title_join: str | None, texts: Mapping[str, list[int]]
) -> Iterator[tuple[int, int]]:
    """Find pairs (number, row) of texts and of corpus rows `start..stop`, from 0, that hold the same text.

    Args:
        texts: folded text -> its numbers. A document is compared with its title and without it.
    """
    row = 0
    for block in read_corpus(folder, start, stop, columns=("title", "text")):
        titled, untitled = joined_texts(block, title_join).to_pylist(), block.column("text").to_pylist()
        for one, other in zip(titled, untitled, strict=True):
            for number in sorted({*texts.get(folded(one), ()), *texts.get(folded(other or ""), ())}):
                yield number, row
            row += 1
