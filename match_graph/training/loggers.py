"""Experiment tracking: epochs, final measures and settings of a run, sent to its logger."""

import netrc
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pandas as pd
from lightning_fabric.loggers import CSVLogger, TensorBoardLogger

from match_graph.errors import ConfigError
from match_graph.io.files import read_json, reading, write_json
from match_graph.io.run_folder import EVENTS, METRICS_CSV, MLFLOW, TRACKER, WANDB
from match_graph.io.yaml import dump_yaml

#: The project of wandb and the experiment of MLflow, unless their own variables name one.
_PROJECT = "match-graph"
#: The tag by which a run is found again on a server of MLflow.
_TAG = "match_graph.id"
#: Loggers whose packages, of the same names, are in the extra `track`.
_OF_EXTRA = ("wandb", "mlflow")
#: The step of a row in wandb, by the name that Lightning gives it.
_STEP = "trainer/global_step"
#: Parameters that MLflow takes in one request, and characters of each.
_PARAMETERS, _CHARACTERS = 100, 6000
#: Measures that TensorBoard shows beside hyperparameters.
_COMPARED = ("NDCG@5", "valid/NDCG@5", "test/NDCG@5")
#: Logs a row of numbers at a step.
Log: TypeAlias = Callable[[dict[str, float], int], object]
#: A logger's function, and the number of epochs that it holds already.
Opened: TypeAlias = Iterator[tuple[Log, int]]


@dataclass
class Tracker:
    """Sends a run's numbers to its logger, each epoch once.

    Args:
        name: The setting ``train.logger``.
        log: Logs a row of numbers at a step; None logs nothing.
        num_logged: Number of epochs that it holds already.
    """

    name: str
    log: Log | None = None
    num_logged: int = 0

    def log_epochs(self, history: pd.DataFrame) -> None:
        """Logs the rows of a history that are new; the step is the epoch."""
        for row in history.iloc[self.num_logged :].to_dict("records"):
            self._log({str(name): value for name, value in row.items()}, int(row["epoch"]))
        self.num_logged = max(self.num_logged, len(history))

    def log_measures(self, measures: Mapping[str, Mapping[str, float]], epoch: int) -> None:
        """Logs the final measures as ``SPLIT/MEASURE``.

        Args:
            measures: Measures by split and name.
            epoch: Number of epochs of the training; 0 for a baseline.
        """
        row = {f"{split}/{name}": x for split, of in measures.items() for name, x in of.items()}
        self._log(row, epoch)

    def _log(self, row: dict[str, float], epoch: int) -> None:
        if self.log is not None:
            with _reaching_service(self.name):
                self.log(row, epoch)


def check_logger(name: str) -> None:
    """Checks that the package of a logger is installed, without importing it.

    Raises:
        ConfigError: It is not.
    """
    if name in _OF_EXTRA and find_spec(name) is None:
        raise ConfigError(
            f"train.logger={name} needs {name}, which this environment does not have; "
            f"run `pip install 'match-graph[track]'`, or choose tensorboard, csv or none."
        )


@contextmanager
def open_tracker(
    name: str, folder: Path, settings: Mapping[str, Any], history: pd.DataFrame
) -> Iterator[Tracker]:
    """Context with the tracker of a run, which holds its settings and the epochs so far.

    A logger's files in the run folder are rewritten from the history, as a killed process may have
    left too much or too little of them; on a server the same run is continued.

    Args:
        name: The setting ``train.logger``.
        folder: Run folder.
        settings: Resolved settings by dotted key.
        history: Epochs that are done, a row each.

    Raises:
        ConfigError: Its package is missing, or the service of the logger refuses.
        OSError: Files cannot be written; names the file, or their folder.
    """
    if name == "none":
        yield Tracker(name)
        return
    check_logger(name)
    place, opener = _OPENERS[name]
    with _naming_folder(folder / place), opener(folder, settings) as (log, num_logged):
        tracker = Tracker(name, log, num_logged)
        tracker.log_epochs(history)
        yield tracker


@contextmanager
def _naming_folder(folder: Path) -> Iterator[None]:
    """Context in which an OSError without a file, such as of a full disk, names the folder."""
    before = threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        if not isinstance(arguments.exc_value, OSError):  # raised once more where events are added
            before(arguments)

    threading.excepthook = hook
    try:
        yield
    except (OSError, ValueError) as error:  # of the logger: a ValueError from what was raised
        fault = error.__cause__ if isinstance(error, ValueError) else error
        if not isinstance(fault, OSError) or fault.filename is not None or fault.errno is None:
            raise
        raise OSError(fault.errno, os.strerror(fault.errno), str(folder)) from error
    finally:
        threading.excepthook = before


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


@contextmanager
def _reaching_service(name: str) -> Iterator[None]:
    """Context of requests to a logger's service, whose failure is one sentence.

    Raises:
        ConfigError: It refuses, or cannot be reached.
    """
    try:
        yield
    except Exception as error:
        if name not in _OF_EXTRA or (isinstance(error, OSError) and error.errno is not None):
            raise
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"train.logger={name} must reach its service, but that refused "
            f"({type(error).__name__}: {reason}); check WANDB_* or MLFLOW_* of the environment, or "
            f"resume with --logger tensorboard."
        ) from error


@contextmanager
def _open_tensorboard(folder: Path, settings: Mapping[str, Any]) -> Opened:
    from torch.utils.tensorboard.summary import hparams

    _remove(folder / EVENTS)
    logger = TensorBoardLogger(folder, name="", version=EVENTS)
    try:
        values = {name: _plain(value) for name, value in settings.items()}
        for summary in hparams(values, dict.fromkeys(_COMPARED)):
            logger.experiment._get_file_writer().add_summary(summary)
        yield logger.log_metrics, 0
    finally:
        logger.finalize("")


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else str(value)


@contextmanager
def _open_csv(folder: Path, settings: Mapping[str, Any]) -> Opened:
    _remove(folder / METRICS_CSV)
    logger = CSVLogger(folder, name="", version=METRICS_CSV, flush_logs_every_n_steps=1)
    text = dump_yaml(dict(settings), sort_keys=False)
    Path(logger.experiment.log_dir, "hparams.yaml").write_text(text, encoding="utf-8")
    try:
        yield logger.log_metrics, 0
    finally:
        logger.finalize("")


@contextmanager
def _open_wandb(folder: Path, settings: Mapping[str, Any]) -> Opened:
    """Run of Weights & Biases, whose id the run folder keeps; offline unless the user logged in."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    given = os.environ.get("WANDB_MODE")
    mode: Any = given or ("online" if _is_logged_in() else "offline")
    if mode != "online":
        _remove(folder / WANDB)
    with _reaching_service("wandb"):
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=folder.resolve().name,
            dir=folder,
            id=_keep_id(folder),
            resume="allow",
            reinit="create_new",
            mode=None if given else mode,
            settings=wandb.Settings(silent=True, console="off"),
        )
        run.define_metric(_STEP)
        run.define_metric("*", step_metric=_STEP, step_sync=True)
        run.config.update(dict(settings), allow_val_change=True)
    exit_code = 1
    try:
        yield lambda row, step: run.log({**row, _STEP: step}), run.step  # a row for each epoch
        exit_code = 0
    finally:
        run.finish(exit_code)
        if wandb.run is None:  # the caller has no run: waits until ours is written
            wandb.teardown()


def _is_logged_in() -> bool:
    """Whether the environment or the user's netrc has a key for wandb's server."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    server = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    with suppress(OSError, netrc.NetrcParseError):
        hosts = netrc.netrc(os.environ.get("NETRC")).hosts
        return urlsplit(server).hostname in hosts
    return False


@contextmanager
def _open_mlflow(folder: Path, settings: Mapping[str, Any]) -> Opened:
    """Run of MLflow: in files of the run folder, or on the server of ``MLFLOW_TRACKING_URI``."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    server, files = os.environ.get("MLFLOW_TRACKING_URI"), (folder / MLFLOW).resolve()
    if not server:  # mlflow makes it once per process, even if it was deleted since
        (files / ".trash").mkdir(parents=True, exist_ok=True)
    with _reaching_service("mlflow"):
        client = mlflow.MlflowClient(server or files.as_uri())
        run = _find_mlflow_run(client, folder)
        run_id, known = run.info.run_id, run.data.params  # parameters cannot change
        new = [(key, str(x)[:_CHARACTERS]) for key, x in settings.items() if key not in known]
        for first in range(0, len(new), _PARAMETERS):
            part = new[first : first + _PARAMETERS]
            client.log_batch(run_id, params=[mlflow.entities.Param(*entry) for entry in part])
        if not server:
            metrics = files / run.info.experiment_id / run_id / "metrics"
            _remove(metrics)
            metrics.mkdir()
        num_logged = len(client.get_metric_history(run_id, "epoch")) if server else 0

    def log(row: dict[str, float], step: int) -> None:
        now = int(1000 * time.time())
        named = [(name.replace("@", "_at_"), x) for name, x in row.items()]  # it takes no "@"
        found = [mlflow.entities.Metric(*entry, now, step) for entry in named]
        client.log_batch(run_id, metrics=found)  # one request a row: `num_logged` counts rows

    status = "FAILED"
    try:
        yield log, num_logged
        status = "FINISHED"
    finally:
        client.set_terminated(run_id, status)


def _find_mlflow_run(client: Any, folder: Path) -> Any:
    """The run of a run folder, created if there is none."""
    name, key = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT), _keep_id(folder)
    found = client.get_experiment_by_name(name)
    experiment = client.create_experiment(name) if found is None else found.experiment_id
    if runs := client.search_runs([experiment], f"tags.`{_TAG}` = '{key}'"):
        client.update_run(runs[0].info.run_id, "RUNNING")
        return runs[0]
    return client.create_run(experiment, tags={_TAG: key}, run_name=folder.resolve().name)


def _keep_id(folder: Path) -> str:
    """Name of the run at a service, drawn once and kept in the run folder."""
    path = folder / TRACKER
    if not path.is_file():
        write_json(path, {"id": uuid.uuid4().hex})
    with reading(path, f"'{path}' must hold the id of a run", "delete it"):
        return uuid.UUID(read_json(path)["id"]).hex


#: The folder of each logger in a run folder, and how it is opened with a run's settings.
_OPENERS: dict[
    str, tuple[str, Callable[[Path, Mapping[str, Any]], AbstractContextManager[Any]]]
] = {
    "tensorboard": (EVENTS, _open_tensorboard),
    "csv": (METRICS_CSV, _open_csv),
    "wandb": (WANDB, _open_wandb),
    "mlflow": (MLFLOW, _open_mlflow),
}
