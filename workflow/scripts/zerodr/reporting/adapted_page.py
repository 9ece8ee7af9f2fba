"""Stage `build_adapted_page`: one page about a comparison of candidates on a folder; it needs no network."""

from __future__ import annotations

import json
from collections import defaultdict
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import Field

from zerodr.artifacts.record import Record, read_record
from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.evaluation.judge_adaptation import Candidate
from zerodr.reporting.adapted_plot import draw

MEAN = "mean"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #222; --soft: #666; --line: #ccc; --new: #0b6fa4; --old: #8a5a00;
  --back: #fff; --band: #f3f6f8 }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e6e6e6; --soft: #a0a0a0; --line: #444; --new: #6cc0ee;
  --old: #e0b060; --back: #16191c; --band: #1f2429 }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; padding: 0 1em; max-width: 62em; color: var(--ink);
  background: var(--back) }}
.answer {{ font-size: 1.25em; line-height: 1.4; background: var(--band); padding: .8em 1em;
  border-left: 4px solid var(--new) }}
.scroll {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92em }}
th, td {{ padding: .3em .7em; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top }}
th:first-child, td:first-child {{ text-align: left }}
td small, .soft {{ color: var(--soft) }}
pre {{ background: var(--band); padding: .7em 1em; overflow-x: auto }}
details {{ border-bottom: 1px solid var(--line); padding: .4em 0 }}
summary {{ cursor: pointer }}
.new {{ color: var(--new) }} .old {{ color: var(--old) }}
svg {{ max-width: 100%; height: auto }}
</style></head><body>
{body}
</body></html>
"""
ABOUT_TABLE = """<p class="soft">nDCG@10 with 95 % bootstrap intervals over queries.
<span class="new">Adapted</span> candidates learned from the documents, <span class="old">the others</span> did not. The
mean counts equally each kind of queries that decides. Intervals of differences hold for all candidates at once.</p>"""
ABOUT_PROXIES = """<p>Titles and sentences were taken out of documents and used as queries. The document that each was
taken out of is its one right answer, and no longer holds the query's text. No model learned from what was taken out.
Real queries may be shorter, or use other words: this is a proxy for judgements, not a judgement.</p>"""
USE = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{folder}")
queries, documents = model.encode_query(["..."]), model.encode_document(["..."])
scores = model.similarity(queries, documents)"""


class AdaptedPageSettings(Settings):
    """Settings of `build_adapted_page`."""

    collection: str
    """Name of the folder's collection."""
    label: str
    """Its name in headings."""
    folder: str
    """Path of the folder. Empty: the collection is one of the registry."""
    scale: str
    """Size preset."""
    methods: tuple[Candidate, ...] = Field(min_length=2)
    """The candidates."""


def build_adapted_page(stage: Stage) -> None:
    """Read inputs `answer` and `model`; write `page`."""
    settings = validate(AdaptedPageSettings, stage.params, stage.spec.name())
    home = stage.path("answer")
    answer, examples = (json.loads((home / f"{name}.json").read_text()) for name in ("answer", "examples"))
    table = pd.read_csv(home / "comparison.tsv", sep="\t")
    manifests = [str(path) for name in ("answer", "model") for path in stage.paths(name)]
    records = upstream(manifests)
    labels = {method.name: method.label for method in settings.methods}
    adapted = {method.name for method in settings.methods if method.adapted}
    blocks = [
        f"<h1>{escape(settings.label)}: does adapting help?</h1>",
        "".join(f'<p class="answer">{escape(text)}</p>' for text in answer["sentences"][:1]),
        "".join(f"<p>{escape(text)}</p>" for text in answer["sentences"][1:]),
        undecided(settings, answer),
        "<h2>Compared</h2>",
        f'<div class="scroll">{draw(table, labels, adapted)}</div>',
        f'<div class="scroll">{scores(table, labels, adapted, answer["choice"])}</div>',
        ABOUT_TABLE,
        ABOUT_PROXIES if table["proxy"].any() else "",
        remarks(settings),
        "<h2>Queries that gained and lost</h2>",
        shown_examples(examples, labels),
        "<h2>Cost</h2>",
        costs(records),
        "<h2>Use it, repeat it</h2>",
        commands(settings, stage.path("model")),
        "<h2>Lineage</h2>",
        lineage(records, settings.collection),
    ]
    body = "\n".join(block for block in blocks if block)
    stage.output("page").write_text(PAGE.format(title=escape(settings.label), body=body), encoding="utf-8")


def undecided(settings: AdaptedPageSettings, answer: dict[str, Any]) -> str:
    """Say what a person can do where nothing is decided."""
    if answer["verdict"] != "undecided":
        return ""
    path = f"results/adapted/{settings.collection}/to_judge.tsv"
    return (
        f"<p>Fill in the column <code>grade</code> of <code>{escape(path)}</code> (1: relevant, 0: not) and give the "
        "same command again: its pairs are those whose judgement can move the difference most.</p>"
    )


def scores(table: pd.DataFrame, labels: dict[str, str], adapted: set[str], choice: str) -> str:
    """Write means with intervals: a row a candidate, a column a kind of queries."""
    kinds = list(dict.fromkeys(zip(table["kind"], table["proxy"], table["queries"], strict=True)))
    heads = "".join(f"<th>{heading(*kind)}</th>" for kind in kinds)
    cells = table.set_index(["method", "kind"])
    rows = []
    for name, label in labels.items():
        text = f'<span class="{"new" if name in adapted else "old"}">{escape(label)}</span>'
        text = f"<b>{text}</b> &#9664; chosen" if name == choice else text
        row = [f"<td>{text}</td>"]
        for kind, _, _ in kinds:
            value, low, high = (cells.loc[(name, kind), column] for column in ("value", "low", "high"))
            row.append(f"<td>{value:.4f}<br><small>{low:.3f} to {high:.3f}</small></td>")
        rows.append(f"<tr>{''.join(row)}</tr>")
    return f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def heading(kind: str, proxy: bool, queries: int) -> str:
    """Write the heading of a kind of queries."""
    name = "mean of kinds" if kind == MEAN else kind
    return f"{escape(name)}{' (proxy)' if proxy else ''}<br><small>{queries} queries</small>"


def remarks(settings: AdaptedPageSettings) -> str:
    """List the footnotes of the candidates."""
    notes: dict[str, list[str]] = defaultdict(list)
    for method in settings.methods:
        for remark in (method.remark,) if method.remark else ():
            notes[remark].append(method.label)
    items = [f"<li>{escape(', '.join(names))}: {escape(remark)}</li>" for remark, names in notes.items()]
    return f'<ul class="soft">{"".join(items)}</ul>' if items else ""


def shown_examples(examples: dict[str, Any], labels: dict[str, str]) -> str:
    """Write the queries on which one candidate gained and lost most against another."""
    if not examples["queries"]:
        return "<p>No query has another result.</p>"
    names = [labels[examples[side]] for side in ("left", "right")]
    blocks = [f"<p>{escape(names[0])} against {escape(names[1])}.</p>"]
    for one in examples["queries"]:
        ranks = ", ".join(
            f"{n} {shown_rank(one[side]['rank'])}" for n, side in zip(names, ("left", "right"), strict=True)
        )
        body = [
            f"<p><b>Right document</b> {escape(one['document_id'])} ({escape(ranks)}):<br>{escape(one['document'])}</p>"
        ]
        for name, side in zip(names, ("left", "right"), strict=True):
            if one[side]["rank"] != 1 and one[side]["top_id"]:
                first = f"{escape(one[side]['top_id'])}:<br>{escape(one[side]['top'])}"
                body.append(f"<p><b>First of {escape(name)}</b>, {first}</p>")
        head = f"{one['change']:+.2f} <span class='soft'>{escape(one['kind'])}</span> {escape(one['query'])}"
        blocks.append(f"<details><summary>{head}</summary>{''.join(body)}</details>")
    return "\n".join(blocks)


def shown_rank(rank: int | None) -> str:
    """Format a rank among the first ten."""
    return "not among 10" if rank is None else f"rank {rank}"


def upstream(manifests: list[str]) -> dict[str, Record]:
    """Read the records behind artifacts, by path, nearest first."""
    records: dict[str, Record] = {}
    waiting = list(manifests)
    while waiting:
        path = waiting.pop(0)
        record = None if path in records else read_record(path)
        if record is not None:
            records[path] = record
            waiting += [entry["path"] for entry in record["inputs"]]
    return records


def costs(records: dict[str, Record]) -> str:
    """Write minutes and energy by rule, each job once."""
    jobs = {record["spec_digest"]: record for record in records.values()}
    minutes, energy, count = defaultdict[str, float](float), defaultdict[str, list](list), defaultdict[str, int](int)
    for record in jobs.values():
        minutes[record["rule"]] += record["seconds"] / 60
        energy[record["rule"]].append(record.get("energy_joules"))
        count[record["rule"]] += 1
    order = sorted(minutes, key=lambda rule: -minutes[rule])
    rows = [
        f"<tr><td>{r}</td><td>{count[r]}</td><td>{minutes[r]:.1f}</td><td>{joules(energy[r])}</td></tr>" for r in order
    ]
    every = [value for values in energy.values() for value in values]
    total = (
        f"<tr><td><b>all</b></td><td>{len(jobs)}</td><td>{sum(minutes.values()):.1f}</td><td>{joules(every)}</td></tr>"
    )
    head = "<thead><tr><th>rule</th><th>jobs</th><th>minutes</th><th>energy, kJ</th></tr></thead>"
    return f'<div class="scroll"><table>{head}<tbody>{total}{"".join(rows)}</tbody></table></div>'


def joules(values: list[float | None]) -> str:
    """Format the sum of energies; not measured where one is not."""
    known = [value for value in values if value is not None]
    return f"{sum(known) / 1000:.1f}" if len(known) == len(values) and known else "not measured"


def commands(settings: AdaptedPageSettings, model: Path) -> str:
    """Write how to use the exported folder, and how to make it again."""
    folder = f"results/adapted/{settings.collection}/model"
    repeat = (
        f"zerodr adapt {settings.folder}" if settings.folder else f"results/adapted/{settings.collection}/index.html"
    )
    use = f"<pre>{escape(USE.format(folder=folder))}</pre>" if (model / "model.json").exists() else ""
    how = f"<p><code>{folder}/README.md</code> is its card, <code>retriever.json</code> says how it searches.</p>"
    return f"{use}{how}<pre>{escape(repeat)}</pre>"


def lineage(records: dict[str, Record], collection: str) -> str:
    """List the artifacts behind the page."""
    rows = [f"<tr><td>{escape(p)}</td><td>{r['rule']}</td><td>{r['digest'][:12]}</td></tr>" for p, r in records.items()]
    command = f"zerodr lineage results/adapted/{collection}/index.html"
    head = "<thead><tr><th>artifact</th><th>rule</th><th>sha256</th></tr></thead>"
    table = f'<div class="scroll"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'
    return f"<pre>{escape(command)}</pre><details><summary>{len(records)} artifacts</summary>{table}</details>"
