"""Calibration: who is scaled by what, when it is kept, and refused files."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from match_graph.errors import CheckpointError
from match_graph.io.files import read_tensors, remove_files, write_tensors
from match_graph.io.run_folder import CALIBRATION, METRICS
from match_graph.metrics import PlattScaling, PlattSearch
from match_graph.predict import load
from match_graph.predict.evidence import DocumentEvidence
from match_graph.runs import Run, finish, open_run
from match_graph.runs.calibration import (
    CalibratedModel,
    Validation,
    assign_folds,
    fit_calibration,
    write_calibration,
)
from match_graph.runs.readers import read_calibration
from match_graph.runs.vocabulary import read_document
from match_graph.training.evaluate import evaluate_model
from match_graph.typing import MASKS


def make_scaling(num_labels: int, num_folds: int = 2) -> PlattScaling:
    """A calibration with its own scale and shift for every label and fold."""
    generator = torch.Generator().manual_seed(0)
    shape = num_folds, num_labels
    return PlattScaling(
        scale=torch.rand(num_labels, generator=generator) + 0.5,
        shift=torch.randn(num_labels, generator=generator),
        fold_scale=torch.rand(shape, generator=generator) + 0.5,
        fold_shift=torch.randn(shape, generator=generator),
        width=0.4,
        before=2.0,
        after=1.5,
    )


@pytest.fixture(scope="module")
def from_few():
    """Calibrates runs from the 40 validation documents of the small corpus."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "_MIN_DOCUMENTS", 40)
        yield


@pytest.fixture(scope="module")
def scaled_run(from_few, make_variant) -> Run:
    """A run with calibrated scores."""
    settings = ("model.init=random", "model.blend=false", "model.coherent=false")
    return make_variant("scaled", *settings)


class Inflated(nn.Module):
    """A model with far too high scores of its first label."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch):
        logits = self.model(batch)
        return logits + 4.0 * (torch.arange(logits.size(1)) == 0)


def valid_of(run: Run) -> Validation:
    documents = run.dataset.documents(MASKS["valid"])
    fold = assign_folds(documents, run.dataset[0]["document"].num_nodes, 5)
    return Validation(run.loader("valid"), fold)


def test_assign_folds_are_runs_of_documents_of_nearly_one_size() -> None:
    """Folds are consecutive documents of nearly equal number; others are in fold 0."""
    fold = assign_folds(torch.tensor([1, 2, 5, 6, 7, 8, 10]), 12, 3)
    assert fold.tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 2, 0]
    assert assign_folds(torch.tensor([], dtype=torch.int64), 2, 3).tolist() == [0, 0]


def test_CalibratedModel_scores_scaled_by_all_or_by_other_folds(trained_run: Run) -> None:
    """Scores above -8 follow the formula, by the fold of each document."""
    model = trained_run.load_model().eval()
    calibration, valid = make_scaling(trained_run.dataset.num_labels), valid_of(trained_run)
    fold = valid.fold % 2
    for batch in trained_run.loader("valid"):
        with torch.no_grad():
            logits = model(batch).clamp(min=-7.5)
            rest = [
                CalibratedModel(model, calibration),
                CalibratedModel(model, calibration, fold),
            ]
            found = [one(batch) for one in rest]
        own = fold[batch.document]
        scales = [calibration.scale, calibration.fold_scale[own]]
        shifts = [calibration.shift, calibration.fold_shift[own]]
        above = model(batch) >= -7.5
        for one, scale, shift in zip(found, scales, shifts, strict=True):
            torch.testing.assert_close(one[above], (scale * logits + shift)[above])


@pytest.mark.gpu
def test_CalibratedModel_scores_are_scaled_where_they_are(trained_run: Run) -> None:
    """Scores on a GPU are scaled as on the CPU, by folds."""
    calibration = make_scaling(trained_run.dataset.num_labels)
    fold = valid_of(trained_run).fold % 2
    batch = next(iter(trained_run.loader("valid")))
    found = []
    for device in ("cpu", "cuda"):
        model = trained_run.load_model().eval().to(device)
        with torch.no_grad():
            found.append(CalibratedModel(model, calibration, fold)(batch.to(device)).cpu())
    torch.testing.assert_close(found[0], found[1], atol=1e-3, rtol=1e-3)


def test_CalibratedModel_what_model_is_too_sure_of_is_put_right(trained_run: Run) -> None:
    """A label inflated by 4 is calibrated, which improves test documents too."""
    model = Inflated(trained_run.finish_model(trained_run.load_model()))
    number = trained_run.dataset.num_labels
    calibration, before, after = fit_calibration(model, number, 5, valid_of(trained_run))
    assert calibration.width > 0
    assert after > before
    assert float(calibration.shift[0]) < -0.5
    hierarchy = trained_run.dataset.hierarchy
    measures = [
        evaluate_model(one, trained_run.loader("test"), hierarchy)
        for one in (model, CalibratedModel(model, calibration))
    ]
    assert measures[1]["NDCG@5"] > measures[0]["NDCG@5"]


def test_Validation_ndcg_is_that_of_evaluate_model(
    trained_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NDCG@5 equals evaluate_model's, without the cost of counting violations."""
    model, valid = trained_run.load_model(), valid_of(trained_run)
    hierarchy = trained_run.dataset.hierarchy
    expected = evaluate_model(model, trained_run.loader("valid"), hierarchy)["NDCG@5"]
    monkeypatch.setattr("match_graph.metrics.hierarchical.torch.sigmoid", None)
    assert valid.ndcg(model) == expected


def test_Validation_ndcg_sums_scores_over_processes(trained_run: Run) -> None:
    """Scores are summed over processes: documents of both count twice."""
    model, valid = trained_run.load_model(), valid_of(trained_run)
    single, both = (PlattSearch(trained_run.dataset.num_labels) for _ in range(2))
    valid.ndcg(model, single)
    replace(valid, total=lambda counts: 2 * counts).ndcg(model, both)
    for name, counts in single.state().items():
        assert torch.equal(both.state()[name], 2 * counts), name


def test_fit_calibration_scaling_that_ranks_worse_is_not_kept(
    trained_run: Run, monkeypatch
) -> None:
    """A calibration that lowers held-out NDCG is dropped, whatever its loss."""
    number = trained_run.dataset.num_labels
    compute = PlattSearch.compute

    def spoil(search: PlattSearch) -> PlattScaling:
        ones, fold_shift = torch.ones(number), torch.linspace(-9, 9, number).expand(5, -1)
        found = compute(search)
        return replace(found, fold_shift=fold_shift, scale=ones, shift=ones, width=0.4)

    monkeypatch.setattr(PlattSearch, "compute", spoil)
    model = trained_run.load_model()
    calibration, before, after = fit_calibration(model, number, 5, valid_of(trained_run))
    assert after < before
    assert calibration.width == 0
    assert calibration.after == calibration.before
    logits = torch.randn(3, number)
    assert torch.equal(calibration(logits), logits)
    assert torch.equal(calibration(logits, torch.tensor([0, 4, 1])), logits)


def test_write_calibration_training_writes_and_prediction_reads(
    scaled_run: Run, tmp_path: Path
) -> None:
    """Training writes the file, and another one changes the predictions."""
    number = scaled_run.dataset.num_labels
    found = read_calibration(scaled_run.folder, number)
    assert found is not None
    assert found.fold_scale.shape == (5, number)
    folder = tmp_path / "run"
    shutil.copytree(scaled_run.folder, folder)
    document = [{"text": "w1 w2 w3", "venue": [], "author": [], "reference": []}]
    before = load(folder, "cpu").predict(document, top_k=number)[0]
    write_calibration(folder, make_scaling(number))
    after = load(folder, "cpu").predict(document, top_k=number)[0]
    raw = load_without(folder).predict(document, top_k=number)[0]
    chances = {one["id"]: one["probability"] for one in raw["labels"]}
    names = scaled_run.dataset.names("label").tolist()
    logits = torch.logit(torch.tensor([[chances[name] for name in names]], dtype=torch.float64))
    expected = torch.sigmoid(make_scaling(number)(logits))[0]
    given = {one["id"]: one["probability"] for one in after["labels"]}
    assert [given[name] for name in names] == pytest.approx(expected.tolist(), abs=1e-4)
    assert before != after


def load_without(folder: Path):
    """The classifier of a copy of a run without its calibration."""
    other = folder.with_name("without")
    shutil.copytree(folder, other)
    remove_files(other / CALIBRATION)
    return load(other, "cpu")


def test_open_run_without_it_is_scaled_when_it_is_evaluated(
    scaled_run: Run, tmp_path: Path
) -> None:
    """A missing calibration is fitted again, with the same file and measures."""
    folder = tmp_path / "run"
    shutil.copytree(scaled_run.folder, folder)
    (folder / CALIBRATION).unlink()
    run = open_run(folder, scaled_run.dataset.root)
    run.evaluate()
    assert (folder / CALIBRATION).read_bytes() == (scaled_run.folder / CALIBRATION).read_bytes()
    metrics = [json.loads((one / METRICS).read_text()) for one in (folder, scaled_run.folder)]
    assert metrics[0] == metrics[1]


def test_load_without_calibration_scores_stay(from_few, make_variant, trained_run: Run) -> None:
    """Scores stay by setting, or where validation documents are too few."""
    settings = ("train.calibrate=false", "model.blend=false", "model.coherent=false")
    plain = make_variant("plain", "model.init=random", "train.epochs=1", *settings)
    assert not plain.is_calibrated
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "_MIN_DOCUMENTS", 41)
        assert not trained_run.is_calibrated
        patch.setattr(finish, "_MIN_DOCUMENTS", 40)
        few = trained_run.config.change("train", valid_documents=39)
        assert trained_run.is_calibrated
        assert not replace(trained_run, config=few).is_calibrated
        model = plain.load_model()
        assert plain.finish_model(model) is model
    for run in (plain, trained_run):
        assert not (run.folder / CALIBRATION).exists()
        assert load(run.folder, "cpu").calibration is None


def test_CalibratedModel_measures_are_of_scaled_scores(scaled_run: Run) -> None:
    """Test is calibrated by all validation documents, each of valid by the other folds."""
    metrics = json.loads((scaled_run.folder / METRICS).read_text())
    hierarchy, model = scaled_run.dataset.hierarchy, scaled_run.load_model()
    calibration = read_calibration(scaled_run.folder, scaled_run.dataset.num_labels)
    assert calibration is not None
    valid = valid_of(scaled_run)
    for split, fold in (("valid", valid.fold), ("test", None)):
        scaled = CalibratedModel(model, calibration, fold)
        measures = evaluate_model(scaled, scaled_run.loader(split), hierarchy)
        assert {name: metrics[split][name] for name in measures} == pytest.approx(measures)


def test_read_calibration_baseline_is_scaled_too(from_few, make_variant) -> None:
    """A baseline is calibrated as a network is."""
    run = make_variant("linear", "model.encoder=tfidf_linear")
    assert read_calibration(run.folder, run.dataset.num_labels) is not None
    assert load(run.folder, "cpu").calibration is not None


def test_write_calibration_scales_linear_additions(
    from_few, trained_run: Run, tmp_path: Path
) -> None:
    """Additions of the linear classifier are multiplied by the label's scale."""
    record = {"paper": "new", "text": "w1 w2 w3", "venue": [], "author": [], "reference": []}
    number, labels = trained_run.dataset.num_labels, torch.tensor([2, 0])
    calibration, added = make_scaling(number), []
    for name in ("before", "after"):
        folder = tmp_path / name
        shutil.copytree(trained_run.folder, folder)
        write_calibration(folder, calibration if name == "after" else calibration.undo())
        classifier = load(folder, "cpu")
        linear = DocumentEvidence(classifier, read_document(record, [], "here")).weigh_linear(
            labels
        )
        assert linear is not None
        added.append(linear.of_words)
    assert added[0].abs().sum() > 0
    torch.testing.assert_close(added[1], added[0] * calibration.scale[labels])


def test_write_calibration_what_was_written_is_read(tmp_path: Path) -> None:
    """All tensors and numbers are read back."""
    calibration = make_scaling(4)
    write_calibration(tmp_path, calibration)
    found = read_calibration(tmp_path, 4)
    assert found is not None
    for name in ("scale", "shift", "fold_scale", "fold_shift"):
        assert torch.equal(getattr(found, name), getattr(calibration, name))
    assert (found.width, found.before, found.after) == (0.4, 2.0, 1.5)
    assert read_calibration(tmp_path / "empty", 4) is None


def test_write_calibration_other_files_are_one_sentence(tmp_path: Path) -> None:
    """Files of other labels or tensors are refused in one sentence."""
    write_calibration(tmp_path, make_scaling(4))
    path = tmp_path / CALIBRATION
    with pytest.raises(CheckpointError) as caught:
        read_calibration(tmp_path, 5)
    assert str(caught.value) == (
        f"'{path}' must hold a scale and a shift for each label of the run, but it cannot be used "
        f"(it is of 4 labels, not 5); delete it and write it again with `match-graph evaluate`."
    )
    write_tensors(path, {"scale": torch.ones(4)})
    with pytest.raises(CheckpointError, match=r"\(it holds \['scale'\]\)"):
        read_calibration(tmp_path, 4)
    path.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="must be a safetensors file"):
        read_calibration(tmp_path, 4)


def test_load_deleted_scaling_is_missed_by_predictions(scaled_run: Run, tmp_path: Path) -> None:
    """A deleted calibration is refused, as predictions would silently be worse."""
    folder = Path(shutil.copytree(scaled_run.folder, tmp_path / "run"))
    (folder / CALIBRATION).unlink()
    with pytest.raises(CheckpointError) as caught:
        load(folder, "cpu")
    assert str(caught.value) == (
        f"A run must have all of its files, but '{folder / CALIBRATION}' cannot be used (it is "
        f"missing, though manifest.json lists it); restore it, or start the run again with "
        f"--overwrite."
    )


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("scale", torch.zeros(4), "a scale or the width is not positive"),
        ("width", torch.tensor(-1.0), "a scale or the width is not positive"),
        ("shift", torch.zeros(1, 4), "its tensors have other shapes or types"),
        ("fold_shift", torch.zeros(3, 4), "its tensors have other shapes or types"),
        ("before", torch.zeros(2), "its tensors have other shapes or types"),
        ("scale", torch.ones(4, dtype=torch.int64), "its tensors have other shapes or types"),
    ],
)
def test_write_calibration_read_scaling_refuses_other_tensors(
    tmp_path: Path, name: str, value: torch.Tensor, reason: str
) -> None:
    """Wrong shapes, types and signs are refused."""
    write_calibration(tmp_path, make_scaling(4))
    tensors = read_tensors(tmp_path / CALIBRATION)
    write_tensors(tmp_path / CALIBRATION, {**tensors, name: value})
    with pytest.raises(CheckpointError, match=reason):
        read_calibration(tmp_path, 4)
