"""MLflow's server on a real PostgreSQL, started as README says: who may come in, and twenty publishers at once."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pytest
from tests.unit.tiny_bench import make_bm25, make_collection, make_evaluation, plan_of, write_config

from zerodr.artifacts.record import Record
from zerodr.lineage.graph import Graph
from zerodr.lineage.publish import publish, published_records
from zerodr.lineage.views import dataset_digest
from zerodr.plan import paths

pytestmark = pytest.mark.cluster
PUBLISHERS = 20
ARTIFACT = paths.summary("bm25-flat", "toy", "standard")
PLACES = os.pathsep.join([os.environ["PATH"], *map(str, Path("/usr/lib/postgresql").glob("*/bin"))])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Server:
    """envs/mlflow_server.sh with a folder of its own."""

    script: Path
    home: Path
    environment: dict[str, str]

    def call(self, command: str, **settings: str) -> subprocess.CompletedProcess:
        """start, stop or status."""
        with open(self.home / "said", "w") as said:  # a pipe would stay open in what it starts
            done = subprocess.run(
                ["bash", str(self.script), command],
                env=self.environment | settings,
                stdout=said,
                stderr=said,
                check=False,
            )
        done.stdout = (self.home / "said").read_text()
        return done

    def credentials(self) -> dict[str, str]:
        """MLFLOW_TRACKING_URI, _USERNAME and _PASSWORD, as a shell reads them."""
        words = ["bash", "-c", '. "$0" && env', str(self.home / "server/credentials")]
        lines = subprocess.run(words, env={}, capture_output=True, text=True, check=True).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines if line.startswith("MLFLOW_TRACKING_"))

    def status(self, user: str | None = None, password: str | None = None, host: str | None = None) -> int:
        """HTTP status of a question to the store."""
        own = self.credentials()
        words = f"{user or own['MLFLOW_TRACKING_USERNAME']}:{password or own['MLFLOW_TRACKING_PASSWORD']}"
        headers = {"Authorization": f"Basic {b64encode(words.encode()).decode()}"} | ({"Host": host} if host else {})
        address = f"{own['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/experiments/get-by-name?experiment_name=Default"
        try:
            with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    """A server on loopback, stopped at the end."""
    if shutil.which("initdb", path=PLACES) is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    home = Path(tempfile.mkdtemp(prefix="zm"))  # not pytest's, which PostgreSQL's own user may not enter
    home.chmod(0o755)
    ports = {"MLFLOW_SERVER_PORT": str(free_port()), "MLFLOW_SERVER_DB_PORT": str(free_port())}
    python = str(Path(sys.executable).parent)
    environment = os.environ | ports | {"MLFLOW_SERVER_DIR": str(home / "server")}
    environment["PATH"] = os.pathsep.join([python, environment["PATH"]])
    made = Server(root / "envs/mlflow_server.sh", home, environment)
    try:
        started = made.call("start")
        assert started.returncode == 0, started.stdout
        yield made
    finally:
        made.call("stop")
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def login(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server's address, with its credentials in the environment."""
    for name, value in server.credentials().items():
        monkeypatch.setenv(name, value)
    return server.credentials()["MLFLOW_TRACKING_URI"]


def test_only_who_knows_the_password_comes_in(server):
    assert server.status() == 200
    assert server.status(password="wrong") == 401
    assert server.status(user="other") == 401
    assert server.status(host="elsewhere.example") == 403
    assert (server.home / "server/credentials").stat().st_mode & 0o077 == 0


def checkout(folder: Path, content: str) -> str:
    """A miniature whose archive, and so everything from it, is of its own."""
    folder.mkdir()
    home = os.getcwd()
    os.chdir(folder)
    try:
        write_config(folder)
        plan = plan_of(folder)
        make_collection(plan, content)
        make_bm25(plan)
        make_evaluation(plan, "bm25-flat")
    finally:
        os.chdir(home)
    return str(folder)


def publish_in(folder: str) -> list[Record]:
    os.chdir(folder)
    publish(Graph(), [ARTIFACT], os.environ["MLFLOW_TRACKING_URI"])
    return published_records(Graph(), [ARTIFACT])


def publish_at_once(folders: list[str]) -> list[Record]:
    """Distinct records of all folders, by artifact, bytes and settings, each folder published by its own process."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["mlflow", "zerodr.lineage.publish"])  # imported once, not by each
    with context.Pool(len(folders)) as pool:
        told = pool.map(publish_in, folders, chunksize=1)
    distinct = {(r["artifact"], r["digest"], r["spec_digest"]): r for records in told for r in records}
    return list(distinct.values())


def check_lineage(uri: str, records: list[Record]) -> int:
    """Each record has its run, the run its inputs' digests, and each input's digest leads back to the run."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("zerodr").experiment_id

    def ids(search: str) -> list[str]:
        return [run.info.run_id for run in client.search_runs([experiment], search)]

    for record in records:
        name = f"tags.artifact = '{record['artifact']}' and tags.digest = '{record['digest']}'"
        found = ids(f"{name} and tags.spec = '{record['spec_digest']}'")
        assert len(found) == 1, (record["artifact"], found)
        run = client.get_run(found[0])
        assert run.info.status == "FINISHED"
        given = sorted(source["digest"] for source in record["inputs"])
        assert sorted(value for tag, value in run.data.tags.items() if tag.startswith("in.")) == given
        assert sorted({i.dataset.digest for i in run.inputs.dataset_inputs}) == sorted(set(map(dataset_digest, given)))
        for digest in given:
            assert found[0] in ids(f"dataset.digest = '{dataset_digest(digest)}'")
    return len(client.search_runs([experiment], max_results=5000))


def test_twenty_checkouts_publish_at_once(login, tmp_path):
    folders = [checkout(tmp_path / str(number), f"archive {number}") for number in range(PUBLISHERS)]
    records = publish_at_once(folders)
    assert len(records) == 5 * PUBLISHERS
    assert check_lineage(login, records) == len(records), "a record is lost or double"


def test_twenty_checkouts_publish_the_same_at_once(login, tmp_path):
    folders = [checkout(tmp_path / str(number), "the same archive") for number in range(PUBLISHERS)]
    records = publish_at_once(folders)
    assert len(records) == 5
    check_lineage(login, records)


def test_another_address_is_told_and_answers(server, login):
    """Of all addresses of this machine: what was published is there, under the name that others use."""
    server.call("stop")
    started = server.call("start", MLFLOW_SERVER_HOST="0.0.0.0")
    assert started.returncode == 0, started.stdout
    told = server.credentials()
    assert told["MLFLOW_TRACKING_URI"] != login and told["MLFLOW_TRACKING_URI"] in started.stdout
    try:
        socket.getaddrinfo(told["MLFLOW_TRACKING_URI"].split("/")[2].split(":")[0], None)
    except OSError:
        pytest.skip("this machine does not know its own name")
    assert (server.status(), server.status(password="wrong")) == (200, 401)
    assert told["MLFLOW_TRACKING_URI"] in server.call("status").stdout
    server.call("stop")
    assert server.call("start").returncode == 0
    assert server.credentials()["MLFLOW_TRACKING_URI"] == login and server.status() == 200
