"""A small checkout in which a user's folder was ranked by BM25 and by MiniLM, with lineage records."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.config.load import load_bench
from zerodr.config.registry import EVERY
from zerodr.operations.folders import examine
from zerodr.plan import Plan, paths
from zerodr.plan.collections import section_files

ROOT = Path(__file__).parents[2]
DENSE, LEXICAL, FUSED, PROTOCOL = "all-minilm-l6-v2", "bm25-flat+bm25s", "hybrid+teacher", "standard"
DOCUMENTS = {
    "pie": ("Apple pie", "An apple pie is baked with apples, butter and sugar <script>alert('x')</script>."),
    "car": ("", "The engine of a car needs oil. " + "Filters are changed every year. " * 30 + "Brakes wear out."),
    "sepsis": ("Sepsis", "Sepsis is the body's extreme response to an infection."),
    "tax": ("", "A tax return is due in spring."),
}
QUERIES = {"q1": "how to bake a pie", "q2": "life-threatening reaction to germs", "q3": "nothing is judged here"}
QRELS = {"q1": {"pie": 1, "car": 0}, "q2": {"sepsis": 2}}


def write_corpus(folder: Path, documents: dict[str, tuple[str, str]]) -> None:
    """Write documents, title and text by id, as a user's folder has them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"_id": key, "title": title, "text": text} for key, (title, text) in documents.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_bench(documents: dict[str, tuple[str, str]] = DOCUMENTS, **config: Any) -> Plan:
    """Rank and evaluate in the working folder."""
    folder = Path("notes")
    write_corpus(folder, documents)
    (folder / "qrels").mkdir()
    asked = [{"_id": key, "text": text} for key, text in QUERIES.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    lines = [f"{query}\t{key}\t{grade}\n" for query, grades in QRELS.items() for key, grade in grades.items()]
    (folder / "qrels/test.tsv").write_text("".join(lines))
    plan = Plan(examine(load_bench(ROOT, {"byo": "notes", "collections": "notes"} | config)))
    for section in ("corpus", "queries", "judgements"):
        output = paths.collection("notes") if section == "corpus" else paths.collection_section("notes", section)
        run(plan, f"normalize_{section}", {"section": output}, files=section_files(plan, "notes", section))
    run(plan, "index_bm25", {"index": paths.bm25_index("bm25s-flat", "notes")}, index="bm25s-flat")
    ranked = paths.run(LEXICAL, "notes", PROTOCOL)
    run(plan, "search_bm25", {"run": ranked}, model=LEXICAL)
    evaluate(plan, LEXICAL)
    run(plan, "import_model", {"model": paths.model(DENSE, "shared", "imported")}, model=DENSE)
    vectors = (DENSE, "shared", "notes", PROTOCOL)
    names = {"model": DENSE, "scope": "shared"}
    corpus = paths.embeddings(*vectors, paths.shard("corpus", 0, 1))
    run(plan, "embed_corpus", {"embeddings": corpus}, shard="00000-of-00001", **names)
    run(plan, "embed_queries", {"embeddings": paths.embeddings(*vectors, f"queries.{EVERY}")}, split=EVERY, **names)
    search(plan, DENSE)
    evaluate(plan, DENSE)
    run(plan, "fuse_runs", {"run": paths.run(FUSED, "notes", PROTOCOL)}, model=FUSED)
    return plan


def search(plan: Plan, model: str) -> None:
    hits = paths.shard_hits(model, "notes", PROTOCOL, paths.shard("shard", 0, 1))
    run(plan, "search_shard", {"hits": hits}, shard="00000-of-00001", model=model)
    run(plan, "merge_run", {"run": paths.run(model, "notes", PROTOCOL)}, model=model)


def with_feedback(plan: Plan) -> None:
    """Rank by `zero` and by its fusion with BM25, too."""
    queries = paths.embeddings("zero", "shared", "notes", PROTOCOL, f"queries.{EVERY}")
    run(plan, "augment_queries", {"embeddings": queries}, model="zero", scope="shared", split=EVERY)
    search(plan, "zero")
    run(plan, "fuse_runs", {"run": paths.run("hybrid+zero", "notes", PROTOCOL)}, model="hybrid+zero")


def export(plan: Plan, choice: str) -> Path:
    """Export a candidate as if a comparison had chosen it; return the folder."""
    home = Path(paths.adapted_answer("notes")).parent
    home.mkdir(parents=True, exist_ok=True)
    write_json(home / "answer.json", {"choice": choice, "kinds": {"titles": 9}, "verdict": "keep"})
    rows = [f"mean\t{name}\t0.5\t0.4\t0.6\tTrue" for name in plan.config.candidates]
    (home / "comparison.tsv").write_text("\n".join(["kind\tmethod\tvalue\tlow\thigh\tproxy", *rows]) + "\n")
    write_json(home / "manifest.json", {"files": [], "choice": choice})  # another digest, so that nothing is resumed
    run(plan, "export_adapted", {"model": paths.adapted_model("notes")})
    return Path(paths.adapted_model("notes")).parent


def evaluate(plan: Plan, model: str) -> None:
    outputs = {"summary": paths.summary, "per_query": paths.per_query}
    run(plan, "evaluate_run", {key: name(model, "notes", PROTOCOL) for key, name in outputs.items()}, model=model)


def run(plan: Plan, rule: str, outputs: dict[str, str], files: list[str] | None = None, **wildcards: str) -> None:
    """Run a rule as Snakemake does."""
    named = {"collection": "notes", "protocol": PROTOCOL} | wildcards
    inputs = plan.inputs(rule)(SimpleNamespace(**named)) | ({"files": files} if files else {})
    settings = json.loads(plan.settings(rule)(SimpleNamespace(**named)))
    spec = (rule, settings["version"], named, inputs, outputs, settings["settings"], settings["seed"])
    run_spec(StageSpec(*spec))
