"""Distances of domains, KNN-Source% and Domain-Acc (MoDIR sections 4.4, 4.5), and the stage that measures them."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.encoder_helpers import make_collection
from tests.unit.training_helpers import seal, tiny_model

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import StageSpec, run_spec
from zerodr.errors import ConfigError
from zerodr.papers.modir.domain_classifier import DomainClassifier
from zerodr.papers.modir.domain_measures import accuracy, base_rate, domain_accuracy, knn_source, nearest
from zerodr.papers.modir.objective import CLASSIFIER
from zerodr.papers.modir.search_domains import source_shares
from zerodr.training.loop.checkpoint import write_tensors


def points(shift: float, seed: int, count: int = 600, far: float = 0.0) -> dict[str, torch.Tensor]:
    """Gaussian points around (shift, far, 0, ...): `far` is what both domains have in common, as embeddings do."""
    generator = torch.Generator().manual_seed(seed)
    made = {kind: torch.randn(count, 8, generator=generator) for kind in ("queries", "documents")}
    return {kind: x + shift * torch.eye(8)[0] + far * torch.eye(8)[1] for kind, x in made.items()}


@cache
def six_sigmas() -> dict[str, float]:
    """Accuracies of domains that lie six sigmas apart, one of them around 0."""
    return domain_accuracy(points(0, 1), points(6, 2))


def test_knn_source():
    query, source = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    target = torch.tensor([[0.9, 0.1], [0.0, -1.0]])
    assert knn_source(query, source, target, 2).tolist() == [0.5]
    assert knn_source(query, source, target, 1).tolist() == [1.0]
    assert base_rate(8_841_823, 171_332) == pytest.approx(0.981, abs=1e-3)


def test_of_equal_scores_the_source_comes_last():
    same = torch.ones(3, 2)
    assert knn_source(torch.ones(1, 2), same, same, 3).tolist() == [0.0]
    assert knn_source(torch.ones(1, 2), same, same, 100).tolist() == [0.5]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_a_perfect_mixture_has_the_base_rate_on_average(seed, k):
    generator = torch.Generator().manual_seed(seed)
    queries, both = torch.randn(64, 6, generator=generator), torch.randn(40, 6, generator=generator)
    shares = knn_source(queries, both[:10], both[10:], k)
    assert 0 <= float(shares.mean()) <= 1 and knn_source(queries, both[:10], both[10:], 40).tolist() == [0.25] * 64


def test_the_same_distribution_cannot_be_told_apart():
    for name, value in domain_accuracy(points(0, 1), points(0, 2)).items():
        assert abs(value - 0.5) < 0.1, name


def test_six_sigmas_can_be_told_apart():
    found = six_sigmas()
    assert found["domain_accuracy_converged_queries"] > 0.99 and found["domain_accuracy_converged_documents"] > 0.99


def test_six_sigmas_of_one_domain_for_the_released_classifier():
    """It has no bias: around 0 it halves the unmoved domain, so that 3/4 is the most; away from 0 it tells all."""
    around = six_sigmas()
    away = domain_accuracy(points(0, 1, far=10), points(6, 2, far=10))
    for kind in ("queries", "documents"):
        assert around[f"domain_accuracy_released_{kind}"] == pytest.approx(0.75, abs=0.03)
        assert away[f"domain_accuracy_released_{kind}"] > 0.99
    assert min(domain_accuracy(points(-3, 1), points(3, 2)).values()) > 0.99
    assert max(domain_accuracy(points(0, 1, far=10), points(0, 2, far=10)).values()) < 0.6


def test_the_names_of_the_domains_make_no_difference():
    one, two = domain_accuracy(points(0, 1), points(0.5, 2)), domain_accuracy(points(0.5, 2), points(0, 1))
    assert one == pytest.approx(two, abs=1e-6)


def test_the_larger_domain_is_cut_and_one_kind_is_enough():
    few = {"documents": points(6, 2, 40)["documents"]}
    found = domain_accuracy(points(0, 1), few)
    assert set(found) == {"domain_accuracy_released_documents", "domain_accuracy_converged_documents"}
    assert found["domain_accuracy_converged_documents"] > 0.9


def test_a_margin_of_zero_counts_half():
    assert accuracy(torch.zeros(4)) == 0.5 and accuracy(torch.tensor([1.0, 1, -1, -1])) == 1
    assert accuracy(torch.tensor([1.0, -1, -1, 0])) == pytest.approx(0.625)


def test_nearest_queries():
    scores, places = nearest(torch.eye(2), torch.tensor([[0.1, 0.9], [0.8, 0.2]]), 5)
    assert places.tolist() == [[1, 0], [0, 1]] and scores[0].tolist() == pytest.approx([0.8, 0.1])


# ---- the stage -----------------------------------------------------------------------------------------------------
@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, letter in (("source", "ab cd"), ("target", "xy zw")):
        documents = [(f"{name}{i}", "", f"{letter} {chr(97 + i)}") for i in range(20)]
        make_collection(tmp_path / f"results/{name}", documents, [(f"q{i}", f"{letter[:2]} {i}") for i in range(10)])
    model = tiny_model(tmp_path / "results/model")
    write_tensors(model / CLASSIFIER, {"weight": DomainClassifier(32).weight.data})
    seal(model)
    return tmp_path


def spec(**params: object) -> StageSpec:
    inputs = {
        "model": "results/model/manifest.json",
        "source": "results/source/manifest.json",
        "targets": ["results/target/manifest.json"],
    }
    outputs = {"measures": "results/measures.tsv", "nearest": "results/nearest.parquet"}
    texts = {"source": {"split": "test"}, "targets": {"target": {"split": "test"}}}
    values = texts | {"documents": 12, "neighbours": 5} | params
    return StageSpec(
        "measure_domains",
        1,
        {"model": "tiny"},
        inputs,
        outputs,
        values,
        13,
        1,
    )


def test_the_stage_measures_samples(project):
    run_spec(spec())
    with open("results/measures.tsv") as stream:
        found = {row["metric"]: float(row["value"]) for row in csv.DictReader(stream, delimiter="\t")}
    assert (found["source_documents"], found["target_documents"], found["target_queries"]) == (12, 12, 10)
    assert found["knn_source_base_rate"] == 0.5 and 0 <= found["knn_source_5"] <= 1
    own = {name for name in found if name.startswith("domain_accuracy_")}
    assert own == {
        f"domain_accuracy_{who}_{kind}" for who in ("released", "converged", "own") for kind in ("queries", "documents")
    }
    assert {point["name"] for point in read_record("results/measures.tsv")["metrics"]} == set(found)
    near = pq.read_table("results/nearest.parquet").to_pandas()
    assert len(near) == 50 and near.groupby("query")["score"].is_monotonic_decreasing.all()
    before = Path("results/measures.tsv").read_bytes()
    Path("results/measures.tsv").unlink()
    run_spec(spec())
    assert Path("results/measures.tsv").read_bytes() == before


def test_the_nearest_may_be_among_all_queries_of_a_split(project):
    run_spec(spec(queries=3, nearest_split="test"))
    sample = pq.read_table("results/nearest.parquet").to_pandas()
    assert sample.groupby("query").size().tolist() == [5] * 3 and sample["source"].nunique() > 3


def test_other_targets_are_refused(project):
    with pytest.raises(ConfigError, match=r"params.targets names \['other'\]"):
        run_spec(spec(targets={"other": {"split": "test"}}))


def projected(**params: object) -> StageSpec:
    return replace(
        spec(**{"documents": 6, "queries": 4} | params),
        rule="project_domains",
        outputs={"projection": "results/tsne.parquet"},
    )


def test_both_domains_are_put_in_the_plane(project):
    wanted = projected()
    del wanted.params["neighbours"]
    run_spec(wanted)
    found = pq.read_table("results/tsne.parquet").to_pandas()
    assert found.groupby(["domain", "kind"]).size().to_dict() == {
        ("source", "documents"): 6,
        ("source", "queries"): 4,
        ("target", "documents"): 6,
        ("target", "queries"): 4,
    }
    assert found[["x", "y"]].notna().all(axis=None) and found["x"].std() > 0
    before = Path("results/tsne.parquet").read_bytes()
    Path("results/tsne.parquet").unlink()
    run_spec(wanted)
    assert Path("results/tsne.parquet").read_bytes() == before


# ---- full indexes --------------------------------------------------------------------------------------------------
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_shares_of_rankings_are_those_of_all_documents(seed, k):
    generator = torch.Generator().manual_seed(seed)
    queries, source, target = (torch.randint(-2, 3, (n, 3), generator=generator).float() for n in (5, 9, 7))
    tables = []
    for documents in (source, target):
        best = torch.topk(queries @ documents.T, min(k, len(documents)))
        rows = np.repeat(np.arange(5, dtype=np.int64), best.values.shape[1])
        tables.append(pa.table({"query": rows, "score": best.values.flatten().numpy()}))
    assert source_shares(*tables, 5, k).tolist() == pytest.approx(knn_source(queries, source, target, k).tolist())


def write_vectors(name: str, part: str, vectors: torch.Tensor) -> str:
    file = Path(f"results/embeddings/m/t/{name}/p/{part}.npy")
    file.parent.mkdir(parents=True, exist_ok=True)
    np.save(file, vectors.numpy())
    return str(file)


def test_a_model_ranks_all_of_both_domains(project):
    """Shards in any number; a source whose queries find their document, or a later one."""
    generator = torch.Generator().manual_seed(3)
    source, target = torch.randn(20, 4, generator=generator), torch.randn(20, 4, generator=generator)
    asked, wanted = torch.randn(10, 4, generator=generator), torch.randn(10, 4, generator=generator)
    asked[:5] = 100 * source[0]  # these find document 0, which the split judges, unless a longer one is nearer
    found = []
    for count in (1, 3):
        cuts = [20 * n // count for n in range(count + 1)]
        parts = [f"corpus-{n:05d}-of-{count:05d}" for n in range(count)]
        corpora = {
            name: [write_vectors(name, part, x[a:b]) for part, a, b in zip(parts, cuts, cuts[1:], strict=False)]
            for name, x in (("source", source), ("target", target))
        }
        inputs = {
            "source": "results/source/manifest.json",
            "source_queries": write_vectors("source", "queries.test", asked),
            "source_corpus": corpora["source"],
            "targets": ["results/target/manifest.json"],
            "target_queries": [write_vectors("target", "queries.test", wanted)],
            "target_corpora": corpora["target"],
        }
        output = f"results/{count}.indexes.tsv"
        params = {"splits": {"source": "test", "target": "test"}, "neighbours": 7}
        run_spec(StageSpec("search_domains", 1, {"model": "m"}, inputs, {"indexes": output}, params, 0, 1))
        with open(output) as stream:
            found.append({row["metric"]: float(row["value"]) for row in csv.DictReader(stream, delimiter="\t")})
    assert found[0] == found[1]
    assert found[0]["knn_source_7"] == pytest.approx(float(knn_source(wanted, source, target, 7).mean()))
    assert (found[0]["knn_source_base_rate"], found[0]["source_documents"]) == (0.5, 20)
    ranks = 1 + (asked @ source.T > (asked @ source.T)[:, :1]).sum(1)
    expected = torch.where(ranks <= 10, 1 / ranks, 0.0).mean()
    assert found[0]["source_recip_rank_cut_10"] == pytest.approx(float(expected))
