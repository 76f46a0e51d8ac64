"""Features of a run: joined, kept, and found for documents by id, by text, or given."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import match_graph as mg
from match_graph.config import load_config
from match_graph.datasets import Synthetic, from_frames
from match_graph.errors import CheckpointError, CorpusError, MatchGraphError
from match_graph.io.json_lines import describe
from match_graph.io.manifest import write_manifest
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import FEATURES, MODEL
from match_graph.runs import Run, open_run, start_run
from match_graph.typing import DOCUMENT, LABEL, MASKS

WIDTH = 6


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory, small_settings) -> dict[str, Path]:
    """Files of features by node type: shuffled by id, or of labels in their order."""
    folder = tmp_path_factory.mktemp("vectors")
    options = small_settings().data.options
    dataset = Synthetic(**options, root=folder / "root")
    generator = np.random.default_rng(0)
    paths = {}
    for node_type in (DOCUMENT, "venue"):
        names = dataset.names(node_type)
        x = generator.normal(size=(len(names), WIDTH)).astype(np.float16)
        frame = pd.DataFrame({"id": names, "x": list(x)})
        paths[node_type] = folder / f"{node_type}.parquet"
        frame.sample(frac=1, random_state=1).to_parquet(paths[node_type])
        paths[f"{node_type}-in-order"] = folder / f"{node_type}.npy"
        np.save(paths[f"{node_type}-in-order"], x)
    paths[LABEL] = folder / "label.npy"
    np.save(paths[LABEL], generator.normal(size=(dataset.num_labels, 3)).astype(np.float32))
    return paths


def settings_of(**sources: Path) -> list[str]:
    """Settings that name a file for each node type."""
    return [f"data.features.{node_type}={path}" for node_type, path in sources.items()]


@pytest.fixture(scope="module")
def make_run(tmp_path_factory: pytest.TempPathFactory, small_settings):
    """Trains and evaluates a run with features, in a second or two."""
    root = tmp_path_factory.mktemp("root")

    def make(*settings: str) -> Run:
        fixed = "pretrain.samples=1000", "train.precision=32-true", "train.accelerator=cpu"
        config = small_settings(*fixed, "train.epochs=1", "model.encoder_config={}", *settings)
        run = start_run("synthetic", config, tmp_path_factory.mktemp("runs") / "run", root)
        run.train()
        run.evaluate()
        return run

    return make


@pytest.fixture(scope="module")
def featured_run(make_run, vectors: dict[str, Path]) -> Run:
    """A run with features of documents, venues and labels."""
    return make_run(*settings_of(**{name: vectors[name] for name in (DOCUMENT, "venue", LABEL)}))


def test_join_features_order_of_rows_changes_nothing(
    make_run, featured_run: Run, vectors: dict[str, Path]
) -> None:
    """Rows in another order, with their ids, give equal measures; other vectors do not."""
    named = {name: vectors[f"{name}-in-order"] for name in (DOCUMENT, "venue")}
    other = make_run(*settings_of(**named, label=vectors[LABEL]))
    assert other.read_metrics() == featured_run.read_metrics()
    assert make_run().read_metrics() != featured_run.read_metrics()


def test_start_run_keeps_features_in_memory(
    featured_run: Run, vectors: dict[str, Path], tmp_path: Path, small_settings
) -> None:
    """A frame and a tensor give the measures of their files, and are kept for opening."""
    arrays = {
        DOCUMENT: pd.read_parquet(vectors[DOCUMENT]),
        "venue": torch.from_numpy(np.load(vectors["venue-in-order"])),
        LABEL: np.load(vectors[LABEL]),
    }
    fixed = "pretrain.samples=1000", "train.precision=32-true", "train.accelerator=cpu"
    config = small_settings(*fixed, "train.epochs=1", "model.encoder_config={}")
    root = featured_run.dataset.root
    run = start_run("synthetic", config, tmp_path / "run", root, features=arrays)
    run.train()
    assert run.evaluate() == featured_run.read_metrics()
    assert open_run(run.folder, root).origin == run.origin
    arrays["venue"][0, 0] = torch.nan
    with pytest.raises(CorpusError, match="Features must be finite"):
        start_run("synthetic", config, tmp_path / "other", root, features=arrays)
    assert not (tmp_path / "other").exists()


def test_start_run_features_must_be_by_node_type(
    featured_run: Run, tmp_path: Path, small_settings
) -> None:
    """A frame without a node type is refused."""
    frame = pd.DataFrame({"x": [1.0]}, index=["p1"])
    root = featured_run.dataset.root
    with pytest.raises(CorpusError) as caught:
        start_run("synthetic", small_settings(), tmp_path / "run", root, features=frame)
    assert str(caught.value) == (
        "Features must be given by node type, found DataFrame; write features={'document': ...}."
    )


def test_start_run_warns_of_features_that_nothing_reads(
    vectors: dict[str, Path], tmp_path: Path, small_settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Features of labels are warned of where the head does not read them."""
    config = small_settings(
        "model.encoder_config={}", *settings_of(label=vectors[LABEL], document=vectors[DOCUMENT])
    )
    start_run("synthetic", config, tmp_path / "run", tmp_path / "root", reporter=Reporter(True))
    warned = capsys.readouterr().err
    assert "warning: features of ['label'] are read by no part of this model" in warned


def test_write_features_links_what_the_run_needs(featured_run: Run) -> None:
    """Each file is a hard link in the order of the graph, with a checksum in the record."""
    data = featured_run.dataset[0]
    for node_type in (DOCUMENT, "venue", LABEL):
        path = featured_run.folder / FEATURES / f"{node_type}.npy"
        assert np.array_equal(np.load(path), data[node_type].x.numpy())
        assert path.stat().st_nlink > 1
    assert featured_run.record.content["feature_checksums"].keys() == {DOCUMENT, "venue", LABEL}
    with safe_open(featured_run.folder / MODEL, "pt") as weights:
        assert "embedding.document.linear.weight" in weights.keys()  # noqa: SIM118
        assert not [name for name in weights.keys() if "rows" in name]  # noqa: SIM118


def assert_same_labels(found: list[dict], expected: list[dict]) -> None:
    """Compares the probability of each label up to rounding."""
    for one, other in zip(found, expected, strict=True):
        chances = [
            {label["id"]: label["probability"] for label in each["labels"]} for each in (one, other)
        ]
        assert chances[0] == pytest.approx(chances[1], rel=1e-4)


def test_KnownFeatures_of_documents_are_found_by_id(featured_run: Run) -> None:
    """Features are found by id in any order, and equal those given with the document."""
    classifier = mg.load(featured_run.folder, device="cpu")
    documents = featured_run.dataset.documents("test_mask")[:9]
    objects = featured_run.dataset.as_json(documents.tolist())
    found = list(classifier.predict(objects, top_k=24))
    backwards = list(classifier.predict(objects[::-1], top_k=24))[::-1]
    assert_same_labels(backwards, found)
    x = featured_run.dataset[0][DOCUMENT].x[documents].float()
    kinds = [torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.clone]
    given = [
        {**one, "paper": f"new {number}", "x": kinds[number % 3](row)}
        for number, (one, row) in enumerate(zip(objects, x, strict=True))
    ]
    assert_same_labels(list(classifier.predict(given, top_k=24)), found)


@pytest.mark.parametrize("encoder", ["hetero_sage", "xml_cnn", "mesh_probe_net"])
def test_KnownFeatures_serve_every_encoder(
    make_run, vectors: dict[str, Path], encoder: str
) -> None:
    """Predictions equal evaluation, also where neighbours bring their features."""
    features = settings_of(**{name: vectors[name] for name in (DOCUMENT, "venue")})
    run = make_run(f"model.encoder={encoder}", *features)
    classifier = mg.load(run.folder, device="cpu")
    model = run.finish_model(run.load_model().eval())
    documents = run.dataset.documents("test_mask")[:7]
    records = [classifier.read(one, "here") for one in run.dataset.as_json(documents.tolist())]
    expected: dict[int, Tensor] = {}
    with torch.no_grad():
        for batch in run.loader("test"):
            expected.update(zip(batch.document.tolist(), model(batch), strict=True))
    for rows, logits in classifier.score(records):
        for row, found in zip(rows.tolist(), logits, strict=True):
            torch.testing.assert_close(found, expected[int(documents[row])], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "source",
    [
        "{{model: {model}, column: text}}",
        "{{model: {model}, neighbors: 3}}",
        "{{latent: 8}}",
        "{{latent: 8, neighbors: 3}}",
    ],
)
def test_KnownFeatures_are_made_of_text(make_run, sentence_model: Path, source: str) -> None:
    """Features of a new document are computed from its text, unless they are given."""
    run = make_run(f"data.features.document={source.format(model=sentence_model)}")
    classifier = mg.load(run.folder, device="cpu")
    (known,) = run.dataset.as_json([int(run.dataset.documents("test_mask")[0])])
    new = {name: value for name, value in known.items() if name != "paper"}
    expected, found = classifier.predict([known, new], top_k=24)
    assert found["labels"] == expected["labels"]
    width = run.dataset[0][DOCUMENT].x.size(1)
    (given,) = classifier.predict([{**new, "x": [9.0] * width}], top_k=24)
    assert given["labels"] != expected["labels"]


def test_KnownFeatures_of_a_language_model_without_a_cache(
    make_run, sentence_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions are the same where no cache can be written."""
    run = make_run(f"data.features.document={{model: {sentence_model}, column: [id, text]}}")
    known = run.dataset.as_json(run.dataset.documents("test_mask")[:3].tolist())
    expected = list(mg.load(run.folder, device="cpu").predict(known))
    (tmp_path / "file").touch()
    monkeypatch.setenv("MATCH_GRAPH_HOME", str(tmp_path / "file" / "home"))
    assert list(mg.load(run.folder, device="cpu").predict(known)) == expected


def test_KnownFeatures_of_a_language_model_that_has_changed(
    make_run, sentence_model: Path, tmp_path: Path
) -> None:
    """A language model that has changed since the training is refused."""
    model = Path(shutil.copytree(sentence_model, tmp_path / "model"))
    run = make_run(f"data.features.document={{model: {model}}}")
    weights = next(model.rglob("*.safetensors"))
    changed = {name: value + 1 for name, value in load_file(weights).items()}
    save_file(changed, weights, metadata={"format": "pt"})
    classifier = mg.load(run.folder, device="cpu")
    with pytest.raises(CheckpointError) as caught:
        list(classifier.predict([{"text": "w1"}]))
    assert str(caught.value) == (
        f"A run must predict with the language model that made its features, but '{model}' has "
        f"another content than when '{run.folder}' was trained; restore it, or give 'x' with every "
        f"document."
    )


def test_KnownFeatures_of_columns_that_no_request_has(make_run, sentence_model: Path) -> None:
    """Features of other columns are found by id; a new document must bring its own."""
    run = make_run(f"data.features.document={{model: {sentence_model}, column: [split, text]}}")
    classifier = mg.load(run.folder, device="cpu")
    (known,) = run.dataset.as_json([int(run.dataset.documents("test_mask")[0])])
    x = run.dataset[0][DOCUMENT].x[run.dataset.documents("test_mask")[0]].tolist()
    by_id, given = classifier.predict([known, {**known, "paper": "new", "x": x}])
    assert by_id["labels"] == given["labels"]
    with pytest.raises(CorpusError, match="has no id and no vector; give it 'x', a list of 8"):
        list(classifier.predict([{"text": "w1"}]))


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (
            {"paper": "strange"},
            "Each document must have the features that the run was trained with, but document 2 "
            "has the unknown id 'strange' and no vector; give it 'x', a list of 6 numbers.",
        ),
        (
            {},
            "Each document must have the features that the run was trained with, but document 2 "
            "has no id and no vector; give it 'x', a list of 6 numbers.",
        ),
        (
            {"x": [1, 2]},
            "The documents must be readable: document 2: 'x' must be a list of 6 numbers, found 2.",
        ),
        (
            {"x": "1 2 3"},
            "The documents must be readable: document 2: 'x' must be a list of 6 "
            'numbers, found the string "1 2 3".',
        ),
        (
            {"x": [1, 2, 3, 4, 5, float("nan")]},
            "The documents must be readable: document 2: 'x' must hold finite numbers "
            "of 32 bits, found the number NaN.",
        ),
        (
            {"x": [1, 2, 3, 4, 5, 1e300]},
            "The documents must be readable: document 2: 'x' must hold finite numbers "
            "of 32 bits, found the number 1e+300.",
        ),
        (
            {"x": [1, 2, 3, 4, 5, 10**400]},
            f"The documents must be readable: document 2: 'x' must hold finite numbers "
            f"of 32 bits, found {describe(10**400)}.",
        ),
    ],
)
def test_KnownFeatures_new_document_without_a_vector(
    featured_run: Run, given: dict[str, object], fault: str
) -> None:
    """A new document without features is named before anything is computed."""
    classifier = mg.load(featured_run.folder, device="cpu")
    (known,) = featured_run.dataset.as_json([0])
    with pytest.raises(CorpusError) as caught:
        list(classifier.predict([known, {"text": "w1", **given}]))
    assert str(caught.value) == fault


def test_KnownFeatures_take_vectors_as_python_has_them(featured_run: Run) -> None:
    """Features may be lists, arrays, NumPy numbers or tensors, not sparse ones."""
    classifier = mg.load(featured_run.folder, device="cpu")
    x = np.arange(6, dtype=np.float32) / 8
    forms = [x.tolist(), x, [*x], [*x.astype(np.float16)], torch.from_numpy(x)]
    found = list(classifier.predict([{"text": "w1", "x": one} for one in forms]))
    assert all(one["labels"] == found[0]["labels"] for one in found)
    with pytest.raises(CorpusError, match="'x' must be a list of 6 numbers, found a Tensor"):
        list(classifier.predict([{"text": "w1", "x": torch.from_numpy(x).to_sparse()}]))


def test_KnownFeatures_find_neighbours_up_to_a_time(tmp_path: Path) -> None:
    """Documents have the features of evaluation, also where neighbours must be earlier."""
    rows = [
        {
            "id": f"d{n}", "text": f"w{n % 3} w{n % 4} w{n % 5}", "label": f"l{n % 2}",
            "split": ("train", "valid", "test")[max(0, n % 5 - 2)], "date": f"20{10 + n}",
        }
        for n in range(20)
    ]  # fmt: skip
    corpus = from_frames(pd.DataFrame(rows), columns={"split": "split", "date": "date"})
    given = "{latent: 3, neighbors: 5, earlier: true}"
    settings = ["model.encoder=tfidf_linear", f"data.features.document={given}"]
    run = start_run(corpus, load_config(None, settings), tmp_path / "run", tmp_path / "root")
    run.train()
    is_train = run.dataset.graph.node_tensor(DOCUMENT, MASKS["train"])
    others = (~is_train).nonzero().view(-1)
    records = run.dataset.as_json(others.tolist())
    classifier = mg.load(run.folder, device="cpu")
    x = run.dataset.graph.node_tensor(DOCUMENT, "x")[others].float()

    def find(records: list[dict[str, Any]]) -> Tensor:
        found = classifier.features.find([classifier.read(one, "here") for one in records])
        assert found is not None
        return found

    assert torch.equal(find(records), x)
    late = [{**one, "time": 10**9} for one in records]
    timeless = [{name: one[name] for name in ("paper", "text")} for one in records]
    assert torch.equal(find(timeless), find(late))
    assert not torch.allclose(find(late), x, atol=1e-2)


def test_KnownFeatures_refuse_what_makes_others(make_run) -> None:
    """Text vectors that are missing or of another run are refused."""
    run, other = (make_run(f"data.features.document={{latent: {size}}}") for size in (8, 4))
    (known,) = run.dataset.as_json([0])
    made = [one.folder / FEATURES / "document.safetensors" for one in (run, other)]
    shutil.copyfile(made[1], run.folder / "other")
    (run.folder / "other").replace(made[0])
    write_manifest(run.folder)
    with pytest.raises(CheckpointError, match="makes 4 features and the run has 8; delete it"):
        list(mg.load(run.folder, device="cpu").predict([known]))
    made[0].unlink()
    with pytest.raises(CheckpointError, match=r"document\.safetensors"):
        list(mg.load(run.folder, device="cpu").predict([known]))


def test_open_run_refuses_other_features(
    make_run, vectors: dict[str, Path], tmp_path: Path
) -> None:
    """Changed features are refused, and a missing file is named."""
    path = tmp_path / "venue.npy"
    shutil.copyfile(vectors["venue-in-order"], path)
    run = make_run(*settings_of(venue=path))
    open_run(run.folder, run.dataset.root)
    np.save(path, np.load(path) + np.float16(1))
    with pytest.raises(CheckpointError) as caught:
        open_run(run.folder, run.dataset.root)
    assert str(caught.value) == (
        f"The run in '{run.folder}' was made with other features of ['venue'] than data.features "
        f"gives now; restore them, or make the run again (overwrite=True, --overwrite)."
    )
    path.unlink()
    with pytest.raises(MatchGraphError, match=r"venue\.npy"):
        open_run(run.folder, run.dataset.root)


def test_read_features_refuses_what_is_no_matrix(featured_run: Run, tmp_path: Path) -> None:
    """A damaged or missing file of features is named, with a remedy."""
    folder = tmp_path / "run"
    shutil.copytree(featured_run.folder, folder)
    np.save(folder / FEATURES / "venue.npy", np.arange(3))
    with pytest.raises(CheckpointError, match="A run keeps the features of its nodes"):
        mg.load(folder)
    (folder / FEATURES / "venue.npy").unlink()
    with pytest.raises(CheckpointError, match=r"venue\.npy' cannot be used \(it is missing"):
        mg.load(folder)
