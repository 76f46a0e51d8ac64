"""Blends: the shares of network and linear classifier, and refused files."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from match_graph.errors import CheckpointError
from match_graph.graph import EgoBatch
from match_graph.io.files import remove_files
from match_graph.io.run_folder import BLEND, FITTED, METRICS, RECORD, SHARES
from match_graph.metrics import Blend, BlendSearch
from match_graph.predict import load
from match_graph.runs import Run, open_run
from match_graph.runs.blend import (
    BlendedModel,
    find_linear_model,
    fit_blend,
    load_linear,
    write_blend,
)
from match_graph.runs.calibration import Validation, assign_folds
from match_graph.runs.readers import read_blend
from match_graph.training.evaluate import evaluate_model
from match_graph.typing import MASKS


@pytest.fixture(scope="module")
def blended_run(make_variant) -> Run:
    """A run whose network is blended with a linear classifier."""
    settings = ("model.init=random", "model.blend=true", "model.coherent=false")
    return make_variant("blended", *settings)


def linear_of(run: Run):
    return load_linear(run.folder, run.config, run.space, run.dataset.num_labels)


def folds_of(run: Run) -> torch.Tensor:
    documents = run.dataset.documents(MASKS["valid"])
    return assign_folds(documents, run.dataset.graph.num_nodes("document"), 5)


def test_BlendedModel_is_the_mean_of_both(blended_run: Run) -> None:
    """Logits are weighted by the share of all documents, or of the document's fold."""
    network, linear = blended_run.load_model().eval(), linear_of(blended_run)
    fold = folds_of(blended_run)
    blend = Blend(0.25, torch.arange(5) / 5)
    for batch in blended_run.loader("valid"):
        with torch.no_grad():
            expected = blend(network(batch), linear(batch), fold[batch.document])
            found = BlendedModel(network, linear, blend, fold)(batch)
            torch.testing.assert_close(found, expected)
            whole = 0.25 * network(batch) + 0.75 * linear(batch)
            torch.testing.assert_close(BlendedModel(network, linear, blend)(batch), whole)


@pytest.mark.gpu
def test_BlendedModel_on_a_gpu(blended_run: Run) -> None:
    """A network on a GPU is blended as on the CPU, where the linear classifier stays."""
    blend, linear = Blend(0.5, torch.arange(5) / 5), linear_of(blended_run)
    batch = next(iter(blended_run.loader("valid")))
    found = []
    for device in ("cpu", "cuda"):
        network = blended_run.load_model().eval().to(device)
        model = BlendedModel(network, linear, blend, folds_of(blended_run))
        with torch.no_grad():
            found.append(model(batch.to(device)).cpu())
    torch.testing.assert_close(found[0], found[1], atol=1e-3, rtol=1e-3)


class Scorer(nn.Module):
    """Scores label 5 by a value of each document, labels 0 to 4 by its negative."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = value

    def forward(self, batch: EgoBatch) -> Tensor:
        value = self.value[batch.document].unsqueeze(1)
        return torch.cat([-value.expand(-1, 5), value], dim=1)


def make_batch(document: Tensor) -> EgoBatch:
    """Documents without tokens, each with label 5."""
    ptr, empty = torch.arange(len(document) + 1), torch.zeros(0, dtype=torch.int64)
    label = torch.full_like(document, 5)
    return EgoBatch(document, empty, empty, empty, torch.zeros_like(ptr), ptr, label)


def test_fit_blend_favours_the_model_that_is_right() -> None:
    """Each fold's share favours the model that is right on the other fold's documents."""
    fold = torch.tensor([1] * 3 + [0] * 6)
    network, linear = Scorer(1.0 - 2 * fold), Scorer(2.0 * fold - 1)
    batches = [make_batch(part) for part in torch.arange(9).split(3)]
    batches += 3 * [replace(batches[0], share=0.0)]  # of another process
    search, doubled = BlendSearch(2), BlendSearch(2)
    blend = fit_blend(network, linear, search, Validation(batches, fold))
    assert blend.share == 0.6
    assert blend.fold_share.tolist() == pytest.approx([0.4, 0.6])
    fit_blend(network, linear, doubled, Validation(batches, fold, total=lambda sums: 2 * sums))
    assert torch.equal(doubled.state()["sums"], 2 * search.state()["sums"])


def test_fit_blend_is_what_training_writes(blended_run: Run) -> None:
    """Training writes the fitted shares, also into the record."""
    network, linear = blended_run.load_model(), linear_of(blended_run)
    valid = Validation(blended_run.loader("valid"), folds_of(blended_run))
    with blended_run.fabric.autocast():
        found = fit_blend(network, linear, BlendSearch(5), valid)
    written = read_blend(blended_run.folder)
    assert written is not None
    assert written.share == found.share
    assert torch.equal(written.fold_share, found.fold_share)
    record = json.loads((blended_run.folder / RECORD).read_text())
    assert record["network_share"] == found.share
    assert record["metadata_weight"] == linear_of(blended_run).features.metadata_weight
    assert record["seconds"]["blend"] > 0


def test_BlendedModel_measures_are_of_blended_scores(blended_run: Run) -> None:
    """Test is blended by all validation documents, each of valid by the other folds."""
    metrics = json.loads((blended_run.folder / METRICS).read_text())
    network, linear = blended_run.load_model(), linear_of(blended_run)
    blend, hierarchy = read_blend(blended_run.folder), blended_run.dataset.hierarchy
    assert blend is not None
    for split, fold in (("valid", folds_of(blended_run)), ("test", None)):
        model = BlendedModel(network, linear, blend, fold)
        measures = evaluate_model(model, blended_run.loader(split), hierarchy)
        assert {name: metrics[split][name] for name in measures} == pytest.approx(measures)


def test_find_linear_model_weighs_metadata(blended_run: Run, make_variant) -> None:
    """The weight of metadata is chosen on training documents, unless it is set."""
    assert linear_of(blended_run).features.metadata_weight in (0.25, 0.5, 1, 2)
    run = make_variant(
        "weighed", "model.init=random", "model.blend=true", "model.blend_metadata_weight=3"
    )
    assert linear_of(run).features.metadata_weight == 3
    alike = run.config.change("model", blend_metadata_weight=None)
    assert find_linear_model(alike).complete().encoder_config["metadata_weight"] is None


def test_load_blends_as_evaluation_does(blended_run: Run) -> None:
    """A loaded folder predicts the probabilities of evaluation."""
    model = blended_run.finish_model(blended_run.load_model()).eval()
    batch = next(iter(blended_run.loader("test")))
    with torch.no_grad():
        expected = torch.sigmoid(model(batch))
    classifier = load(blended_run.folder, "cpu")
    records = [
        classifier.read(record, "here")
        for record in blended_run.dataset.as_json(batch.document.tolist())
    ]
    found = torch.empty_like(expected)
    for rows, logits in classifier.score(records):
        found[rows] = torch.sigmoid(logits)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_load_of_text_encoders_reads_no_metadata(make_variant) -> None:
    """Beside an encoder of text alone, the linear classifier has no weights of metadata."""
    run = make_variant("text", "model.encoder=bert_xml", "model.blend=true", "train.epochs=1")
    linear, space = linear_of(run), run.space
    assert linear.features.metadata_weight is None
    rows = linear.weight[: space.num_tokens].getnnz(axis=1)
    is_word = torch.zeros(space.num_tokens, dtype=torch.bool)
    words = space.span("word")
    is_word[words.start : words.stop] = True
    assert rows[is_word.numpy()].sum() > 0
    assert rows[~is_word.numpy()].sum() == 0


def test_open_run_without_it_is_blended_again(blended_run: Run, tmp_path: Path) -> None:
    """Missing shares are fitted again, with the same file and measures."""
    folder = tmp_path / "run"
    shutil.copytree(blended_run.folder, folder)
    (folder / SHARES).unlink()
    run = open_run(folder, blended_run.dataset.root)
    run.evaluate()
    assert (folder / SHARES).read_bytes() == (blended_run.folder / SHARES).read_bytes()
    metrics = [json.loads((one / METRICS).read_text()) for one in (folder, blended_run.folder)]
    assert metrics[0] == metrics[1]


@pytest.mark.parametrize("missing", [[SHARES], [SHARES, f"{BLEND}/{FITTED}/*"]])
def test_load_refuses_a_blend_that_was_not_finished(
    blended_run: Run, tmp_path: Path, missing: list[str]
) -> None:
    """A run killed before its blend was written is refused, as its network alone differs."""
    folder = tmp_path / "run"
    shutil.copytree(blended_run.folder, folder)
    remove_files(*(file for one in missing for file in folder.glob(one)))
    with pytest.raises(CheckpointError) as caught:
        load(folder, "cpu")
    assert str(caught.value) == (
        f"A network that is blended with a linear classifier must have the share of each, but "
        f"'{folder / SHARES}' was not written yet; finish the run with the command that started it."
    )


def test_load_without_blend(make_variant) -> None:
    """Without a blend the network is loaded as it is."""
    settings = ("model.blend=false", "model.coherent=false")
    run = make_variant("plain", "model.init=random", "train.epochs=1", *settings)
    assert not (run.folder / BLEND).exists()
    assert load(run.folder, "cpu").blend is None
    model = run.load_model()
    assert run.finish_model(model) is model


@pytest.mark.parametrize(
    "content",
    ["{}", '{"share": 1.5, "fold_share": [0.5]}', '{"share": 0.5, "fold_share": []}', "["],
)
def test_read_blend_refuses_what_is_broken(tmp_path: Path, content: str) -> None:
    """A broken file is one sentence with its name."""
    (tmp_path / BLEND).mkdir()
    (tmp_path / SHARES).write_text(content)
    with pytest.raises(CheckpointError, match=SHARES):
        read_blend(tmp_path)


def test_write_blend_is_read_back(tmp_path: Path) -> None:
    """Shares are read back to the last digit."""
    assert read_blend(tmp_path) is None
    write_blend(tmp_path, Blend(0.3, torch.tensor([0.1, 0.9])))
    found = read_blend(tmp_path)
    assert found is not None
    assert found.share == 0.3
    assert torch.equal(found.fold_share, torch.tensor([0.1, 0.9]))
