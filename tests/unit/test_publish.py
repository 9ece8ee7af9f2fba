"""The publisher on a real sqlite store, walked with nothing but MLflow's client; and on a real server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from publish_helpers import URI, Walk, absolute, plan, template
from tiny_bench import ARCHIVE, COLLECTION, MODEL, TABLE, make_bench, plan_of, run_stage

from zerodr.artifacts.record import read_record, record_path, write_json
from zerodr.errors import MachineError
from zerodr.lineage import store, views
from zerodr.lineage.graph import Graph
from zerodr.lineage.publish import publish, publish_lineage
from zerodr.plan import paths
from zerodr.plan.rules import RULES

__all__ = ["plan", "template"]
VIEW = "viewStateShareKey=methods&workflowType=machine_learning"
SUMMARY = paths.summary("dense", "toy", "standard")


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
    assert (stage.info.run_name, method.info.run_name) == ("evaluate_run", "dense (mini)")
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


def test_a_stage_of_its_own_another_protocol_and_another_scale_have_scores_of_their_own(plan):
    record = read_record(SUMMARY)
    stage = record | {"wildcards": record["wildcards"] | {"model": "dense@ep0"}}
    other = record | {"wildcards": record["wildcards"] | {"protocol": "moma-paper"}}
    assert (views.method_of(record), views.method_of(stage)) == ("dense", "dense@ep0")
    assert views.groups_of(record, "lab")[0] == "dense (lab)" and views.groups_of(record)[0] == "dense"
    assert (views.score_of(record), views.score_of(other)) == ("ndcg_cut_10.toy", "ndcg_cut_10.toy.moma-paper")
    model = read_record(MODEL) | {"wildcards": {"model": "dense@ep0", "stage": "ep0"}}
    assert views.method_of(model) == "dense"
    assert views.level_of(views.groups_of(read_record(ARCHIVE), "lab")[:1]) == "other"


def test_an_item_of_another_run_has_the_scale_that_it_was_made_at(plan):
    record = read_record(TABLE)
    item = record | {"spec": record["spec"] | {"params": {"scale": "lab"}}}
    assert [views.run_tags(one, "mini")["scale"] for one in (item, record, read_record(SUMMARY))] == [
        "lab",
        "mini",
        "mini",
    ]


def test_a_method_shows_the_last_evaluation_after_a_setting_was_taken_back(plan):
    record, shown = read_record(SUMMARY), []
    for minute, value in enumerate((0.5, 0.7, 0.5)):
        one = {"spec_digest": f"{value}" * 9, "metrics": [{"name": "ndcg_cut_10", "value": value, "step": 0}]}
        write_json(record_path(SUMMARY), record | one | {"started_unix_s": record["started_unix_s"] + 60 * minute})
        publish(Graph(), [SUMMARY], absolute(), "mini")
        (method,) = Walk(absolute()).runs("tags.level = 'method' and tags.method = 'dense (mini)'")
        shown.append(method.data.metrics["ndcg_cut_10.toy"])
    assert shown == [0.5, 0.7, 0.5]


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
    assert "method (scale) > stage > collection" in tags["mlflow.note.content"]
    view = json.loads(tags[views.VIEW_TAG + "methods"])
    assert view["selectedColumns"] == ["metrics.`ndcg_cut_10.toy`"]
    assert {run.info.run_name for run in walk.runs(view["searchFilter"])} == {"bm25-flat", "dense", "hybrid"}
    listed = json.loads(tags[views.VIEW_TAG + "evaluations"])["searchFilter"]
    assert {run.info.run_name for run in walk.runs(listed)} == {"bm25-flat toy", "dense toy", "hybrid toy"}
    address = json.loads(Path("results/lineage/link.json").read_text())
    assert address == f"http://127.0.0.1:5000/#/experiments/{walk.experiment}/runs?{VIEW}"


def test_small_files_of_a_folder_are_there_and_big_ones_are_not(plan):
    publish(Graph(), [MODEL], absolute())
    walk = Walk(absolute())
    run = walk.by_artifact(MODEL).info.run_id
    assert {f.path for f in walk.client.list_artifacts(run)} == {"manifest.json", "lineage.json", "files"}
    assert [f.path for f in walk.client.list_artifacts(run, "files")] == ["files/config.json"]


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
