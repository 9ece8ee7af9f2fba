"""A bench with an empty tracking store, and lineage questions to MLflow, for the tests of the publisher."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tiny_bench import make_bench

from zerodr.lineage import store

URI = store.DEFAULT_URI


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
