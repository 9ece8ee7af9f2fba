"""Stages of an episode's augmenter: `mine_memories`, `train_augmenter` and `join_components` (MoMA section 3.2).

`mine_memories` makes its training data as a small collection. The output holds `mined.parquet` (queries, D^{a+},
negatives, and D^{s+} as `judged`), with the texts of every document that it names, whatever memory they come from, as
`corpus.parquet`; so it is read as a source of training. D^{a+} is D^{s+} and the N documents with the most attention,
D^{a-} comes from the ranking of the mixture without D^{a+} (MoMA eq. 10 and 12). For a distilling augmenter the output
also holds `scored.parquet`: a judged positive, the K retrieved documents, and the attention to these.

Both trainings of an episode are `finetune`'s: rule `train_main` is that stage with augmented queries (training.py).
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from zerodr.artifacts.progress import Progress
from zerodr.artifacts.rankings import iterate_rankings
from zerodr.artifacts.record import write_json
from zerodr.artifacts.stage import Stage
from zerodr.collections.access import CORPUS_SCHEMA, ROW_GROUP, MemoryTexts, memory_of, qrels_files, queries_file
from zerodr.config.base import Settings, validate
from zerodr.config.params import FinetuneParams
from zerodr.errors import ArtifactError, CollectionError
from zerodr.mining.negatives import choose, words_of
from zerodr.mining.statistics import JUDGED, NAME, SCHEMA
from zerodr.papers.moma.folders import AUGMENTER, augmenter_of, copy_model
from zerodr.papers.moma.grounding import banned_documents
from zerodr.papers.moma.measure_attention import read_attention
from zerodr.papers.moma.settings import AugmenterStage, Selection
from zerodr.training.distributed.processes import check_gpus
from zerodr.training.finetune import FinetuneTask, fit
from zerodr.training.jobs import run_work

STATISTICS, SCORED = "statistics.json", "scored.parquet"
AT_ONCE = 4096
LABEL_SCORE = 0.0  # of the judged positive, which no attention was measured for and no loss reads


class AugmenterParams(FinetuneParams):
    """Params of rule train_augmenter."""

    settings: AugmenterStage
    """The training."""
    parent_learned: bool
    """The parent has an augmenter of its own; else the parent itself is the augmenter."""


class MineMemoriesSettings(Selection):
    """Params of rule mine_memories."""

    source: str
    """Name of the source, whose judgements are labels."""
    split: str
    """Its split with training queries."""
    joins: dict[str, str | None]
    """Text that joins title and text, by memory, and in the source, whose judged documents are learned from even
    where it is no memory. None: text alone."""
    distils: bool
    """The augmenter learns the attention over the retrieved documents."""
    stage_index: int = Field(ge=0)
    """Place of the stage in its chain."""


class Learned(NamedTuple):
    """Training data of one query."""

    query: str
    labelled: list[str]
    positives: list[str]
    negatives: list[str]
    ranks: list[int]
    retrieved: list[str]
    attention: list[float]


def mine_memories(stage: Stage) -> None:
    """Inputs `attention`, `rankings`, `source`, `memories`; output `learned`, a folder.

    Raises:
        ArtifactError: attention or rankings are of other queries, or a document is in no memory.
        CollectionError: no query has a judged positive.
    """
    settings, folder = validate(MineMemoriesSettings, stage.params, stage.spec.name()), stage.output("learned")
    source = stage.path("source")
    examples = list(learned(stage.path("attention"), stage.path("rankings"), source, settings, stage.seed))
    if not examples:
        raise CollectionError(
            f"{settings.source}/{settings.split}",
            "no query with attention has a judged positive",
            "check the split, and that attention was measured for it",
        )
    _write_mined(folder, examples, settings)
    named = sorted({key for row in examples for key in (*row.positives, *row.negatives, *row.retrieved)})
    folders = stage.folders("memories")
    _write_corpus(folder, named, MemoryTexts(folders | {settings.source: source}, settings.joins))
    shutil.copyfile(queries_file(source), folder / "queries.parquet")
    shutil.copyfile(qrels_files(source)[settings.split], folder / f"qrels.{settings.split}.tsv")
    facts = statistics(examples, settings)
    write_json(folder / STATISTICS, facts)
    stage.numbers(facts)
    stage.note(statistics=facts)


def learned(
    attention: Path, rankings: Path, source: Path, settings: MineMemoriesSettings, seed: int
) -> Iterator[Learned]:
    """Training data of each query with attention and a judged positive, in the attention's order."""
    labels = banned_documents(source, settings.split, settings.source)
    rows = {row["query"]: row for row in read_attention(attention).to_pylist()}
    words = dict(zip(rows, words_of(rows, "augment", seed, settings.stage_index), strict=True))
    chosen: dict[str, Learned] = {}
    progress = Progress(f"mine memories for {settings.source}/{settings.split}", len(rows), "queries")
    for piece in iterate_rankings(rankings, AT_ONCE):
        ends, documents = np.cumsum(piece.sizes), piece.documents
        for index, query in enumerate(piece.queries.to_pylist()):
            if query not in rows or query not in labels:
                continue
            ranking = documents[int(ends[index] - piece.sizes[index]) : int(ends[index])].to_pylist()
            chosen[query] = _of(rows[query], sorted(labels[query]), ranking[: settings.depth], words[query], settings)
            progress.add(1)
    progress.finish()
    lacking = [query for query in rows if query in labels and query not in chosen]
    if lacking:
        problem = f"lacks {len(lacking)} queries of {attention}, the first is {lacking[0]}"
        raise ArtifactError(rankings, problem, "make both from the same queries")
    return iter([chosen[query] for query in rows if query in chosen])


def _of(
    row: dict[str, Any], labelled: list[str], ranking: list[str], word: np.uint64, settings: MineMemoriesSettings
) -> Learned:
    positives = positives_of(labelled, row["documents"], row["attention"], settings.selected)
    ranks = negative_ranks(ranking, positives)
    nobody, every = np.zeros(len(ranks), np.int64), np.ones(len(ranks), bool)
    ranks = ranks[choose(nobody, ranks, every, np.array([word], np.uint64), settings.count, "uniform")]
    negatives, retrieved = [ranking[rank - 1] for rank in ranks], row["documents"]
    return Learned(row["query"], labelled, positives, negatives, ranks.tolist(), retrieved, row["attention"])


def _write_mined(folder: Path, examples: list[Learned], settings: MineMemoriesSettings) -> None:
    if settings.distils:
        positives, negatives = [row.labelled for row in examples], [row.retrieved for row in examples]
        ranks = [list(range(1, 1 + len(row.retrieved))) for row in examples]
    else:
        positives, negatives = [row.positives for row in examples], [row.negatives for row in examples]
        ranks = [row.ranks for row in examples]
    columns = {
        "query": [row.query for row in examples],
        "positives": positives,
        "negatives": negatives,
        "negative_ranks": ranks,
    }
    judged = pa.array([row.labelled for row in examples], pa.list_(pa.string()))
    table = pa.table(columns, schema=SCHEMA).append_column(JUDGED, judged)
    pq.write_table(table, folder / NAME, row_group_size=ROW_GROUP, compression="zstd")
    if settings.distils:
        scores = pa.array([[LABEL_SCORE, *row.attention] for row in examples], pa.list_(pa.float32()))
        scored = table.drop_columns("negative_ranks").append_column("scores", scores)
        pq.write_table(scored, folder / SCORED, row_group_size=ROW_GROUP, compression="zstd")


def _write_corpus(folder: Path, named: list[str], texts: MemoryTexts) -> None:
    with pq.ParquetWriter(folder / "corpus.parquet", CORPUS_SCHEMA, compression="zstd") as writer:
        ids = pa.array(named, pa.string())
        read = texts.texts(ids, folder).cast(pa.large_string())
        for start in range(0, len(named), ROW_GROUP):
            bodies, size = read[start : start + ROW_GROUP].cast(pa.string()), min(ROW_GROUP, len(named) - start)
            writer.write_table(
                pa.table([ids[start : start + ROW_GROUP], pa.array([""] * size), bodies], schema=CORPUS_SCHEMA)
            )


def statistics(examples: list[Learned], settings: MineMemoriesSettings) -> dict[str, Any]:
    """Counts over queries, and by memory the positives by attention."""
    picked = [most_attended(row.retrieved, row.attention, settings.selected) for row in examples]
    by_memory: dict[str, int] = {}
    for key in (key for documents in picked for key in documents):
        by_memory[memory_of(key)] = by_memory.get(memory_of(key), 0) + 1
    return {
        "queries": len(examples),
        "queries_with_relevant_augmentation": float(np.mean([bool({*r.labelled} & {*r.retrieved}) for r in examples])),
        "mean_positives": float(np.mean([len(row.positives) for row in examples])),
        "mean_negatives": float(np.mean([len(row.negatives) for row in examples])),
        "queries_without_negative": sum(not row.negatives for row in examples),
        "selected_by_memory": dict(sorted(by_memory.items())),
    }


class JoinSettings(Settings):
    """Params of rule join_components."""

    parent_learned: bool
    """The parent has an augmenter of its own, which the frozen one is; else the parent itself is."""


def train_augmenter(stage: Stage) -> None:
    """Inputs `model` (the parent of the episode), `learned`; output `model`: the augmenter of the episode."""
    task = augmenter_task(stage)
    check_gpus(task.params.gpus_of_a_node, stage.spec.name())
    run_work(stage, task.params, train)


def augmenter_task(stage: Stage) -> FinetuneTask:
    """Data from which an augmenter learns: its mined queries, or the attention to retrieved documents."""
    params = validate(AugmenterParams, stage.params, stage.spec.name())
    learned, parent = stage.path("learned"), augmenter_of(stage.path("model"), params.parent_learned)
    scored = learned / SCORED if params.settings.objective.name == "adist" else None
    return FinetuneTask(stage, params, parent, learned, learned, stage.output("model"), scored)


def train(stage: Stage) -> dict[str, Any]:
    """Train an augmenter as one of the processes of the group."""
    return fit(augmenter_task(stage))


def join_components(stage: Stage) -> None:
    """Inputs `main`, and `augmenter` or `parent` (whose one is frozen) or neither; output `model`.

    The output is the main model's folder, with the augmenter in its subfolder `augmenter`.
    """
    settings, target = validate(JoinSettings, stage.params, stage.spec.name()), stage.output("model")
    copy_model(stage.path("main"), target)
    if "augmenter" in stage.spec.inputs:
        copy_model(stage.path("augmenter"), target / AUGMENTER)
    elif "parent" in stage.spec.inputs:
        copy_model(augmenter_of(stage.path("parent"), settings.parent_learned), target / AUGMENTER)


def most_attended(documents: Sequence[str], attention: Sequence[float], count: int) -> list[str]:
    """The `count` documents with the most attention; of equal ones the earlier retrieved."""
    order = np.argsort(-np.asarray(attention, np.float64), kind="stable")
    return [documents[index] for index in order[:count]]


def positives_of(
    labelled: Sequence[str], documents: Sequence[str], attention: Sequence[float], selected: int
) -> list[str]:
    """D^{a+}: labelled documents, then the `selected` most attended ones, each once."""
    return list(dict.fromkeys([*labelled, *most_attended(documents, attention, selected)]))


def negative_ranks(ranking: Sequence[str], positives: Sequence[str]) -> np.ndarray:
    """Ranks (from 1) of a ranking's documents that may be negatives, int64."""
    out = set(positives)
    return np.array([rank for rank, document in enumerate(ranking, 1) if document not in out], np.int64)
