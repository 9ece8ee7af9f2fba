"""Group weights from step to step: every mode, resume, two processes, and stages with clusters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.unit import weighting_probe
from tests.unit.training_helpers import (
    QUERIES,
    finetune_spec,
    lay_out,
    make_mined,
    make_source,
    run_two_processes,
    seal,
    tiny_examples,
    tiny_model,
)
from tests.unit.weighting_helpers import (
    IN_BATCH,
    KINDS,
    OWN,
    PAIRWISE,
    batch_of,
    clusters_of,
    on_devices,
    one_step,
    tiny,
    weighted,
    with_groups,
)

from zerodr.artifacts.record import read_record
from zerodr.artifacts.stage import run_spec
from zerodr.config.training import TrainingSettings
from zerodr.encoders.network.trainable import BiEncoder
from zerodr.errors import ArtifactError, ConfigError
from zerodr.papers.coco_dr import losses as dro
from zerodr.papers.coco_dr.cluster_queries import clusters_of as read_clusters
from zerodr.papers.coco_dr.settings import GroupSettings
from zerodr.papers.coco_dr.training import weigh_clusters
from zerodr.training.data.batches import Batch, Stream
from zerodr.training.data.examples import Examples, load_examples
from zerodr.training.loop.engine import Engine, Run
from zerodr.training.loop.gradcache import Forward
from zerodr.training.objectives.ranking import make_objective
from zerodr.training.optimizers import make_optimizer, schedule

COMPARED = 8544  # weights of the tiny model's last layer
DEFAULTS: dict[str, Any] = {"similarity": "cosine", "temperature": 1000.0, "layers": 3}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Examples:
    torch.set_num_threads(1)
    return with_groups(tiny_examples(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "tied")


def group_means(model: Any, data: Examples, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Losses and sizes of all groups in a batch, and which are present; from a `balanced` objective's own look."""
    objective = weighted(model, data, **(DEFAULTS | {"mode": "balanced"}))
    one_step(model, data, objective, batch_of(data, step=step))
    seen = objective._seen
    return seen.spread(seen.losses, KINDS), seen.spread(seen.counts, KINDS), seen.mask(KINDS)


def loss_of(found: dict[str, torch.Tensor]) -> float:
    return found["term.pairwise_nll"].item()


def test_balanced_and_erm_are_the_two_means(data, folder):
    model = tiny(folder)
    losses, counts, present = group_means(model, data, 0)
    for mode, expected in (("balanced", losses[present].mean()), ("erm", (losses * counts).sum() / counts.sum())):
        objective = weighted(model, data, **(DEFAULTS | {"mode": mode}))
        found = one_step(model, data, objective, batch_of(data))
        assert loss_of(found) == pytest.approx(expected.item(), rel=1e-5)
        facts = objective.on_step(1)
        assert set(facts) == {"present_groups", "worst_group_loss"}
        assert facts["worst_group_loss"] == pytest.approx(losses.max().item(), rel=1e-5)
    plain = make_objective(PAIRWISE)
    erm = one_step(model, data, weighted(model, data, **(DEFAULTS | {"mode": "erm"})), batch_of(data))
    expected = one_step(model, data, plain, batch_of(data))
    assert all(torch.allclose(erm[name], expected[name], rtol=1e-4, atol=1e-6) for name in expected)


def test_group_dro_weighs_with_the_new_weights(data, folder):
    model = tiny(folder)
    objective = weighted(model, data, **(DEFAULTS | {"mode": "group_dro", "eta": 0.5}))
    omega = torch.full((KINDS,), 1 / KINDS, dtype=torch.float64)
    for step in range(3):
        losses, _, present = group_means(model, data, step)
        omega = dro.group_dro_update(omega, losses, present, 0.5)
        found = one_step(model, data, objective, batch_of(data, step=step))
        objective.on_step(step + 1)
        torch.testing.assert_close(objective.state.omega, omega, rtol=1e-5, atol=0)
        assert loss_of(found) == pytest.approx((omega * losses)[present].sum().item(), rel=1e-5)


def test_a_batch_whose_groups_lost_their_weight_is_named(data, folder, caplog):
    model, (first, *others) = tiny(folder), clusters_of(data)
    objective = weighted(model, data, **(DEFAULTS | {"mode": "group_dro", "eta": 0.5}))
    objective.state.omega = torch.tensor([1.0] + [1e-60] * len(others), dtype=torch.float64)
    for step, lacks in enumerate((True, False, True)):
        batch = batch_of(data, step=step)
        rows = batch.groups != first if lacks else batch.groups >= 0
        batch = Batch(step, batch.rows[rows], batch.documents[rows], None, batch.groups[rows])
        assert (loss_of(one_step(model, data, objective, batch)) == 0) == (lacks or first not in batch.groups)
        assert objective.on_step(step + 1)["batches_without_weight"] == (lacks or first not in batch.groups)
    (said,) = [record.message for record in caplog.records if "nothing was learned" in record.message]
    assert "from the batch of step 1: the weights of all its groups are 0: lower groups.eta" in said


def test_devices_with_the_same_queries_are_one_device(data, folder):
    """Gradients that are added up over equal parts have the cosines of one part; losses and weights are each part's."""
    model, once = tiny(folder), batch_of(data, 4)
    thrice = Batch(0, np.tile(once.rows, 3), np.tile(once.documents, (3, 1)), None, np.tile(once.groups, 3))
    settings = DEFAULTS | {"mode": "official", "layers": 1}
    single, parts = weighted(model, data, **settings), weighted(model, data, **settings, devices=3)
    for step in range(3):
        expected = one_step(model, data, single, once)
        found = one_step(model, data, parts, on_devices(thrice, 3))
        facts, told = parts.on_step(step + 1), single.on_step(step + 1)
        torch.testing.assert_close(parts.state.omega.view(3, -1), single.state.omega.expand(3, -1), rtol=1e-6, atol=0)
        assert facts["present_groups"] == told["present_groups"]
        assert facts["effective_groups"] == pytest.approx(told["effective_groups"])
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-6)


def test_a_device_forgets_the_clusters_that_its_own_queries_lack(data, folder):
    model, batch = tiny(folder), batch_of(data)
    objective = weighted(model, data, **(DEFAULTS | {"mode": "official", "layers": 1}), devices=4)
    one_step(model, data, objective, on_devices(batch, 4))
    objective.on_step(1)
    clusters = np.searchsorted(clusters_of(data), batch.groups).reshape(4, -1)
    for omega, here in zip(objective.state.omega.view(4, -1), clusters, strict=True):
        assert set(np.flatnonzero(omega.numpy() > 0.01)) == set(here)


def test_official_starts_as_a_sum_and_forgets_absent_groups(data, folder):
    model = tiny(folder)
    objective = weighted(model, data, **(DEFAULTS | {"mode": "official", "layers": 1}))
    losses, _, present = group_means(model, data, 0)
    assert loss_of(one_step(model, data, objective, batch_of(data))) == pytest.approx(losses.sum().item(), rel=1e-5)
    objective.on_step(1)
    assert bool((objective.state.omega[~present] == 0.01).all()) and bool((~present).any())
    expected = dro.official_update(
        torch.ones(KINDS).double(),
        torch.zeros(KINDS).double().index_put((present.nonzero()[:, 0],), objective.sums),
        present,
        0.05,
        0.1,
        0.01,
    )
    torch.testing.assert_close(objective.state.omega, expected)


def engine_of(folder: Path, data: Examples, state: Path, objective: Any, **changes: Any) -> Engine:
    chosen = TrainingSettings(
        **({"steps": 8, "batch_queries": 12, "learning_rate": 1e-3, "checkpoint_steps": 3, "warmup_steps": 2} | changes)
    )
    model = tiny(folder, 0.1)
    settings = GroupSettings(**objective[1])
    made = weigh_clusters(make_objective(objective[0]), settings, objective[0], model, clusters_of(data))
    # Of 8 questions a step, one step of dot and temperature 1 has no group whose weight is a number above 0.
    stream = Stream(data, np.arange(QUERIES), 8, objective[0].negatives_per_query, [13, 0])
    return Engine(
        Forward(model, data, "cpu", chosen.cache_chunk),
        made,
        stream,
        make_optimizer(model, chosen),
        schedule("linear", 2, 8),
        chosen,
        Run("test", state, "identity", [13, 0]),
    )


RUNS = [
    (PAIRWISE, {"mode": "idro", "kappa": 1.0, "temperature": 1.0}, {}),
    (PAIRWISE, {"mode": "idro", "kappa": 1.0, "similarity": "dot", "temperature": 1.0, "timing": "current"}, {}),
    (OWN, {"mode": "official"}, {"optimizer": "lamb"}),
    (
        IN_BATCH,
        {"mode": "idro", "kappa": 1.0, "similarity": "dot", "temperature": 1.0, "layers": "all"},
        {"cache_chunk": 5},
    ),
    (IN_BATCH, {"mode": "group_dro"}, {"cache_chunk": 5}),
    (PAIRWISE, {"mode": "balanced"}, {}),
]


@pytest.mark.parametrize("objective, settings, changes", RUNS, ids=lambda value: str(getattr(value, "name", value)))
def test_interrupted_at_any_step_ends_with_the_same_bits(
    data, folder, tmp_path, monkeypatch, objective, settings, changes
):
    monkeypatch.setattr("zerodr.papers.coco_dr.training.TRACE_STEPS", 2)
    whole = engine_of(folder, data, tmp_path / "whole", (objective, settings), **changes)
    curves = whole.fit()
    for stop in (2, 5, 7):
        broken = engine_of(folder, data, tmp_path / str(stop), (objective, settings), **changes)
        shares = broken._shares

        def failing(step: int, at: int = stop, shares=shares):
            if step == at:
                raise InterruptedError
            return shares(step)

        broken._shares = failing
        with pytest.raises(InterruptedError):
            broken.fit()
        rest = engine_of(folder, data, tmp_path / str(stop), (objective, settings), **changes)
        assert rest.fit() == curves
        assert all(a.equal(b) for a, b in zip(rest.model.parameters(), whole.model.parameters(), strict=True))
        assert rest.objective.state.omega.equal(whole.objective.state.omega)
        assert rest.objective.trace_steps == whole.objective.trace_steps
    if settings["mode"] == "idro":
        start = torch.full((KINDS,), 1 / KINDS, dtype=torch.float64)
        assert not torch.allclose(whole.objective.state.omega, start, rtol=1e-3)


@pytest.fixture(scope="module")
def both(tmp_path_factory, root):
    """Three steps of every engine in one process, and in each of two."""
    place = tmp_path_factory.mktemp("distributed")
    make_source(place / "source"), make_mined(place / "mined")
    tiny_model(place / "model")
    return weighting_probe.steps(place), run_two_processes(root, "weighting_probe", place)


@pytest.mark.parametrize("name", weighting_probe.CASES)
def test_two_processes_are_one_on_the_union_batch(both, name):
    one, (first, second) = both
    keys = [key for key in one if key.startswith(f"{name}/")]
    assert len(keys) > 20
    tops = [
        max(float(one[key].abs().max()) for key in keys if key.startswith(f"{name}/{step}/") and "omega" not in key)
        for step in range(weighting_probe.STEPS)
    ]
    for key in keys:
        assert first[key].equal(second[key]), key  # global, not each process's own
        if "omega" in key:
            torch.testing.assert_close(first[key], one[key], rtol=1e-5, atol=1e-9)
        else:
            assert float((first[key] - one[key]).abs().max()) < 1e-5 * tops[int(key.split("/")[1])], key
    omegas = [one[f"{name}/{step}/omega"] for step in range(weighting_probe.STEPS)]
    assert not torch.allclose(omegas[0], omegas[-1], rtol=1e-4)


def test_processes_add_up_less_than_a_gradient_for_each_cluster(both):
    """Two processes share one cluster at most: its gradient and a sum are added up, and numbers of clusters."""
    _, (first, _) = both
    for name in (name for name in weighting_probe.CASES if name.startswith("segment")):
        for step in range(weighting_probe.STEPS):
            assert 4 * COMPARED < first[f"bytes/{name}/{step}"] <= 4 * COMPARED * 2 + 2 * 8 * KINDS, name
    assert first["bytes/loop/0"] > 4 * 4 * COMPARED  # the reference adds up each cluster's


def make_clusters(folder: Path, rows: list[tuple[str, int]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    queries, numbers = zip(*rows, strict=True)
    pq.write_table(
        pa.table({"query": pa.array(queries), "cluster": pa.array(numbers, pa.int32())}), folder / "clusters.parquet"
    )
    seal(folder)
    return folder


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    lay_out(tmp_path)
    make_clusters(tmp_path / "results/clusters", [(f"q{i}", 2 * (i % 5)) for i in reversed(range(QUERIES))])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(groups: dict[str, Any] | None, clusters: bool = True, place: str = "ep0", **changes: Any) -> Path:
    inputs = {"clusters": "results/clusters/manifest.json"} if clusters else {}
    spec = finetune_spec(place, inputs, **({"name": "pairwise_nll"} | changes))
    if groups is not None:
        spec.params["settings"] |= {"groups": groups, "clusters": {}}
    run_spec(spec)
    return Path(f"results/{place}")


IDRO = {"mode": "idro", "kappa": 1.0, "temperature": 1.0}


def test_a_stage_learns_with_groups_and_keeps_their_weights(project, caplog, monkeypatch):
    monkeypatch.setattr("zerodr.papers.coco_dr.training.TRACE_STEPS", 5)
    with caplog.at_level("INFO", "zerodr"):
        folder = run(IDRO)
    said = [line for line in caplog.messages if line.startswith("groups:")]
    assert len(said) == 1 and "5, mode idro" in said[0] and "engine segment: similarity: cosine of" in said[0]
    table = pq.read_table(folder / "groups/weights.parquet")
    assert table.schema.names == ["step", "cluster", "weight"]
    assert table["step"].to_pylist() == [5] * 5 + [10] * 5 + [12] * 5
    assert table["cluster"].to_pylist() == [0, 2, 4, 6, 8] * 3
    weights = table["weight"].to_numpy().reshape(3, 5)
    np.testing.assert_allclose(weights.sum(1), 1)
    assert np.ptp(weights[-1]) > 1e-3
    curves = {metric["name"] for metric in read_record(folder)["metrics"]}
    assert {"omega_entropy", "omega_max", "omega_min", "present_groups", "skipped_updates", "alpha"} <= curves
    BiEncoder.load(folder)


def test_as_few_groups_as_are_asked_for_are_not_warned_of(project, caplog):
    folder = run({"mode": "idro", "kappa": 1.0, "effective": 0.2})
    weights = pq.read_table(folder / "groups/weights.parquet")["weight"].to_numpy()
    assert sorted(weights)[-2:] == [0.0, 1.0] and not [line for line in caplog.messages if "the weights are" in line]


@pytest.mark.parametrize(("temperature", "warned"), [(1000.0, True), (0.3, False)])
def test_weights_that_stay_equal_are_warned_of(project, caplog, monkeypatch, temperature, warned):
    monkeypatch.setattr("zerodr.papers.coco_dr.training.ENOUGH", 12)
    run({"mode": "idro", "kappa": 0.1, "temperature": temperature})
    said = [line for line in caplog.messages if "after 12 steps all weights are equal, as with mode: alpha" in line]
    assert len(said) == warned and all("set groups.effective" in line for line in said)


def test_two_processes_of_a_stage_train_with_groups(project):
    folder = run(IDRO | {"similarity": "dot"}, processes=2, steps=3, total_steps=3)
    assert pq.read_table(folder / "groups/weights.parquet")["step"].to_pylist() == [3] * 5


def test_empty_clusters_and_clusters_without_training_queries_form_no_group(project):
    make_clusters(project / "results/clusters", [(f"q{i}", 7 if i < 4 else 3) for i in range(QUERIES)] + [("other", 5)])
    folder = run(IDRO, place="few")
    assert set(pq.read_table(folder / "groups/weights.parquet")["cluster"].to_pylist()) == {3, 7}


def test_a_group_that_no_batch_has_keeps_its_weight(data, folder):
    """Its queries are in the rest of the epoch that fills no batch."""
    model = tiny(folder)
    objective, missing = weighted(model, data), clusters_of(data)[2]
    for step in range(3):
        batch = batch_of(data, step=step)
        kept = batch.groups != missing
        one_step(model, data, objective, Batch(step, batch.rows[kept], batch.documents[kept], None, batch.groups[kept]))
        objective.on_step(step + 1)
        assert objective.state.omega[2].item() == pytest.approx(1 / KINDS)
    assert objective.state.omega.sum().item() == pytest.approx(1.0)


def test_queries_without_a_cluster_are_refused(project):
    make_clusters(project / "results/clusters", [(f"q{i}", 0) for i in range(QUERIES - 2)])
    with pytest.raises(ArtifactError, match=f"lacks 2 of the {QUERIES} mined queries, the first is q{QUERIES - 2}"):
        run(IDRO)


def test_groups_and_clusters_go_together(project):
    for groups, clusters in ((IDRO, False), (None, True)):
        with pytest.raises(ConfigError, match="go together"):
            run(groups, clusters)


def test_combinations_are_refused_before_training(project):
    with pytest.raises(ConfigError, match="engine segment holds the activations"):
        run(IDRO, cache_chunk=4)


def test_clusters_reach_batches_in_the_order_of_queries(project):
    examples = load_examples(project / "results/mined", project / "results/source", " ")
    examples = replace(examples, groups=read_clusters(project / "results/clusters/clusters.parquet", examples.queries))
    expected = [2 * (int(query[1:]) % 5) for query in examples.queries.to_pylist()]
    assert examples.groups.tolist() == expected
    batch = Stream(examples, np.arange(QUERIES), 8, 1, [0]).batch(3)
    assert batch.groups.tolist() == [expected[row] for row in batch.rows]
    assert batch.shard(1, 2).groups.tolist() == batch.groups[4:].tolist()
    assert json.loads(json.dumps(batch.groups.tolist())) == batch.groups.tolist()
