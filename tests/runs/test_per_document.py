"""per_document.parquet: a row per document whose means are the measures, and what is refused."""

import json

import pandas as pd
import pytest
import torch

from match_graph.errors import CheckpointError
from match_graph.io.run_folder import METRICS, PER_DOCUMENT
from match_graph.runs import Run
from match_graph.runs.per_document import SCORE_NAMES, DocumentScores
from match_graph.runs.readers import read_scores
from match_graph.typing import MASKS


def test_SCORE_NAMES_means_over_documents_are_the_measures(trained_run: Run) -> None:
    """Of both splits, for every document once, in the order of the data set."""
    metrics = json.loads((trained_run.folder / METRICS).read_text())
    table = pd.read_parquet(trained_run.folder / PER_DOCUMENT)
    assert list(table.columns) == ["document", "split", *SCORE_NAMES]
    for split in ("valid", "test"):
        documents = trained_run.dataset.documents(MASKS[split])
        assert table[table["split"] == split]["document"].tolist() == documents.tolist()
        for name in SCORE_NAMES:
            scores = read_scores(trained_run.folder, split, name)
            assert scores.shape == documents.shape
            assert float(scores.double().mean()) == pytest.approx(metrics[split][name], abs=1e-7)


def test_read_scores_each_document_has_its_own_scores(trained_run: Run) -> None:
    """Against a loop over single documents."""
    documents = trained_run.dataset.documents(MASKS["test"])
    ptr, index = trained_run.dataset.targets.select(documents)
    found = read_scores(trained_run.folder, "test", "P@5")
    classifier = trained_run.scale(trained_run.load_model()).eval()
    for batch in trained_run.loader("test"):
        with torch.no_grad():
            best = classifier(batch).topk(5).indices
        for document, ranked in zip(batch.document.tolist(), best.tolist(), strict=True):
            row = documents.tolist().index(document)
            gold = set(index[ptr[row] : ptr[row + 1]].tolist())
            assert float(found[row]) == pytest.approx(len(gold & set(ranked)) / 5)


def test_DocumentScores_shares_of_processes_are_joined() -> None:
    """Each has some of the documents; the sum over both has all."""
    parts = [DocumentScores(torch.tensor([2, 5])) for _ in range(2)]
    for row, part in enumerate(parts):
        part.table[row] = 1.0
    parts[0].reduce(lambda values: values + parts[1].table)
    assert bool((parts[0].table == 1).all())


def test_read_scores_what_is_missing_is_one_sentence(trained_run: Run, tmp_path) -> None:
    path = tmp_path / PER_DOCUMENT
    with pytest.raises(CheckpointError) as caught:
        read_scores(tmp_path, "test", "P@1")
    assert str(caught.value) == (
        f"'{path}' must hold the measure 'P@1' of every document, but it cannot be read "
        f"(no such file or directory); write it again with `match-graph evaluate`."
    )
    pd.read_parquet(trained_run.folder / PER_DOCUMENT).query("split == 'valid'").to_parquet(path)
    with pytest.raises(CheckpointError) as caught:
        read_scores(tmp_path, "test", "P@1")
    assert str(caught.value) == (
        f"'{path}' must hold documents of the split 'test', but it has none; write it again with "
        f"`match-graph evaluate`."
    )
