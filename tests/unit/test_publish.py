"""The publisher on a real sqlite store, walked with nothing but MLflow's client; and on a real server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from multiprocessing import get_context
from pathlib import Path

import pytest
from tiny_bench import (
    ARCHIVE,
    COLLECTION,
    MODEL,
    TABLE,
    make_bench,
    make_bm25,
    make_collection,
    make_evaluation,
    plan_of,
    run_stage,
)

from zerodr.artifacts.record import read_record, write_json
from zerodr.errors import MachineError
from zerodr.lineage import store, views
from zerodr.lineage.entries import key_of
from zerodr.lineage.graph import Graph
from zerodr.lineage.publish import publish, publish_lineage, published_records
from zerodr.plan import paths
from zerodr.plan.rules import RULES

URI = store.DEFAULT_URI
SUMMARY = paths.summary("dense", "toy", "standard")


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """An empty store, so that its migrations run once for all tests."""
    folder, home = tmp_path_factory.mktemp("template"), os.getcwd()
    os.chdir(folder)
    try:
        with store.open_store(URI):
            pass
    finally:
        os.chdir(home)
    return folder / "results/lineage/mlflow.db"


@pytest.fixture
def plan(tmp_path, monkeypatch, template):
    import sqlite3

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("results/lineage").mkdir(parents=True)
    Path("results/lineage/mlflow.db").write_bytes(template.read_bytes())
    home = (tmp_path / "results/lineage/artifacts").as_uri()
    with sqlite3.connect("results/lineage/mlflow.db") as database:
        database.execute("update experiments set artifact_location = ? where name = 'zerodr'", (home,))
    return make_bench(tmp_path)


def absolute() -> str:
    """The checkout's store by an address of its own: MLflow keeps one connection for each address."""
    return f"sqlite:///{Path(store.FOLDER, 'mlflow.db').resolve()}"


class Walk:
    """Lineage questions to MLflow alone."""

    def __init__(self, uri: str) -> None:
        from mlflow import MlflowClient

        self.client = MlflowClient(tracking_uri=uri)
        self.experiment = self.client.get_experiment_by_name("zerodr").experiment_id

    def runs(self, search: str = "") -> list:
        return list(self.client.search_runs([self.experiment], search))

    def by_artifact(self, artifact: str):
        (run,) = self.runs(f"tags.artifact = '{artifact}'")
        return self.client.get_run(run.info.run_id)

    def sources(self, run) -> list:
        """Runs that made the inputs of a run, by the digests in its tags."""
        digests = {value for tag, value in run.data.tags.items() if tag.startswith("in.")}
        return [source for digest in sorted(digests) for source in self.runs(f"tags.out = '{digest}'")]

    def users(self, run) -> list:
        """Runs that used what a run made, by dataset digest."""
        return self.runs(f"dataset.digest = '{run.data.tags['out'][:36]}'")

    def closure(self, run, step) -> set[str]:
        found, pending = set(), [run]
        while pending:
            fresh = [r for r in step(pending.pop()) if r.data.tags["artifact"] not in found]
            found |= {r.data.tags["artifact"] for r in fresh}
            pending += fresh
        return found


def test_the_walk_in_mlflow_from_a_number_to_the_archive_and_back(plan):
    graph = Graph()
    publish(graph, [TABLE], absolute())
    walk = Walk(absolute())
    table = walk.by_artifact(TABLE)
    assert walk.closure(table, walk.sources) == set(graph.ancestors(TABLE)) - {TABLE}

    (summary,) = [run for run in walk.sources(table) if run.data.tags["model"] == "dense"]
    assert summary.data.tags["rule"] == "evaluate_run"
    assert summary.data.metrics["ndcg_cut_10"] == pytest.approx(0.625)
    run = next(r for r in walk.sources(summary) if r.data.tags["rule"] == "merge_run")
    hits = [r for r in walk.sources(run) if r.data.tags["rule"] == "search_shard"]
    assert sorted(r.data.tags["shard"] for r in hits) == ["00000-of-00002", "00001-of-00002"]
    embeddings = next(r for r in walk.sources(hits[0]) if r.data.tags["rule"] == "embed_corpus")
    assert {r.data.tags["artifact"] for r in walk.sources(embeddings)} == {COLLECTION, MODEL}
    collection = next(r for r in walk.sources(embeddings) if r.data.tags["artifact"] == COLLECTION)
    (archive,) = walk.sources(collection)
    assert archive.data.tags["artifact"] == ARCHIVE
    assert archive.data.tags["digest"] == read_record(ARCHIVE)["digest"]

    down = walk.closure(archive, walk.users)
    assert down == set(graph.ancestors(TABLE)) - {ARCHIVE, MODEL}


def test_a_run_tells_what_its_record_tells(plan):
    publish(Graph(), [TABLE], absolute(), "mini")
    walk = Walk(absolute())
    record, run = read_record(SUMMARY), walk.by_artifact(SUMMARY)
    tags = run.data.tags
    assert run.info.run_name == "dense toy"
    stage = walk.client.get_run(tags["mlflow.parentRunId"])
    method = walk.client.get_run(stage.data.tags["mlflow.parentRunId"])
    assert (stage.info.run_name, method.info.run_name) == ("evaluate_run", "dense")
    assert method.data.metrics == {"ndcg_cut_10.toy": pytest.approx(0.625)}
    assert (tags["method"], tags["scale"]) == ("dense", "mini")
    assert run.info.status == "FINISHED"
    assert run.info.start_time == int(record["started_unix_s"] * 1000)
    assert (tags["model"], tags["collection"], tags["protocol"]) == ("dense", "toy", "standard")
    assert tags["digest"] == tags["out"] == record["digest"]
    assert tags["stage_version"] == str(RULES["evaluate_run"].version) and tags["seed"] == "7"
    assert tags["in.collection"] == read_record(COLLECTION)["digest"]
    assert tags["in.run"] == read_record(paths.run("dense", "toy", "standard"))["digest"]
    assert run.data.params["bootstrap_samples"] == "1000"
    assert run.data.metrics["seconds"] == record["seconds"]
    files = {file.path for file in walk.client.list_artifacts(run.info.run_id)}
    assert files == {"standard.summary.tsv", "lineage.json"}
    table = walk.by_artifact(TABLE).data.tags
    assert {tag for tag in table if tag.startswith("in.")} == {f"in.summaries.{n}" for n in range(3)}
    inputs = {given.dataset.name for given in run.inputs.dataset_inputs}
    assert inputs == {"collections/toy", "runs/dense/toy/standard.trec.gz"}


def test_files_stand_below_the_checkout_whatever_the_working_directory(plan, tmp_path):
    publish(Graph(), [TABLE], absolute())
    run = Walk(absolute()).by_artifact(TABLE)
    assert run.info.artifact_uri.startswith((tmp_path / "results/lineage/artifacts").as_uri())
    assert not Path("mlruns").exists()


def test_models_are_logged_models_with_metrics_by_dataset(plan):
    publish(Graph(), [TABLE], absolute())
    walk = Walk(absolute())
    (model,) = walk.client.search_logged_models([walk.experiment])
    assert model.name == "dense-shared-imported" or model.name == "dense/shared/imported".replace("/", "-")
    assert str(model.status) == "READY"
    assert model.source_run_id == walk.by_artifact(MODEL).info.run_id
    measured = {(m.key, m.value, m.dataset_name, m.dataset_digest) for m in model.metrics}
    digest = read_record(COLLECTION)["digest"][:36]
    assert ("ndcg_cut_10", 0.625, "collections/toy", digest) in measured
    assert {m.run_id for m in model.metrics} == {walk.by_artifact(SUMMARY).info.run_id}
    found = walk.client.search_logged_models(
        [walk.experiment],
        filter_string="metrics.`ndcg_cut_10` > 0.6",
        datasets=[{"dataset_name": "collections/toy", "dataset_digest": digest}],
    )
    assert [m.model_id for m in found] == [model.model_id]
    embedded = walk.by_artifact(paths.embeddings("dense", "shared", "toy", "standard", "queries.test"))
    assert [m.model_id for m in embedded.inputs.model_inputs] == [model.model_id]
    assert walk.by_artifact(paths.summary("hybrid", "toy", "standard")).inputs.model_inputs == []
    assert [o.model_id for o in walk.by_artifact(MODEL).outputs.model_outputs] == [model.model_id]


def test_curves_are_whole(plan):
    publish(Graph(), [MODEL], absolute())
    walk = Walk(absolute())
    curve = walk.client.get_metric_history(walk.by_artifact(MODEL).info.run_id, "loss")
    assert sorted((m.step, m.value) for m in curve) == [(0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3))]


def test_a_curve_that_never_changes_is_a_setting():
    values = {"learning_rate": [2e-5, 2e-5], "loss": [3.0, 1.0], "mean": [0.0]}
    points = [{"name": name, "step": n, "value": v} for name, row in values.items() for n, v in enumerate(row)]
    assert views.constants({"metrics": points}) == {"learning_rate": 2e-5}


def test_the_experiment_has_a_description_and_views_with_a_column_a_collection(plan):
    publish(Graph(), [TABLE], absolute())
    walk = Walk(absolute())
    tags = walk.client.get_experiment(walk.experiment).tags
    assert "method > stage > collection" in tags["mlflow.note.content"]
    view = json.loads(tags[views.VIEW_TAG + "methods"])
    assert view["selectedColumns"] == ["metrics.`ndcg_cut_10.toy`"]
    assert {run.info.run_name for run in walk.runs(view["searchFilter"])} == {"bm25-flat", "dense", "hybrid"}
    listed = json.loads(tags[views.VIEW_TAG + "evaluations"])["searchFilter"]
    assert {run.info.run_name for run in walk.runs(listed)} == {"bm25-flat toy", "dense toy", "hybrid toy"}
    address = json.loads(Path("results/lineage/link.json").read_text())
    assert address == f"http://127.0.0.1:5000/#/experiments/{walk.experiment}/runs?viewStateShareKey=methods"


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
    groups = store.groups_of(record)
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


def test_small_files_of_a_folder_are_there_and_big_ones_are_not(plan):
    publish(Graph(), [MODEL], absolute())
    walk = Walk(absolute())
    run = walk.by_artifact(MODEL).info.run_id
    assert {f.path for f in walk.client.list_artifacts(run)} == {"manifest.json", "lineage.json", "files"}
    assert [f.path for f in walk.client.list_artifacts(run, "files")] == ["files/config.json"]


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


def test_long_and_odd_values_are_cut_to_what_mlflow_takes(plan):
    record = read_record(ARCHIVE)
    spec = record["spec"] | {"params": {f"key@{n}": "x" * 9000 for n in range(130)}}
    odd = {"metrics": [{"name": "p@10", "value": float("nan"), "step": n} for n in range(1700)], "spec": spec}
    inputs = [{"name": "many", "path": f"results/{n}", "digest": f"{n:064d}", "record": None} for n in range(700)]
    write_json(Path(f"{ARCHIVE}.lineage.json"), record | odd | {"notes": {"tried": "y" * 9000}, "inputs": inputs})
    publish(Graph(), [ARCHIVE], absolute())
    run = Walk(absolute()).by_artifact(ARCHIVE)
    assert len(run.data.params) == 130
    assert len(run.data.params["key_0"]) == 6000
    assert len(run.data.tags["note.tried"]) == 5000
    assert len(run.inputs.dataset_inputs) == 700
    assert "p_10" in run.data.metrics


def test_the_stage_writes_counts_and_digests_and_nothing_else(plan, tmp_path):
    outputs = {"published": paths.lineage("published.json")}
    run_stage(plan, "publish_lineage", {"artifacts": [TABLE, MODEL]}, outputs, publish_lineage)
    published = json.loads(Path(outputs["published"]).read_text())
    assert published["artifacts"] == 16
    assert published["by_rule"]["embed_corpus"] == 2
    assert published["digests"][ARCHIVE] == read_record(ARCHIVE)["digest"]
    first = Path(outputs["published"]).read_bytes()
    assert read_record(outputs["published"])["notes"] == {"added": 16, "present": 0, "store": URI}
    Path(outputs["published"]).unlink()
    run_stage(plan, "publish_lineage", {"artifacts": [TABLE, MODEL]}, outputs, publish_lineage)
    assert Path(outputs["published"]).read_bytes() == first
    assert read_record(outputs["published"])["notes"]["added"] == 0


def test_a_moved_checkout_is_told(plan, tmp_path, monkeypatch):
    moved = tmp_path / "moved"
    (moved / "results/lineage").mkdir(parents=True)
    (moved / "results/lineage/mlflow.db").write_bytes(Path("results/lineage/mlflow.db").read_bytes())
    script = (
        "from zerodr.lineage.graph import Graph; from zerodr.lineage.publish import publish; publish(Graph(), [], %r)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script % URI],
        cwd=moved,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "MachineError: results/lineage/mlflow.db: stores its files in" in done.stderr
    assert "the checkout was moved" in done.stderr


def test_a_store_that_cannot_be_used_is_one_sentence(plan, tmp_path, monkeypatch):
    Path("no.db").write_text("this is not a database, and long enough to be seen as none" * 20)
    for uri in (f"sqlite:///{tmp_path}/no.db", f"sqlite:///{tmp_path}/no.db/mlflow.db"):
        with pytest.raises(MachineError, match="the tracking store refused"):
            publish(Graph(), [ARCHIVE], uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        uri = f"http://user:secret@127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(MachineError, match="the tracking store refused") as caught:
            publish(Graph(), [ARCHIVE], uri)
    assert "secret" not in str(caught.value)


def _publish_in(folder: str) -> int:
    os.chdir(folder)
    return publish(Graph(), [TABLE], URI)


def test_two_publishers_at_once_on_a_fresh_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_bench(tmp_path)
    Path("results/lineage").mkdir(parents=True)
    Path("results/lineage/.mlflow.db.making").write_bytes(b"half a database that a kill left behind")
    with get_context("spawn").Pool(2) as pool:
        assert sorted(pool.map(_publish_in, [str(tmp_path)] * 2)) == [0, 16]
    assert not list(Path("results/lineage").glob(".mlflow.db.making*"))
    assert sum("artifact" in run.data.tags for run in Walk(absolute()).runs()) == 16


def test_passwords_are_not_shown():
    assert store.shown_uri("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
    assert store.shown_uri(URI) == URI


@pytest.mark.slow
def test_a_real_tracking_server(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_bench(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/server.db",
        "--artifacts-destination",
        f"{tmp_path}/served",
        "--serve-artifacts",
    ]
    uri = f"http://127.0.0.1:{port}"
    with open(tmp_path / "server.log", "w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_for(f"{uri}/health")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        outputs = {"published": paths.lineage("published.json")}
        run_stage(plan_of(tmp_path), "publish_lineage", {"artifacts": [TABLE]}, outputs, publish_lineage)
        assert publish(Graph(), [TABLE], uri) == 0
        walk = Walk(uri)
        table = walk.by_artifact(TABLE)
        assert walk.closure(table, walk.sources) == set(Graph().ancestors(TABLE)) - {TABLE}
        (archive,) = walk.runs(f"tags.artifact = '{ARCHIVE}'")
        assert TABLE in walk.closure(archive, walk.users)
        (model,) = walk.client.search_logged_models([walk.experiment])
        assert {m.key for m in model.metrics} == {"ndcg_cut_10", "recall_100"}
        assert {f.path for f in walk.client.list_artifacts(table.info.run_id)} == {"all.tsv", "lineage.json"}
        assert not Path("results/lineage/mlflow.db").exists()
    finally:
        os.killpg(server.pid, 15)
        server.wait()


def _wait_for(address: str) -> None:
    for _ in range(240):
        try:
            with urllib.request.urlopen(address, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"{address} does not answer")
