"""The MLflow store: where it is, how it is opened, and how one artifact is put there. MLflow is imported here only."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerodr.artifacts.machine import take_lock
from zerodr.artifacts.manifest import is_folder_artifact
from zerodr.artifacts.record import Record
from zerodr.errors import MachineError
from zerodr.lineage import entries
from zerodr.lineage.graph import short_name

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Experiment, LoggedModel

FOLDER = Path("results/lineage")
DEFAULT_URI = f"sqlite:///{FOLDER}/mlflow.db"
EXPERIMENT, PUBLISHER = "zerodr", "publisher"
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "GIT_PYTHON_REFRESH": "quiet",
}
TAGS_AT_ONCE, PARAMS_AT_ONCE, METRICS_AT_ONCE, DATASETS_AT_ONCE = 100, 100, 800, 500


def tracking_uri() -> str:
    """`MLFLOW_TRACKING_URI`, or the checkout's own store."""
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


def shown_uri(uri: str) -> str:
    """The address without a password."""
    return re.sub(r"//([^/:@]*):[^/@]*@", r"//\1:***@", uri)


@contextmanager
def open_store(uri: str) -> Iterator[Store]:
    """The store at `uri`, created when it is not there; one process of this checkout at a time.

    Raises:
        MachineError: the store can't be reached or used, or it was made in another folder.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "publish.lock", "w") as lock:
        take_lock(lock, wait=True)
        mlflow = _quiet_mlflow()
        with _refusals(uri, mlflow, FileExistsError, FileNotFoundError, NotADirectoryError):
            client = _own_client(mlflow) if uri == DEFAULT_URI else mlflow.MlflowClient(tracking_uri=uri)
            store = Store(client, _experiment(client, uri, mlflow), _publisher())
        with _refusals(uri, mlflow):
            yield store


@contextmanager
def _refusals(uri: str, mlflow: Any, *more: type[Exception]) -> Iterator[None]:
    """Turn what MLflow, its database or the network refuse into one clear error."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (mlflow.exceptions.MlflowException, SQLAlchemyError, ConnectionError, *more) as error:
        reason = shown_uri(str(error).splitlines()[0][:300])
        raise MachineError(
            shown_uri(uri),
            f"the tracking store refused ({reason})",
            "check MLFLOW_TRACKING_URI; publishing again continues",
        ) from error


def _quiet_mlflow() -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    import mlflow

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


def _own_client(mlflow: Any) -> MlflowClient:
    """A client of the checkout's own database, by its absolute path: MLflow keeps one connection for each address.

    The database is made under another name first: a kill among its migrations would leave it unusable.
    """
    database, making = (FOLDER.resolve() / name for name in ("mlflow.db", ".mlflow.db.making"))
    if not database.exists():
        for leftover in FOLDER.glob(f"{making.name}*"):
            leftover.unlink()
        mlflow.MlflowClient(tracking_uri=f"sqlite:///{making}").search_experiments(max_results=1)
        making.replace(database)
    return mlflow.MlflowClient(tracking_uri=f"sqlite:///{database}")


def _publisher() -> str:
    """What this checkout is called in a store that others publish to as well; made once."""
    path = FOLDER / "publisher.txt"
    if not path.exists():
        path.write_text(f"{uuid.uuid4().hex}\n")
    return path.read_text().strip()


def _experiment(client: MlflowClient, uri: str, mlflow: Any) -> str:
    """Id of the experiment. A server keeps artifacts where it is told to; a database keeps them in the checkout."""
    served = uri.startswith(("http:", "https:"))
    home = None if served else (FOLDER / "artifacts").resolve().as_uri()
    found: Experiment | None = client.get_experiment_by_name(EXPERIMENT)
    if found is None:
        try:
            return client.create_experiment(EXPERIMENT, artifact_location=home)
        except mlflow.exceptions.MlflowException as error:
            found = client.get_experiment_by_name(EXPERIMENT)  # another publisher was faster
            if error.error_code != "RESOURCE_ALREADY_EXISTS" or found is None:
                raise
    if found.lifecycle_stage != "active":
        raise MachineError(
            shown_uri(uri), f"experiment {EXPERIMENT} was deleted there", "restore it: mlflow experiments restore"
        )
    if uri == DEFAULT_URI and found.artifact_location != home:
        raise MachineError(
            FOLDER / "mlflow.db",
            f"keeps its files in {found.artifact_location}, expected {home}",
            "the checkout was moved: delete this file, publishing makes it again from the records",
        )
    return found.experiment_id


class Store:
    """One experiment of an MLflow store. All writes go through here, in batches."""

    def __init__(self, client: MlflowClient, experiment: str, publisher: str) -> None:
        self.client, self.experiment, self.publisher = client, experiment, publisher

    def find(self, key: str) -> str | None:
        """Id of the finished run with this key. What this checkout left under it unfinished is removed.

        So are doubles: two checkouts that publish the same at once both finish, and both keep the same one.
        """
        finished = None
        for run in self.client.search_runs([self.experiment], f"tags.key = '{key}'"):
            done, of = run.info.status == "FINISHED", run.data.tags.get(PUBLISHER, self.publisher)
            if done and finished is None:
                finished = run.info.run_id
            elif done or of == self.publisher:
                self._remove(run.info.run_id, key)
        return finished

    def _remove(self, run: str, key: str) -> None:
        for model in self._models(key):
            if model.source_run_id == run:
                self.client.delete_logged_model(model.model_id)
        self.client.delete_run(run)

    def model_of(self, record: Record) -> str | None:
        """Id of the LoggedModel of a published model folder."""
        return next((model.model_id for model in self._models(entries.key_of(record))), None)

    def _models(self, key: str) -> list[LoggedModel]:
        return list(self.client.search_logged_models([self.experiment], filter_string=f"tags.key = '{key}'"))

    def add(self, record: Record, models: list[str], measured: tuple[str, str, str] | None) -> str:
        """Publish one artifact; the run is finished last, so that an interrupted one is known.

        Args:
            record: the artifact's record.
            models: ids of the LoggedModels among its inputs.
            measured: LoggedModel id, dataset name and dataset digest that the metrics are about, if they are.

        Returns:
            the run's id.
        """
        from mlflow.entities import LoggedModelInput

        start = int(record["started_unix_s"] * 1000)
        end = start + int(record["seconds"] * 1000)
        key = entries.key_of(record)
        name = short_name(record["artifact"])
        tags = {"key": key, PUBLISHER: self.publisher}
        run = self.client.create_run(self.experiment, start_time=start, tags=tags, run_name=name).info.run_id
        self._log_tags_and_params(run, record)
        self._log_metrics(run, record, end, measured)
        datasets = [_dataset_input(given) for given in record["inputs"]]
        for some in _chunks(datasets, DATASETS_AT_ONCE):
            self.client.log_inputs(run, datasets=some)
        if models:
            self.client.log_inputs(run, models=[LoggedModelInput(model_id=model) for model in models])
        self._log_files(run, record)
        if entries.is_model(record):
            self._log_model(run, record, key)
        self.client.set_terminated(run, "FINISHED", end_time=end)
        return self.find(key) or run

    def _log_tags_and_params(self, run: str, record: Record) -> None:
        from mlflow.entities import Param, RunTag

        tags = [RunTag(name, value) for name, value in sorted(entries.run_tags(record).items())]
        params = [Param(name, value) for name, value in sorted(entries.run_params(record).items())]
        for some in _chunks(tags, TAGS_AT_ONCE):
            self.client.log_batch(run, tags=some)
        for some in _chunks(params, PARAMS_AT_ONCE):
            self.client.log_batch(run, params=some)

    def _log_metrics(self, run: str, record: Record, end: int, measured: tuple[str, str, str] | None) -> None:
        from mlflow.entities import Metric

        points = []
        for name, value, step in entries.run_metrics(record):
            about = measured if measured and name not in entries.COSTS else (None, None, None)
            points.append(
                Metric(name, value, end, step, model_id=about[0], dataset_name=about[1], dataset_digest=about[2])
            )
        for some in _chunks(points, METRICS_AT_ONCE):
            self.client.log_batch(run, metrics=some)

    def _log_files(self, run: str, record: Record) -> None:
        path = Path(record["artifact"])
        listed = json.loads(path.read_text())["files"] if is_folder_artifact(path) and path.exists() else []
        with tempfile.TemporaryDirectory() as folder:
            for source, name in entries.small_files(record, listed):
                target = Path(folder, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
            self.client.log_artifacts(run, folder)

    def _log_model(self, run: str, record: Record, key: str) -> None:
        from mlflow.entities import LoggedModelOutput

        tags = {"key": key, "artifact": record["artifact"], "digest": record["digest"], "rule": record["rule"]}
        tags |= {name: value for name, value in record["wildcards"].items() if value}
        model = self.client.create_logged_model(
            self.experiment,
            name=entries.model_name(record["artifact"]),
            source_run_id=run,
            tags=tags,
            params=entries.run_params(record),
            model_type="encoder",
        )
        self.client.log_outputs(run, [LoggedModelOutput(model_id=model.model_id, step=0)])
        self.client.finalize_logged_model(model.model_id, "READY")


def _dataset_input(given: dict) -> DatasetInput:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    name, source = short_name(given["path"])[:500], json.dumps({"uri": given["path"]})
    dataset = Dataset(name, entries.dataset_digest(given["digest"]), source_type="local", source=source)
    return DatasetInput(dataset, [InputTag("mlflow.data.context", given["name"])])


def _chunks(items: list, size: int) -> Iterator[list]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
