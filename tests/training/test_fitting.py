"""Baselines through the same line as networks: folder, measures, prediction."""

import json
from pathlib import Path

import pytest
import torch

from match_graph import Baseline, Run, load, rank_labels, start_run
from match_graph.baselines import BASELINES
from match_graph.baselines.tensors import read_table, write_table
from match_graph.datasets.records import make_records
from match_graph.errors import CheckpointError, ConfigError
from match_graph.io.files import FITTED, LOCK, METRICS, RECORD
from match_graph.nn import ENCODERS
from match_graph.predict.summary import list_files, show_examples
from match_graph.runs import open_run
from match_graph.training.fitting import find_encoder, is_baseline
from match_graph.typing import MASKS


class CountingPrior(Baseline):
    """A baseline of a user's own: how many training documents carry each label."""

    def fit(self, batches, advance=lambda _done: None) -> None:
        self.count = torch.zeros(self.num_labels)
        for batch in batches:
            self.count += torch.bincount(batch.label_index, minlength=self.num_labels)

    def predict(self, batch):
        return self.count.expand(batch.num_documents, -1)

    def save(self, folder: Path) -> None:
        write_table(folder, {"count": self.count})

    def load(self, folder: Path) -> None:
        self.count = read_table(folder, {"count": [self.num_labels]})["count"]


OWN = f"{__name__}:CountingPrior"


@pytest.fixture
def start(tmp_path: Path, small_settings):
    """Starts a run of the small corpus with a baseline."""

    def make(encoder: str, *settings: str, name: str = "run", **kwargs) -> Run:
        config = small_settings(
            "model.encoder_config={}", f"model.encoder={encoder}", "train.accelerator=cpu",
            *settings,
        )  # fmt: skip
        return start_run("synthetic", config, tmp_path / name, tmp_path / "root", **kwargs)

    return make


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_a_baseline_runs_as_a_network_does(start, trained_run: Run, name: str) -> None:
    """The same files and the same measures; nothing is pre-trained; prediction as evaluated."""
    if name == "omikuji":
        pytest.importorskip("omikuji", reason="omikuji is not installed (extra: peers)")
    run = start(name)
    run.train()
    metrics = run.evaluate()
    expected = trained_run.read_metrics()
    assert {split: set(values) for split, values in metrics.items()} == {
        split: set(values) for split, values in expected.items()
    }
    assert metrics == json.loads((run.folder / METRICS).read_text())
    seconds = json.loads((run.folder / RECORD).read_text())["seconds"]
    assert {"build", "train", "evaluate"} == set(seconds)
    assert str(run.folder / FITTED) in list_files(run.folder)
    assert not (run.folder / "vectors.safetensors").exists()
    assert len(show_examples(run)) == 3
    records = make_records(run.dataset, run.dataset.documents(MASKS["test"]).tolist())
    results = load(run.folder, device="cpu").predict(records, top_k=1)
    hits = [
        result["labels"][0]["id"] in record["label"]
        for record, result in zip(records, results, strict=True)
    ]
    assert sum(hits) / len(hits) == pytest.approx(metrics["test"]["P@1"])


def test_the_prior_measures_what_the_table_shows(start) -> None:
    """As the line "label prior" below a table."""
    run = start("prior")
    run.train()
    assert run.evaluate()["test"]["P@1"] == run.prior("test")["P@1"]


def test_a_linear_peer_is_fitted_once_and_the_same_each_time(start) -> None:
    """Neither evaluate nor train again changes what is there; another folder has the same bits."""
    run = start("tfidf_linear")
    run.train()
    run.evaluate()
    fitted = run.folder / FITTED / "tensors.safetensors"
    before = fitted.stat().st_mtime_ns
    start("tfidf_linear").train()
    assert fitted.stat().st_mtime_ns == before
    other = start("tfidf_linear", name="other")
    other.train()
    assert (other.folder / FITTED / "tensors.safetensors").read_bytes() == fitted.read_bytes()
    assert other.evaluate() == run.read_metrics()
    assert [path.name for path in run.folder.glob(".*")] == [LOCK]


def test_a_broken_fit_leaves_no_folder(start, monkeypatch) -> None:
    """What is there is whole."""
    run = start("prior")

    def fail(_self, _folder) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(BASELINES["prior"], "save", fail)
        run.train()
    assert not list(run.folder.glob(f"*{FITTED}*"))
    with pytest.raises(CheckpointError) as caught:
        run.evaluate()
    assert str(caught.value) == (
        f"A trained run of a baseline holds a folder 'baseline', but '{run.folder}' has none; "
        f"train it with `match-graph train synthetic --out {run.folder}`."
    )
    run.train()
    assert run.evaluate()["test"]


def test_only_training_labels_are_seen(start, monkeypatch) -> None:
    """Fitting asks for the labels of training documents and of no others."""
    run = start("tfidf_linear")
    seen = []
    original = type(run.dataset.targets).select

    def select(self, documents):
        seen.append(documents)
        return original(self, documents)

    monkeypatch.setattr(type(run.dataset.targets), "select", select)
    run.train()
    train = run.dataset.documents(MASKS["train"])
    assert torch.equal(torch.cat(seen).sort().values, train)


def test_a_baseline_of_ones_own(start, tmp_path: Path) -> None:
    """By package.module:Class, which must be named again to open the run."""
    run = start(OWN)
    run.train()
    assert run.evaluate()["test"]["P@1"] == run.prior("test")["P@1"]
    with pytest.raises(CheckpointError, match="code is imported only by request"):
        load(run.folder)
    classifier = load(run.folder, device="cpu", encoder=OWN)
    (result,) = classifier.predict([{"text": "w1 w2"}], top_k=1)
    best = rank_labels(run.load_model().baseline.count.unsqueeze(0), 1)
    assert result["labels"][0]["id"] == run.dataset.names("label")[int(best)]
    assert open_run(run.folder, tmp_path / "root", encoder=OWN).read_metrics()


def test_names_and_settings_are_checked_before_a_folder_is_made(start, tmp_path: Path) -> None:
    """All names are listed, encoders and baselines; settings are the baseline's own."""
    with pytest.raises(ConfigError) as caught:
        start("tfidf")
    assert str(caught.value) == (
        f"The encoder must be one of {sorted({**ENCODERS, **BASELINES})} or package.module:Class "
        f"naming a subclass of Encoder or Baseline, found 'tfidf'; check the name."
    )
    with pytest.raises(ConfigError) as caught:
        start("prior", "model.encoder_config={cost: 2.0}")
    assert str(caught.value) == (
        "model.encoder_config must be valid: 'cost' is not a setting; choose from []."
    )
    assert not (tmp_path / "run").exists()


def test_kinds_are_told_apart(start) -> None:
    """By class, not by name."""
    config = start("prior").config.model
    assert is_baseline(config)
    assert not is_baseline(config.model_copy(update={"encoder": "match"}))
    assert find_encoder(OWN) is CountingPrior
