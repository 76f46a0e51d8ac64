"""Many files: the same results over blocks, processes and kills as one call per file."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from together import run_forked, run_together

from match_graph.errors import CheckpointError, ConfigError, CorpusError
from match_graph.io.cluster import Cluster, Run
from match_graph.io.line_blocks import Block
from match_graph.io.manifest import find_damage, read_manifest
from match_graph.io.progress import Reporter
from match_graph.predict import evaluate_files, job, load, predict_files, predict_lines
from match_graph.predict.work import Predicting, RunHandle, Task, make_part
from match_graph.runs import Run as TrainedRun
from match_graph.typing import MASKS

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

#: Bytes of a block of the tests: some ten documents.
SMALL = 2000


def write_lines(path: Path, documents: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in documents))
    return path


@pytest.fixture(scope="module")
def documents(trained_run: TrainedRun) -> list[dict[str, Any]]:
    """The test documents as JSON objects, in the order of the graph."""
    return trained_run.dataset.as_json(trained_run.dataset.documents(MASKS["test"]).tolist())


@pytest.fixture
def inputs(tmp_path: Path, documents: list[dict[str, Any]]) -> Path:
    """A folder of three files, one of them empty."""
    folder = tmp_path / "in"
    write_lines(folder / "a.jsonl", documents[:25])
    write_lines(folder / "b.jsonl", documents[25:])
    (folder / "empty.jsonl").touch()
    return folder


def read_results(folder: Path) -> dict[str, bytes]:
    """Results by name; each is as the manifest lists it."""
    names = [name for name in read_manifest(folder) if name != "sources.json"]
    assert not any(find_damage(folder, name) for name in names)
    assert not (folder / ".parts").exists()
    return {name: (folder / name).read_bytes() for name in names}


def apart(work: Callable[[], object], number: int = 1) -> list[int | None]:
    """Exit codes of processes that each call ``work``, several as under torchrun."""
    if number > 1:
        return run_together(work, number=number, seconds=60)
    return run_forked(lambda _rank: work(), number, 60)


def kill_at(monkeypatch: pytest.MonkeyPatch, count: int, rank: int = 0) -> None:
    """Makes a process kill itself before its n-th block."""
    left = [count]

    def make_or_die(task: Task) -> None:
        if os.environ.get("RANK", "0") == str(rank):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
        make_part(task)

    monkeypatch.setattr(job, "make_part", make_or_die)


def count_parts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records the file name of each block that is worked on from now on."""
    made = []

    def make(task: Task) -> None:
        made.append(task.block.path.name)
        make_part(task)

    monkeypatch.setattr(job, "make_part", make)
    return made


def test_predict_files_are_those_of_predict_lines(
    trained_run: TrainedRun, inputs: Path, tmp_path: Path
) -> None:
    """Results equal those of predict_lines to the byte; a second call does nothing."""
    results = predict_files(trained_run.folder, [inputs], tmp_path / "out")
    assert [path.name for path in results] == ["a.jsonl", "b.jsonl", "empty.jsonl"]
    classifier = load(trained_run.folder)
    for path in results[:2]:
        predict_lines(classifier, str(inputs / path.name), str(tmp_path / "alone"))
        assert path.read_bytes() == (tmp_path / "alone").read_bytes()
    assert results[2].read_bytes() == b""
    times = [path.stat().st_mtime_ns for path in results]
    predict_files(trained_run.folder, [inputs], tmp_path / "out")
    assert [path.stat().st_mtime_ns for path in results] == times


def test_predict_files_goes_on_after_a_kill(
    trained_run: TrainedRun, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed call is resumed; a changed file or setting is predicted again."""

    def predict(name: str, **options: Any) -> dict[str, bytes]:
        predict_files(trained_run.folder, [inputs], tmp_path / name, block_bytes=SMALL, **options)
        return read_results(tmp_path / name)

    made = count_parts(monkeypatch)
    expected, num_blocks = predict("whole"), len(made)
    assert num_blocks > 5
    kill_at(monkeypatch, 4)
    assert apart(lambda: predict("killed")) == [-signal.SIGKILL]
    made = count_parts(monkeypatch)
    assert predict("killed") == expected
    assert len(made) == num_blocks - 3
    made.clear()
    with (inputs / "a.jsonl").open("a") as file:
        file.write('{"text": "w1", "label": []}\n')
    changed = predict("killed")
    assert set(made) == {"a.jsonl"}
    assert changed["b.jsonl"] == expected["b.jsonl"]
    assert changed["a.jsonl"].startswith(expected["a.jsonl"][:100])
    made.clear()
    one = predict("killed", top_k=1)
    assert set(made) == {"a.jsonl", "b.jsonl", "empty.jsonl"}
    assert len(one["a.jsonl"].splitlines()) == 26
    assert {len(json.loads(line)["labels"]) for line in one["a.jsonl"].splitlines()} == {1}


def test_predict_files_two_processes_of_torchrun(
    trained_run: TrainedRun, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes give the same bytes; if one is killed, the next call resumes."""

    def predict(name: str) -> list[Path]:
        return predict_files(trained_run.folder, [inputs], tmp_path / name, block_bytes=SMALL)

    predict("one")
    expected = read_results(tmp_path / "one")
    kill_at(monkeypatch, 2, rank=1)
    codes = apart(lambda: predict("two"), 2)
    assert codes[1] == -signal.SIGKILL
    assert codes[0] not in (0, None)
    num_parts = len(list((tmp_path / "two" / ".parts").iterdir()))
    assert num_parts > 0
    monkeypatch.undo()
    assert apart(lambda: predict("two"), 2) == [0, 0]
    assert read_results(tmp_path / "two") == expected


@dataclass(frozen=True)
class Fatal(Predicting):
    """Prediction that kills its process once."""

    marker: str = ""

    def make(self, block: Block, part: Path) -> None:
        if not Path(self.marker).exists():
            Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().make(block, part)


class Opened:
    """An open cluster."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def open(self) -> Any:
        return nullcontext(self.run)


@pytest.mark.slow
def test_predict_files_two_workers_one_killed(
    trained_run: TrainedRun, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions and measures are the same where a worker of a cluster is killed."""
    pytest.importorskip("distributed", reason="no Dask (extra: scale)")
    # its processes import this module
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2])
    folder = trained_run.folder
    predict_files(folder, [inputs], tmp_path / "here", block_bytes=SMALL)
    evaluate_files(folder, [inputs], tmp_path / "measures", block_bytes=SMALL)
    with Cluster(workers=2, memory="2GiB").open() as run:
        cluster: Any = Opened(run)
        work = Fatal(RunHandle.find(folder), marker=str(tmp_path / "killed"))
        job.Job(work, [inputs], tmp_path / "out", SMALL, None, cluster).run(lambda: None)
        evaluate_files(folder, [inputs], tmp_path / "all", cluster=cluster, block_bytes=SMALL)
    assert (tmp_path / "killed").exists()
    assert read_results(tmp_path / "out") == read_results(tmp_path / "here")
    assert read_results(tmp_path / "all") == read_results(tmp_path / "measures")


def test_Job_by_a_cluster_and_by_torchrun(
    trained_run: TrainedRun, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster under torchrun is refused."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    with pytest.raises(ConfigError) as caught:
        predict_files(trained_run.folder, [inputs], tmp_path / "out", cluster=Cluster(workers=2))
    assert str(caught.value) == (
        "Files are shared by the workers of a cluster or by the processes of torchrun, found both; "
        "leave out --workers and --scheduler, or start without torchrun."
    )


def test_predict_files_faults_name_file_and_line(
    trained_run: TrainedRun, inputs: Path, tmp_path: Path
) -> None:
    """Faults within a file name its line; finished files are not named."""
    lines = (inputs / "b.jsonl").read_text().splitlines()
    lines[7] = '{"text": 5}'
    (inputs / "b.jsonl").write_text("\n".join(lines))
    with pytest.raises(CorpusError) as caught:
        predict_files(trained_run.folder, [inputs], tmp_path / "out", block_bytes=500)
    assert str(caught.value) == (
        "The documents must be readable: b.jsonl:8: 'text' must be a string, found the number 5."
    )
    finished = ["a.jsonl", "empty.jsonl"]
    assert sorted(path.name for path in (tmp_path / "out").glob("*.jsonl")) == finished
    (inputs / "a.jsonl").write_text("[]\n")
    with pytest.raises(CorpusError) as caught:
        predict_files(trained_run.folder, [inputs], tmp_path / "out", block_bytes=500)
    assert str(caught.value).splitlines() == [
        "The documents must be readable, but 2 faults were found:",
        "  a.jsonl:1: a line must be one JSON object, found the list []; write one document a "
        "line.",
        "  b.jsonl:8: 'text' must be a string, found the number 5.",
    ]
    with pytest.raises(CorpusError, match=r"^There must be at least one document, found none in "):
        predict_files(trained_run.folder, [inputs / "empty.jsonl"], tmp_path / "none")


def test_predict_files_names_empty_inputs(
    trained_run: TrainedRun, tmp_path: Path, documents: list[dict[str, Any]], capsys
) -> None:
    """Empty inputs are named by their own names, not those of the results."""
    from match_graph.io import Reporter

    write_lines(tmp_path / "in" / "a.jsonl", documents[:2])
    (tmp_path / "in" / "none.csv").touch()
    quiet = Reporter(quiet=True)
    predict_files(trained_run.folder, [tmp_path / "in"], tmp_path / "out", reporter=quiet)
    assert capsys.readouterr().err == "warning: 1 files hold no document: 'none.csv'\n"


@pytest.mark.parametrize("work", [predict_files, evaluate_files])
def test_Job_warns_once_of_keys_that_are_not_read(
    work: Callable[..., object],
    trained_run: TrainedRun,
    documents: list[dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Unread keys are named once, before the work; known keys are not."""
    misspelt = [{"venues" if key == "venue" else key: one[key] for key in one} for one in documents]
    for name, rows in (("right", documents), ("wrong", misspelt)):
        path = write_lines(tmp_path / "in" / f"{name}.jsonl", rows)
        work(trained_run.folder, [path], tmp_path / name, reporter=Reporter(), block_bytes=SMALL)
        told = capsys.readouterr().err
        assert told.count("['venues'] of documents are not read") == (name == "wrong")
        assert ("not read" in told) == (name == "wrong")


def test_evaluate_files_measures_are_those_of_Run_evaluate(
    trained_run: TrainedRun, inputs: Path, tmp_path: Path, documents: list[dict[str, Any]]
) -> None:
    """Measures over several files and blocks equal those of one file and of `Run.evaluate`."""
    found = evaluate_files(trained_run.folder, [inputs], tmp_path / "many", block_bytes=SMALL)
    expected = trained_run.read_metrics()["test"]
    # equal values of float32 have sigmoids that differ in the last bit, by their place in a batch
    assert found == pytest.approx(expected, abs=1e-7)
    ranking = [name for name in expected if "@" in name and "/" not in name and name != "ECE@5"]
    assert len(ranking) == 15
    assert {name: found[name] for name in ranking} == pytest.approx(
        {name: expected[name] for name in ranking}, abs=1e-12
    )
    whole = write_lines(tmp_path / "whole.jsonl", documents)
    one = evaluate_files(trained_run.folder, [whole], tmp_path / "one")
    assert found == pytest.approx(one, abs=1e-7)
    content = json.loads((tmp_path / "many" / "metrics.json").read_text())
    assert content["documents"] == len(documents)
    assert content["unknown_labels"] == 0
    assert read_results(tmp_path / "many").keys() == {
        "metrics.json", *(f"sums/{name}.safetensors" for name in ("a", "b", "empty"))
    }  # fmt: skip
    again = evaluate_files(trained_run.folder, [inputs], tmp_path / "many", batch_size=7)
    assert again == pytest.approx(found, abs=1e-7)


def test_evaluate_files_labels_that_the_run_does_not_know(
    trained_run: TrainedRun, tmp_path: Path, documents: list[dict[str, Any]], capsys
) -> None:
    """Unknown gold labels are counted, warned of, and stay in the denominators."""
    from match_graph.io import Reporter

    changed = [{**one, "label": [*one["label"], "new"]} for one in documents]
    path = write_lines(tmp_path / "a.jsonl", changed)
    found = evaluate_files(
        trained_run.folder, [path], tmp_path / "out", reporter=Reporter(quiet=True)
    )
    number = len(documents)
    gold = sum(len(one["label"]) for one in changed)
    assert capsys.readouterr().err.replace("\n", " ") == (
        f"warning: 1 labels of the documents are none of the run's, so that {number} of {gold} "
        f"gold labels cannot be found and count as missed: 'new' "
    )
    expected = trained_run.read_metrics()["test"]
    assert found["P@5"] == expected["P@5"]
    assert found["R@5"] < expected["R@5"]
    assert found["F1_micro"] < expected["F1_micro"]
    del changed[3]["label"]
    write_lines(path, changed)
    with pytest.raises(CorpusError, match=r"a\.jsonl:4: 'label' must be a list of strings, found"):
        evaluate_files(trained_run.folder, [path], tmp_path / "out")


def test_evaluate_files_of_a_run_without_thresholds(
    trained_run: TrainedRun, inputs: Path, tmp_path: Path
) -> None:
    """A run without thresholds was not evaluated and is refused."""
    import shutil

    from match_graph.io.files import remove_files

    folder = Path(shutil.copytree(trained_run.folder, tmp_path / "run"))
    remove_files(folder / "thresholds.parquet")
    with pytest.raises(CheckpointError) as caught:
        evaluate_files(folder, [inputs], tmp_path / "out")
    assert str(caught.value) == (
        f"Documents are evaluated at the thresholds that a run chose on its validation split, but "
        f"'{folder}' has none; choose them with `match-graph evaluate {folder}`."
    )
