"""A tiny T5, a source with memories, and stages of one episode, for the tests of MoMA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from folder_helpers import publish_folder
from model_helpers import WORDS, tiny_collection, tiny_settings

from zerodr.artifacts.rankings import Rankings, RankingsWriter
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.collections.access import CORPUS_SCHEMA, QUERY_SCHEMA
from zerodr.encoders.start.initial import from_scratch
from zerodr.mining.statistics import SCHEMA as MINED

QUERIES, DOCUMENTS, K = 24, 30, 3
JOINS = {"source": " ", "other": " "}
MINING: dict[str, Any] = {
    "source": "source",
    "split": "train",
    "joins": JOINS,
    "selected": 2,
    "depth": 12,
    "count": 4,
    "exclude_unselected": False,
    "distils": False,
    "stage_index": 0,
}


def sentence(random: np.random.Generator) -> str:
    return " ".join(random.choice(WORDS, int(random.integers(3, 9))))


def collection(name: str, documents: int, queries: int = 0, seed: int = 0) -> str:
    """A normalised collection whose i-th query has the i-th document. Returns its manifest."""
    random = np.random.default_rng(seed)
    texts = [f"{sentence(random)} {row}" for row in range(documents)]
    asked = [" ".join(text.split()[:3]) + " ?" for text in texts[:queries]]
    return written(name, [""] * documents, texts, {f"q{row}": text for row, text in enumerate(asked)})


def written(name: str, titles: list[str], texts: list[str], asked: dict[str, str]) -> str:
    """A normalised collection of given texts whose i-th query has the i-th document. Returns its manifest."""
    made = Path(f"{name}.making")
    made.mkdir()
    pq.write_table(
        pa.table([[f"d{row}" for row in range(len(texts))], titles, texts], schema=CORPUS_SCHEMA),
        made / "corpus.parquet",
    )
    pq.write_table(pa.table([list(asked), list(asked.values())], schema=QUERY_SCHEMA), made / "queries.parquet")
    lines = [f"{query}\td{row}\t1\n" for row, query in enumerate(asked)]
    (made / "qrels.train.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    publish_folder(made, Path(name) / "manifest.json")
    return f"{name}/manifest.json"


def t5(place: str, seed: int = 7) -> str:
    """A random T5 of two layers. Returns its manifest."""
    return network(place, "t5", "decoder_first", seed)


def network(place: str, family: str, pooling: str, seed: int = 7) -> str:
    """A random network of two layers. Returns its manifest."""
    settings = tiny_settings(family, pooling=pooling)
    made = Path(f"{place}.making")
    from_scratch(settings, tiny_collection(Path("texts")), seed)[0].save(made)
    publish_folder(made, Path(place) / "manifest.json")
    return f"{place}/manifest.json"


def rankings(place: str, depth: int = 12, seed: int = 1, source: bool = True) -> str:
    """A ranking of the mixture for every query; the own document is the third, where the source is a memory."""
    random, names = np.random.default_rng(seed), []
    for row in range(QUERIES):
        own = [f"source:d{n}" for n in random.permutation(DOCUMENTS)[: depth // 2] if n != row and source]
        own += [f"other:d{n}" for n in random.permutation(DOCUMENTS)[:depth]]
        if source:
            own.insert(2, f"source:d{row}")
        names.append(own[:depth])
    with RankingsWriter(Path(place), depth) as writer:
        writer.write(
            Rankings(
                pa.array([f"q{row}" for row in range(QUERIES)]),
                np.full(QUERIES, depth),
                pa.array(sum(names, [])),
                np.tile(np.arange(depth, 0, -1.0), QUERIES),
            )
        )
    return place


def mined(place: str) -> str:
    """Mined negatives of the source for all queries but the last. Returns its manifest."""
    made = Path(f"{place}.making")
    made.mkdir()
    rows = range(QUERIES - 1)
    negatives = [[f"d{(row + k) % DOCUMENTS}" for k in (3, 5, 7)] for row in rows]
    columns = [[f"q{row}" for row in rows], [[f"d{row}"] for row in rows], negatives, [[1, 2, 3]] * len(rows)]
    pq.write_table(pa.table(columns, schema=MINED), made / "mined.parquet")
    publish_folder(made, Path(place) / "manifest.json")
    return f"{place}/manifest.json"


def run(function: str, inputs: dict[str, Any], outputs: dict[str, str], params: dict[str, Any], seed: int = 13) -> None:
    rule = function.partition(":")[2]
    run_spec(StageSpec(rule, 1, {"out": next(iter(outputs.values()))}, inputs, outputs, params, seed, 1))


def training(**more: Any) -> dict[str, Any]:
    """Params that both trainings share."""
    settings = {"steps": 4, "batch_queries": 8, "learning_rate": 1e-3, "checkpoint_steps": 2, "dev_queries": 2}
    settings |= more.pop("training", {})
    objective = more.pop("objective", {"name": "info_nce", "negatives_per_query": 2})
    return {
        "settings": {"objective": objective, "training": settings},
        "schedule": {"stage": "moma1", "stage_index": 0, "total_steps": 4},
        "source_split": "train",
    } | more


def lay_out(family: str = "t5", pooling: str = "decoder_first") -> None:
    """Collections, model, rankings and mined queries in the current folder."""
    collection("source", DOCUMENTS, QUERIES)
    collection("other", DOCUMENTS, seed=1)
    network("start", family, pooling)
    rankings("rankings.parquet")
    mined("mined")


def train_main(
    place: str = "main",
    model: str = "start/manifest.json",
    rankings: str = "rankings.parquet",
    memory: dict[str, Any] | None = None,
    **more: Any,
) -> Path:
    params = training(**more) | {"joins": JOINS}
    memory = {"memories": ["source", "other"], "documents": K, "document_tokens": 16} | (memory or {})
    params["settings"] |= {"kind": "moma", "memory": memory, "augmenter": {"selected": 2}}
    run(
        "training.finetune:finetune",
        {
            "model": model,
            "mined": "mined/manifest.json",
            "source": "source/manifest.json",
            "rankings": rankings,
            "memories": ["source/manifest.json", "other/manifest.json"],
        },
        {"model": f"{place}/manifest.json"},
        params,
    )
    return Path(place)


def measure(
    place: str = "attention.parquet",
    model: str = "main/manifest.json",
    rankings: str = "rankings.parquet",
    memories: tuple[str, ...] = ("source", "other"),
    **more: Any,
) -> Path:
    joins = {name: JOINS[name] for name in memories}
    params = {
        "split": "train",
        "joins": joins,
        "documents": K,
        "document_tokens": 16,
        "aggregation": "prob_sum",
        "exclude_positives": False,
        "source": "source",
    } | more
    run(
        "papers.moma.measure_attention:measure_attention",
        {
            "model": model,
            "rankings": rankings,
            "collection": "source/manifest.json",
            "mined": "mined/manifest.json",
            "memories": [f"{name}/manifest.json" for name in memories],
        },
        {"attention": place},
        params,
    )
    return Path(place)


def mine(
    place: str = "learned",
    attention: str = "attention.parquet",
    rankings: str = "rankings.parquet",
    memories: tuple[str, ...] = ("source", "other"),
    **more: Any,
) -> Path:
    params = MINING | more
    run(
        "papers.moma.augmenter:mine_memories",
        {
            "attention": attention,
            "rankings": rankings,
            "source": "source/manifest.json",
            "memories": [f"{name}/manifest.json" for name in memories],
        },
        {"learned": f"{place}/manifest.json"},
        params,
    )
    return Path(place)
