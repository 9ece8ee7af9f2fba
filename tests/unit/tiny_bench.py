"""A checkout in miniature: real stages of two methods on a made-up collection, run by the real stage runner.

archive -> collection -> BM25 index -> run -> evaluation, and model -> embeddings -> hits -> run -> evaluation,
both -> table. Every artifact has the name, settings and record that the workflow would give it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pandas as pd

from zerodr.artifacts.stage import Stage, StageSpec, run_spec
from zerodr.config.load import load_bench
from zerodr.plan import Plan, paths

COLLECTIONS = """
defaults: {kind: complete, evaluation_split: test}
collections:
  toy:
    label: Toy
    archive: toy.zip
    archive_bytes: 2000000
    documents: 12
    queries: 4
    splits: {test: 4}
    groups: [mini]
  other:
    label: Other
    archive: other.zip
    archive_bytes: 5000000
    documents: 3000000
    queries: 10
    splits: {test: 10}
    groups: [lab]
"""
SCALE = (
    "{description: tiny, collections: [%s], methods: {rows: [bm25-flat, dense]}, source: toy, shard_documents: %d,"
    " statistics_documents: 10}\n"
)
METHODS = {
    "bm25-flat": "{kind: lexical, label: BM25, description: lexical, settings: {k1: 0.9, b: 0.4}}\n",
    "dense": "kind: encoder\nlabel: Dense\ndescription: a model\nsettings: {model: 'organization/dense-v1.1'}\n"
    "variants:\n  hnsw: {settings: {index: hnsw}}\n",
    "hybrid": "{kind: fusion, label: Both, description: two runs, settings: {runs: [bm25-flat, dense]}}\n",
}
MODEL = paths.model("dense", "shared", "imported")
COLLECTION = paths.collection("toy")
ARCHIVE = paths.archive("toy.zip")
TABLE = paths.beir("all.tsv")
QUERIES = [f"q{n}" for n in range(4)]


def write_config(root: Path) -> None:
    """The configuration files of the miniature."""
    (root / "config/methods").mkdir(parents=True)
    shutil.copy(Path(__file__).parents[2] / "config/speeds.yaml", root / "config")
    (root / "config/collections").mkdir()
    (root / "config/collections/tiny.yaml").write_text(COLLECTIONS)
    (root / "config/config.yaml").write_text("{scale: mini, seed: 7}\n")
    (root / "config/protocols.yaml").write_text("standard: {description: plain}\n")
    (root / "config/scales.yaml").write_text(f"mini: {SCALE % ('mini', 6)}lab: {SCALE % ('lab', 1000000)}")
    for name, text in METHODS.items():
        (root / f"config/methods/{name}.yaml").write_text(text)


def plan_of(root: Path) -> Plan:
    """The plan of the configuration as it stands."""
    return Plan(load_bench(root))


def run_stage(plan: Plan, rule: str, inputs: dict, outputs: dict, function, **wildcards: str) -> None:
    """One job of a rule, with the settings that the plan gives it."""
    settings = json.loads(plan.settings(rule)(SimpleNamespace(**wildcards)))
    spec = StageSpec(
        rule,
        settings["version"],
        wildcards,
        inputs,
        outputs,
        settings["settings"],
        settings["seed"],
    )
    run_spec(spec, function)


def fetch(stage: Stage, content: str = "archive") -> None:
    stage.output("archive").write_text(f"{content} {stage.params['archive']}")


def normalize(stage: Stage) -> None:
    folder = stage.output("collection")
    texts = [f"what is {stage.path('archive').read_text()} about, asks {query}" for query in QUERIES]
    pd.DataFrame({"id": QUERIES, "text": texts}).to_parquet(folder / "queries.parquet")
    (folder / "audit.json").write_text('{"documents": 12}\n')


def copy_model(stage: Stage) -> None:
    folder = stage.output("model")
    (folder / "config.json").write_text('{"hidden_size": 16}\n')
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 8192)  # 2 MiB
    for step in range(3):
        stage.metric("loss", 1.0 / (step + 1), step)


def write_index(stage: Stage) -> None:
    (stage.output("index") / "terms").write_text("terms of " + stage.path("collection").name)


def concatenate(stage: Stage) -> None:
    """Output: the digests of all inputs, in a line each."""
    (name,) = stage.spec.outputs
    lines = [f"{path} {path.read_bytes()[:64]!r}" for key in sorted(stage.spec.inputs) for path in stage.paths(key)]
    stage.output(name).write_text("\n".join(lines) + f"\n{json.dumps(stage.params, sort_keys=True)}\n")


def evaluate(stage: Stage) -> None:
    better = stage.params["model"] != "bm25-flat"
    values = [0.5, 0.9 if better else 0.2, 0.1 if better else 0.4, 1.0]
    frame = pd.DataFrame({"model": stage.params["model"], "query": QUERIES, "ndcg_cut_10": values, "recall_100": 1.0})
    frame.to_parquet(stage.output("per_query"))
    mean = float(frame["ndcg_cut_10"].mean())
    stage.output("summary").write_text(f"metric\tvalue\nndcg_cut_10\t{mean}\n")
    stage.metric("ndcg_cut_10", mean)
    stage.metric("recall_100", 1.0)


def make_collection(plan: Plan, content: str = "archive") -> None:
    """Archive (fetched anew) and collection; another content makes other digests."""
    Path(ARCHIVE).unlink(missing_ok=True)
    run_stage(plan, "fetch_archive", {}, {"archive": ARCHIVE}, lambda stage: fetch(stage, content), archive="toy.zip")
    run_stage(
        plan, "normalize_collection", {"archive": [ARCHIVE]}, {"collection": COLLECTION}, normalize, collection="toy"
    )


def make_bm25(plan: Plan) -> None:
    """Index and run of the lexical method."""
    index, run = paths.bm25_index("lucene-flat", "toy"), paths.run("bm25-flat", "toy", "standard")
    run_stage(
        plan,
        "index_bm25",
        {"collection": COLLECTION},
        {"index": index},
        write_index,
        index="lucene-flat",
        collection="toy",
    )
    run_stage(
        plan,
        "search_bm25",
        {"index": index, "collection": COLLECTION},
        {"run": run},
        concatenate,
        model="bm25-flat",
        collection="toy",
        protocol="standard",
    )


def make_dense(plan: Plan) -> None:
    """Model, embeddings in two shards, hits, run of the encoder."""
    where = {"model": "dense", "collection": "toy", "protocol": "standard"}
    run_stage(plan, "import_model", {}, {"model": MODEL}, copy_model, model="dense", scope="shared")

    def embed(rule: str, part: str, **more: str) -> str:
        made = paths.embeddings("dense", "shared", "toy", "standard", part)
        inputs = {"collection": COLLECTION, "model": MODEL}
        run_stage(plan, rule, inputs, {"embeddings": made}, concatenate, scope="shared", **where, **more)
        return made

    queries, hits = embed("embed_queries", "queries.test", split="test"), []
    for number in range(2):
        shard = paths.shard("corpus", number, 2).removeprefix("corpus-")
        corpus = embed("embed_corpus", f"corpus-{shard}", shard=shard)
        hits.append(paths.shard_hits("dense", "toy", "standard", f"shard-{shard}"))
        inputs = {"queries": queries, "corpus": corpus, "collection": COLLECTION}
        run_stage(plan, "search_shard", inputs, {"hits": hits[-1]}, concatenate, shard=shard, **where)
    run = {"run": paths.run("dense", "toy", "standard")}
    run_stage(plan, "merge_run", {"hits": hits, "collection": COLLECTION}, run, concatenate, **where)


def make_fused(plan: Plan) -> None:
    """The fusion of both runs."""
    runs = [paths.run(model, "toy", "standard") for model in ("bm25-flat", "dense")]
    run = {"run": paths.run("hybrid", "toy", "standard")}
    run_stage(
        plan,
        "fuse_runs",
        {"runs": runs, "collection": COLLECTION},
        run,
        concatenate,
        model="hybrid",
        collection="toy",
        protocol="standard",
    )


def make_evaluation(plan: Plan, model: str) -> str:
    """Summary and per-query file of a run; returns the summary's path."""
    where = (model, "toy", "standard")
    outputs = {"summary": paths.summary(*where), "per_query": paths.per_query(*where)}
    run_stage(
        plan,
        "evaluate_run",
        {"run": paths.run(*where), "collection": COLLECTION},
        outputs,
        evaluate,
        model=model,
        collection="toy",
        protocol="standard",
    )
    return outputs["summary"]


def make_bench(root: Path, content: str = "archive") -> Plan:
    """Everything up to the table, in the working directory `root`; a second call remakes what `content` changes."""
    if not (root / "config").exists():
        write_config(root)
    plan = plan_of(root)
    make_collection(plan, content)
    make_bm25(plan)
    make_dense(plan)
    make_fused(plan)
    summaries = [make_evaluation(plan, model) for model in ("bm25-flat", "dense", "hybrid")]
    run_stage(plan, "build_table", {"summaries": summaries}, {"table": TABLE}, concatenate)
    return plan
