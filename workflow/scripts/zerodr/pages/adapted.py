"""Stage `build_adapted_page`: one page about a comparison of candidates on a folder; it needs no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup
from pydantic import Field

from zerodr.artifacts.record import Record
from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.config.params import Candidate
from zerodr.evaluation.advice import short_label
from zerodr.evaluation.numbers import plural
from zerodr.lineage.graph import Graph, render_tree
from zerodr.pages.costs import Cost, cost_by_rule, jobs_above
from zerodr.pages.html import fill
from zerodr.reporting.panels import COLORS, TEXT, blank, drawing_style, row_labels, svg_of

MEAN = "mean"
SIDES = ("left", "right")
SHOWN_RULES, WINS, LOSSES = 6, 3, 2
PANEL, ROW = 4.2, 0.27  # width of the panel and height of a row, in inches
CUT = 0.05  # share of documents at the model's limit that is worth a hint
NEW, OLD = (COLORS[0], "D"), ("#9a5b00", "o")  # colour and marker, as templates/adapted.html names them


class AdaptedPageSettings(Settings):
    """Settings of `build_adapted_page`."""

    collection: str
    """Name of the folder's collection."""
    label: str
    """Its name in headings."""
    command: str
    """The command that makes the page again."""
    methods: tuple[Candidate, ...] = Field(min_length=2)
    """The candidates."""
    hints: tuple[str, ...] = ()
    """Sentences on where the numbers may mislead."""


def build_adapted_page(stage: Stage) -> None:
    """Read inputs `answer` and `model`; write `page`."""
    settings = validate(AdaptedPageSettings, stage.params, stage.spec.name())
    home, graph = stage.path("answer"), Graph()
    answer, examples = (
        json.loads((home / f"{name}.json").read_text(encoding="utf-8")) for name in ("answer", "examples")
    )
    table = pd.read_csv(home / "comparison.tsv", sep="\t")
    table = pd.concat([table[table["kind"] == MEAN], table[table["kind"] != MEAN]], ignore_index=True)
    if len(answer["kinds"]) == 1:  # the mean is the one kind that decides
        table = table[table["kind"] != MEAN].reset_index(drop=True)
    labels = {method.name: short_label(method.label) for method in settings.methods}
    adapted = {method.name for method in settings.methods if method.adapted}
    manifests = [str(path) for name in ("answer", "model") for path in stage.paths(name)]
    page = fill(
        "adapted.html",
        title=f"{settings.label}: which retriever to use",
        collection=settings.collection,
        advice=answer["advice"],
        hints=[*settings.hints, *cut_hint(graph, manifests[1])],
        sentences=answer["sentences"],
        undecided=answer["verdict"] == "undecided",
        pairs=count_pairs(home / "to_judge.tsv"),
        plot=draw(table, labels, adapted),
        kinds=headings(table),
        has_first=bool(answer["first"]),
        rows=rows(table, settings, answer),
        words=words_of(table, settings),
        remarks=remarks(settings),
        examples=described(examples, labels),
        costs=costs(jobs_above(graph, manifests)),
        command=settings.command,
        trees=[render_tree(graph, path) for path in manifests],
    )
    stage.output("page").write_text(page, encoding="utf-8")


def count_pairs(path: Path) -> str:
    """Count the pairs that a person may judge: `50 new pairs`; empty without any."""
    count = len(path.read_text(encoding="utf-8").splitlines()) - 1 if path.exists() else 0
    return plural(count, "new pair") if count else ""


def cut_hint(graph: Graph, model: str) -> list[str]:
    """Say which share of the documents is longer than the chosen model reads, where it is not small."""
    exported = graph.record(model)
    vectors = [entry["path"] for entry in exported["inputs"] if entry["name"] == "vectors"] if exported else []
    notes = [record["notes"] for path in vectors if (record := graph.record(path))]
    texts, cut = (sum(note.get(name, 0) for note in notes) for name in ("texts", "texts_at_length_limit"))
    if not texts or cut < CUT * texts:
        return []
    length = notes[0]["document_tokens"]["used"]
    return [
        f"{100 * cut / texts:.0f} of 100 documents are longer than the model reads ({length} pieces of words, about "
        f"{length * 3 // 4} words): it does not know their ends. Word search does. Shorter passages may help."
    ]


def words_of(table: pd.DataFrame, settings: AdaptedPageSettings) -> dict[str, str]:
    """Explain the words that this page uses."""
    names = " ".join(method.label for method in settings.methods)
    meanings = {
        "nDCG@10": "How good the first ten documents are, from 0 to 1. It is 1 where all right ones come first.",
        "0.412 to 0.475": "A 95 % interval: 95 of 100 such intervals hold what all queries of this kind would give.",
    }
    if table["proxy"].any():
        meanings["proxy"] = PROXY + (QUESTIONS if "questions" in set(table["kind"]) else "")
    if "BM25" in names:
        meanings["BM25"] = "Word search: finds documents that share words with the query, rare words first."
    if "+" in names:
        meanings["A + B"] = (
            "Two rankings joined. The scores of each are put on the same scale (z-scores: how far a score is from the "
            "lowest, in standard deviations), then added."
        )
    if any(method.kind == "feedback" for method in settings.methods):
        meanings["zero"] = (
            "Searches twice: for documents near the query, then for documents near the query and these. Nothing is "
            "trained."
        )
    for name, meaning in LEARNS.items():
        if any(method.name.partition("+")[0] == name for method in settings.methods):
            meanings[name] = meaning
    return meanings


PROXY = (
    "Nobody judged these queries. Titles and sentences were taken out of documents; the document that each was taken "
    "out of is its right answer; it no longer holds the text. People may ask otherwise: trust your own grades more."
)
QUESTIONS = " Questions were written by a language model that read the right document."
LEARNS = {
    "adapt-query": "The model, trained on your documents; only its side for queries changes.",
    "adapt": "The model, trained on your documents, both for queries and for documents.",
}


def draw(table: pd.DataFrame, labels: dict[str, str], adapted: set[str]) -> Markup:
    """Draw means and 95 % intervals of the queries that decide, a row a candidate.

    Args:
        table: columns kind, proxy, method, queries, value, low, high; the first kind is drawn.
        labels: printed name of each method, in the order of the rows.
        adapted: methods that learned from the documents, which are diamonds.
    """
    rows = table[table["kind"] == table["kind"].iloc[0]].set_index("method")
    with drawing_style(svg=TEXT):
        figure, ((axes,),) = blank(1, 1, PANEL, ROW * len(labels))
        for number, name in enumerate(labels):
            row, (color, marker) = rows.loc[name], NEW if name in adapted else OLD
            axes.hlines(number, row["low"], row["high"], color=color, linewidth=1.8)
            axes.plot(row["value"], number, color=color, marker=marker, markersize=5)
        row_labels(axes, list(labels.values()), 9)
        axes.tick_params(axis="y", length=0)
        axes.set_title("nDCG@10 with 95 % intervals", loc="left", fontsize=9)
        return svg_of(figure)


def headings(table: pd.DataFrame) -> list[dict[str, Any]]:
    """List the kinds of queries with their sizes, the mean last."""
    kinds = table.drop_duplicates("kind")
    return kinds[["kind", "proxy", "queries"]].to_dict("records")


def rows(table: pd.DataFrame, settings: AdaptedPageSettings, answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row a candidate: label, whether it is adapted or chosen, share of right firsts, a cell a kind."""
    cells = {name: lines.to_dict("records") for name, lines in table.groupby("method", sort=False)}
    return [
        {"label": short_label(one.label), "adapted": one.adapted, "chosen": one.name == answer["choice"]}
        | {"first": answer["first"].get(one.name, 0.0), "cells": cells[one.name]}
        for one in settings.methods
    ]


def remarks(settings: AdaptedPageSettings) -> dict[str, str]:
    """Map each footnote to the candidates that it is about."""
    notes: dict[str, list[str]] = {}
    for method in settings.methods:
        if method.remark:
            notes.setdefault(method.remark, []).append(short_label(method.label))
    return {remark: ", ".join(names) for remark, names in notes.items()}


def described(examples: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    """Put labels to the few queries on which one candidate gained and lost most against another."""
    names = [labels[examples[side]] for side in SIDES]
    shown = [query for query in examples["queries"] if query["change"] > 0][:WINS]
    shown += [query for query in examples["queries"] if query["change"] < 0][:LOSSES]
    queries = [
        query | {"sides": [query[side] | {"label": name} for side, name in zip(SIDES, names, strict=True)]}
        for query in shown
    ]
    return {"names": names, "queries": queries}


def costs(jobs: Sequence[Record]) -> dict[str, Cost]:
    """Add up jobs: all of them, those of each of the longest rules, and the others together."""
    longest = list(cost_by_rule(jobs))[:SHOWN_RULES]
    lines = {"all jobs": Cost(), **{rule: Cost() for rule in longest}}
    for record in jobs:
        lines["all jobs"].add(record)
        lines.setdefault(record["rule"] if record["rule"] in longest else "all others", Cost()).add(record)
    return lines
