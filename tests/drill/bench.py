"""A checkout of the whole workflow in miniature: made-up collections, a tiny encoder, recipes of a few steps."""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path
from typing import Any

import yaml

from tests.dag.conftest import clone
from tests.unit.encoder_helpers import VOCABULARY, save_tokenizer, tiny_bert

SOURCE, TARGET, MEMORIES = "squad-v1.1", "scifact", ("memory-wikipedia-vital", "memory-mesh")
ENCODER, MIRROR = "encoder", "mirror"
SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu".split()
# A recipe's numbers at scale `mini` become no larger than these; a recipe that does not name one keeps its default.
LIMITS = {
    "accumulation": 1,
    "batch_queries": 4,
    "devices": 2,
    "checkpoint_steps": 1,
    "dev_queries": 6,
    "document_tokens": 48,
    "evaluate_steps": 2,
    "generate.count": 24,
    "iterations": 5,
    "max_tokens": 48,
    "minibatch": 8,
    "negatives.count": 12,
    "negatives.depth": 20,
    "negatives_per_query": 3,
    "queries": 24,
    "query_tokens": 16,
    "queue_length": 4,
    "repeat": 1,
    "restarts": 1,
    "schedule_steps": 8,
    "steps": 3,
    "updates": 2,
    "warmup_steps": 1,
}
UNITS = ["balance_variance", "extractability_accuracy"]
ITEMS: dict[str, dict[str, dict[str, Any]]] = {
    "modir": {
        "table1": {"kind": "methods", "methods": ["dpr", "modir-dpr"], "baseline": "dpr"},
        "figure3": {"kind": "domains", "methods": ["modir-dpr", "modir-dpr+single"]},
        "figure4": {"kind": "projections", "methods": ["modir-dpr"], "steps": True},
        "table4": {"kind": "nearest_queries", "method": "modir-dpr"},
    },
    "moma": {
        "figure2": {"kind": "shares", "method": "moma-t5ance"},
        "figure4": {"kind": "components", "methods": ["moma-t5ance", "moma-t5ance+adist"]},
        "table3": {"kind": "latency", "method": "moma-t5ance"},
    },
    "berm": {"table5": {"kind": "units", "units_of": "berm-dpr", "methods": ["berm-dpr"], "measures": UNITS}},
    "coco-dr": {
        "table6": {"kind": "similarity", "methods": ["coco-dr+neither"], "baseline": "bm25-flat"},
        "figure5": {"kind": "spaces", "models": {"start": "coco-dr@init", "COCO": "coco-dr@coco"}},
    },
    "ddr": {"table5": {"kind": "parameters", "methods": ["ddr-contrast", "ddr-contrast+lora-96"]}},
}
METHODS = ["bm25-flat", "all-minilm-l6-v2", "hybrid", "other", "adapt-query"]
METHODS += ["modir-dpr", "moma-t5ance", "berm-kd", "coco-dr", "ddr-contrast"]
PARENTS = "adapt bm25-multifield dpr t5-ance cross-encoder reader berm-dpr kd dr-contrast".split()


def targets() -> list[str]:
    """Targets that together need every rule."""
    exported = ["coco-dr/shared", f"ddr-contrast/{TARGET}", "moma-t5ance/shared"]
    papers = [f"results/{paper}/{item}.html" for paper, items in ITEMS.items() for item in items]
    return [
        "all",
        "results/ddr/all.html",
        "results/coco-dr/published.html",
        *[f"results/exported/{name}/manifest.json" for name in exported],
        *papers,
        "results/beir/bm25-flat.tsv",
        "results/modir/figure4.svg",
        "results/exported-memories/moma-t5ance/shared/memory-wikipedia-vital/manifest.json",
    ]


def make_bench(root: Path, folder: Path) -> Path:
    """Write the miniature into `folder`."""
    clone(root, folder)
    words = random.Random(7)
    vocabulary = ["".join(words.sample(SYLLABLES, 3)) for _ in range(160)]
    (folder / MIRROR).mkdir()
    write_archive(folder, SOURCE, vocabulary[:100], 90, {"train": 60, "dev": 60}, answers=True)
    write_archive(folder, TARGET, vocabulary[60:], 40, {"test": 10})
    for name in MEMORIES:
        write_archive(folder, name, vocabulary, 30, {})
    write_registry(folder)
    shrink_recipes(folder)
    write_run(folder)
    write_encoder(folder / ENCODER, vocabulary)
    choose_items(folder)
    return folder


def write_archive(
    folder: Path, name: str, vocabulary: list[str], documents: int, splits: dict[str, int], answers: bool = False
) -> None:
    """Write an archive in BEIR's layout: documents of eight sentences, queries of words of one of them."""
    draw = random.Random(name)
    corpus, queries, found = [], [], []
    for number in range(documents):
        sentences = [" ".join(draw.choices(vocabulary, k=9)).capitalize() + "." for _ in range(8)]
        corpus.append({"_id": f"{name}-{number}", "title": draw.choice(vocabulary), "text": " ".join(sentences)})
    members = {"corpus.jsonl": corpus, "queries.jsonl": queries, "answers.jsonl": found}
    with zipfile.ZipFile(folder / MIRROR / f"{name}.zip", "w") as archive:
        for split, size in splits.items():
            lines = ["query-id\tcorpus-id\tscore"]
            for number in range(size):
                document, key = draw.choice(corpus), f"{split}-{number}"
                words = document["text"].split()
                answer = draw.choice(words[1:6])
                queries.append({"_id": key, "text": " ".join(["What", *draw.sample(words, 3), answer])})
                lines.append(f"{key}\t{document['_id']}\t1")
                start = document["text"].index(answer)
                text = {"text": answer, "start": start, "occurrences": document["text"].count(answer)}
                found.append({"query_id": key, "corpus_id": document["_id"], "split": split, "answers": [text]})
            archive.writestr(f"{name}/qrels/{split}.tsv", "\n".join(lines) + "\n")
        for member, rows in members.items():
            if rows and (answers or member != "answers.jsonl"):
                archive.writestr(f"{name}/{member}", "".join(json.dumps(row) + "\n" for row in rows))


def write_registry(folder: Path) -> None:
    """Let the registry have the miniature's collections alone, and the configuration its mirror."""
    for path in (folder / "config/collections").glob("*.yaml"):
        path.unlink()
    rows: dict[str, Any] = {
        SOURCE: {"splits": {"train": 60, "dev": 60}, "evaluation_split": "dev", "documents": 90, "queries": 120}
    }
    rows |= {TARGET: {"splits": {"test": 10}, "evaluation_split": "test", "documents": 40}}
    rows |= {name: {"kind": "memory", "documents": 30} for name in MEMORIES}
    table = {
        name: {"label": name, "archive": f"{name}.zip", "archive_bytes": 20000} | row for name, row in rows.items()
    }
    write_yaml(folder / "config/collections/drill.yaml", {"defaults": {"kind": "complete"}, "collections": table})
    protocols = read_yaml(folder / "config/protocols.yaml")
    plain = {name: {"description": row["description"]} for name, row in protocols.items()}
    write_yaml(folder / "config/protocols.yaml", plain)
    given = {"mirrors": [MIRROR], "offline": True, "collections": [TARGET], "methods": METHODS, "seed": 5}
    write_yaml(folder / "config/config.yaml", given | {"source": SOURCE, "shard_documents": 50})


def shrink_recipes(folder: Path) -> None:
    """Cut the recipes' numbers down to LIMITS, and let all start from the tiny encoder; remove other recipes."""
    for path in (folder / "config/methods").glob("*.yaml"):
        if path.stem in (*METHODS, *PARENTS):
            write_yaml(path, shrunk(read_yaml(path)))
        else:
            path.unlink()
    path = folder / "config/methods/adapt-query.yaml"  # it keeps embeddings of whole documents
    kept = read_yaml(path)
    kept["settings"]["encoder"]["document_tokens"] = 64
    write_yaml(path, kept)
    path = folder / "config/methods/hybrid.yaml"  # its variants name recipes that are removed
    hybrid = read_yaml(path)
    write_yaml(path, hybrid | {"variants": {"teacher": hybrid["variants"]["teacher"]}})
    path = folder / "config/methods/all-minilm-l6-v2.yaml"
    write_yaml(path, read_yaml(path) | {"settings": {"model": ENCODER, "precision": "fp32"}})
    start = {"init": ENCODER, "pooling": "mean", "similarity": "cosine", "revision": None}
    small = {"family": "t5", "hidden": 32, "layers": 1, "heads": 2, "vocabulary": 300}
    scratch = {"init": "scratch", "revision": None, "architecture": small, "pooling": "decoder_first"}
    names = read_yaml(folder / "config/starts.yaml")
    starts = {name: {"encoder": scratch if "t5" in name else start} for name in names}
    write_yaml(folder / "config/starts.yaml", starts)


def write_run(folder: Path) -> None:
    """Write a ranking of another system, and its method."""
    draw, lines = random.Random("run"), []
    for query in range(10):
        ranked = draw.sample(range(40), 20)
        lines += [f"test-{query} Q0 {TARGET}-{document} {n} {20 - n} other" for n, document in enumerate(ranked)]
    (folder / "other.trec").write_text("\n".join(lines) + "\n")
    settings = {"source": "made up", "files": {TARGET: "other.trec"}}
    method = {"kind": "run", "label": "Other", "description": "another system", "settings": settings}
    write_yaml(folder / "config/methods/other.yaml", method)


def shrunk(value: Any, key: str = "", within: str = "") -> Any:
    """Return a copy of nested settings whose numbers are at most those of LIMITS, by key or by `block.key`."""
    if isinstance(value, dict):
        kept = value if key != "scales" else {name: value[name] for name in ("mini",) if name in value}
        return {name: shrunk(inner, name, key) for name, inner in kept.items()}
    if key == "save_steps":
        return [1, 2]
    limit = LIMITS.get(f"{within}.{key}", LIMITS.get(key))
    if limit is not None and isinstance(value, int) and not isinstance(value, bool):
        return min(value, limit)
    return value


def write_encoder(folder: Path, words: list[str]) -> None:
    """Write a BERT of two layers, and the files that sentence-transformers needs."""
    known = [*VOCABULARY, *words]
    tiny_bert(folder, tokenizer=False, vocab_size=len(known))
    save_tokenizer(folder, known)
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    kinds = ("Transformer", "Pooling")
    modules = [
        {
            "idx": n,
            "name": str(n),
            "path": "" if n == 0 else "1_Pooling",
            "type": f"sentence_transformers.models.{kind}",
        }
        for n, kind in enumerate(kinds)
    ]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    (folder / "modules.json").write_text(json.dumps(modules))


def choose_items(folder: Path) -> None:
    """Let the papers have one item of each kind."""
    for paper, items in ITEMS.items():
        table = {name: {"title": name, "collections": [TARGET]} | item for name, item in items.items()}
        first = next(iter(table))
        table[first]["published"] = first
        reference = read_yaml(folder / f"config/papers/{paper}.yaml")["reference"]
        write_yaml(folder / f"config/papers/{paper}.yaml", {"label": paper, "reference": reference, "items": table})


def read_yaml(path: Path) -> Any:
    """Read a YAML file."""
    return yaml.safe_load(path.read_text())


def write_yaml(path: Path, value: Any) -> None:
    """Write a YAML file."""
    path.write_text(yaml.safe_dump(value, sort_keys=False))
