"""Open the MLflow store and add artifacts to it. This is the only module that imports MLflow."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerodr.artifacts.machine import take_lock
from zerodr.artifacts.manifest import is_folder_artifact, object_digest, read_listing
from zerodr.artifacts.record import Record
from zerodr.errors import MachineError
from zerodr.lineage import views
from zerodr.lineage.graph import short_name

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Experiment, LoggedModel

FOLDER = Path("results/lineage")
DEFAULT_URI = f"sqlite:///{FOLDER}/mlflow.db"
EXPERIMENT, PUBLISHER, PARENT = "zerodr", "publisher", "mlflow.parentRunId"
LEVELS = ("method", "stage")  # of groups of runs
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "GIT_PYTHON_REFRESH": "quiet",
}
RENAME = "rename the folder of the checkout, and create its .venv again: bash envs/create.sh"
TRIES, PAUSE_S = 8, 0.1
PARAMS_AT_ONCE, METRICS_AT_ONCE, DATASETS_AT_ONCE, RUNS_AT_ONCE = 100, 800, 500, 1000


def tracking_uri() -> str:
    """Return `MLFLOW_TRACKING_URI`, or the store of the checkout."""
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


def path_problem(uri: str) -> str:
    """Say which sign of a path keeps MLflow from working here; empty without one."""
    spec = find_spec("mlflow")
    if spec is not None and "%" in str(spec.origin):
        return f"MLflow can't create a store while its own path holds a percent sign: {spec.origin}"
    if uri == DEFAULT_URI and "?" in str(FOLDER.resolve()):
        return f"a database's address ends at the question mark of {FOLDER.resolve()}"
    return ""


def shown_uri(uri: str) -> str:
    """Remove the password from an address."""
    return re.sub(r"//([^/:@]*):[^/@]*@", r"//\1:***@", uri)


@contextmanager
def open_store(uri: str) -> Iterator[Store]:
    """Open the store at `uri`, and create it when missing; one process of this checkout at a time.

    Raises:
        MachineError: the store can't be reached or used, or it was created in another folder.
    """
    if problem := path_problem(uri):
        raise MachineError(shown_uri(uri), problem, RENAME)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "publish.lock", "w", encoding="utf-8") as lock:
        take_lock(lock, wait=True)
        mlflow = _quiet_mlflow()
        with _refusals(uri, mlflow, FileExistsError, FileNotFoundError, NotADirectoryError):
            client = _local_client(mlflow) if uri == DEFAULT_URI else mlflow.MlflowClient(tracking_uri=uri)
            store = Store(client, _experiment(client, uri, mlflow), _publisher(), shared=uri != DEFAULT_URI)
        with _refusals(uri, mlflow):
            yield store


@contextmanager
def _refusals(uri: str, mlflow: Any, *more: type[Exception]) -> Iterator[None]:
    """Turn errors of MLflow, its database or the network into one clear error."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (mlflow.exceptions.MlflowException, SQLAlchemyError, ConnectionError, *more) as error:
        reason = shown_uri(str(error).splitlines()[0][:300])
        problem, step = f"the tracking store refused ({reason})", "check MLFLOW_TRACKING_URI, then publish again"
        raise MachineError(shown_uri(uri), problem, step) from error


def _quiet_mlflow() -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    import mlflow

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


def _local_client(mlflow: Any) -> MlflowClient:
    """Open the checkout's database by its absolute path, because MLflow holds one connection for each address.

    The database gets its name last: a kill during its migrations would leave it unusable.
    """
    database, draft = (FOLDER.resolve() / name for name in ("mlflow.db", ".mlflow.db.making"))
    if not database.exists():
        # SQLite keeps journals next to the draft; with a new draft they would be replayed into it.
        for leftover in FOLDER.glob(f"{draft.name}*"):
            leftover.unlink()
        mlflow.MlflowClient(tracking_uri=f"sqlite:///{draft}").search_experiments(max_results=1)
        draft.replace(database)
    return mlflow.MlflowClient(tracking_uri=f"sqlite:///{database}")


def _publisher() -> str:
    """Return the name of this checkout in a store that several publish to; it is created once."""
    path = FOLDER / "publisher.txt"
    if not path.exists():
        path.write_text(f"{uuid.uuid4().hex}\n", encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()


def _experiment(client: MlflowClient, uri: str, mlflow: Any) -> str:
    """Return the id of the experiment. A server decides where artifacts lie; a database stores them in the checkout."""
    served = uri.startswith(("http:", "https:"))
    home = None if served else (FOLDER / "artifacts").resolve().as_uri()
    experiment: Experiment | None = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        try:
            return client.create_experiment(EXPERIMENT, artifact_location=home)
        except mlflow.exceptions.MlflowException as error:
            experiment = client.get_experiment_by_name(EXPERIMENT)  # another publisher was faster
            if error.error_code != "RESOURCE_ALREADY_EXISTS" or experiment is None:
                raise
    if experiment.lifecycle_stage != "active":
        problem = f"experiment {EXPERIMENT} is deleted there"
        raise MachineError(shown_uri(uri), problem, "restore it: mlflow experiments restore")
    if uri == DEFAULT_URI and experiment.artifact_location != home:
        problem = f"stores its files in {experiment.artifact_location}, expected {home}"
        step = "the checkout was moved: delete this file and publish again, which restores it from the records"
        raise MachineError(FOLDER / "mlflow.db", problem, step)
    return experiment.experiment_id


class Store:
    """One experiment of an MLflow store. All writes go through here, in batches.

    Where it is `shared`, other publishers write at the same time. A look at what they did takes 20 ms.
    """

    def __init__(self, client: MlflowClient, experiment: str, publisher: str, shared: bool = True) -> None:
        from mlflow import entities, exceptions

        self.client, self.experiment, self.publisher, self.shared = client, experiment, publisher, shared
        self._kinds, self._refused = entities, exceptions.MlflowException
        self._groups: dict[tuple[str, ...], str] = {}

    def published(self) -> set[str]:
        """List the keys of finished runs by one look at the store, and remove what `find` would remove.

        A look for each key takes 20 ms, two minutes and more for a table of 7,000 artifacts of which none is new.
        """
        states: dict[str, list[str]] = defaultdict(list)
        token = None
        while token != "":
            page = self.client.search_runs(
                [self.experiment], "tags.key LIKE '%'", max_results=RUNS_AT_ONCE, page_token=token
            )
            for run in page:
                states[run.data.tags["key"]].append(run.info.status)
            token = page.token or ""
        return {key for key, all_of in states.items() if all_of == ["FINISHED"] or self.find(key)}

    def find(self, key: str) -> str | None:
        """Return the id of the finished run with this key, and remove unfinished runs of this checkout under it.

        Doubles are removed too: when two checkouts publish the same at once, both preserve the same run.
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
        """Return the id of the LoggedModel of a published model folder."""
        return next((model.model_id for model in self._models(views.key_of(record))), None)

    def _models(self, key: str) -> list[LoggedModel]:
        return list(self.client.search_logged_models([self.experiment], filter_string=f"tags.key = '{key}'"))

    def group(self, names: tuple[str, ...]) -> str:
        """Return the id of the run that holds a group, such as `("dpr", "finetune ep0")`; it is created when missing.

        Of doubles of several publishers, the oldest counts, and each publisher removes its own. Another publisher may
        have put runs below a double meanwhile: the one who removes it moves them, and who adds a run looks again
        afterwards, so that whichever is later finds the other's write.
        """
        if names not in self._groups:
            oldest = self._oldest(names)
            if not oldest:
                tags = {"group": _group_key(names), "level": views.level_of(names), PUBLISHER: self.publisher}
                tags |= {PARENT: self.group(names[:-1])} if len(names) > 1 else {}
                tags |= dict(zip(LEVELS, names, strict=False))
                run = self.client.create_run(self.experiment, tags=tags, run_name=names[-1]).info.run_id
                self.client.set_terminated(run, "FINISHED")
                if len(names) > 1:
                    self._settle(run, names[:-1])
                oldest = self._oldest(names) if self.shared else run
                if oldest != run:
                    self._replace(run, names)
            self._groups[names] = oldest
        return self._groups[names]

    def _oldest(self, names: tuple[str, ...]) -> str:
        order, group = ["attributes.start_time ASC", "attributes.run_id ASC"], f"tags.group = '{_group_key(names)}'"
        runs = self.client.search_runs([self.experiment], group, max_results=1, order_by=order)
        return runs[0].info.run_id if runs else ""

    def _replace(self, double: str, names: tuple[str, ...]) -> None:
        """Remove a group that another publisher created too; its scores and what lies below it move to the other's."""
        self.client.delete_run(double)
        for name, value in self.client.get_run(double).data.metrics.items():
            self._log_metric(names, name, value)
        for run in self.client.search_runs([self.experiment], f"tags.`{PARENT}` = '{double}'"):
            self._move(run.info.run_id, self._oldest(names))

    def _settle(self, run: str, names: tuple[str, ...]) -> None:
        """Put a run below its group again when the group was a double that has been removed."""
        used = self.group(names)
        if self.shared and (oldest := self._oldest(names)) != used:
            self._groups[names] = oldest
            self._move(run, oldest)

    def _move(self, run: str, group: str) -> None:
        """Put a run below a group, unless another publisher has removed the run as a double meanwhile."""
        try:
            self.client.set_tag(run, PARENT, group)
        except self._refused:
            if self.client.get_run(run).info.lifecycle_stage == "active":
                raise

    def _log_metric(self, names: tuple[str, ...], name: str, value: float, end: int | None = None) -> None:
        """Give a group a measure, once more when its run was a double that has been removed meanwhile."""
        group = self._oldest(names) if self.shared else self.group(names)
        try:
            self.client.log_metric(group, name, value, timestamp=end, step=0)
        except self._refused:
            if not self.shared or self._oldest(names) == group:
                raise
        if self.shared and (oldest := self._oldest(names)) != group:
            self.client.log_metric(oldest, name, value, timestamp=end, step=0)

    def describe(self) -> None:
        """Write the experiment's description and its views, with a column a collection that was evaluated."""
        methods = self.client.search_runs([self.experiment], "tags.level = 'method'")
        measured = sorted(
            {name for run in methods for name in run.data.metrics if name.startswith(f"{views.MAIN_METRIC}.")}
        )
        tags = {"mlflow.note.content": views.DESCRIPTION, "mlflow.experimentKind": "custom_model_development"}
        shown = views.list_views(name.removeprefix(f"{views.MAIN_METRIC}.") for name in measured)
        for name, text in (tags | {f"{views.VIEW_TAG}{key}": text for key, text in shown.items()}).items():
            self.client.set_experiment_tag(self.experiment, name, text)

    def add(self, record: Record, models: list[str], measured: tuple[str, str, str] | None, scale: str = "") -> str:
        """Publish one artifact; the run is finished last, so that an interrupted one is recognised.

        Args:
            record: the artifact's record.
            models: ids of the LoggedModels among its inputs.
            measured: LoggedModel id, dataset name and dataset digest of the metrics, or None.
            scale: the preset of the run that publishes; empty: not known.

        Returns:
            the run's id.
        """
        start = int(record["started_unix_s"] * 1000)
        end = start + int(record["seconds"] * 1000)
        key, groups = views.key_of(record), views.groups_of(record, scale)
        tags = views.run_tags(record, scale) | {"key": key, PUBLISHER: self.publisher, PARENT: self.group(groups)}
        name = views.run_name(record)
        run = self.client.create_run(self.experiment, start_time=start, tags=tags, run_name=name).info.run_id
        self._log_params_and_metrics(run, record, end, measured)
        for chunk in _chunks([self._dataset_input(entry) for entry in record["inputs"]], DATASETS_AT_ONCE):
            self._log_datasets(run, chunk)
        if models:
            self.client.log_inputs(run, models=[self._kinds.LoggedModelInput(model_id=model) for model in models])
        self._log_files(run, record)
        if views.is_model(record):
            self._log_model(run, record, key)
        self._log_score(record, groups[:1], end)
        self.client.set_terminated(run, "FINISHED", end_time=end)
        self._settle(run, groups)
        return (self.find(key) if self.shared else None) or run

    def _dataset_input(self, entry: dict) -> DatasetInput:
        name, source = short_name(entry["path"])[:500], json.dumps({"uri": entry["path"]})
        # MLflow cuts dataset digests at 36 characters, so they are shortened the same way everywhere.
        digest, tag = views.dataset_digest(entry["digest"]), self._kinds.InputTag("mlflow.data.context", entry["name"])
        return self._kinds.DatasetInput(self._kinds.Dataset(name, digest, source_type="local", source=source), [tag])

    def _log_datasets(self, run: str, datasets: list[DatasetInput]) -> None:
        """Log inputs; again when another publisher created one of them at the same moment, which MLflow refuses."""
        for attempt in range(TRIES):
            try:
                return self.client.log_inputs(run, datasets=datasets)
            except self._refused as error:
                if "datasets" not in str(error) or attempt == TRIES - 1:
                    raise
                time.sleep(PAUSE_S * (attempt + 1))

    def _log_score(self, record: Record, method: tuple[str, ...], end: int) -> None:
        """Give the run of a method its main measure on the collection of an evaluation."""
        if (value := views.main_value(record)) is not None:
            self.group(method)
            self._log_metric(method, views.score_of(record), value, end)

    def renew_score(self, record: Record, scale: str = "") -> None:
        """Give a method the measure of a published evaluation again, where its run shows that of a later one.

        So it is after a setting was changed and taken back: the evaluation has the key of the first one.
        """
        method, value = views.groups_of(record, scale)[:1], views.main_value(record)
        shown = self._scores.get(_group_key(method))
        if value is not None and shown is not None and shown.get(views.score_of(record)) != value:
            self._log_score(record, method, int((record["started_unix_s"] + record["seconds"]) * 1000))

    @cached_property
    def _scores(self) -> dict[str, dict[str, float]]:
        """Measures of the methods by their group."""
        runs = self.client.search_runs([self.experiment], "tags.level = 'method'")
        return {run.data.tags["group"]: run.data.metrics for run in runs}

    def _log_params_and_metrics(
        self, run: str, record: Record, end: int, measured: tuple[str, str, str] | None
    ) -> None:
        params = [self._kinds.Param(name, value) for name, value in sorted(views.run_params(record).items())]
        points = []
        for name, value, step in views.run_metrics(record):
            about = measured if measured and name not in views.COSTS else (None, None, None)
            links = dict(zip(("model_id", "dataset_name", "dataset_digest"), about, strict=True))
            points.append(self._kinds.Metric(name, value, end, step, **links))
        # A batch takes 100 settings and 1,000 values; most artifacts have one batch.
        for some, values in zip_longest(_chunks(params, PARAMS_AT_ONCE), _chunks(points, METRICS_AT_ONCE)):
            self.client.log_batch(run, params=some or (), metrics=values or ())

    def _log_files(self, run: str, record: Record) -> None:
        path = Path(record["artifact"])
        listed = read_listing(path) if is_folder_artifact(path) and path.exists() else []
        with tempfile.TemporaryDirectory() as folder:
            for source, name in views.small_files(record, listed):
                target = Path(folder, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
            self.client.log_artifacts(run, folder)

    def _log_model(self, run: str, record: Record, key: str) -> None:
        tags = {"key": key, "artifact": record["artifact"], "digest": record["digest"], "rule": record["rule"]}
        tags |= {name: value for name, value in record["wildcards"].items() if value}
        name, params = views.model_name(record["artifact"]), views.run_params(record)
        model = self.client.create_logged_model(
            self.experiment, name=name, source_run_id=run, tags=tags, params=params, model_type="encoder"
        )
        self.client.log_outputs(run, [self._kinds.LoggedModelOutput(model_id=model.model_id, step=0)])
        self.client.finalize_logged_model(model.model_id, "READY")


def _chunks(items: list, size: int) -> Iterator[list]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _group_key(names: tuple[str, ...]) -> str:
    return object_digest(["group", *names])
