"""Read and write rankings as gzipped TREC run files: `query Q0 document rank score tag`.

A run is a pandas frame with columns `query` (str), `document` (str), `score` (float32), already in its total order:
queries in the order of the collection, then score descending, then document id descending (by UTF-8 bytes).

White space separates the words of a line, so a file has it in ids as `\\u0020`, and a backslash as `\\u005c`.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from zerodr.errors import ArtifactError

LINE = "expected lines 'query Q0 document rank score tag'"
LINES = 1 << 20  # formatted together; an Arrow string array holds at most 2 GiB
WORDS = {"query": "str", "q0": "category", "document": "str", "rank": "category", "score": "str", "tag": "category"}
ID, FLOAT = pa.dictionary(pa.int32(), pa.string()), pa.float32()
SPACED = {"query": ID, "q0": ID, "document": ID, "rank": ID, "score": FLOAT, "tag": ID}
PIECE = 1 << 24  # bytes that are parsed together
BREAKS = r"[\s\x00\x1c-\x1f\x85\p{Z}\\]"  # what no line can hold in a word; RE2's \s knows ASCII alone
BLANK = r"^$|[\s\x00\x1c-\x1f\x85\p{Z}]"  # of what is no word
SCORE = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
DOUBTS = {  # by their name in a summary
    "n_rank_contradicts": "scores contradict the ranks in %d of %d queries, and scores decide: distances need a minus",
    "n_equal_scores": "all scores are equal in %d of %d queries, so that document ids decide their order",
    "n_tied_scores": "scores of the first 10 documents tie in %d of %d queries whose ranks order them otherwise, so "
    "that document ids decide their order: write more digits, or ranks as scores",
    "n_equal_in_float32": "in %d of %d queries scores of the first 10 differ by less than trec_eval reads (float32), "
    "so that document ids decide their order: subtract a constant, or write ranks as scores",
    "n_rising_lines": "scores rise from line to line in %d of %d queries, whose ranks say nothing, and scores decide: "
    "distances need a minus",
    "n_ranks_as_scores": "scores are 1, 2, 3, ... in %d of %d queries, and ranks are not: rank and score seem to "
    "have changed places",
    "n_several_tags": "lines of %d of %d queries end in different words, as where a file holds several systems, whose "
    "scores are ordered as if they were of one: give each system a file",
}
CUT = "n_ranked_alike"  # its name in a summary
CUT_WORDS = "rankings end at rank %d in %d queries, and what the file leaves out counts as not found by %s"
TOP = 10  # documents of a query
_UNSAFE, _ESCAPED = re.compile(r"[\s\x00\\]"), re.compile(r"\\u([0-9a-f]{4})")


def total_order(run: pd.DataFrame) -> pd.DataFrame:
    """Sort by score descending, then document id descending, within queries in order of first appearance."""
    order = order_rows(pd.factorize(run["query"])[0], run["score"].to_numpy(), strings(run["document"]))
    return run.iloc[order].reset_index(drop=True)


def strings(column: pd.Series) -> pa.Array:
    """Convert a column of ids to one Arrow array (pandas may store it in chunks)."""
    array = pa.array(column, pa.string())
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def order_rows(query: np.ndarray, score: np.ndarray, document: pa.Array) -> np.ndarray:
    """Return positions in total order: `query` (int) ascending, then `score` descending, then `document` descending.

    Ids are compared only where scores are equal, which is rare in dense rankings.
    """
    order = np.lexsort((-score, query))
    query, score = query[order], score[order]
    same = (query[1:] == query[:-1]) & (score[1:] == score[:-1])
    tied = np.zeros(len(order), bool)
    tied[1:] |= same
    tied[:-1] |= same
    rows = np.flatnonzero(tied)
    if len(rows):
        runs = np.cumsum(np.concatenate([[True], ~same]))[rows]
        ids = document.take(pa.array(order[rows])).dictionary_encode()
        alphabet = np.empty(len(ids.dictionary), np.int64)
        alphabet[pc.sort_indices(ids.dictionary).to_numpy()] = np.arange(len(alphabet))
        rank = alphabet[ids.indices.to_numpy()]
        order[rows] = order[rows][np.lexsort((-rank, runs))]
    return order


class RunWriter:
    """A writer of a run in pieces; a query's rows belong to one piece."""

    def __init__(self, stream: gzip.GzipFile, where: Path, tag: str) -> None:
        self._stream, self._where, self._tag = stream, where, tag
        if not tag or escape(pa.array([tag]))[0].as_py() != tag:
            raise ArtifactError(where, f"tag {tag!r} is empty or holds white space", "rename it")

    def write(self, query: pa.Array, document: pa.Array, score: np.ndarray) -> None:
        """Append rows in total order.

        Raises:
            ArtifactError: an id is empty, so that the line could not be read back.
        """
        names = query.dictionary_encode()
        _refuse_empty(names.dictionary, self._where, "query id")
        _refuse_empty(document, self._where, "document id")
        query, document = escape(names.dictionary).take(names.indices), escape(document)
        count, code = len(query), names.indices.to_numpy()
        first = np.flatnonzero(np.concatenate([[True], code[1:] != code[:-1]]))[:count]
        rank = np.arange(1, count + 1) - np.repeat(first, np.diff(np.append(first, count)))
        for start in range(0, count, LINES):
            block = slice(start, start + LINES)
            self._stream.write(_lines(query[block], document[block], rank[block], score[block], self._tag))


def _lines(query: pa.Array, document: pa.Array, rank: np.ndarray, score: np.ndarray, tag: str) -> pa.Buffer:
    """Format the lines. Scores are the shortest decimals that parse to the same float32."""
    ranks = pa.array(rank).cast(pa.string())
    scores = pa.array(np.asarray(score, np.float32)).cast(pa.string())
    lines = pc.binary_join_element_wise(query, "Q0", document, ranks, scores, f"{tag}\n", " ")
    _, ends, text = lines.buffers()
    first, last = np.frombuffer(ends, np.int32)[[lines.offset, lines.offset + len(lines)]]
    return text[int(first) : int(last)]


def _refuse_empty(words: pa.Array, where: Path, what: str) -> None:
    if pc.index(words, "").as_py() >= 0:
        raise ArtifactError(where, f"a {what} is empty: no TREC run can hold it", "give it a name")


def escape(words: pa.Array) -> pa.Array:
    """Write white space, NUL and backslashes of words as `\\u` and four hexadecimal digits."""
    unsafe = pc.match_substring_regex(words, BREAKS)
    if not pc.any(unsafe).as_py():
        return words
    return pa.array([_UNSAFE.sub(_code, word) for word in words.to_pylist()], pa.string())


def _code(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


def unescape(words: pd.Series) -> pd.Series:
    """Undo `escape`."""
    if not words.str.contains("\\", regex=False).any():
        return words
    return words.map(lambda word: _ESCAPED.sub(lambda match: chr(int(match[1], 16)), word))


@contextmanager
def run_writer(path: Path, tag: str) -> Iterator[RunWriter]:
    """Open a run file for writing; equal runs have equal bytes (no time stamp, no file name)."""
    with open(path, "wb") as raw:
        with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=4, mtime=0, filename="") as zipped:
            yield RunWriter(zipped, path, tag)


def write_run(path: Path, run: pd.DataFrame, tag: str) -> None:
    """Write a run that is in total order."""
    with run_writer(path, tag) as writer:
        query, document = (strings(run[name]) for name in ("query", "document"))
        writer.write(query, document, run["score"].to_numpy(np.float32))


def read_run(path: Path, ranks: bool = False, queries: Collection[str] | None = None) -> pd.DataFrame:
    """Read a TREC run (gzipped or not) into columns `query`, `document`, `score`, in the file's order.

    Words after the sixth of a line count for nothing, as in trec_eval.

    Args:
        path: the file.
        ranks: add columns `rank`, NaN where the file has no number, and `tag`, a number for each word; `rank` and
            `score` are float64, as the file has them.
        queries: return the lines of these queries alone; the others never are in memory as text.
    """
    table = _read_spaced(path, pa.float64() if ranks else FLOAT)
    if table is None:
        run = _read_any(path, ranks)
        return run if queries is None else run[run["query"].isin(queries)].reset_index(drop=True)
    if queries is not None:
        names = pa.array(sorted(queries), pa.string())
        table = table.filter(pc.is_in(table["query"], value_set=escape(names)))
    ids = {name: table[name].unify_dictionaries().combine_chunks() for name in ("query", "document")}
    frame = pd.DataFrame({name: pd.array(_unescaped(words), dtype="str") for name, words in ids.items()})
    frame = frame.assign(score=table["score"].to_numpy())
    if not ranks:
        return frame
    tag = pd.factorize(table["tag"].cast(pa.string()).to_pandas())[0]
    return frame.assign(rank=_numbers(table["rank"].cast(pa.string()).to_pandas()), tag=tag)


def _numbers(words: pd.Series) -> np.ndarray:
    return pd.to_numeric(words, errors="coerce").to_numpy(np.float64)


def _read_spaced(path: Path, number: pa.DataType = FLOAT) -> pa.Table | None:
    """Read lines of six words with one space between them, as most systems write them; None where there are others.

    On ten million lines this takes half the time of `_read_any`.
    """
    convert = {"column_types": SPACED | {"score": number}, "null_values": [], "strings_can_be_null": False}
    try:
        with pa.input_stream(str(path), compression="gzip" if path.suffix == ".gz" else None) as stream:
            table = arrow_csv.read_csv(
                stream,
                arrow_csv.ReadOptions(column_names=list(SPACED), block_size=PIECE),
                arrow_csv.ParseOptions(delimiter=" ", quote_char=False),
                arrow_csv.ConvertOptions(**convert),
            )
    except (OSError, pa.ArrowException):
        return None
    words = (chunk.dictionary for name in SPACED if name != "score" for chunk in table[name].chunks)
    return None if any(pc.any(pc.match_substring_regex(one, BLANK)).as_py() for one in words) else table


def _unescaped(words: pa.DictionaryArray) -> pa.Array:
    names = pa.array(unescape(words.dictionary.to_pandas()), pa.string())
    return pa.DictionaryArray.from_arrays(words.indices, names).cast(pa.string())


def _read_any(path: Path, ranks: bool) -> pd.DataFrame:
    """Read lines of six words or more with any white space between them.

    Raises:
        ArtifactError: names the first line that is none of a run.
    """
    number = pa.float64() if ranks else FLOAT
    try:
        layout = {"sep": r"\s+", "header": None, "names": list(WORDS), "dtype": WORDS, "encoding": "utf-8"}
        frame = pd.read_csv(path, keep_default_na=False, quoting=csv.QUOTE_NONE, **layout)
        if not isinstance(frame.index, pd.RangeIndex) or "" in frame["tag"].cat.categories:
            raise ValueError("a line has not six words")
        score = pc.cast(strings(frame["score"]), number)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        frame, longest = _read_words(path)
        if longest <= len(WORDS):
            raise ArtifactError(path, f"is no TREC run ({error})", LINE) from error
        score = pa.array(frame["score"].map(float), number)
    ids = {name: unescape(frame[name]) for name in ("query", "document")}
    read = pd.DataFrame(ids).assign(score=score.to_numpy())
    tag = pd.factorize(frame["tag"])[0]
    return read.assign(rank=_numbers(frame["rank"].astype("str")), tag=tag) if ranks else read


def _read_words(path: Path) -> tuple[pd.DataFrame, int]:
    """Read the first six words of each line, slowly; return the number of words of the longest line, too.

    Raises:
        ArtifactError: names the first line that is none of a run.
    """
    rows, longest = [], 0
    try:
        for number, words in _words(path):
            if len(words) < len(WORDS):
                problem = f"is no TREC run (expected {len(WORDS)} words, found {len(words)})"
                raise ArtifactError(f"{path}:{number}", problem, LINE)
            if not SCORE.fullmatch(words[4]):
                problem = f"is no TREC run (the score {words[4]!r:.40} is no number)"
                raise ArtifactError(f"{path}:{number}", problem, LINE)
            if len(words) > len(WORDS) and SCORE.fullmatch(words[5]):
                problem = f"is no TREC run (found {len(words)} words, the fifth and the sixth are numbers)"
                raise ArtifactError(f"{path}:{number}", problem, f"{LINE}, blanks in ids as \\u0020")
            longest = max(longest, len(words))
            rows.append(words[: len(WORDS)])
    except (OSError, EOFError, zlib.error):
        longest = 0  # what is damaged is named by the caller
    return pd.DataFrame(rows, columns=list(WORDS), dtype="str"), longest


def _words(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Read number and words of each line that is not blank.

    Raises:
        ArtifactError: a line is not in UTF-8.
    """
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ArtifactError(f"{path}:{number}", f"is no TREC run ({error})", LINE) from None
            if words := text.removeprefix("\ufeff").split():
                yield number, words


def find_line(path: Path, name: str, word: str) -> str:
    """Return `file:line` of the first line of a run whose word `name` (see WORDS) is `word`."""
    column = list(WORDS).index(name)
    escaped = _UNSAFE.sub(_code, word)
    lines = (number for number, words in _words(path) if len(words) > column and words[column] in (word, escaped))
    return f"{path}:{next(lines, 0)}"


class RunDoubt(NamedTuple):
    """Queries of a file that give rise to a doubt, among those with at least two documents."""

    queries: int
    all_queries: int


def count_doubts(run: pd.DataFrame) -> dict[str, RunDoubt]:
    """Count the queries whose scores may mean something else; a name of DOUBTS is absent without reason to doubt.

    Args:
        run: columns `query`, `document`, `score`, `rank`, and `tag` if known, as the file has them (`read_run`).
    """
    queries = pd.factorize(run["query"])[0]
    ordered = run.sort_values(["query", "rank"], kind="stable")
    same = ordered["query"].eq(ordered["query"].shift())
    later = same & ordered["rank"].gt(ordered["rank"].shift())
    rising = ordered.loc[later & ordered["score"].gt(ordered["score"].shift()), "query"].nunique()
    several = ordered.loc[same, "query"].nunique()
    equal = ordered["score"].eq(ordered["score"].shift())
    unequal = set(ordered.loc[same & ~equal, "query"])
    counts = {
        "n_rank_contradicts": rising,
        "n_rising_lines": _rising_lines(run, queries),
        "n_ranks_as_scores": _ranks_as_scores(run, queries),
        "n_equal_scores": several - len(unequal),
        "n_tied_scores": len(unequal & _reordered(ordered, later & equal)),
        "n_equal_in_float32": _rounded_alike(run),
        "n_several_tags": int((run.groupby("query")["tag"].nunique() > 1).sum()) if "tag" in run else 0,
    }
    return {name: RunDoubt(count, several) for name, count in counts.items() if count}


def _reordered(ordered: pd.DataFrame, tied: pd.Series) -> set[str]:
    """Return the queries whose first TOP documents come in another order by ids than by ranks, where scores are tied.

    Args:
        ordered: lines by query and rank.
        tied: lines with the score of the one before, of the same query.
    """
    tied &= ordered.groupby("query", sort=False, observed=True).cumcount() <= TOP
    documents = ordered["document"]
    later, earlier = documents[tied].astype(str), documents.shift()[tied].astype(str)
    return set(ordered.loc[tied, "query"][later > earlier])


class RunCut(NamedTuple):
    """The number of documents at which a file's rankings end, and how many of them do."""

    depth: int
    queries: int


def count_cut(run: pd.DataFrame, deepest: int) -> dict[str, RunCut]:
    """Find the depth at which a run was cut: most queries have that many documents, and at most a tenth has more.

    Rankings that end where nothing more was found have different lengths, and are not cut.

    Args:
        run: with a column `query`.
        deepest: documents that a ranking can have.
    """
    lengths = run.groupby("query").size()
    depth = lengths.quantile(0.9, interpolation="lower")  # NaN without a query
    queries = int(lengths.eq(depth).sum())
    return {CUT: RunCut(int(depth), queries)} if depth < deepest and 2 * queries > len(lengths) else {}


def _rising_lines(run: pd.DataFrame, queries: np.ndarray) -> int:
    """Count the queries with at least three lines, without ranks or with equal ones, whose scores rise in each line."""
    by_query = run.groupby(queries)
    rises = run["score"].gt(by_query["score"].shift()) | by_query.cumcount().eq(0)
    risen = rises.groupby(queries).all() & by_query.size().ge(3) & by_query["rank"].nunique().le(1)
    return int(risen.sum())


def _ranks_as_scores(run: pd.DataFrame, queries: np.ndarray) -> int:
    """Count the queries whose scores are the numbers from 1 or 0 on, without a gap, and whose ranks are others."""
    by_query = run[["score", "rank"]].groupby(queries)
    count, least, different = by_query.size(), by_query.min(), by_query.nunique()
    numbered = least.isin([0, 1]) & (by_query.max() - least + 1).eq(count, axis=0) & different.eq(count, axis=0)
    return int((numbered["score"] & ~numbered["rank"] & different["rank"].gt(1)).sum())


def _rounded_alike(run: pd.DataFrame) -> int:
    """Count the queries with different scores in their first TOP documents, or just below, that float32 makes equal."""
    best = run.sort_values(["query", "score"], ascending=[True, False], kind="stable")
    best = best[best.groupby("query").cumcount() <= TOP]
    before = best["score"].shift()
    alike = best["score"].astype(np.float32).eq(before.astype(np.float32)) & best["score"].ne(before)
    return int(best.loc[alike & best["query"].eq(best["query"].shift()), "query"].nunique())
