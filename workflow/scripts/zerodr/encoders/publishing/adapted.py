"""Stage `export_adapted`: the best candidate of a comparison as a folder that answers queries, with a model card.

`zerodr.encoders.folder.retriever` describes the folder.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import Field

from zerodr.artifacts.record import read_record, write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import corpus_size
from zerodr.config.base import Settings, validate
from zerodr.config.params import Candidate, ExportParams
from zerodr.encoders.folder.attention import WEIGHTS
from zerodr.encoders.folder.contract import CardSection, papers
from zerodr.encoders.folder.retriever import (
    ABOUT,
    BM25,
    DENSE,
    FEEDBACK,
    FUSION,
    INDEX,
    LEXICAL,
    MODELS,
    RETRIEVER,
    RetrieverFacts,
    Way,
    link_index,
)
from zerodr.encoders.inference.graph import SHIPPED, ship_graph
from zerodr.encoders.publishing.card import read_chain, write_card
from zerodr.encoders.publishing.export import agreement, copy_plain_model
from zerodr.errors import ModelError
from zerodr.lexical.index import VOLATILE

SEARCHING = """## Use

```python
from zerodr import Retriever

retriever = Retriever.load("path/to/this/folder")
hits = retriever.search(["who wrote the play?"], k=10)
```"""

log = logging.getLogger("zerodr")


class Exported(Candidate):
    """A candidate, and how it searches."""

    encoder: str
    """The method whose model it searches with. Empty: words alone."""
    scope: str
    """`shared`, or the collection that the model was made for."""
    ways: dict[str, dict[str, Any]]
    """How it and all methods that it is made of search, by name: values of a `Way`."""
    licences: dict[str, str]
    """Licences of collections with judgements that it learned from."""
    published_share: float | None
    """Queries of its trainings as a share of the published ones. None: no publication says."""


class ExportAdaptedSettings(Settings):
    """Settings of `export_adapted`."""

    collection: str
    """Name of the folder's collection."""
    folder: str = ""
    """Where its documents come from. Empty: no folder of the user."""
    language: str
    """Language of its texts."""
    title_join: str | None
    """Text that joins a document's title and text. None: text alone."""
    encoders: tuple[str, ...]
    """Dense methods, in the order of the input `models`."""
    vectors: tuple[int, ...] = ()
    """For each of these, the number of its vectors among the input `vectors`, which has groups of all shards."""
    indexes: dict[str, int] = {}
    """For each method that searches words, the number of its index among the input `indexes`."""
    attentions: tuple[str, ...] = ()
    """Methods with learned attention, in the order of the input `attentions`."""
    methods: tuple[Exported, ...] = Field(min_length=2)
    """The candidates."""


def export_adapted(stage: Stage) -> None:
    """Write the chosen candidate's `model`, with its index of the whole documents.

    Reads inputs `answer`, `collection`, and of all candidates `models`, `vectors`, `indexes`, `attentions`. Where
    sentence-transformers gives other vectors than this library, the log and the card say so.
    """
    settings = validate(ExportAdaptedSettings, stage.params, stage.spec.name())
    target, home = stage.output("model"), stage.path("answer")
    answer = json.loads((home / "answer.json").read_text(encoding="utf-8"))
    table = pd.read_csv(home / "comparison.tsv", sep="\t")
    chosen = next(method for method in settings.methods if method.name == answer["choice"])
    facts = retriever(settings, chosen)
    title, text = f"{chosen.label} for {settings.collection}", measured_text(settings, answer, table, chosen)
    measured = CardSection(text, "" if facts.ways[chosen.name].kind == DENSE else " the encoder alone")
    if chosen.encoder:
        manifest = stage.paths("models")[settings.encoders.index(chosen.encoder)]
        params = ExportParams(model=chosen.encoder, scope=chosen.scope, licences=chosen.licences)
        contract = copy_plain_model(manifest.parent, target)
        for paper in papers():
            if paper.export is not None:
                paper.export(manifest.parent, target, params)
        sections = [CardSection(SEARCHING, ""), measured]
        try:
            stage.metric("sentence_transformers_min_cosine", agreement(target))
        except ModelError as error:  # the comparison is done, and its page must not be lost
            log.warning("%s: search with zerodr alone", error)
            sections.append(CardSection(f"**Search with zerodr alone**: {error.what}.", ""))
        write_card(target, params, contract, read_chain(str(manifest)), None, sections, title)
    else:
        (target / "README.md").write_text(f"# {title}\n\n{SEARCHING}\n\n{measured.text}\n", encoding="utf-8")
    for name in facts.named(FEEDBACK):
        if name in settings.attentions:
            manifest = stage.paths("attentions")[settings.attentions.index(name)]
            (target / WEIGHTS).write_bytes((manifest.parent / WEIGHTS).read_bytes())
    write_json(target / RETRIEVER, asdict(facts))
    write_index(stage, settings, facts, target / INDEX)
    models = [target] if chosen.encoder else []
    graphs = [ship_graph(model, (RETRIEVER,)) for model in [*models, *(target / INDEX / MODELS).glob("*")]]
    stage.note(needs_torch=not all(graphs))
    stage.note(method=chosen.name, encoder=chosen.encoder)


def retriever(settings: ExportAdaptedSettings, chosen: Exported) -> RetrieverFacts:
    """Describe how the candidate searches."""
    facts = settings.collection, settings.language, settings.title_join
    return RetrieverFacts(chosen.name, *facts, chosen.encoder, {name: Way(**way) for name, way in chosen.ways.items()})


def write_index(stage: Stage, settings: ExportAdaptedSettings, facts: RetrieverFacts, index: Path) -> None:
    """Link what the candidate searches into `index`, and record the files that the documents come from."""
    vectors = {}
    for name in facts.named(DENSE):
        every, number = stage.paths("vectors"), settings.encoders.index(name)
        size, group = len(every) // (max(settings.vectors) + 1), settings.vectors[number]
        vectors[name] = every[group * size : (group + 1) * size]
        if name != facts.encoder:
            copy_plain_model(stage.paths("models")[number].parent, index / MODELS / name)
    words = {name: stage.paths("indexes")[settings.indexes[name]].parent for name in facts.named(LEXICAL)}
    corpus = stage.path("collection")
    link_index(index, corpus, vectors, words)
    record = read_record(str(stage.spec.inputs["collection"]))
    read = {entry["path"]: entry["digest"] for entry in (record["inputs"] if record else [])}
    write_json(index / ABOUT, {"documents": corpus_size(corpus), "folder": settings.folder, "files": read})
    stage.volatile = (*(f"{index.name}/{BM25}/*/{name}" for name in VOLATILE), f"{SHIPPED}/*", f"*/{SHIPPED}/*")


def measured_text(
    settings: ExportAdaptedSettings, answer: dict[str, Any], table: pd.DataFrame, chosen: Exported
) -> str:
    """Write the card's section on measures: against what, on which queries, with which reservations."""
    labels = {method.name: method.label for method in settings.methods}
    mean = table[table["kind"] == "mean"].sort_values("value", ascending=False, kind="stable")
    rows = [
        f"| {labels[row.method]}{' (this)' if row.method == chosen.name else ''} "
        f"| {row.value:.4f} | {row.low:.4f} to {row.high:.4f} |"
        for row in mean.itertuples()
    ]
    counted = ", ".join(f"{name} ({size})" for name, size in answer["kinds"].items())
    proxy = " **A proxy**: queries were made from the documents; nobody judged them." if mean["proxy"].all() else ""
    ways = {name: Way(**way) for name, way in chosen.ways.items()}
    kind, words = ways[chosen.name].kind, [name for name, way in ways.items() if way.kind == LEXICAL]
    what = chosen.label if kind == FUSION else f"{chosen.label}: {chosen.description}"
    lines = [
        f"## Measured on {settings.collection}\n",
        f"nDCG@10, mean over kinds of queries: {counted}.{proxy}\n",
        "| method | nDCG@10 | 95 % interval |\n|---|---|---|\n" + "\n".join(rows) + "\n",
        f"* verdict: {answer['verdict']}; this folder holds {what}",
    ]
    lines += [f"* {chosen.remark}"] if chosen.remark else []
    if kind == FUSION:
        lines.append(
            f"* **the folder's model is one half**: the measured ranking fuses it with {', '.join(words)} "
            f"({RETRIEVER} has the settings, {INDEX}/ what it searches)"
        )
    if reads := [name for name, way in ways.items() if way.kind == FEEDBACK]:
        memories = ", ".join(dict.fromkeys(ways[name].members[1] for name in reads))
        learned = any(name in settings.attentions for name in reads)
        how = f"by attention that was learned ({WEIGHTS})" if learned else "nothing was trained for it"
        lines.append(
            f"* **the folder's model is one part**: to a query's vector the measured ranking adds documents that "
            f"{memories} finds ({RETRIEVER} has the settings); {how}"
        )
    elif chosen.adapted:
        share = chosen.published_share
        budget = "no published budget: a recipe of this bench" if share is None else f"{share:.2g} of the published one"
        lines.append(f"* budget of its trainings: {budget}")
    lines.append(f"* data: the documents of {settings.collection} are yours; the model may repeat what is in them")
    lines += [f"* learned from {name}, licence: {licence or 'not stated'}" for name, licence in chosen.licences.items()]
    return "\n".join(lines)
