"""Explanations: labels as predicted, and parents' terms as in the loss."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from match_graph import (
    Run,
    hypernymy_output_penalty,
    hypernymy_parameter_penalty,
    load,
    start_run,
)
from match_graph.errors import CheckpointError, ConfigError
from match_graph.io.manifest import write_manifest
from match_graph.io.run_folder import CONFIG
from match_graph.predict.explain import Explainer
from match_graph.typing import MASKS


def test_Explainer_labels_are_those_of_prediction(trained_run: Run) -> None:
    """Labels and probabilities equal `Classifier.predict`, and gold ones are marked right."""
    records = trained_run.dataset.as_json(trained_run.dataset.documents(MASKS["test"])[:5])
    results = load(trained_run.folder, "cpu").predict(records, top_k=4)
    explainer = Explainer(trained_run, "cpu")
    for record, result in zip(records, results, strict=True):
        found = explainer.explain(record, top_k=4).predictions
        assert [one.label for one in found] == [label["id"] for label in result["labels"]]
        expected = [label["probability"] for label in result["labels"]]
        assert [one.probability for one in found] == pytest.approx(expected, abs=1e-4)
        assert [one.is_right for one in found] == [one.label in record["label"] for one in found]
        for one in found:
            effects = [token.effect for token in one.metadata]
            assert effects == sorted(effects, reverse=True)


def test_Explainer_terms_of_all_parents_sum_to_the_penalties(trained_run: Run) -> None:
    """Terms of a document's labels sum to the penalties of training, times lambda."""
    record = trained_run.dataset.as_json([395])[0]
    explainer = Explainer(trained_run, "cpu")
    found = explainer.explain(record, top_k=trained_run.dataset.num_labels)
    pulls = [pull for one in found.predictions for pull in one.parents]
    hierarchy, config = trained_run.hierarchy, trained_run.config.train
    assert len(pulls) == hierarchy.edge_index.size(1)
    assert explainer.classifier.network is not None
    output = hypernymy_output_penalty(found.logits.unsqueeze(0), hierarchy)
    parameter = hypernymy_parameter_penalty(
        explainer.classifier.network.head.label_weight.detach(), hierarchy
    )
    assert config.lambda_output > 0
    assert config.lambda_parameter > 0
    sums = [
        sum(pull.output_term or 0 for pull in pulls),
        sum(pull.parameter_term or 0 for pull in pulls),
    ]
    expected = [config.lambda_output * float(output), config.lambda_parameter * float(parameter)]
    assert sums == pytest.approx(expected, rel=1e-4)
    probability = {one.label: one.probability for one in found.predictions}
    for one in found.predictions:
        assert [pull.probability for pull in one.parents] == pytest.approx(
            [probability[pull.parent] for pull in one.parents]
        )
        totals = {pull.parent: pull.total for pull in one.parents if pull.total > 0}
        assert one.pulled_by == (max(totals, key=totals.__getitem__) if totals else None)


def test_Explainer_baseline_gives_leave_one_out_alone(baseline_run: Run) -> None:
    """A baseline has effects and its weights, but no attention and no loss terms."""
    record = baseline_run.dataset.as_json([391])[0]
    found = Explainer(baseline_run, "cpu").explain(record).predictions
    assert len(found) == 5
    tokens = [token for one in found for token in one.metadata]
    assert tokens
    assert all(token.attention is None and token.linear is not None for token in tokens)
    assert any(token.effect for token in tokens)
    assert all(one.words and one.attended is one.pulled_by is None for one in found)
    pulls = [pull for one in found for pull in one.parents]
    assert pulls
    assert all(pull.weight is pull.output_term is pull.parameter_term is None for pull in pulls)


def test_Explainer_scores_are_computed_in_float32(trained_run: Run, tmp_path: Path) -> None:
    """Scores are in float32 whatever the run's precision, as bfloat16 hides small effects."""
    folder = Path(shutil.copytree(trained_run.folder, tmp_path / "run"))
    settings = (folder / CONFIG).read_text(encoding="utf-8")
    other = settings.replace("precision: 32-true", "precision: bf16-mixed")
    assert other != settings
    (folder / CONFIG).write_text(other, encoding="utf-8")
    write_manifest(folder)
    record = trained_run.dataset.as_json([395])[0]
    found = Explainer(replace(trained_run, folder=folder), "cpu").explain(record)
    expected = Explainer(trained_run, "cpu").explain(record)
    assert torch.equal(found.logits, expected.logits)
    assert found.predictions == expected.predictions


def test_Explainer_untrained_run_is_refused(
    trained_run: Run, tmp_path: Path, small_settings
) -> None:
    """An untrained run is refused as by `load`."""
    run = start_run("synthetic", small_settings(), tmp_path / "run", trained_run.dataset.root)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        Explainer(run, "cpu")


def test_Explainer_explain_refuses_numbers_of_labels(trained_run: Run) -> None:
    """A wrong number of labels is refused as by `predict`."""
    explainer = Explainer(trained_run, "cpu")
    for wrong in (0, -1, 2.5):
        with pytest.raises(ConfigError, match="top_k must be a whole number of 1 or more, found"):
            explainer.explain({"paper": "d", "text": "a"}, top_k=wrong)
