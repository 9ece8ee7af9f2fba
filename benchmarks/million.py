"""A million synthetic documents through embedding and search in shards: memory stays flat, time grows in proportion.

Run from the project's root: python benchmarks/million.py [--documents 100000 1000000] [--shards 10] [--slurm]
It writes a folder of one's own documents for each size (in --folder) and asks Snakemake, with the profile `local` or
`slurm`, for a ranking of it in --shards shards by --model: all-MiniLM-L6-v2, or a smaller one (`t5-ance@init --scale
mini`, a random T5 of width 64) where no GPU is at hand, because memory and growth do not depend on what a model knows.
Peak memory, time and processor time of each rule come from Snakemake's benchmarks; each of its jobs starts an
interpreter, which takes seconds. What a document costs apart from that is told by the rate of encoding. Words are
drawn by Zipf's law, --words of them a document; the same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SEED, WORDS, QUERIES, CHUNK = 13, 50_000, 200, 10_000
RULES = ("normalize_collection", "embed_corpus", "search_shard", "merge_run")
WITHOUT_MODEL, SHARDED = ("normalize_collection",), ("embed_corpus", "search_shard")
BENCHMARKS = ROOT / "results/benchmarks"


def texts(documents: int, least: int, most: int) -> Iterator[str]:
    """Synthetic texts; those of a smaller collection are the first ones of a larger."""
    for start in range(0, documents, CHUNK):
        draw = np.random.default_rng([SEED, start])
        for length in draw.integers(least, most + 1, min(CHUNK, documents - start)):
            ranks = np.minimum(draw.zipf(1.2, length), WORDS)
            yield " ".join(f"w{rank}" for rank in ranks)


def write_folder(folder: Path, documents: int, words: list[int]) -> None:
    """A folder as `--config byo=` takes it; every query is judged with the document that its words come from."""
    if (folder / "qrels/test.tsv").exists():
        return
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    step = documents // QUERIES
    with (
        open(folder / "corpus.jsonl", "w", encoding="utf-8") as corpus,
        open(folder / "queries.jsonl", "w", encoding="utf-8") as queries,
        open(folder / "qrels/test.tsv", "w", encoding="utf-8") as qrels,
    ):
        qrels.write("query-id\tcorpus-id\tscore\n")
        for number, text in enumerate(texts(documents, *words)):
            corpus.write(json.dumps({"_id": f"d{number}", "title": "", "text": text}) + "\n")
            if number % step == 0 and number // step < QUERIES:
                queries.write(json.dumps({"_id": f"q{number}", "text": " ".join(text.split()[:8])}) + "\n")
                qrels.write(f"q{number}\td{number}\t1\n")


def run(folder: Path, documents: int, given: argparse.Namespace) -> float:
    """Rank one collection; seconds of the whole command."""
    target = f"results/runs/{given.model}/{folder.name}/standard.trec.gz"
    profile = "slurm" if given.slurm else "config/profiles/local"
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--profile",
        profile,
        target,
        "--config",
        f"byo={folder}",
        f"scale={given.scale}",
        f"shard_documents={-(-documents // given.shards)}",
    ]
    started = time.monotonic()
    subprocess.run(command, cwd=ROOT, check=True)
    return time.monotonic() - started


def benchmark_files(folder: Path, rule: str, collection: str, model: str) -> list[Path]:
    """Snakemake's benchmarks of a rule's jobs on a collection; those of other models are left out.

    Their places name the collection as a folder or as the file itself. The model comes first where a rule has one; a
    recipe is embedded by its last stage (`dpr@ep0`). Shards (`00003-of-00010`) are those of the last run: the corpus
    is cut by its estimated size, so their number may differ from --shards.
    """
    home = folder / rule
    places = {path: path.relative_to(home).with_suffix("").parts for path in sorted(home.rglob("*.tsv"))}
    found = [
        path
        for path, parts in places.items()
        if collection in parts and (rule in WITHOUT_MODEL or parts[0] == model or parts[0].startswith(f"{model}@"))
    ]
    if rule in SHARDED and found:
        last = max(found, key=lambda path: path.stat().st_mtime_ns).stem.partition("-of-")[2]
        found = [path for path in found if path.stem.endswith(f"-of-{last}")]
    return found


def measured(folder: Path, collection: str, model: str) -> dict[str, list[tuple[float, float, float]]]:
    """(peak MiB, seconds, processor seconds) of every job on a collection, by rule; a rule without one is left out."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for rule in RULES:
        rows = [
            row
            for path in benchmark_files(folder, rule, collection, model)
            for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines(), delimiter="\t")
        ]
        if rows:
            found[rule] = [(float(row["max_rss"]), float(row["s"]), float(row["cpu_time"])) for row in rows]
    return found


def rates(folder: Path, collection: str, model: str) -> list[float]:
    """Documents per second that each job of `embed_corpus` encoded, without its start, from its lineage record."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob(f"{model}*/*/{collection}/**/*lineage.json"))
    ]
    return [
        metric["value"]
        for record in records
        if record["rule"] == "embed_corpus"
        for metric in record["metrics"]
        if metric["name"] == "texts_per_second"
    ]


def main() -> None:
    """Print a table: jobs, peak memory of the largest, seconds of all, and ratios to the smallest collection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--shards", type=int, default=10)
    parser.add_argument("--words", type=int, nargs=2, default=[20, 60], metavar=("LEAST", "MOST"))
    parser.add_argument("--model", default="all-minilm-l6-v2")
    parser.add_argument("--scale", default="mini")
    parser.add_argument("--folder", type=Path, default=ROOT / "resources/synthetic")
    parser.add_argument("--slurm", action="store_true")
    parser.add_argument("--again", action="store_true", help="drop what earlier runs made of these collections")
    given = parser.parse_args()
    first: dict[str, tuple[float, float, float]] = {}
    write = sys.stdout.write
    write("documents  rule                  jobs  peak MiB  median s  all s  peak ratio  time ratio  cpu ratio\n")
    for documents in sorted(given.documents):
        folder = given.folder / f"synthetic-{documents}"
        write_folder(folder, documents, given.words)
        if given.again:
            for place in (ROOT / "results").glob(f"*/**/{folder.name}"):
                shutil.rmtree(place, ignore_errors=True)
            for rule in WITHOUT_MODEL:
                (BENCHMARKS / rule / f"{folder.name}.tsv").unlink(missing_ok=True)
        run(folder, documents, given)
        for rule, jobs in measured(BENCHMARKS, folder.name, given.model).items():
            peaks, seconds, processor = zip(*jobs, strict=True)
            own = max(peaks), sum(seconds), sum(processor)
            base = first.setdefault(rule, own)
            peak, wall, cpu = (a / b for a, b in zip(own, base, strict=True))
            write(
                f"{documents:>9}  {rule:<20}  {len(jobs):>4}  {own[0]:>8.0f}  {statistics.median(seconds):>8.1f}"
                f"  {own[1]:>5.0f}  {peak:>10.2f}  {wall:>10.2f}  {cpu:>9.2f}\n"
            )
        encoded = rates(ROOT / "results/embeddings", folder.name, given.model)
        write(
            f"{documents:>9}  encoded {statistics.median(encoded):.0f} documents/s, median of jobs "
            f"({min(encoded):.0f} to {max(encoded):.0f})\n"
        )


if __name__ == "__main__":
    main()
