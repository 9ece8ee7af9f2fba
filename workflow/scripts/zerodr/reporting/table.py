"""Build and print the main table: a row a model, a column a collection, averages, footnotes, published numbers."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from zerodr.artifacts.origins import of_unknown_origin
from zerodr.artifacts.stage import Stage
from zerodr.artifacts.trec import CUT, CUT_WORDS, DOUBTS
from zerodr.config.base import validate
from zerodr.config.measures import beyond, label_of
from zerodr.config.quantities import first_names
from zerodr.errors import ArtifactError
from zerodr.evaluation.findings import WORDS
from zerodr.evaluation.numbers import fixed, interval, p_value, read_tsv, signed
from zerodr.evaluation.significance import holm, interval_over_seeds, paired_tests
from zerodr.plan.targets import command
from zerodr.reporting import render
from zerodr.reporting.grid import Grid, TableSettings, check_summaries, fill, further, read_summaries
from zerodr.reporting.published import (
    REFERENCE,
    compare,
    published_rows,
    published_section,
    published_tsv,
    read_papers,
    read_reference,
    without_empty,
)
from zerodr.reporting.render import method_remarks

KINDS = {
    "subset": "a subset of the published collection",
    "pool": "a pool of judged documents, not the published corpus",
    "own": "your own collection",
    "transformed": "texts of another collection, changed for a control",
}
LINK = Path("results/lineage/link.json")
SUFFIXES = (".tsv", ".md", ".tex", ".svg", ".png")


def build_table(stage: Stage) -> None:
    """Read inputs `summaries` and, when the rule has them, `significance`, `references`, `papers`.

    Write output `table` (tsv) and, when the rule declares them, `csv`, `notes`, `markdown`, `tex`, `published` (tsv).
    """
    settings = validate(TableSettings, stage.params, stage.spec.rule)
    frame = read_summaries(stage.paths("summaries"))
    check_summaries(frame, settings)
    scores = published_rows(stage, settings)
    settings, left_out = without_empty(settings, scores)
    grid = fill(pd.concat([frame, scores]) if len(scores) else frame, settings)
    notes, marks = [*footnotes(frame, grid, settings), *left_out, *_unknown(stage)], {}
    if settings.seeds:
        per_query = pd.read_parquet(stage.path("per_query"))
        notes += over_seeds(per_query, settings, stage.seed) + gains_over_seeds(per_query, settings, stage.seed)
    sections: list[str] = []
    others = further(frame, settings)
    labels = {method.name: method.label for method in settings.methods}
    for other, values in others.items():
        rows = [[labels[str(name)], *map(fixed, row)] for name, row in values.values.iterrows()]
        header = ["", *(column.printed for column in values.columns)]
        sections.append(f"## {label_of(other)}\n\n{render.markdown_table(header, rows)}")
    if "significance" in stage.spec.inputs:
        tests = read_tsv(stage.path("significance"))
        marks = render.significance_marks(tests)
        about, differences = render.significance_section(tests, settings)
        notes, sections = [*notes, *about], [*sections, *differences]
    if "published" in stage.spec.outputs:
        comparison = compare(frame, _references(stage, settings), settings)
        printed = read_papers(stage.paths("papers") if "papers" in stage.spec.inputs else [], settings)
        comparison = pd.concat([table for table in (comparison, printed) if len(table)] or [comparison])
        stage.output("published").write_text(published_tsv(comparison, settings), encoding="utf-8")
        stage.note(published={str(k): int(v) for k, v in comparison["verdict"].value_counts().items()})
        sections += published_section(comparison, settings)
    stage.output("table").write_text(render.plain(grid.printed(), others), encoding="utf-8")
    markdown = render.markdown(grid.printed(), notes, settings, marks, sections)
    texts = {"markdown": markdown, "notes": "".join(f"- {note}\n" for note in notes)}
    texts["csv"] = render.plain(grid.printed(), others, ",")
    texts["tex"] = render.tex(grid.printed(), notes, settings, marks)
    for name in texts.keys() & stage.spec.outputs.keys():
        stage.output(name).write_text(texts[name], encoding="utf-8")


def over_seeds(frame: pd.DataFrame, settings: TableSettings, seed: int) -> list[str]:
    """Write a note for each method with several seeds: means and intervals over seeds and queries, by collection."""
    labels = {method.name: method.label for method in settings.methods}
    notes = []
    for name, names in settings.seeds.items():
        cells = []
        for collection, rows in frame[frame["model"].isin(names)].groupby("collection", sort=False):
            values = rows.pivot(index="model", columns="query", values=settings.metric).to_numpy()
            span = interval_over_seeds(values, settings.bootstrap_samples, seed)
            mean, low, high, least, most = map(
                fixed, (values.mean(), *span, values.mean(1).min(), values.mean(1).max())
            )
            cells.append(f"{collection} {mean} [{low}, {high}], seeds {least} to {most}")
        what = f"{labels[name]}, mean over {len(names)} seeds with its 95 % interval over seeds and queries"
        notes.append(f"{what}: {'; '.join(cells)}")
    return notes


def gains_over_seeds(frame: pd.DataFrame, settings: TableSettings, seed: int) -> list[str]:
    """Write a note for each method that has the baseline's seeds: its difference, each query averaged over seeds.

    Intervals are over queries, of these seeds; p-values are of a paired t-test after Holm over all notes, as in claims.
    """
    baseline = settings.seeds.get(settings.baseline, ())
    labels, gains = {method.name: method.label for method in settings.methods}, []
    others = {name: names for name, names in settings.seeds.items() if name != settings.baseline}
    several = [name for name, names in others.items() if len(names) == len(baseline)]
    for name in several:
        for collection, rows in frame.groupby("collection", sort=False):
            both = [settings.seeds[name], baseline]
            rows = rows[rows["model"].isin([*both[0], *both[1]])].astype({"query": "str", "model": "str"})
            values = rows.pivot(index="query", columns="model", values=settings.metric)
            if {*both[0], *both[1]} == set(values.columns):
                ours, theirs = (values[list(names)].mean(axis=1).to_numpy(float) for names in both)
                (test,) = paired_tests(ours[:, None], theirs, settings.bootstrap_samples, seed)
                gains.append((name, str(collection), test))
    corrected = holm(np.array([test.p_t for *_, test in gains]))
    notes = []
    for name in several:
        cells = [
            f"{collection} {signed(test.difference)} {interval(test.low, test.high)}, p {p_value(p)}"
            for (method, collection, test), p in zip(gains, corrected, strict=True)
            if method == name
        ]
        about = f"{labels[name]} minus {labels[settings.baseline]}, queries averaged over {len(baseline)} seeds"
        tested = f"95 % interval over queries; t-test, Holm over {len(gains)}"
        notes += [f"{about}: {'; '.join(cells)} ({tested})"] if cells else []
    return notes


def _unknown(stage: Stage) -> list[str]:
    """Say which artifacts behind the numbers are not here, so that nothing shows that their settings are these."""
    if not (lacking := of_unknown_origin(list(map(str, stage.paths("summaries"))))):
        return []
    listed = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
    return [f"made from what is not here, nor its record, so that its settings may be others than these: {listed}"]


def _references(stage: Stage, settings: TableSettings) -> pd.DataFrame:
    paths = stage.paths("references") if "references" in stage.spec.inputs else []
    if len(paths) != len(settings.references):
        problem = f"expected {len(settings.references)} references, found {len(paths)}"
        raise ArtifactError(stage.spec.rule, problem, "declare the files of config.references as the rule's input")
    frames = [read_reference(path, reference) for path, reference in zip(paths, settings.references, strict=True)]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=REFERENCE)


def footnotes(frame: pd.DataFrame, grid: Grid, settings: TableSettings) -> list[str]:
    """Write all notes: measure, protocol card, splits, marks, averages, gaps, special queries, remarks."""
    return [
        f"cells: {label_of(settings.metric)} ({settings.metric}), mean over the judged queries of "
        f"the split; scale {settings.scale}",
        *protocol_card(settings),
        *_splits(frame, settings),
        *_marks(grid),
        *_averages(grid.printed()),
        *_no_means(grid.printed(), settings),
        *[f"missing: {row.name} ({row.reason})" for row in settings.missing],
        *_special_queries(frame),
        *_doubts(frame),
        *_cuts(frame, settings),
        *_findings(frame),
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
    shown = {row.name for row in settings.collections}
    lengths = [_length("lengths", protocol.query_tokens, protocol.document_tokens)]
    for name, special in protocol.overrides.items():
        if name in shown:
            both = (special.query_tokens or protocol.query_tokens, special.document_tokens or protocol.document_tokens)
            lengths.append(_length(name, *both))
    ranked = f"{exclusion}; depth {protocol.depth}; ties: {_ties(settings)}"
    return [
        f"protocol {protocol.name}: {protocol.description}",
        f"{'; '.join(lengths)}; title join: as the registry says; {ranked}",
    ]


def _ties(settings: TableSettings) -> str:
    """Say how equal scores are ordered: BM25's as its settings choose, see `lexical.search`."""
    order = "score descending, then document id descending"
    if all(row.kind == "own" for row in settings.collections):
        return order
    return f"{order}; BM25, as Anserini: document id ascending where scores are below 32, your own folders excepted"


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


def _no_means(grid: Grid, settings: TableSettings) -> list[str]:
    """Say why the mean of a method that ranked some of its collections is empty."""
    notes = []
    for column in (one for one in grid.columns if one.members != (one.name,)):
        for method in (one for one in settings.methods if one.scores is None):
            empty = grid.values.loc[method.name].isna()
            gaps = [name for name in column.members if name in method.absent or empty.get(name, False)]
            if empty[column.name] and len(gaps) < len(column.members):
                notes.append(f"{column.name} {method.name}: no mean, because it has no ranking of {first_names(gaps)}")
    return notes


def _special_queries(frame: pd.DataFrame) -> list[str]:
    notes = []
    counts = frame[frame["metric"].str.startswith("n_without_")].assign(value=lambda rows: rows["value"].astype(float))
    empty = counts[(counts["metric"] == "n_without_results") & (counts["value"] > 0)]
    if len(empty):
        listed = ", ".join(f"{run.collection} {run.model} {int(run.value)}" for run in empty.itertuples())
        notes.append(f"queries without results, which score 0: {listed}")
    kinds = {
        "n_without_positives": "judged queries without a positive judgement, which are left out",
        "n_without_text": "judged queries without a text, which are left out",
    }
    for metric, what in kinds.items():
        first = counts[counts["metric"] == metric].groupby("collection", sort=False)[["value", "queries"]].max()
        shares = zip(first.index, first["value"].astype(int), first["queries"], strict=True)
        listed = ", ".join(f"{name} {count} of {count + queries}" for name, count, queries in shares if count)
        notes += [f"{what}: {listed}"] if listed else []
    return notes


def _findings(frame: pd.DataFrame) -> list[str]:
    """Write what the audits found that changes a measure, with counts by collection."""
    rows = frame[frame["metric"].isin(WORDS)].drop_duplicates(["metric", "collection"])
    notes = []
    for name, what in WORDS.items():
        chosen = rows[rows["metric"] == name]
        shares = zip(chosen["collection"], chosen["value"].astype(float), chosen["queries"], strict=True)
        listed = ", ".join(f"{collection} {count:.0f} of {total}" for collection, count, total in shares)
        notes += [f"{what}: {listed}"] if listed else []
    return notes


def _doubts(frame: pd.DataFrame) -> list[str]:
    """Write what is doubtful about imported runs."""
    rows = frame[frame["metric"].isin(DOUBTS)]
    return [
        f"{row.collection} {row.model}: {DOUBTS[row.metric] % (int(float(row.value)), int(row.queries))}"
        for row in rows.itertuples()
    ]


def _cuts(frame: pd.DataFrame, settings: TableSettings) -> list[str]:
    """Write which imported runs end above the last document that a measure of the table looks at."""
    notes = []
    for row in frame[frame["metric"] == CUT].itertuples():
        depth = int(float(row.value))
        if deeper := beyond([settings.metric, *settings.further], depth):
            words = CUT_WORDS % (depth, int(row.queries), ", ".join(map(label_of, deeper)))
            notes.append(f"{row.collection} {row.model}: {words}")
    return notes


def _licences(settings: TableSettings) -> list[str]:
    """List the licences that the registry records."""
    by_licence: dict[str, list[str]] = {}
    for row in settings.collections:
        if row.licence:
            by_licence.setdefault(row.licence, []).append(row.name)
    listed = [f"{', '.join(names)} ({licence})" for licence, names in by_licence.items()]
    return ["licences of the data: " + ", ".join(listed)] if listed else []


AGAIN = "a run makes them again; if they are of a run with --config words, repeat these here"


def show(
    selection: str, summaries: list[Path], params: dict[str, Any], words: Sequence[str], old: Mapping[str, str]
) -> str:
    """Return the table with the paths of plots, logs, lineage and the command that opens MLflow.

    Where the table is not yet built, return what is finished of it.

    Args:
        selection: name of the table.
        summaries: its cells, finished or not.
        params: those of `build_table`.
        words: of `--config`, for the commands that are named.
        old: cells that a run with these words makes again, each with the reason: they count as not finished.

    Raises:
        ArtifactError: nothing is finished.
    """
    table, finished = Path(f"results/beir/{selection}.md"), [path for path in summaries if path.exists()]
    finished = [path for path in finished if str(path) not in old]
    others = f"{len(old)} of {len(summaries)} cells are of other settings ({next(iter(old.values()))})" if old else ""
    if table.exists():
        line = f"Outdated   {others}: {AGAIN}\n" if old else ""
        return f"\n{table.read_text(encoding='utf-8').rstrip()}\n\n{line}{_next(selection, words)}"
    if not finished:
        step = command(f"results/beir/{selection}.tsv", words) if words else "make mini"
        more = f", and {others}" if old else ""
        raise ArtifactError(table, f"is missing{more}", f"run: {step}")
    settings, frame = validate(TableSettings, params, "the table"), read_summaries(finished)
    grid = fill(frame, settings).printed()
    notes = [
        f"not the whole table: {len(finished)} of {len(summaries)} cells are on disk; to go on, repeat the command",
        *([f"left out: {others}: {AGAIN}"] if old else []),
        f"cells: {label_of(settings.metric)}, mean over the judged queries of the split; scale {settings.scale}",
        *_splits(frame, settings),
    ]
    begun = Grid(grid.columns, grid.averages, grid.values.dropna(how="all"))
    return f"\n{render.markdown(begun, notes, settings, {}, [])}"


def _next(selection: str, words: Sequence[str]) -> str:
    """List what there is of a finished table, and the commands that make or open the rest."""
    table = f"results/beir/{selection}"
    page, published = Path(f"{table}.html").exists(), LINK.exists()
    files = [suffix for suffix in SUFFIXES if Path(f"{table}{suffix}").exists()]
    report = shlex.join(["zerodr", "report", *(f"--config={word}" for word in words)]) if words else "make report"
    shown = f"{table}.html  to sort, filter and open; query by query: {table}/queries/"
    lines = {
        "Page": shown if page else command(f"{table}.html", words),
        "Files": f"{table}{'  '.join(files)}; in {table}/: tests, published numbers, holes",
        "Logs": "results/logs/<rule>/   time and memory by job: results/benchmarks/<rule>/",
        "Lineage": f".venv/bin/zerodr lineage {table}.tsv",
        "MLflow": f"{'' if published else 'zerodr publish, then '}make mlflow            then open {_published()}",
        "Report": f"{report}            then open results/report.html" if page else "",
    }
    return "".join(f"{name:<11}{what}\n" for name, what in lines.items() if what)


def _published() -> str:
    """Return the address of the methods in MLflow, as the publisher wrote it."""
    return json.loads(LINK.read_text(encoding="utf-8")) if LINK.exists() else "http://127.0.0.1:5000"
