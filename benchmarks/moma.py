"""Encoding of fused queries with and without cached encoder states, paired; latency of a MoMA query by component.

A random T5 (weights do not matter for time), evaluation queries of NFCorpus, K documents each, found by BM25 in a
mixture of NFCorpus and MeSH headings, so that queries share documents as they do in use. Three ways to encode a batch,
taken in every round in an order that changes from round to round: `uncached`, every document of every query passes the
encoder; `batch`, each distinct document of the batch once; `warm`, states of all documents are in memory. A ratio is
that of a round's two times; the median over rounds is told. The largest difference of any component of any vector is
told for each way, against the decoder as transformers runs it. Then the time of a query by component, with both
searches and the augmenter's own encoding, which the paper's 55 ms and 9 ms count once.

Run from the project's root: python benchmarks/moma.py [--queries 256] [--documents 10] [--hidden 256] [--layers 4]
`--hidden 768 --layers 12` has the shape of T5-base. `--device cuda` runs on a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from idro import ROOT, lines_of, say

sys.path.insert(0, str(ROOT / "workflow" / "scripts"))
UNCACHED, BATCH, WARM = "uncached", "batch", "warm"
COLLECTIONS = {"nfcorpus": "nfcorpus.zip", "memory-mesh": "memory-mesh.zip"}
CACHE_MIB = 4096
TRAINED_ON = 3000  # documents that the tokenizer is made from


def archive(name: str) -> zipfile.ZipFile:
    """An archive of a mirror folder."""
    from zerodr.config.load import mirrors_of

    for mirror in mirrors_of(ROOT):
        path = mirror / name
        if path.exists():
            return zipfile.ZipFile(path)
    raise SystemExit(f"{name} is in no mirror folder (docs/install.md)")


def texts_of(name: str) -> tuple[dict[str, str], list[str]]:
    """Documents by namespaced id, and queries that have a test judgement (none for a memory)."""
    with archive(COLLECTIONS[name]) as opened:
        rows = list(map(json.loads, lines_of(opened, "corpus.jsonl")))
        documents = {f"{name}:{row['_id']}": f"{row.get('title') or ''} {row['text']}".strip() for row in rows}
        if name != "nfcorpus":
            return documents, []
        judged = {line.decode().split("\t")[0] for line in lines_of(opened, "qrels/test.tsv")[1:]}
        asked = map(json.loads, lines_of(opened, "queries.jsonl"))
        return documents, [row["text"] for row in asked if row["_id"] in judged]


class Bench:
    """A model, a batch of queries, and their documents."""

    def __init__(self, chosen: argparse.Namespace, folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq
        import torch

        from zerodr.collections.access import CORPUS_SCHEMA
        from zerodr.config.training import InitSettings
        from zerodr.encoders.start.initial import from_scratch
        from zerodr.lexical.light import LightIndex
        from zerodr.papers.moma.augmented_encoder import FusionContract
        from zerodr.papers.moma.fusion_encoder import FusionEncoder

        torch.set_num_threads(chosen.threads)
        self.documents, asked = texts_of("nfcorpus")
        self.documents |= texts_of("memory-mesh")[0]
        self.queries = asked[: chosen.queries]
        shape = {
            "family": "t5",
            "hidden": chosen.hidden,
            "layers": chosen.layers,
            "heads": chosen.hidden // 64 or 1,
            "vocabulary": 8000,
        }
        settings = InitSettings.model_validate(
            {
                "init": "scratch",
                "architecture": shape,
                "pooling": "decoder_first",
                "query_tokens": 64,
                "document_tokens": 128,
            }
        )
        columns = [list(self.documents)[:TRAINED_ON], [""] * TRAINED_ON, list(self.documents.values())[:TRAINED_ON]]
        (folder / "source").mkdir()
        pq.write_table(pa.table(columns, schema=CORPUS_SCHEMA), folder / "source" / "corpus.parquet")
        from_scratch(settings, folder / "source", 0)[0].save(folder / "model")
        self.model = FusionEncoder.load(folder / "model")
        self.model.fusion = FusionContract(documents=chosen.documents, document_tokens=128)
        self.model.to(chosen.device)
        names = list(self.documents)
        index = LightIndex.build(self.documents.values())
        self.given = [[names[row] for row in rows] for rows, _ in index.search_texts(self.queries, chosen.documents)]

    def texts(self, keys: list[str]) -> list[str]:
        """Texts of documents."""
        return [self.documents[key] for key in keys]

    def plain(self) -> Any:
        """Vectors by transformers' own decoder, a few queries at a time."""
        import torch

        from zerodr.papers.moma.augmented_encoder import Grounded

        tokens, made = self.model.tokenize(self.queries, "query"), []
        for query, own in zip(tokens, self.given, strict=True):
            row = Grounded(query, self.model.tokenize_augmentations(self.texts(own)))
            features = {key: value.to(self.device) for key, value in self.model.pad([row]).items()}
            with torch.no_grad():
                made.append(self.model.encode(features, "query"))
        return torch.cat(made).cpu().numpy()

    @property
    def device(self) -> Any:
        """Where the model is."""
        return next(self.model.parameters()).device

    def ways(self) -> dict[str, Callable[[], Any]]:
        """Each way to encode the batch, ready to be timed."""
        from zerodr.papers.moma.fused_vectors import Fuser, StateCache

        warm = Fuser(self.model, StateCache(CACHE_MIB))
        warm.vectors(self.queries, self.given, self.texts)
        return {
            UNCACHED: lambda: Fuser(self.model, None).vectors(self.queries, self.given, self.texts),
            BATCH: lambda: Fuser(self.model, StateCache(CACHE_MIB)).vectors(self.queries, self.given, self.texts),
            WARM: lambda: warm.vectors(self.queries, self.given, self.texts),
        }


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result."""
    import torch

    started = time.perf_counter()
    made = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started, made


def compare(bench: Bench, rounds: int) -> None:
    """Times of the three ways by round, their ratios and differences."""
    ways, taken = bench.ways(), {name: [] for name in (UNCACHED, BATCH, WARM)}
    expected, worst = bench.plain(), dict.fromkeys(ways, 0.0)
    for number in range(rounds):
        names = list(ways)
        for name in names[number % 3 :] + names[: number % 3]:
            seconds, made = timed(ways[name])
            taken[name].append(seconds)
            worst[name] = max(worst[name], float(abs(made - expected).max()))
    distinct = len({key for own in bench.given for key in own})
    say(f"{len(bench.queries)} queries x {bench.model.fusion.documents} documents, {distinct} of them distinct")
    for name in (UNCACHED, BATCH, WARM):
        ratios = [one / other for one, other in zip(taken[UNCACHED], taken[name], strict=True)]
        say(
            f"{name:9} {1e3 * statistics.median(taken[name]) / len(bench.queries):8.2f} ms/query"
            f"  {statistics.median(ratios):6.2f} x ({min(ratios):.2f} to {max(ratios):.2f})"
            f"  largest difference {worst[name]:.1e}"
        )


def components(bench: Bench, rounds: int) -> None:
    """Time of a query by component, all queries in one batch."""
    import numpy as np
    import pyarrow as pa

    from zerodr.papers.moma.fused_vectors import Fuser, StateCache
    from zerodr.retrieval.candidates import id_ranks
    from zerodr.retrieval.exact import search_exact
    from zerodr.retrieval.vectors import Vectors

    random = np.random.default_rng(0)
    names, dimension = list(bench.documents), bench.model.contract.dimension
    corpus = Vectors(random.normal(size=(len(names), dimension)).astype(np.float32))
    asked = Vectors(random.normal(size=(len(bench.queries), dimension)).astype(np.float32))
    ranks, nothing = id_ranks(pa.array(names)), [[]] * len(bench.queries)
    warm, none = Fuser(bench.model, StateCache(CACHE_MIB)), Fuser(bench.model, None)
    warm.vectors(bench.queries, bench.given, bench.texts)
    parts: dict[str, Callable[[], Any]] = {
        "query by the augmenter": lambda: none.vectors(bench.queries, nothing, bench.texts),
        "search of the mixture": lambda: list(search_exact(asked, corpus, ranks, bench.model.fusion.documents)),
        "fused query, uncached": lambda: none.vectors(bench.queries, bench.given, bench.texts),
        "fused query, states cached": lambda: warm.vectors(bench.queries, bench.given, bench.texts),
        "search of the target": lambda: list(search_exact(asked, corpus, ranks, 100)),
    }
    say(f"\nlatency by component ({len(names)} documents in the mixture, and as many in the target)")
    for name, work in parts.items():
        seconds = statistics.median(timed(work)[0] for _ in range(rounds))
        say(f"{name:28} {1e3 * seconds / len(bench.queries):8.3f} ms/query")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=256)
    parser.add_argument("--documents", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(chosen, Path(folder))
        compare(bench, chosen.rounds)
        components(bench, chosen.rounds)


if __name__ == "__main__":
    main()
