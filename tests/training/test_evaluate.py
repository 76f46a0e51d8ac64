"""Evaluation against naive loops, and the label prior."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from match_graph.datasets import Synthetic
from match_graph.graph import EgoBatch, EgoLoader, EgoSampler
from match_graph.training import evaluate_model, label_prior


class Constant(nn.Module):
    """Scores each document by a fixed random matrix, so that a loop can do the same."""

    def __init__(self, scores: torch.Tensor) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, batch):
        return self.scores[batch.document]


def test_evaluate_model_equals_a_loop_over_documents(synthetic: Synthetic) -> None:
    """P@k, NDCG@k and the violation rate of random scores, re-computed one by one."""
    data, targets = synthetic[0], synthetic.targets
    documents = synthetic.documents("test_mask")
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(data["document"].num_nodes, targets.num_labels, generator=generator)
    loader = EgoLoader(
        data, EgoSampler(data), synthetic.token_space(), documents, targets, batch_size=7
    )
    model = Constant(scores).train()
    edges = synthetic.hierarchy.edge_index
    measures = evaluate_model(model, loader, synthetic.hierarchy)
    assert model.training

    precision = ndcg = violations = 0.0
    for document in documents.tolist():
        gold = set(targets.select(torch.tensor([document]))[1].tolist())
        ranked = scores[document].argsort(descending=True)[:5].tolist()
        gains = [1 / torch.log2(torch.tensor(rank + 2.0)).item() for rank in range(5)]
        hits = [label in gold for label in ranked]
        precision += sum(hits) / 5
        ideal = sum(gains[: min(5, len(gold))])
        ndcg += sum(g for g, hit in zip(gains, hits, strict=True) if hit) / ideal if ideal else 0
        probability = scores[document].sigmoid()
        violations += sum(float(probability[c] > probability[p]) for c, p in edges.t().tolist())
    assert measures["P@5"] == pytest.approx(precision / len(documents))
    assert measures["NDCG@5"] == pytest.approx(ndcg / len(documents), rel=1e-6)
    assert measures["violation_rate"] == pytest.approx(violations / len(documents) / edges.size(1))


def test_evaluate_model_ranks_equal_scores_by_label_rank() -> None:
    """Two documents of label 2 and one of label 0, no score above another."""
    ptr, empty = torch.arange(4), torch.zeros(0, dtype=torch.int64)
    gold = ptr, torch.tensor([2, 2, 0])
    batch = EgoBatch(torch.arange(3), empty, empty, empty, torch.zeros_like(ptr), *gold)
    for rank, expected in ((None, 1 / 3), (torch.tensor([2, 1, 0]), 2 / 3)):
        model = Constant(torch.zeros(3, 3))
        found = evaluate_model(model, [batch], None, label_rank=rank)
        assert found["P@1"] == pytest.approx(expected)


class Modal(Constant):
    """Scores by the fixed matrix in evaluation mode, and the other way round in training mode."""

    def forward(self, batch):
        return -super().forward(batch) if self.training else super().forward(batch)


@pytest.mark.parametrize("mode", [True, False])
def test_evaluate_model_is_in_evaluation_mode_and_back(mode: bool) -> None:
    """Dropout is off while scores are computed; afterwards the mode is what it was."""
    empty, ptr = torch.zeros(0, dtype=torch.int64), torch.arange(2)
    batch = EgoBatch(
        torch.arange(1), empty, empty, empty, torch.zeros_like(ptr), ptr, torch.tensor([1])
    )
    model = Modal(torch.tensor([[0.0, 1.0]])).train(mode)
    assert evaluate_model(model, [batch], None)["P@1"] == 1
    assert model.training == mode


def test_evaluate_model_batches_of_others_do_not_count() -> None:
    """A batch without a share is scored and counted by another process; logits are float32."""
    empty, ptr = torch.zeros(0, dtype=torch.int64), torch.arange(2)
    batches = [
        EgoBatch(torch.tensor([one]), empty, empty, empty, torch.zeros_like(ptr), ptr, gold)
        for one, gold in enumerate((torch.tensor([0]), torch.tensor([1])))
    ]
    batches[1] = replace(batches[1], share=0.0)
    seen = []
    observe = [lambda batch: seen.append((batch.document.tolist(), batch.logits.dtype))]
    model = Constant(torch.tensor([[1.0, 0.0], [1.0, 0.0]]).bfloat16())
    assert evaluate_model(model, batches, None, observers=observe)["P@1"] == 1
    assert seen == [([0], torch.float32)]


def test_label_prior_ranks_by_training_frequency() -> None:
    """The most frequent labels for everybody, by hand."""
    count = torch.tensor([1, 9, 5])
    ptr, index = torch.tensor([0, 1, 3, 4]), torch.tensor([1, 0, 2, 1])
    measures = label_prior(count, ptr, index)
    assert measures["P@1"] == pytest.approx(2 / 3)  # label 1 first: wrong for the second document
    assert measures["P@3"] == pytest.approx((1 / 3 + 2 / 3 + 1 / 3) / 3)
