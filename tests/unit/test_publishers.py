"""Publishers of one store: twice, interrupted, many at once; nothing is lost and nothing is there twice."""

from __future__ import annotations

import os
from multiprocessing import get_context
from pathlib import Path

import pytest
from publish_helpers import URI, Walk, absolute, plan, template
from tiny_bench import ARCHIVE, MODEL, TABLE, make_bench, make_bm25, make_collection, make_evaluation

from zerodr.artifacts.record import read_record, write_json
from zerodr.lineage import store, views
from zerodr.lineage.graph import Graph
from zerodr.lineage.publish import publish, published_records
from zerodr.lineage.views import key_of
from zerodr.plan import paths

__all__ = ["plan", "template"]


def _publish_as(number: int) -> None:
    """Publish half of the records as a checkout of its own would, over a connection of its own."""
    from mlflow import MlflowClient

    database = Path("results/lineage/mlflow.db").resolve()
    client = MlflowClient(tracking_uri=f"sqlite:///{database.parent}/{'./' * number}{database.name}")
    experiment = client.get_experiment_by_name("zerodr").experiment_id
    mine = store.Store(client, experiment, f"publisher {number}")
    for record in published_records(Graph(), [TABLE])[number % 2 :: 2]:
        if mine.find(key_of(record)) is None:
            mine.add(record, [], None)


def test_twenty_publishers_at_once_lose_nothing_and_share_groups(plan):
    publish(Graph(), [ARCHIVE], absolute())
    with get_context("fork").Pool(20) as pool:
        pool.map(_publish_as, range(1, 21), chunksize=1)
    walk, records = Walk(absolute()), published_records(Graph(), [TABLE])
    last = store.Store(walk.client, walk.experiment, "last")
    assert all(last.find(key_of(record)) for record in records)
    runs = walk.runs()
    known = {run.info.run_id for run in runs}
    artifacts = [run.data.tags["artifact"] for run in runs if "artifact" in run.data.tags]
    assert sorted(artifacts) == sorted(record["artifact"] for record in records)
    assert {run.data.tags.get("mlflow.parentRunId", min(known)) for run in runs} <= known


@pytest.mark.parametrize("removed_first", [False, True])
def test_a_run_below_a_group_that_its_publisher_removes_as_a_double_moves_to_the_other(plan, removed_first):
    publish(Graph(), [ARCHIVE], absolute())
    walk, records = Walk(absolute()), published_records(Graph(), [TABLE])
    record = next(record for record in records if record["output"] == "summary")
    one, other = (store.Store(walk.client, walk.experiment, name) for name in ("one", "other"))
    groups = views.groups_of(record)
    double = one.group(groups[:1])
    assert other.group(groups[:1]) == double and other.group(groups)
    if not removed_first:
        other.add(record, [], None)
    key = {"group": walk.client.get_run(double).data.tags["group"], "level": "method"}
    oldest = walk.client.create_run(walk.experiment, start_time=1, tags=key).info.run_id
    one._replace(double, groups[:1])
    if removed_first:
        other.add(record, [], None)
    runs = {run.info.run_id: run for run in walk.runs()}
    assert double not in runs
    assert {run.data.tags.get("mlflow.parentRunId", oldest) for run in runs.values()} <= set(runs)
    assert runs[oldest].data.metrics["ndcg_cut_10.toy"] > 0


def test_publishing_twice_adds_nothing_and_a_change_adds_new_runs(plan, tmp_path):
    first = publish(Graph(), [TABLE], absolute())
    assert first == len(published_records(Graph(), [TABLE])) == 16
    assert publish(Graph(), [TABLE], absolute()) == 0
    before = len(Walk(absolute()).runs())
    make_collection(plan, "another archive")
    make_bm25(plan)
    make_evaluation(plan, "bm25-flat")
    added = publish(Graph(), [paths.summary("bm25-flat", "toy", "standard")], absolute())
    assert added == 5
    walk = Walk(absolute())
    assert len(walk.runs()) == before + 5
    archives = walk.runs(f"tags.artifact = '{ARCHIVE}'")
    users = {run.data.tags["out"]: {u.info.run_id for u in walk.users(run)} for run in archives}
    assert len(users) == 2
    assert set.intersection(*users.values()) == set()


def half_published() -> tuple[Walk, str]:
    """All published, but the model's run (its id) as a publisher leaves it that was stopped in the middle."""
    publish(Graph(), [TABLE], absolute())
    walk = Walk(absolute())
    run = walk.by_artifact(MODEL).info.run_id
    walk.client.set_terminated(run, "RUNNING")
    return walk, run


def test_an_interrupted_publisher_leaves_nothing_double(plan):
    walk, half = half_published()
    assert publish(Graph(), [TABLE], absolute()) == 1
    assert walk.by_artifact(MODEL).info.run_id != half
    (model,) = walk.client.search_logged_models([walk.experiment])
    assert model.source_run_id == walk.by_artifact(MODEL).info.run_id


def test_what_another_checkout_is_publishing_is_left_alone_and_doubles_end_as_one(plan):
    walk, theirs = half_published()
    walk.client.set_tag(theirs, store.PUBLISHER, "another checkout")
    assert publish(Graph(), [TABLE], absolute()) == 1
    ids = {run.info.run_id: run.info.status for run in walk.runs(f"tags.artifact = '{MODEL}'")}
    assert ids.pop(theirs) == "RUNNING" and list(ids.values()) == ["FINISHED"]
    walk.client.set_terminated(theirs, "FINISHED")
    assert publish(Graph(), [TABLE], absolute()) == 0
    run = walk.by_artifact(MODEL)
    (model,) = walk.client.search_logged_models([walk.experiment])
    assert model.source_run_id == run.info.run_id


def test_an_experiment_that_another_makes_meanwhile(plan, monkeypatch):
    from mlflow import MlflowClient

    whole, looks = MlflowClient.get_experiment_by_name, []

    def late(client: MlflowClient, name: str):
        looks.append(name)
        return whole(client, name) if len(looks) > 1 else None

    monkeypatch.setattr(MlflowClient, "get_experiment_by_name", late)
    assert publish(Graph(), [ARCHIVE], absolute()) == 1
    assert len(looks) == 2


def test_equal_bytes_made_by_other_settings_are_another_run(plan, tmp_path):
    publish(Graph(), [ARCHIVE], absolute())
    record = read_record(ARCHIVE)
    write_json(Path(f"{ARCHIVE}.lineage.json"), record | {"spec_digest": "0" * 64})
    assert publish(Graph(), [ARCHIVE], absolute()) == 1
    write_json(Path(f"{ARCHIVE}.lineage.json"), record | {"started_unix_s": 1.0})
    assert publish(Graph(), [ARCHIVE], absolute()) == 0


def _publish_in(folder: str) -> int:
    os.chdir(folder)
    return publish(Graph(), [TABLE], URI)


def test_two_publishers_at_once_on_a_fresh_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_bench(tmp_path)
    Path("results/lineage").mkdir(parents=True)
    Path("results/lineage/.mlflow.db.making").write_bytes(b"half a database that a kill left behind")
    with get_context("fork").Pool(2) as pool:
        assert sorted(pool.map(_publish_in, [str(tmp_path)] * 2)) == [0, 16]
    assert not list(Path("results/lineage").glob(".mlflow.db.making*"))
    assert sum("artifact" in run.data.tags for run in Walk(absolute()).runs()) == 16
