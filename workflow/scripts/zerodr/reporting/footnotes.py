"""Write the notes that a reader of a table needs, in sentences."""

import pandas as pd

from zerodr.evaluation.metrics import LABELS
from zerodr.reporting.grid import Grid
from zerodr.reporting.settings import TableSettings

KINDS = {
    "subset": "a subset of the published collection",
    "pool": "a pool of judged documents, not the published corpus",
    "own": "your own collection",
}


def footnotes(frame: pd.DataFrame, grid: Grid, settings: TableSettings) -> list[str]:
    """Write all notes: measure, protocol card, splits, marks, averages, gaps, special queries, remarks."""
    return [
        f"cells: {LABELS.get(settings.metric, settings.metric)} ({settings.metric}), mean over the judged queries of "
        f"the split; scale {settings.scale}",
        *protocol_card(settings),
        *_splits(frame, settings),
        *_marks(grid),
        *_averages(grid.printed()),
        *[f"missing: {row.name} ({row.reason})" for row in settings.missing],
        *_special_queries(frame),
        *[f"{row.name}: {row.remark}" for row in settings.collections if row.remark],
        *_licences(settings),
        *[f"[{key}] {remark}" for key, remark in method_remarks(settings)],
    ]


def protocol_card(settings: TableSettings) -> list[str]:
    """Describe how texts were encoded and ranked."""
    protocol = settings.protocol
    excluded = [row.name for row in settings.collections if row.exclude_self]
    if protocol.exclude_self == "never":
        exclusion = "own documents are kept"
    else:
        exclusion = f"own documents left out at search time in {', '.join(excluded) or 'no collection of this table'}"
    join = "as the registry says" if protocol.title_join == "registry" else "no title, text alone"
    shown = {row.name for row in settings.collections}
    lengths = [_length("lengths", protocol.query_tokens, protocol.document_tokens)]
    for name, special in protocol.overrides.items():
        if name in shown:
            both = (special.query_tokens or protocol.query_tokens, special.document_tokens or protocol.document_tokens)
            lengths.append(_length(name, *both))
    return [
        f"protocol {protocol.name}: {protocol.description}",
        f"{'; '.join(lengths)}; title join: {join}; {exclusion}; depth {protocol.depth}; "
        "ties: score descending, then document id descending",
    ]


def _length(name: str, query: int | None, document: int | None) -> str:
    if query is document is None:
        return f"{name}: the model's own"
    counts = {"query": query, "document": document}
    words = [f"{kind} {f'{count} tokens' if count else 'as the model says'}" for kind, count in counts.items()]
    return f"{name}: {', '.join(words)}"


def _splits(frame: pd.DataFrame, settings: TableSettings) -> list[str]:
    queries = frame[frame["metric"] == "n_queries"].groupby("collection", sort=False)["value"].first()
    rows = [row for row in settings.collections if row.name in queries]
    shown = [f"{row.name} {row.evaluation_split} ({int(queries[row.name])} queries)" for row in rows]
    return ["splits: " + ", ".join(shown)]


def _marks(grid: Grid) -> list[str]:
    notes = []
    for column in grid.data_columns:
        if column.mark in KINDS:
            notes.append(f"{column.header}: {KINDS[column.mark]}; not comparable with published numbers, in no average")
        elif column.mark:
            notes.append(f"{column.header}: macro mean over a part of its collections; in no average")
        elif column.members != (column.name,):
            notes.append(f"{column.name}: macro mean over {len(column.members)} collections")
    return notes


def _averages(grid: Grid) -> list[str]:
    headers: dict[tuple[str, ...], list[str]] = {}
    for column in grid.columns[len(grid.data_columns) :]:
        headers.setdefault(column.members, []).append(column.header)
    return [f"{', '.join(names)}: mean over {', '.join(members)}" for members, names in headers.items()]


def _special_queries(frame: pd.DataFrame) -> list[str]:
    notes = []
    counts = frame[frame["metric"].str.startswith("n_without_")].assign(value=lambda rows: rows["value"].astype(float))
    empty = counts[(counts["metric"] == "n_without_results") & (counts["value"] > 0)]
    if len(empty):
        listed = ", ".join(f"{run.collection} {run.model} {int(run.value)}" for run in empty.itertuples())
        notes.append(f"queries without results, which score 0: {listed}")
    kinds = {
        "n_without_positives": "judged queries without a positive judgement, which score 0",
        "n_without_text": "judged queries without a text, which are left out",
    }
    for metric, what in kinds.items():
        by_collection = counts[counts["metric"] == metric].groupby("collection", sort=False)["value"].max()
        listed = ", ".join(f"{name} {int(count)}" for name, count in by_collection.items() if count)
        notes += [f"{what}: {listed}"] if listed else []
    return notes


def _licences(settings: TableSettings) -> list[str]:
    """List the licences that the registry records."""
    by_licence: dict[str, list[str]] = {}
    for row in settings.collections:
        if row.licence:
            by_licence.setdefault(row.licence, []).append(row.name)
    listed = [f"{', '.join(names)} ({licence})" for licence, names in by_licence.items()]
    return ["licences of the data: " + ", ".join(listed)] if listed else []


def method_remarks(settings: TableSettings) -> list[tuple[str, str]]:
    """List the different remarks of the methods, with the letters a, b, ... that mark them."""
    remarks = dict.fromkeys(method.remark for method in settings.methods if method.remark)
    return [(_letter(number), remark) for number, remark in enumerate(remarks)]


def _letter(number: int) -> str:
    return ("" if number < 26 else _letter(number // 26 - 1)) + chr(ord("a") + number % 26)


def printed_methods(settings: TableSettings) -> dict[str, str]:
    """Map each method to its label with the letter of its remark."""
    letters = {remark: letter for letter, remark in method_remarks(settings)}
    return {m.name: f"{m.label} [{letters[m.remark]}]" if m.remark else m.label for m in settings.methods}
