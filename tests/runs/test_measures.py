"""The measures of a split against loops over the documents' scores."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from match_graph.benchmark import MEASURES
from match_graph.datasets import Synthetic
from match_graph.errors import CheckpointError
from match_graph.io.run_folder import METRICS, PER_DOCUMENT, RELIABILITY
from match_graph.metrics import (
    F1Meter,
    PropensityMeter,
    RankedSumMeter,
    RankingMeter,
    ThresholdSearch,
    average_sets,
    inverse_propensity,
    pack_predictions,
    rank_labels,
)
from match_graph.runs import Run
from match_graph.runs.measures import SCORE_NAMES, DocumentScores, SplitMeasures, write_bins
from match_graph.runs.readers import read_scores
from match_graph.training.evaluate import ScoredBatch
from match_graph.typing import MASKS


def feed(measures: SplitMeasures, scores: torch.Tensor, ptr: torch.Tensor, index: torch.Tensor):
    documents, ranked = measures.scores.documents, rank_labels(scores, 5)
    measures.update(ScoredBatch(documents, scores, ranked, (ptr, index)))
    return measures.compute()


def test_SplitMeasures_of_valid_and_test(synthetic: Synthetic) -> None:
    """Both splits have their measures; counts of slices add up to the whole."""
    ptr, index = synthetic.targets.select(synthetic.documents("test_mask"))
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(len(ptr) - 1, synthetic.num_labels, generator=generator)
    search = ThresholdSearch(synthetic.num_labels)
    search.update(scores, ptr, index)
    valid = feed(SplitMeasures(synthetic, "test"), scores, ptr, index)
    propensity = [f"{name}@{k}" for name in ("PSP", "PSNDCG") for k in (1, 3, 5)]
    assert list(valid) == ["ECE@5", "ECE", *propensity]
    train = synthetic.documents("train_mask")
    meter = PropensityMeter(inverse_propensity(synthetic.targets.count(train), len(train)))
    meter.update(rank_labels(scores, 5), ptr, index)
    assert {name: valid[name] for name in propensity} == meter.compute()
    test = feed(SplitMeasures(synthetic, "test", search.compute()), scores, ptr, index)
    assert {name: test[name] for name in valid} == valid
    sets = ["F1_micro", "F1_macro", "hierarchical_P", "hierarchical_R", "hierarchical_F1"]
    assert [name for name in test if name not in valid and "/" not in name] == sets

    rows = torch.repeat_interleave(torch.arange(len(ptr) - 1), ptr.diff())
    ranked = scores.argsort(dim=1, descending=True)[:, :5]
    found = sum(
        label in ranked[row] for row, label in zip(rows.tolist(), index.tolist(), strict=True)
    )
    for part in (("head", "torso", "tail"), [f"depth_{depth}" for depth in range(3)]):
        names = [name for name in part if f"{name}/num_gold" in test]
        gold = [test[f"{name}/num_gold"] for name in names]
        assert sum(test[f"{name}/num_labels"] for name in names) == synthetic.num_labels
        assert sum(gold) == len(index)
        recall = sum(
            test[f"{name}/R@5"] * count for name, count in zip(names, gold, strict=True) if count
        )
        assert recall == pytest.approx(found)


@pytest.mark.parametrize("has_thresholds", [False, True])
def test_SplitMeasures_processes_add_up(synthetic: Synthetic, has_thresholds: bool) -> None:
    """Two processes that share the documents measure what one process does."""
    documents = synthetic.documents("test_mask")
    scores = torch.randn(len(documents), synthetic.num_labels)
    search = ThresholdSearch(synthetic.num_labels)
    search.update(scores, *synthetic.targets.select(documents))
    thresholds = search.compute() if has_thresholds else None
    measures = []
    rows = torch.arange(len(documents))
    for part in (rows, rows[::2], rows[1::2]):
        one, logits = SplitMeasures(synthetic, "test", thresholds), scores[part]
        gold = synthetic.targets.select(documents[part])
        one.update(ScoredBatch(documents[part], logits, rank_labels(logits, 5), gold))
        measures.append(one)
    whole, first, second = measures
    sent: list[torch.Tensor] = []
    second.reduce(lambda sums: sent.append(sums) or sums)
    received = iter(sent)
    first.reduce(lambda sums: sums + next(received))
    assert first.compute() == pytest.approx(whole.compute())
    assert torch.equal(first.scores.table, whole.scores.table)
    if not has_thresholds:
        assert torch.equal(first.search.compute().value, search.compute().value)


def test_write_bins_of_both_splits_are_written(synthetic: Synthetic, tmp_path: Path) -> None:
    """Fifteen bins of ranked and of all labels count all pairs."""
    ptr, index = synthetic.targets.select(synthetic.documents("test_mask"))
    scores = torch.randn(len(ptr) - 1, synthetic.num_labels)
    measures = SplitMeasures(synthetic, "test")
    values = feed(measures, scores, ptr, index)
    write_bins(tmp_path, {"valid": measures, "test": measures})
    table = pd.read_csv(tmp_path / RELIABILITY)
    assert table.columns.tolist() == ["split", "labels", "bin", "pairs", "probability", "gold"]
    assert len(table) == 2 * 2 * 15
    for labels, pairs, error in (
        ("ranked", 5 * len(scores), values["ECE@5"]),
        ("all", scores.numel(), values["ECE"]),
    ):
        rows = table[(table["split"] == "test") & (table["labels"] == labels)]
        assert rows["pairs"].sum() == pairs
        distance = (rows["gold"] - rows["probability"]).abs() * rows["pairs"]
        assert distance.sum() / pairs == pytest.approx(error)


def test_SCORE_NAMES_means_over_documents_are_the_measures(trained_run: Run) -> None:
    """Means over the documents' scores are the measures of both splits."""
    metrics = json.loads((trained_run.folder / METRICS).read_text())
    table = pd.read_parquet(trained_run.folder / PER_DOCUMENT)
    assert list(table.columns) == ["document", "split", *SCORE_NAMES]
    for split in ("valid", "test"):
        documents = trained_run.dataset.documents(MASKS[split])
        assert table[table["split"] == split]["document"].tolist() == documents.tolist()
        scores = read_scores(trained_run.folder, split, SCORE_NAMES)
        assert scores.shape == (len(documents), len(SCORE_NAMES))
        for name, mean in zip(SCORE_NAMES, scores.double().mean(dim=0).tolist(), strict=True):
            assert mean == pytest.approx(metrics[split][name], abs=1e-7)


def test_read_scores_each_document_has_its_own_scores(trained_run: Run) -> None:
    """Scores of each document equal a loop over single documents."""
    documents = trained_run.dataset.documents(MASKS["test"])
    ptr, index = trained_run.dataset.targets.select(documents)
    found = read_scores(trained_run.folder, "test", ["P@5"])[:, 0]
    classifier = trained_run.finish_model(trained_run.load_model()).eval()
    for batch in trained_run.loader("test"):
        with torch.no_grad():
            best = classifier(batch).topk(5).indices
        for document, ranked in zip(batch.document.tolist(), best.tolist(), strict=True):
            row = documents.tolist().index(document)
            gold = set(index[ptr[row] : ptr[row + 1]].tolist())
            assert float(found[row]) == pytest.approx(len(gold & set(ranked)) / 5)


def test_DocumentScores_shares_of_processes_are_joined() -> None:
    """Scores of documents shared by two processes are joined by their sum."""
    parts = [DocumentScores(torch.tensor([2, 5])) for _ in range(2)]
    for row, part in enumerate(parts):
        part.table[row] = 1.0
    parts[0].reduce(lambda values: values + parts[1].table)
    assert bool((parts[0].table == 1).all())


def test_read_scores_what_is_missing_is_one_sentence(trained_run: Run, tmp_path) -> None:
    path = tmp_path / PER_DOCUMENT
    with pytest.raises(CheckpointError) as caught:
        read_scores(tmp_path, "test", ["P@1", "P@3"])
    assert str(caught.value) == (
        f"'{path}' must hold the measures P@1, P@3 of every document, but it cannot be read "
        f"(no such file or directory); write it again with `match-graph evaluate`."
    )
    pd.read_parquet(trained_run.folder / PER_DOCUMENT).query("split == 'valid'").to_parquet(path)
    with pytest.raises(CheckpointError) as caught:
        read_scores(tmp_path, "test", ["P@1", "P@3"])
    assert str(caught.value) == (
        f"'{path}' must hold documents of the split 'test', but it has none; write it again with "
        f"`match-graph evaluate`."
    )


def test_BenchmarkMeasures_equal_their_meters(synthetic: Synthetic) -> None:
    """Ranking and set measures over three batches equal those of the meters."""
    ptr, index = synthetic.targets.select(synthetic.documents("test_mask"))
    scores = torch.randn(len(ptr) - 1, synthetic.num_labels)
    search = ThresholdSearch(synthetic.num_labels)
    search.update(scores, ptr, index)
    thresholds = search.compute()
    found = feed(SplitMeasures(synthetic, "test", thresholds), scores, ptr, index)
    ranking, sets = RankingMeter((1, 2, 3), "at_least_k"), F1Meter(synthetic.num_labels)
    ranking.update(rank_labels(scores, 5), ptr, index)
    above = torch.full((synthetic.num_labels,), thresholds.shared)
    sets.update(*pack_predictions(scores, above), ptr, index)
    ranks = RankedSumMeter((1, 2, 3))
    ranks.update(scores, ptr, index)
    expected = {
        f"at_least_k/{name}": value
        for name, value in {**ranking.compute(), **ranks.compute()}.items()
        if name[0] != "R" or name.startswith("RankedSum")
    } | {f"shared_threshold/{name}": value for name, value in average_sets(sets.counts).items()}
    assert {name: found[name] for name in expected} == expected
    names = {name for name in found if name.startswith(("at_least_k/", "shared_threshold/"))}
    assert names == expected.keys() == {name for name in MEASURES if "/" in name}
