"""Trackers: what each logger holds, read back by its own library, also after a kill."""

import errno
import json
import struct
import threading
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from match_graph.config import load_config
from match_graph.errors import ConfigError
from match_graph.io.run_folder import EVENTS, HISTORY, METRICS_CSV, MLFLOW, TRACKER, WANDB
from match_graph.runs import Run, open_run, start_run
from match_graph.training import loop as loop_module
from match_graph.training.checkpoint import SaveTimer
from match_graph.training.loggers import check_logger, open_tracker

CORPUS = "data.options={num_documents: 400, num_labels: 24, num_layers: 3, num_words: 600}"
#: Rows of a tracker by step: {step: {name: value}}.
Rows = dict[int, dict[str, float]]


@pytest.fixture(autouse=True)
def no_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of wandb or MLflow is set, and nobody is logged in."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


@pytest.fixture
def make_run(tmp_path: Path, small_settings):
    """Starts a run of the small corpus, or goes on with it."""

    def make(*settings: str) -> Run:
        config = small_settings("train.epochs=3", *settings)
        return start_run("synthetic", config, tmp_path / "run", tmp_path / "root")

    return make


def read_events(folder: Path) -> tuple[Rows, dict[str, object]]:
    """Rows and settings of TensorBoard."""
    events = EventAccumulator(str(folder / EVENTS)).Reload()
    rows: Rows = {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            assert name not in rows.setdefault(event.step, {}), "logged twice"
            rows[event.step][name] = event.value
    return rows, {}


def read_csv(folder: Path) -> tuple[Rows, dict[str, object]]:
    """Rows of Lightning's CSV; one step may have a row of epochs and one of measures."""
    rows: Rows = {}
    for row in pd.read_csv(folder / METRICS_CSV / "metrics.csv").to_dict("records"):
        found = {name: value for name, value in row.items() if value == value and name != "step"}
        assert not found.keys() & rows.setdefault(row["step"], {}).keys(), "logged twice"
        rows[row["step"]].update(found)
    text = (folder / METRICS_CSV / "hparams.yaml").read_text()
    return rows, dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)


def read_wandb(folder: Path) -> tuple[Rows, dict[str, object]]:
    """Rows and settings of wandb's one offline run: protocol buffers in a log of LevelDB."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob(f"{WANDB}/offline-run-*/*.wandb")
    data, place, parts = path.read_bytes(), 7, b""
    rows: Rows = {}
    settings = {}
    while place + 7 <= len(data):
        if 2**15 - place % 2**15 < 7:
            place += 2**15 - place % 2**15
        _, length, kind = struct.unpack_from("<IHB", data, place)
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind not in (1, 4):  # whole, or the last part
            continue
        record, parts = Record.FromString(parts), b""
        found = {
            each.key or "/".join(each.nested_key): json.loads(each.value_json)
            for each in (*record.history.item, *record.config.update)
        }
        if record.WhichOneof("record_type") == "config":
            settings.update(found)
        if record.WhichOneof("record_type") == "history":
            row = rows.setdefault(found.pop("trainer/global_step"), {})
            found = {name: value for name, value in found.items() if not name.startswith("_")}
            assert not found.keys() & row.keys(), "logged twice"
            row.update(found)
    return rows, settings


def read_mlflow(folder: Path) -> tuple[Rows, dict[str, object]]:
    """Rows and settings of MLflow's one run in the run folder."""
    from mlflow import MlflowClient

    client = MlflowClient((folder / MLFLOW).as_uri())
    experiment = client.get_experiment_by_name("match-graph")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    rows: Rows = {}
    for name in run.data.metrics:
        for metric in client.get_metric_history(run.info.run_id, name):
            row = rows.setdefault(metric.step, {})
            assert name not in row, "logged twice"
            row[name.replace("_at_", "@")] = metric.value
    return rows, run.data.params


READERS = {
    "tensorboard": read_events,
    "csv": read_csv,
    "wandb": read_wandb,
    "mlflow": read_mlflow,
}


def need_extra(name: str) -> None:
    """Skips the test where the logger's package is not installed, without importing it."""
    if name in ("wandb", "mlflow") and not find_spec(name):
        pytest.skip("extra: track")


def break_off_after_epoch(run: Run, monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    """Trains and stops like a killed process, an epoch behind the last checkpoint."""
    original = loop_module.train_step

    def step_or_stop(learner, *args):
        if (learner.state.epoch, learner.state.step) == (epoch, 1):
            raise KeyboardInterrupt
        return original(learner, *args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop_module, "train_step", step_or_stop)
        patch.setattr(SaveTimer, "is_due_after_epoch", lambda _: len(done) < epoch - 1)
        done: list[object] = []
        run.train(done.append)


@pytest.mark.parametrize("name", READERS)
def test_open_tracker_numbers_of_history_after_a_kill(
    make_run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, name: str
) -> None:
    """Each epoch once, every column of history.csv, the final measures, the settings."""
    need_extra(name)
    run = make_run(f"train.logger={name}")
    break_off_after_epoch(run, monkeypatch, 2)
    run = make_run(f"train.logger={name}")
    run.train()
    history = pd.read_csv(run.folder / HISTORY).to_dict("records")
    assert [row["epoch"] for row in history] == [1, 2, 3]
    close = 1e-6 if name == "tensorboard" else 1e-15
    rows, _ = READERS[name](run.folder)
    assert rows == {row["epoch"]: pytest.approx(row, rel=close) for row in history}
    measures = run.evaluate()
    assert run.evaluate() == measures  # once more: each number is still there once
    rows, settings = READERS[name](run.folder)
    final = {f"{split}/{key}": x for split, of in measures.items() for key, x in of.items()}
    assert "test/NDCG@5" in final
    history[-1] |= final
    assert rows == {row["epoch"]: pytest.approx(row, rel=close) for row in history}
    if settings:
        assert str(settings["train.epochs"]) == "3"
        assert str(settings["train.logger"]) == name
        assert str(settings["data.min_count"]) == str(run.config.data.min_count)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.mark.parametrize("name", READERS)
def test_open_tracker_baseline(tmp_path: Path, name: str) -> None:
    """A baseline has no epochs: its settings and final measures are logged."""
    need_extra(name)
    run = start_run(
        "synthetic",
        load_config(None, ["model.encoder=prior", f"train.logger={name}", CORPUS]),
        tmp_path / "run",
        tmp_path / "root",
    )
    run.train()
    measures = run.evaluate()
    rows, settings = READERS[name](run.folder)
    final = {f"{split}/{key}": x for split, of in measures.items() for key, x in of.items()}
    assert rows == {0: pytest.approx(final, rel=1e-6)}
    assert not settings or settings["model.encoder"] == "prior" or name == "wandb"


def test_open_tracker_none_and_another_logger(make_run) -> None:
    """With none there are no files; a resumed run may have another logger."""
    run = make_run("train.logger=none")
    run.train()
    assert not (run.folder / EVENTS).exists()
    again = make_run("train.logger=csv")
    assert again.origin == run.origin
    again.evaluate()
    rows, _ = read_csv(run.folder)
    assert list(rows) == [1, 2, 3]
    assert open_run(run.folder, run.folder.with_name("root")).config.train.logger == "none"


def test_open_tracker_wandb_keeps_its_id(make_run) -> None:
    """The id of a run stays when it goes on, and the folder holds one offline run."""
    need_extra("wandb")
    run = make_run("train.logger=wandb")
    run.train()
    kept = json.loads((run.folder / TRACKER).read_text())["id"]
    make_run("train.logger=wandb").evaluate()
    (path,) = run.folder.glob(f"{WANDB}/offline-run-*/*.wandb")
    assert path.name == f"run-{kept}.wandb"


def test_open_tracker_mlflow_goes_on_at_a_server(
    make_run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of MLFLOW_TRACKING_URI the same run goes on; the variable stays as it was."""
    need_extra("mlflow")
    (tmp_path / "server").mkdir()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "server" / MLFLOW).as_uri())
    run = make_run("train.logger=mlflow")
    break_off_after_epoch(run, monkeypatch, 2)
    run = make_run("train.logger=mlflow")
    run.train()
    rows, _ = read_mlflow(tmp_path / "server")
    history = pd.read_csv(run.folder / HISTORY).to_dict("records")
    assert rows == {row["epoch"]: pytest.approx(row) for row in history}
    assert not (run.folder / MLFLOW).exists()


def test_open_tracker_service_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that is not there is one sentence."""
    need_extra("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://here")
    with pytest.raises(ConfigError) as caught, open_tracker("mlflow", tmp_path, {}, pd.DataFrame()):
        pass
    text = str(caught.value)
    assert text.startswith("train.logger=mlflow must reach its service, but that refused (")
    assert text.endswith(
        "); check WANDB_* or MLFLOW_* of the environment, or resume with --logger tensorboard."
    )


def test_check_logger_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named where its package is missing; the others need none."""
    monkeypatch.setattr("match_graph.training.loggers.find_spec", lambda _: None)
    with pytest.raises(ConfigError) as caught:
        check_logger("wandb")
    assert str(caught.value) == (
        "train.logger=wandb needs wandb, which this environment does not have; run "
        "`pip install 'match-graph[track]'`, or choose tensorboard, csv or none."
    )
    for name in ("tensorboard", "csv", "none"):
        check_logger(name)


def test_open_tracker_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """TensorBoard writes in a thread, whose error has no file and would print a traceback."""

    def fail(*_: object, **__: object) -> None:
        thread = threading.Thread(target=refuse)
        thread.start()
        thread.join()
        refuse()

    def refuse() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter", fail)
    opened = open_tracker("tensorboard", tmp_path, {}, pd.DataFrame())
    with pytest.raises(OSError, match="No space") as caught, opened as tracker:
        tracker.log_epochs(pd.DataFrame([{"epoch": 1, "loss": 1.0}]))
    assert caught.value.filename == str(tmp_path / EVENTS)
    assert capsys.readouterr().err == ""
