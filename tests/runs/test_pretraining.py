"""Pre-training in a run folder: files, resumption, initialization of models."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pandas as pd
import pytest
import torch
import yaml
from gensim.models import KeyedVectors
from safetensors.torch import load_file
from together import run_together

from match_graph.config import Config
from match_graph.errors import CheckpointError, ConfigError, ProcessError
from match_graph.io.files import read_json, write_state
from match_graph.io.run_folder import PRETRAIN_STATE, QUALITY, TEXT_VECTORS, VECTORS
from match_graph.io.source import hash_file
from match_graph.pretrain import PretrainCheckpoint, trainer
from match_graph.runs import Run, open_run, start_run
from match_graph.runs import pretraining as module
from match_graph.runs.readers import read_record
from match_graph.training import heartbeat

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

CODE = """
import sys
from pathlib import Path
from match_graph.config import load_config
from match_graph.runs import pretraining, start_run
import torch
torch.set_num_threads(1)
pretraining.SAVE_SECONDS = 0.02
folder, root = map(Path, sys.argv[1:])
start_run("synthetic", load_config(folder.parent / "settings.yaml"), folder, root).pretrain()
"""


def fields(run: Run) -> list[str]:
    """Metadata types of a run."""
    return [name for name in run.space.types if name != "word"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture
def start(tmp_path: Path, root: Path, small_settings):
    """Starts a run of a few seconds with further settings."""

    def make(*settings: str, name: str = "run") -> Run:
        config = small_settings("pretrain.samples=5000", *settings)
        return start_run("synthetic", config, tmp_path / name, root)

    return make


def test_Run_vectors_and_names_of_every_table(start) -> None:
    run = start()
    vectors = run.pretrain()
    saved = load_file(run.folder / VECTORS)
    assert saved.keys() == vectors.keys()
    assert {"word", "context", "label", "document", *fields(run)} == set(saved)
    for name in saved.keys() - {"context"}:
        names = pd.read_parquet(run.folder / "tokens" / f"{name}.parquet")["id"]
        assert len(names) == len(saved[name])
    assert len(saved["context"]) == len(saved["word"])
    assert not (run.folder / PRETRAIN_STATE).exists()


def test_Run_vectors_are_trained_once_and_the_same_for_a_seed(start) -> None:
    first, second = start(), start(name="second")
    first.pretrain()
    second.pretrain()
    content = (first.folder / VECTORS).read_bytes()
    assert content == (second.folder / VECTORS).read_bytes()
    stamp = (first.folder / VECTORS).stat().st_mtime_ns
    assert torch.equal(first.pretrain()["word"], second.pretrain()["word"])
    assert (first.folder / VECTORS).stat().st_mtime_ns == stamp


@pytest.mark.slow
def test_start_run_killed_run_goes_on_to_the_same_file(
    tmp_path: Path, root: Path, small_settings
) -> None:
    config = small_settings("pretrain.samples=300000", "pretrain.chunk_size=64")
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    folder = tmp_path / "killed"
    state = folder / PRETRAIN_STATE
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, str(folder), str(root)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    stop = time.monotonic() + 300
    while not state.is_file() and process.poll() is None and time.monotonic() < stop:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert state.is_file()
    assert not (folder / VECTORS).exists()
    assert 0 < torch.load(state, weights_only=True)["num_seen"] < 300_000
    start_run("synthetic", config, folder, root).pretrain()  # the same command again
    start_run("synthetic", config, tmp_path / "whole", root).pretrain()
    assert (folder / VECTORS).read_bytes() == (tmp_path / "whole" / VECTORS).read_bytes()


def pretrain_in_two(work: Callable[[Run], None], config: Config, folder: Path, root: Path):
    """Exit codes of two processes, as of torchrun, that call ``work`` with a run."""

    def pretrain() -> None:
        module.SAVE_SECONDS, heartbeat._GRACE = 0.0, 2.0
        trainer.time = SimpleNamespace(monotonic=lambda: 0.0)  # a checkpoint whenever one is due
        work(start_run("synthetic", config, folder, root))

    return run_together(pretrain, seconds=120)


def measure_and_pretrain(run: Run) -> None:
    assert bool(run.evaluate_pretraining()) == run.leads
    vectors = run.pretrain()
    run.pretrain()  # done already
    run.pretraining.write_text()
    assert set(vectors) == set(load_file(run.folder / VECTORS))


def pretrain_and_die(run: Run) -> None:
    """Kills the second process after its shard, and the first one too or not."""
    write, shards = PretrainCheckpoint._write_shard, []

    def write_and_die(self: PretrainCheckpoint, *args: Any) -> Any:
        shards.append(write(self, *args))
        if not run.leads and len(shards) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return shards[-1]

    PretrainCheckpoint._write_shard = write_and_die  # type: ignore[method-assign]
    try:
        run.pretrain()
    except ProcessError as error:
        (run.folder.parent / "error").write_text(str(error))


def test_Run_two_processes_pretrain_together(
    tmp_path: Path, root: Path, small_settings, start
) -> None:
    """Two processes rank held-out pairs as one does; a killed one resumes bit-identically."""
    settings = ("train.accelerator=cpu", "pretrain.samples=40001", "pretrain.chunk_size=256")
    alone, config = start(*settings, name="one"), small_settings(*settings)
    one, ranks = alone.pretrain(), [alone.evaluate_pretraining()["types"]["label"]]
    folder = tmp_path / "two"
    assert pretrain_in_two(measure_and_pretrain, config, folder, root) == [0, 0]
    assert (folder / TEXT_VECTORS).is_file()
    two = load_file(folder / VECTORS)
    shapes = [{name: table.shape for name, table in tables.items()} for tables in (one, two)]
    assert shapes[0] == shapes[1]
    for name, table in two.items():
        assert (table.double().norm(dim=1) - 1).abs().max() < 1e-6
        assert not torch.equal(table, one[name])
    ranks.append(read_json(folder / QUALITY)["types"]["label"])
    assert ranks[0]["pairs"] == ranks[1]["pairs"]
    assert ranks[1]["mrr_filtered"] == pytest.approx(ranks[0]["mrr_filtered"], rel=0.3)
    assert not list((folder / PRETRAIN_STATE).parent.glob("*"))

    killed = tmp_path / "killed"
    codes = pretrain_in_two(pretrain_and_die, config, killed, root)
    assert codes[1] == -signal.SIGKILL
    assert "A run needs all of its processes" in (tmp_path / "error").read_text()
    assert torch.load(killed / PRETRAIN_STATE, weights_only=True)["num_chunks"] == 64
    assert pretrain_in_two(Run.pretrain, config, killed, root) == [0, 0]
    assert (killed / VECTORS).read_bytes() == (folder / VECTORS).read_bytes()
    assert not list((killed / PRETRAIN_STATE).parent.glob("*"))


def test_Run_truncated_checkpoint_is_one_sentence(start) -> None:
    run = start()
    path = run.folder / PRETRAIN_STATE
    path.parent.mkdir()
    path.write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(CheckpointError) as caught:
        run.pretrain()
    assert str(path) in str(caught.value)
    assert "delete the folder" in str(caught.value)


def test_Run_checkpoint_of_something_else_is_named(start) -> None:
    run = start()
    path = run.folder / PRETRAIN_STATE
    write_state(path, {"epoch": 3})
    with pytest.raises(CheckpointError) as caught:
        run.pretrain()
    assert str(caught.value) == (
        f"The checkpoint '{path}' must be of the data and settings of this run, but it was made "
        f"with others; delete the folder '{path.parent}' to start again."
    )
    write_state(path, {"epoch": 3, "origin": run.origin}, keep_previous=False)
    with pytest.raises(CheckpointError, match=r"\(it does not name the files of the processes\)"):
        run.pretrain()


def test_Run_text_vectors_are_read_by_gensim(start) -> None:
    run = start()
    path = run.pretraining.write_text()
    loaded = KeyedVectors.load_word2vec_format(str(path), binary=False)
    tables = load_file(run.folder / VECTORS)
    assert len(loaded) == sum(len(table) for name, table in tables.items() if name != "context")
    label = str(run.dataset.names("label")[3])
    key = next(key for key in loaded.key_to_index if unquote(key) == f"label/{label}")
    assert torch.allclose(torch.tensor(loaded[key]), tables["label"][3], atol=1e-6)


def test_Run_quality_is_measured_apart_from_the_runs_vectors(start) -> None:
    run = start("pretrain.samples=30000")
    quality = run.pretraining.evaluate()
    assert not (run.folder / VECTORS).exists()
    assert read_json(run.folder / QUALITY) == quality
    assert set(quality["types"]) == {"label", *fields(run)}
    assert all(0 < values["mrr"] <= values["mrr_filtered"] for values in quality["types"].values())
    near = quality["neighbours"]["word"]
    assert near
    assert all(len(others) == 5 and name not in others for name, others in near.items())


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (["model.init=random"], "'match' with model.init=random"),
        (["model.encoder=prior", "model.encoder_config={}"], "'prior' with model.init=spherical"),
    ],
)
def test_Run_pretrain_refuses_models_without_vectors(start, settings, found) -> None:
    """A network that starts at random and a baseline are refused; nothing read their vectors."""
    run = start(*settings)
    with pytest.raises(ConfigError) as caught:
        run.pretrain()
    assert str(caught.value) == (
        f"Vectors are pre-trained for networks that start from them, but the encoder {found} does "
        f"not; choose another encoder, or model.init=spherical for a network."
    )
    assert not (run.folder / VECTORS).exists()


def test_Run_spherical_text_trains_on_words_and_labels_only(start) -> None:
    run = start("model.init=spherical_text")
    assert set(run.pretrain()) == {"word", "context", "label", "document"}
    model = run.make_model()
    before = model.embedding.weight.detach().clone()
    run.pretraining.initialise(model)
    word = run.space.span("word")
    changed = (model.embedding.weight != before).any(dim=1)
    assert bool(changed[word].all())
    assert not changed[word.stop :].any()
    assert not changed[2 + len(run.space.types) : word.start].any()


def test_Run_spherical_text_trains_on_parents_by_request(start) -> None:
    """With label_parent, spherical_text trains on (label, parent) pairs too."""
    run = start("model.init=spherical_text", "pretrain.label_parent=true")
    trainer = run.pretraining._make_trainer(run.dataset.graph)
    assert {relation.name for kind in trainer.kinds for relation in kind} >= {"(label, label)"}


def write_glove(path: Path, names: list[str], channels: int) -> None:
    values = " ".join(["1"] + ["0"] * (channels - 1))
    path.write_text("".join(f"{name} {values}\n" for name in names), encoding="utf-8")


def test_start_run_word_vectors_start_words_and_print_coverage(
    start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Word vectors initialize the words, and their coverage is printed."""
    (tmp_path / "glove.txt").touch()  # the words are known once the data set is built
    run = start("model.init=word_vectors", f"model.word_vectors={tmp_path / 'glove.txt'}")
    names = run.dataset.names("word").tolist()
    write_glove(tmp_path / "glove.txt", names[:7], 32)
    run.reporter.quiet = False
    model = run.make_model()
    run.pretraining.initialise(model)
    rows = model.embedding.weight[run.space.span("word")]
    assert torch.equal(rows[:7], torch.eye(1, 32).repeat(7, 1))
    assert torch.allclose(rows.norm(dim=1), torch.ones(len(rows)))
    assert "7 of" in capsys.readouterr().err
    assert not (run.folder / VECTORS).exists()


def test_open_run_word_vectors_may_be_gone_but_not_others(start, tmp_path: Path) -> None:
    """The record keeps the checksum of a file of word vectors that is gone."""
    path = tmp_path / "glove.txt"
    path.write_text("graph 1\n", encoding="utf-8")
    run = start("model.init=word_vectors", f"model.word_vectors={path}")
    there = run.record.content["input_checksums"]
    assert there == {"model.word_vectors": hash_file(path)}
    path.unlink()
    again = open_run(run.folder, run.dataset.root)
    again.record.write()
    assert read_record(run.folder)["input_checksums"] == there
    path.write_text("graph 2\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"another content of \['model.word_vectors'\] than"):
        open_run(run.folder, run.dataset.root)


def test_start_run_word_vectors_that_are_not_there(start, tmp_path: Path) -> None:
    """A missing file of word vectors is refused before a folder is made."""
    path = tmp_path / "no.txt"
    with pytest.raises(ConfigError) as caught:
        start("model.init=word_vectors", f"model.word_vectors={path}")
    assert str(caught.value) == (
        f"model.word_vectors must be a text file of word vectors, but there is none at '{path}'; "
        f"check the path."
    )
    assert not list(tmp_path.rglob("config.yaml"))


def test_start_run_prediction_layer_can_start_from_labels(start) -> None:
    run = start("model.head_from_labels=true")
    model = run.make_model()
    run.pretraining.initialise(model)
    label = run.pretrain()["label"]
    slots = model.head.label_weight.view(len(label), 2, 36)  # two [CLS] slots of 32 + 4 channels
    for slot in range(2):
        cosine = torch.nn.functional.cosine_similarity(slots[:, slot, :32], label, dim=1)
        assert torch.allclose(cosine, torch.ones(len(label)), atol=1e-6)


def test_Run_another_run_takes_the_vectors_and_says_so(start, tmp_path: Path) -> None:
    """Vectors of another run are linked, not trained again, and named in the record."""
    first = start(name="first")
    vectors = first.pretrain()
    second = start("train.lambda_output=0", name="second")
    second.take_vectors(first.folder)
    assert (second.folder / VECTORS).samefile(first.folder / VECTORS)
    taken = second.pretrain()
    assert all(torch.equal(taken[name], vectors[name]) for name in vectors)
    record = read_json(second.folder / "record.json")
    assert record["vectors_from"] == "../first"
    names = "tokens/document.parquet"
    assert pd.read_parquet(second.folder / names).equals(pd.read_parquet(first.folder / names))


@pytest.mark.parametrize("setting", ["seed=1", "pretrain.window=3", "data.drop_fields=[venue]"])
def test_Run_vectors_of_other_settings_are_not_taken(start, setting: str) -> None:
    first, second = start(name="first"), start(setting, name="second")
    first.pretrain()
    with pytest.raises(CheckpointError) as caught:
        second.take_vectors(first.folder)
    assert str(caught.value) == (
        f"Vectors can be taken from a run with the same data, seed and settings of pre-training, "
        f"but the run in '{first.folder}' has others; pre-train anew."
    )


def test_Run_vectors_that_are_not_there_are_not_taken(start) -> None:
    first, second = start(name="first"), start(name="second")
    with pytest.raises(CheckpointError) as caught:
        second.take_vectors(first.folder)
    assert str(caught.value) == (
        f"A pre-trained run holds tokens/document.parquet, but '{first.folder}' has none; "
        f"pre-train it first."
    )
