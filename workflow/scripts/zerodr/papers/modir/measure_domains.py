"""Stages `measure_domains` and `project_domains`: how a model separates a target from its source, on samples of both.

`project_domains` puts the vectors in the plane (MoDIR figure 4, BERM figures 5 and 6). Distances and sizes of clouds
in a t-SNE picture mean little; Domain-Acc and KNN-Source% are the numbers.
"""

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pydantic import Field
from torch import Tensor

from zerodr.artifacts.stage import Stage
from zerodr.config.base import Settings, validate
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.errors import ConfigError
from zerodr.papers.modir.domain_measures import accuracy, base_rate, domain_accuracy, knn_source, nearest
from zerodr.papers.modir.objective import CLASSIFIER
from zerodr.papers.modir.settings import TargetTexts
from zerodr.papers.modir.target_texts import read_target
from zerodr.retrieval.device import search_device
from zerodr.training.distributed.processes import Group
from zerodr.training.loop.checkpoint import read_tensors
from zerodr.training.loop.dev import embed_texts

log = logging.getLogger("zerodr")
SOURCE, TARGET = 0, 1
Texts = tuple[list[str], list[str]]
DOMAINS = {SOURCE: "source", TARGET: "target"}


class DomainSample(Settings):
    """Choose the texts of source and target that are measured."""

    source: TargetTexts
    """How the source is read."""
    targets: dict[str, TargetTexts] = Field(min_length=1)
    """How the target's collections are read, by name."""
    documents: int = Field(2000, ge=2)
    """Documents of each domain, a seeded sample."""
    queries: int = Field(1000, ge=2)
    """Queries of each domain, likewise."""


class MeasureDomainsSettings(DomainSample):
    """Params of rule measure_domains."""

    neighbours: int = Field(100, ge=1)
    """k of KNN-Source%."""
    shown: int = Field(5, ge=1)
    """Nearest source queries that are kept of each target query."""
    nearest_split: str | None = None
    """Split of the source, all of whose queries are searched for the nearest. None: the sample."""


def measure_domains(stage: Stage) -> None:
    """Measure: inputs `model`, `source`, `targets`; outputs `measures` (TSV: metric, value), `nearest` (parquet).

    `nearest` has the source queries of highest similarity for each target query of the sample: query, rank, source,
    score.

    Raises:
        ConfigError: other targets than the settings name.
        CollectionError: a domain has no queries of its split.
    """
    settings = validate(MeasureDomainsSettings, stage.params, stage.spec.name())
    texts, vectors, model = sampled_domains(stage, settings)
    facts = measures(vectors[SOURCE], vectors[TARGET], settings.neighbours, stage.seed)
    facts |= _classifier_accuracies(stage.path("model"), *vectors)
    stage.numbers(facts)
    lines = ["metric\tvalue", *(f"{name}\t{value!r}" for name, value in facts.items())]
    stage.output("measures").write_text("\n".join(lines) + "\n", encoding="utf-8")
    known, among = texts[SOURCE][0], vectors[SOURCE]["queries"]
    if settings.nearest_split is not None:
        how = {stage.path("source").name: settings.source.model_copy(update={"split": settings.nearest_split})}
        known = read_target({name: stage.path("source") for name in how}, how, "train").queries
        among = embed_texts(model, known, "query", search_device(), Group()).cpu()
    asked = texts[TARGET][0], vectors[TARGET]["queries"]
    _write_nearest(stage.output("nearest"), *asked, known, among, settings.shown)


def sampled_domains(stage: Stage, settings: DomainSample) -> tuple[list[Texts], list[dict[str, Tensor]], BiEncoder]:
    """Sample texts (queries, documents) of source and target, and encode them with the model, which comes last.

    Raises:
        ConfigError: other targets than the settings name.
        CollectionError: a domain has no queries of its split.
    """
    folders = stage.folders("targets")
    if set(folders) != set(settings.targets):
        problem = f"input `targets` has {sorted(folders)}, params.targets names {sorted(settings.targets)}"
        raise ConfigError(stage.spec.name(), problem, "give the same collections")
    source = stage.path("source")
    texts = [
        _sample({source.name: source}, {source.name: settings.source}, settings, [stage.seed, SOURCE]),
        _sample(folders, settings.targets, settings, [stage.seed, TARGET]),
    ]
    model = BiEncoder.load(stage.path("model"))
    device = search_device()
    model.to(device)
    vectors = [
        {
            kind: embed_texts(model, side_texts, side, device, Group()).cpu()
            for (kind, side), side_texts in zip((("queries", "query"), ("documents", "document")), sides, strict=True)
        }
        for sides in texts
    ]
    return texts, vectors, model


def measures(source: dict[str, Tensor], target: dict[str, Tensor], neighbours: int, seed: int) -> dict[str, float]:
    """Compute global Domain-Acc, KNN-Source% with its base rate, sizes.

    Args:
        source, target: vectors of `queries` and `documents`.
    """
    shares = knn_source(target["queries"], source["documents"], target["documents"], neighbours)
    counts = {
        f"{domain}_{kind}": float(len(vectors[kind]))
        for domain, vectors in (("source", source), ("target", target))
        for kind in vectors
    }
    return (
        domain_accuracy(source, target, [seed])
        | {
            f"knn_source_{neighbours}": float(shares.mean()),
            "knn_source_base_rate": base_rate(len(source["documents"]), len(target["documents"])),
        }
        | counts
    )


def _sample(folders: dict[str, Path], how: dict[str, TargetTexts], settings: DomainSample, seed: list[int]) -> Texts:
    """Choose texts of queries and of documents at random, without repetition."""
    corpus = read_target(folders, how, "test")
    generator = np.random.default_rng(seed)
    queries, documents = (
        np.sort(generator.choice(size, min(wanted, size), replace=False))
        for size, wanted in ((corpus.sizes.queries, settings.queries), (corpus.sizes.documents, settings.documents))
    )
    return [corpus.queries[int(number)] for number in queries], corpus.texts(documents).to_pylist()


def _classifier_accuracies(model: Path, source: dict[str, Tensor], target: dict[str, Tensor]) -> dict[str, float]:
    """Compute the accuracy of the classifier that the model was trained against, on these vectors."""
    if not (model / CLASSIFIER).exists():
        return {}
    weight = read_tensors(model / CLASSIFIER)["weight"]
    accuracies = {}
    for kind in source:
        count = min(len(source[kind]), len(target[kind]))
        margins = [vectors[kind][:count] @ (weight[SOURCE] - weight[TARGET]) for vectors in (source, target)]
        accuracies[f"domain_accuracy_own_{kind}"] = accuracy(torch.cat(margins))
    return accuracies


def _write_nearest(path: Path, asked: list[str], vectors: Tensor, known: list[str], among: Tensor, shown: int) -> None:
    scores, positions = nearest(vectors, among, shown)
    count = positions.shape[1]
    table = pa.table(
        {
            "query": pa.array([text for text in asked for _ in range(count)]),
            "rank": pa.array(list(range(1, count + 1)) * len(asked), pa.int32()),
            "source": pa.array([known[int(position)] for position in positions.ravel()]),
            "score": pa.array(scores.ravel().tolist(), pa.float32()),
        }
    )
    pq.write_table(table, path, compression="zstd")


class ProjectDomainsSettings(DomainSample):
    """Params of rule project_domains."""

    documents: int = Field(300, ge=2)
    """Documents of each domain, a seeded sample."""
    queries: int = Field(150, ge=2)
    """Queries of each domain, likewise."""
    perplexity: float = Field(30.0, gt=1)
    """Of t-SNE; a third of the points at most is taken."""


def project_domains(stage: Stage) -> None:
    """Project vectors: inputs `model`, `source`, `targets`; output `projection` (parquet: domain, kind, x, y).

    Raises:
        ConfigError: other targets than the settings name.
        CollectionError: a domain has no queries of its split.
    """
    settings = validate(ProjectDomainsSettings, stage.params, stage.spec.name())
    _, vectors, _ = sampled_domains(stage, settings)
    groups = [(DOMAINS[number], kind, kinds[kind].numpy()) for number, kinds in enumerate(vectors) for kind in kinds]
    points = in_the_plane(np.concatenate([group for *_, group in groups]), settings.perplexity, stage.seed)
    domains, kinds = zip(*((domain, kind) for domain, kind, group in groups for _ in group), strict=True)
    table = pa.table({"domain": domains, "kind": kinds, "x": points[:, 0], "y": points[:, 1]})
    pq.write_table(table, stage.output("projection"), compression="zstd")


def in_the_plane(vectors: np.ndarray, perplexity: float, seed: int) -> np.ndarray:
    """t-SNE of vectors (N, D) by their distances, (N, 2); it begins with the two principal axes."""
    from sklearn.manifold import TSNE

    # one thread, so that the picture is the same on any number of cores
    projection = TSNE(perplexity=min(perplexity, (len(vectors) - 1) / 3), init="pca", random_state=seed, n_jobs=1)
    return projection.fit_transform(vectors.astype(np.float32)).astype(np.float64)
