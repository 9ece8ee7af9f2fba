"""Write the model card of an exported model from its stages' records. Equal records give equal bytes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from zerodr.artifacts.record import Record, read_record
from zerodr.config.params import ExportParams
from zerodr.encoders.folder.contract import SIDES, CardSection, EncoderContract
from zerodr.encoders.start.importing import PACKAGE
from zerodr.plan.rules import facts_of

MODEL_INPUTS = ("model", "parent", "rem", "dam", "main", "augmenter")
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

`encode_query` and `encode_document` apply each side's prefix and length; `encode` alone knows no side.{needs}"""
NEEDS = " The folder needs sentence-transformers 6.0 or newer: older ones don't know {keys}, and end with a TypeError."
POOLING_WORDS = {
    "mean": "mean over tokens",
    "cls": "first token",
    "max": "maximum over tokens",
    "last": "last token",
    "decoder_first": "the decoder's state at its start token, after the final norm",
}


@dataclass(frozen=True)
class ModelStage:
    """One stage that created or changed the model's weights."""

    name: str
    rule: str
    seed: int
    settings: dict[str, Any]
    metrics: dict[str, float]


@dataclass(frozen=True)
class Chain:
    """History of a model.

    Attributes:
        stages: from the first to the last.
        collections: names of all collections behind the stages and their data.
    """

    stages: list[ModelStage] = field(default_factory=list)
    collections: list[str] = field(default_factory=list)


def read_chain(manifest: str) -> Chain:
    """Read the stages behind a model's manifest (its path as in records), as far as there are records."""
    return Chain(_stages(manifest, set()), sorted(_collections(manifest, set())))


def _record(path: str, seen: set[str]) -> Record | None:
    """Read a record once: None where there is none, or where it was read before."""
    record = None if path in seen else read_record(path)
    seen.add(path)
    return record


def _stages(manifest: str, seen: set[str]) -> list[ModelStage]:
    """List a model's stage behind those of its input models, each once."""
    record = _record(manifest, seen)
    if record is None:
        return []
    models = [entry["path"] for name in MODEL_INPUTS for entry in record["inputs"] if entry["name"] == name]
    return [stage for path in models for stage in _stages(path, seen)] + [_stage(manifest, record)]


def _stage(manifest: str, record: Record) -> ModelStage:
    names = Path(manifest).parts
    last = {m["name"]: m["value"] for m in sorted(record["metrics"], key=lambda m: m["step"])}
    metrics = {name: value for name, value in sorted(last.items()) if TIME not in name}
    name = f"{names[-4]}@{names[-2]}" if len(names) >= 4 else manifest
    if names[-2] in ("main", "augmenter") and len(names) >= 5:  # a component of a model with augmented queries
        name = f"{names[-5]}@{names[-3]}, {names[-2]}"
    return ModelStage(name, record["rule"], record["seed"], record["spec"]["params"], metrics)


def _collections(path: str, seen: set[str]) -> set[str]:
    record = _record(path, seen)
    if record is None:
        return set()
    names: set[str] = set()
    if facts_of(record["rule"]).writes == "collection":
        names = {record["spec"]["params"].get("name", Path(path).parent.name)}
    return names.union(*(_collections(entry["path"], seen) for entry in record["inputs"]))


def write_card(
    folder: Path,
    params: ExportParams,
    contract: EncoderContract,
    chain: Chain,
    table: Path | None,
    sections: Sequence[CardSection] = (),
    title: str = "",
) -> None:
    """Write `README.md`: summary, use, protocol, data, training and results of the model.

    Args:
        title: of a retriever that the model is a part of, whose sections come before what is said of the model.
    """
    name = title or params.model + (f" for {params.scope}" if params.scope != "shared" else "")
    about, measured = _summary(contract, chain), [section.text for section in sections]
    body = [*measured, f"## The encoder\n\n{about}"] if title else [about, *measured]
    texts = [_front_matter(contract, chain), f"# {name}", *body]
    texts += [USAGE.format(without="".join(section.without for section in sections), needs=_needs(contract))]
    texts += [_protocol(contract, chain), _data(chain, params.licences), _training(chain)]
    if table is not None:
        texts.append(_results(table))
    (folder / "README.md").write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def _base(contract: EncoderContract, chain: Chain) -> tuple[str, str | None]:
    """Describe the origin of the weights, and return its hub name where it has one."""
    first = chain.stages[0].settings if chain.stages else {}
    source = str(first.get("init", first.get("model", contract.source)))
    if source == "scratch":
        shape = first.get("architecture") or {}
        sizes = "small"
        if {"layers", "hidden"} <= set(shape):
            sizes = f"{shape['layers']} layers of width {shape['hidden']}"
        return f"random weights ({shape.get('family', 'bert')}, {sizes})", None
    layers = f", first {first['layers']} layers" if first.get("layers") else ""
    revision = first.get("revision") or contract.revision
    local = source.startswith((PACKAGE, ".", "/", "~")) or Path(source).is_dir()
    hub = source if source.count("/") == 1 and not local else None
    return f"{source}{f' at {revision}' if revision else ''}{layers}", hub


def _front_matter(contract: EncoderContract, chain: Chain) -> str:
    values: dict[str, Any] = {"library_name": "sentence-transformers", "pipeline_tag": "sentence-similarity"}
    values["tags"] = ["sentence-transformers", "dense-retrieval", "zerodr"]
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


def _needs(contract: EncoderContract) -> str:
    """Name the lengths that only newer sentence-transformers read; empty: the sides have none of their own."""
    keys = [f"`{side}_length`" for side in SIDES if getattr(contract, f"{side}_tokens")]
    return NEEDS.format(keys=" and ".join(keys)) if keys else ""


def _protocol(contract: EncoderContract, chain: Chain) -> str:
    joins = [stage.settings["title_join"] for stage in chain.stages if "title_join" in stage.settings]
    lines = [f"* pooling: {POOLING_WORDS[contract.pooling]}"]
    lines += [f"* after pooling: {', '.join(contract.projections)}"] if contract.projections else []
    lengths = f"queries {contract.tokens('query')}, documents {contract.tokens('document')} tokens"
    lines += [f"* similarity: {contract.similarity}", f"* length: {lengths}; at most {contract.max_tokens}"]
    lines += [f"* prefix of a {side}: {text!r}" for side in SIDES if (text := contract.prefix(side))]
    if joins and joins[-1] is not None:
        lines.append(f"* a document is its title, {joins[-1]!r}, and its text")
    return "## How texts are encoded\n\n" + "\n".join(lines)


def _data(chain: Chain, licences: dict[str, str]) -> str:
    rows = [f"| {name} | {licences.get(name) or UNKNOWN} |" for name in chain.collections]
    return "\n".join(["## Data", "", "| collection | licence |", "|---|---|", *(rows or [f"| {UNKNOWN} | |"])])


def _training(chain: Chain) -> str:
    sections = ["## Training"]
    for stage in chain.stages:
        settings = yaml.safe_dump(stage.settings, sort_keys=True, allow_unicode=True).strip()
        sections.append(f"### {stage.name}\n\nRule `{stage.rule}`, seed {stage.seed}.\n\n```yaml\n{settings}\n```")
        if stage.metrics:
            rows = [f"| {name} | {value:.6g} |" for name, value in stage.metrics.items()]
            sections.append("\n".join(["| measure | last value |", "|---|---|", *rows]))
    return "\n\n".join(sections if chain.stages else [*sections, "No records of its stages."])


def _results(table: Path) -> str:
    rows = [line.split("\t") for line in table.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(["## Results", "", *lines[:1], "|" + "---|" * len(rows[0]), *lines[1:]]) if rows else "## Results"
