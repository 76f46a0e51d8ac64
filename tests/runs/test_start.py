"""Runs on data in memory, on built folders and on classes of a user's own."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from match_graph.config import Config, load_config
from match_graph.corpus import Corpus
from match_graph.datasets import Synthetic, from_frames, from_hetero, open_dataset
from match_graph.errors import CheckpointError, CorpusError
from match_graph.graph import DropFields
from match_graph.io.run_folder import MODEL, SHARES, THRESHOLDS
from match_graph.runs import Run, open_run, start_run
from match_graph.runs.start import default_folder

SMALL = ["pretrain.samples=200", "pretrain.channels=8", "model.channels=8", "train.epochs=1"]


def make_config(*settings: str) -> Config:
    return load_config(settings=["model.encoder=prior", *settings])


@pytest.mark.parametrize("kind", ["corpus", "hetero", "dataset", "folder"])
def test_start_run_object_is_opened_again_by_its_folder(
    synthetic: Synthetic, tmp_path: Path, kind: str
) -> None:
    """A run on an object names its built folder, and is opened without the object."""
    data = synthetic[0].clone()
    every = torch.arange(data["document"].num_nodes)
    gold = torch.from_numpy(synthetic.targets.to_sparse(every).toarray()).nonzero().T
    data["document", "tagged", "label"].edge_index = gold  # of all splits
    sources = {
        "corpus": synthetic.read,
        "hetero": lambda: from_hetero(data, drop=["word"]),
        "dataset": lambda: synthetic,
        "folder": lambda: str(synthetic.built),
    }
    run = start_run(sources[kind](), make_config(), tmp_path / "run", tmp_path / "root")
    run.train()
    found = run.evaluate()
    assert (Path(run.config.dataset) / "targets/ptr.npy").is_file()
    assert Path(run.config.dataset).parent.name == "built"
    again = open_run(tmp_path / "run")
    assert again.evaluate() == found
    assert synthetic.transform is None


def test_start_run_test_documents_change_measures_alone(tmp_path: Path) -> None:
    """Test documents influence neither weights, features, blend nor validation measures."""

    def train(number: int) -> list[object]:
        rows = [
            {
                "id": f"d{n}", "split": ("train", "valid", "test")[max(0, n % 6 - 3)],
                "text": f"w{n % 3} w{n % 5} w{n % 4}", "label": [f"l{n % 2}", f"m{n % 3}"],
                "author": f"a{n % 4}", "reference": [f"d{n * 7 % 30}", f"d{n * 5 % 30}"],
                "date": f"20{10 + n}",
            }
            for n in range(30)
        ]  # fmt: skip
        for row in rows[5::6] if number else []:
            row |= {"text": f"{row['text'][3:]} new", "label": ["l1", "m2"], "author": "a0"}
            row |= {"reference": ["d0", "d11"], "date": "2001"}
        frame = pd.DataFrame(sorted(rows, key=lambda row: row["split"] != "train"))
        fields, columns = ["author", "reference"], {"split": "split", "date": "date"}
        corpus = from_frames(frame, fields=fields, columns=columns, hierarchy=[("l0", "m0")])
        given = ["model.encoder=hetero_sage", "model.blend=true", "train.logger=none"]
        given.append("data.features.document={latent: 3, neighbors: 2}")
        config = load_config(settings=[*SMALL, *given])
        run = start_run(corpus, config, tmp_path / str(number), tmp_path / "root")
        run.train()
        found = run.evaluate()
        assert found["test"]
        names = [MODEL, *(f"graph/{one}" for one in ("edges.safetensors", "author.parquet"))]
        names += [*(f"tokens/{one}.parquet" for one in ("word", "author")), SHARES, THRESHOLDS]
        return [found["valid"], *((run.folder / name).read_bytes() for name in names)]

    first, second = map(train, range(2))
    assert len(first) == 8
    assert first == second


def test_start_run_without_words_or_metadata(tmp_path: Path) -> None:
    """A graph of x and labels alone is pre-trained, trained and evaluated."""
    from torch_geometric.data import HeteroData

    data = HeteroData()
    data["paper"].y = torch.arange(60) % 3
    data["paper"].x = torch.eye(3)[data["paper"].y]
    data["paper", "cites", "paper"].edge_index = torch.randint(60, (2, 100))
    run = start_run(data, load_config(settings=SMALL), tmp_path / "run", tmp_path / "root")
    run.train()
    assert run.evaluate()["valid"]["P@1"] >= 0


def test_start_run_transform_is_refused_before_anything(
    synthetic: Synthetic, tmp_path: Path
) -> None:
    """A data set with a transform is refused before a folder is made."""
    dataset = open_dataset(synthetic.built, transform=DropFields(["author"]))
    with pytest.raises(CorpusError, match="has a transform"):
        start_run(dataset, make_config(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


OWN = """
from match_graph import CorpusDataset, LabelPrior
from match_graph.testing import toy_corpus

class Toys(CorpusDataset):
    def read(self):
        return toy_corpus()

class Mine(LabelPrior):
    pass
"""


@pytest.fixture
def own_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run with a data set and a baseline of a user's own file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    config = load_config(settings=["model.encoder=own.py:Mine"])
    run = start_run("own.py:Toys", config, root=tmp_path / "root")
    run.train()
    run.evaluate()
    return run


def test_open_run_own_classes_must_be_named_again(
    own_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call
) -> None:
    """Own data set and encoder must be named to open a run, by any path of their file."""
    place = f"{tmp_path}/own.py"
    assert own_run.config.dataset == f"{place}:Toys"
    assert own_run.config.model.encoder == f"{place}:Mine"
    assert own_run.shown == Path("runs/toys-own.Mine-seed0")
    assert default_folder("toys", own_run.config) == own_run.shown
    folder, root, metrics = own_run.folder.resolve(), tmp_path / "root", own_run.read_metrics()
    monkeypatch.chdir(tmp_path.parent)
    names = {"encoder": f"{place}:Mine", "dataset": f"{tmp_path.name}/own.py:Toys"}
    for kind in names:
        given = {key: name for key, name in names.items() if key != kind}
        with pytest.raises(CheckpointError, match=f"found {kind}=None; load it with {kind}='"):
            open_run(folder, root, **given)
    assert open_run(folder, root, **names).read_metrics() == metrics
    flags = [f"--{kind}={name}" for kind, name in names.items()]
    code, _, error = call("evaluate", folder, "--root", root, "--quiet", *flags)
    assert (code, error) == (0, "")
    code, _, error = call("evaluate", folder, "--root", root, "--quiet", flags[0])
    assert code == 1
    assert "was trained with the dataset" in error


def test_open_run_own_code_has_changed(own_run: Run, tmp_path: Path) -> None:
    """A run is refused where the code that made it has changed."""
    assert own_run.record.content["input_checksums"].keys() == {"model.encoder"}
    names = {"encoder": "own.py:Mine", "dataset": "own.py:Toys"}
    built = own_run.dataset.built
    (tmp_path / "own.py").write_text(f"{OWN}    offset = 1\n", encoding="utf-8")
    (tmp_path / "data.py").write_text(OWN, encoding="utf-8")
    with pytest.raises(CheckpointError, match="other data"):  # the file has the data set too
        open_run(own_run.folder, tmp_path / "root", **names)
    config = own_run.config.model_copy(update={"dataset": str(built)})
    run = start_run(str(built), config, "runs/built")
    (tmp_path / "own.py").write_text(f"{OWN}    offset = 2\n", encoding="utf-8")
    with pytest.raises(CheckpointError) as caught:
        open_run(run.folder, encoder="own.py:Mine")
    assert str(caught.value) == (
        "The run in 'runs/built' was made with another content of ['model.encoder'] than is there "
        "now; restore it, or make the run again (overwrite=True, --overwrite)."
    )
    start_run(str(built), config, "runs/built", overwrite=True)
    assert open_run(run.folder, encoder="own.py:Mine").folder == run.folder


def test_start_run_keeps_its_folder(
    toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run keeps its folder where the working directory changes."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    config = load_config(settings=["model.encoder=prior"])
    run = start_run(toy, config, folder="run", root=tmp_path / "root")
    assert run.shown == Path("run")
    monkeypatch.chdir(tmp_path / "elsewhere")
    run.train()
    metrics = run.evaluate()
    assert run.shown == run.folder == tmp_path / "run"
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert open_run(tmp_path / "run", tmp_path / "root").read_metrics() == metrics


def test_start_run_command_takes_built_folder_and_own_class(
    toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call
) -> None:
    """`run` and `build` take a built folder and an own class, or say what fails."""
    monkeypatch.chdir(tmp_path)
    built = open_dataset(toy, root=tmp_path / "root").built
    code, _, error = call("run", built, "--encoder", "prior", "--out", "run", "--quiet")
    assert (code, error) == (0, "")
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    code, printed, _ = call("build", "own.py:Toys", "--root", tmp_path / "root", "--quiet")
    assert code == 0
    assert "toys" in printed
    (tmp_path / "broken.py").write_text("import own\nx = 1 / 0\n", encoding="utf-8")
    code, _, error = call("build", "broken.py:Toys")
    assert (code, error) == (
        1,
        f"Error: The code of the data set 'broken.py:Toys' must be importable, but it raised "
        f"ZeroDivisionError: division by zero ({tmp_path}/broken.py:2); mend it.\n",
    )
