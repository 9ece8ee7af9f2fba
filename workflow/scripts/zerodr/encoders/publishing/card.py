"""The model card of an exported model, from the records of the stages that made it. Equal records, equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from zerodr.artifacts.record import Record, read_record
from zerodr.encoders.folder.additions import CardSection
from zerodr.encoders.folder.contract import EncoderContract
from zerodr.encoders.start.importing import PACKAGE

MODEL_INPUTS = ("model", "parent", "rem", "dam", "main", "augmenter")
COLLECTION_RULE = "normalize_collection"
TIME = "second"
UNKNOWN = "not stated"
USAGE = """## Use{without}

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
queries = model.encode_query(["who wrote the play?"])
documents = model.encode_document(["A play is written by a playwright."])
scores = model.similarity(queries, documents)
```

`encode_query` and `encode_document` apply each side's prefix and length; `encode` alone knows no side."""
POOLING_WORDS = {
    "mean": "mean over tokens",
    "cls": "first token",
    "max": "maximum over tokens",
    "last": "last token",
    "decoder_first": "the decoder's state at its start token, after the final norm",
}


@dataclass(frozen=True)
class ModelStage:
    """One stage that made or changed the model's weights."""

    name: str
    rule: str
    seed: int
    settings: dict[str, Any]
    metrics: dict[str, float]


@dataclass(frozen=True)
class Chain:
    """How a model came about.

    Attributes:
        stages: from the first to the last.
        collections: names of all collections that any of them, or the data they used, came from.
    """

    stages: list[ModelStage] = field(default_factory=list)
    collections: list[str] = field(default_factory=list)


def read_chain(manifest: str) -> Chain:
    """The stages behind a model folder, as far as there are records.

    Args:
        manifest: path of the model's manifest, as records hold it.
    """
    return Chain(_stages(manifest, set()), sorted(_collections(manifest, set())))


def _stages(place: str, seen: set[str]) -> list[ModelStage]:
    """A model's stage behind those of the models that it was made from, each once."""
    record = None if place in seen else read_record(place)
    seen.add(place)
    if record is None:
        return []
    given = [one["path"] for name in MODEL_INPUTS for one in record["inputs"] if one["name"] == name]
    return [stage for path in given for stage in _stages(path, seen)] + [_stage(place, record)]


def _stage(place: str, record: Record) -> ModelStage:
    parts = Path(place).parts
    last = {m["name"]: m["value"] for m in sorted(record["metrics"], key=lambda m: m["step"])}
    kept = {name: value for name, value in sorted(last.items()) if TIME not in name}
    name = f"{parts[-4]}@{parts[-2]}" if len(parts) >= 4 else place
    if parts[-2] in ("main", "augmenter") and len(parts) >= 5:  # a component of a model with augmented queries
        name = f"{parts[-5]}@{parts[-3]}, {parts[-2]}"
    return ModelStage(name, record["rule"], record["seed"], record["spec"]["params"], kept)


def _collections(place: str, seen: set[str]) -> set[str]:
    record = None if place in seen else read_record(place)
    seen.add(place)
    if record is None:
        return set()
    own: set[str] = set()
    if record["rule"] == COLLECTION_RULE:
        own = {record["spec"]["params"].get("name", Path(place).parent.name)}
    return own.union(*(_collections(given["path"], seen) for given in record["inputs"]))


def write_card(
    folder: Path,
    model: str,
    scope: str,
    contract: EncoderContract,
    chain: Chain,
    licences: dict[str, str],
    table: Path | None,
    sections: Sequence[CardSection] = (),
) -> None:
    """Write `README.md`: what the model is, how to use it, what it learnt from, how it was trained, what it reaches."""
    title = f"# {model}" + (f" for {scope}" if scope != "shared" else "")
    parts = [_front_matter(contract, chain), title, _summary(contract, chain)]
    parts += [section.text for section in sections]
    parts += [USAGE.format(without="".join(section.without for section in sections))]
    parts += [_protocol(contract, chain), _data(chain, licences), _training(chain)]
    if table is not None:
        parts.append(_results(table))
    (folder / "README.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _base(contract: EncoderContract, chain: Chain) -> tuple[str, str | None]:
    """Where the weights come from, in words, and its hub name where it has one."""
    first = chain.stages[0].settings if chain.stages else {}
    source = str(first.get("init", first.get("model", contract.source)))
    if source == "scratch":
        shape = first.get("architecture") or {}
        sizes = (
            f"{shape['layers']} layers of width {shape['hidden']}" if {"layers", "hidden"} <= set(shape) else "small"
        )
        return f"random weights ({shape.get('family', 'bert')}, {sizes})", None
    layers = f", first {first['layers']} layers" if first.get("layers") else ""
    revision = first.get("revision") or contract.revision
    hub = source if source.count("/") == 1 and not source.startswith((PACKAGE, ".", "/", "~")) else None
    return f"{source}{f' at {revision}' if revision else ''}{layers}", hub


def _front_matter(contract: EncoderContract, chain: Chain) -> str:
    values: dict[str, Any] = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["sentence-transformers", "dense-retrieval", "zerodr"],
    }
    hub = _base(contract, chain)[1]
    values |= {"base_model": hub} if hub else {}
    return f"---\n{yaml.safe_dump(values, sort_keys=False).strip()}\n---"


def _summary(contract: EncoderContract, chain: Chain) -> str:
    towers = "two networks, one for queries and one for documents" if contract.towers == "separate" else "one network"
    steps = " -> ".join(stage.name for stage in chain.stages) or UNKNOWN
    measure = "cosine" if contract.similarity == "cosine" else "inner product"
    return (
        f"A dense retriever: {towers} ({contract.architecture}) that turns texts into vectors of "
        f"{contract.dimension} components, compared by {measure}.\n\n"
        f"* starts from: {_base(contract, chain)[0]}\n* stages: {steps}"
    )


def _protocol(contract: EncoderContract, chain: Chain) -> str:
    said = [stage.settings["title_join"] for stage in chain.stages if "title_join" in stage.settings]
    lines = [f"* pooling: {POOLING_WORDS[contract.pooling]}"]
    lines += [f"* after pooling: {', '.join(contract.projections)}"] if contract.projections else []
    lines += [
        f"* similarity: {contract.similarity}",
        f"* length: queries {contract.tokens('query')}, documents "
        f"{contract.tokens('document')} tokens; at most {contract.max_tokens}",
    ]
    lines += [f"* prefix of a {side}: {text!r}" for side in ("query", "document") if (text := contract.prefix(side))]
    if said and said[-1] is not None:
        lines.append(f"* a document is its title, {said[-1]!r}, and its text")
    return "## How texts are encoded\n\n" + "\n".join(lines)


def _data(chain: Chain, licences: dict[str, str]) -> str:
    rows = [f"| {name} | {licences.get(name) or UNKNOWN} |" for name in chain.collections]
    return "\n".join(["## Data", "", "| collection | licence |", "|---|---|", *(rows or [f"| {UNKNOWN} | |"])])


def _training(chain: Chain) -> str:
    parts = ["## Training"]
    for stage in chain.stages:
        settings = yaml.safe_dump(stage.settings, sort_keys=True, allow_unicode=True).strip()
        parts.append(f"### {stage.name}\n\nRule `{stage.rule}`, seed {stage.seed}.\n\n```yaml\n{settings}\n```")
        if stage.metrics:
            rows = [f"| {name} | {value:.6g} |" for name, value in stage.metrics.items()]
            parts.append("\n".join(["| measure | last value |", "|---|---|", *rows]))
    return "\n\n".join(parts if chain.stages else [*parts, "No records of its stages."])


def _results(table: Path) -> str:
    rows = [line.split("\t") for line in table.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(["## Results", "", *lines[:1], "|" + "---|" * len(rows[0]), *lines[1:]]) if rows else "## Results"
