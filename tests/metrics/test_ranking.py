"""P@k, NDCG@k and R@k against a naive loop, scikit-learn and PyTorch Geometric."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import pack
from sklearn.metrics import ndcg_score, precision_score, recall_score
from torch import Tensor
from torch_geometric.metrics import LinkPredNDCG, LinkPredPrecision, LinkPredRecall

from match_graph.errors import GraphError
from match_graph.graph.csr import make_ptr, row_index
from match_graph.metrics import (
    RankingMeter,
    find_hits,
    ndcg_at_k,
    precision_at_k,
    rank_labels,
)
from match_graph.metrics.ranking import choose_labels

KS = (1, 2, 3, 5, 8)


def naive_measures(ranked: list[list[int]], gold: list[list[int]], empty: str) -> dict[str, float]:
    """The formulas of the paper, document by document and rank by rank."""
    sums = {f"{name}@{k}": 0.0 for name in ("P", "NDCG", "R") for k in KS}
    num_documents = dict.fromkeys(KS, 0)
    for labels, true in zip(ranked, gold, strict=True):
        if empty == "skip" and not true:
            continue
        for k in KS:
            if empty == "at_least_k" and len(true) < k:
                continue
            num_documents[k] += 1
            hits, gain, ideal = 0, 0.0, 0.0
            for rank, label in enumerate(labels[:k], start=1):
                if label in true:
                    hits += 1
                    gain += 1 / math.log(rank + 1)
            for rank in range(1, min(k, len(true)) + 1):
                ideal += 1 / math.log(rank + 1)
            sums[f"P@{k}"] += hits / k
            sums[f"NDCG@{k}"] += gain / ideal if true else 0.0
            sums[f"R@{k}"] += hits / len(true) if true else 0.0
    numbers = {name: num_documents[int(name.split("@")[1])] for name in sums}
    return {name: total / numbers[name] for name, total in sums.items() if numbers[name]}


@st.composite
def rankings(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]]]:
    """Rankings of up to 7 labels, cut at one K, and gold labels of which some are never ranked."""
    num_labels = draw(st.integers(1, 7))
    num_documents = draw(st.integers(1, 6))
    cut = draw(st.integers(1, num_labels))
    ranked = [draw(st.permutations(range(num_labels)))[:cut] for _ in range(num_documents)]
    gold = [
        sorted(draw(st.sets(st.integers(0, num_labels + 1), max_size=6)))
        for _ in range(num_documents)
    ]
    return ranked, gold


def random_case(num_documents: int = 40, num_labels: int = 30) -> tuple[Tensor, Tensor]:
    """Scores [B, L] without ties and dense gold labels [B, L], every third document without."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(num_documents, num_labels, generator=generator, dtype=torch.float64)
    gold = torch.rand(num_documents, num_labels, generator=generator) < 0.15
    gold[::3] = False
    return scores, gold


def pack_dense(gold: Tensor) -> tuple[Tensor, Tensor]:
    return make_ptr(gold.sum(dim=1)), gold.nonzero()[:, 1]


@given(rankings(), st.sampled_from(["zero", "skip", "at_least_k"]))
def test_RankingMeter_equals_a_naive_loop(
    case: tuple[list[list[int]], list[list[int]]], empty: str
) -> None:
    """P@k, NDCG@k and R@k for k below and above the number of labels, under each policy."""
    ranked, gold = case
    meter = RankingMeter(KS, empty)
    meter.update(torch.tensor(ranked), *pack(gold))
    if empty == "skip" and not any(gold):
        with pytest.raises(GraphError):
            meter.compute()
        return
    assert meter.compute() == pytest.approx(naive_measures(ranked, gold, empty), abs=1e-12)


@given(rankings())
def test_find_hits_equal_membership(case: tuple[list[list[int]], list[list[int]]]) -> None:
    """A ranked label is a hit where it is among the document's own gold labels."""
    ranked, gold = case
    expected = [
        [label in true for label in labels] for labels, true in zip(ranked, gold, strict=True)
    ]
    assert find_hits(torch.tensor(ranked), *pack(gold)).tolist() == expected


def test_find_hits_do_not_need_sorted_gold_labels() -> None:
    """Gold labels in any order."""
    ranked = torch.tensor([[4, 0, 2], [3, 1, 0]])
    found = find_hits(ranked, torch.tensor([0, 3, 5]), torch.tensor([4, 1, 2, 3, 0]))
    assert found.tolist() == [[True, False, True], [True, False, True]]


def test_find_hits_negative_numbers_are_misses() -> None:
    """A list that is padded with -1 does not hit the last gold label of the document before."""
    hits = find_hits(torch.tensor([[1], [-1]]), torch.tensor([0, 1, 2]), torch.tensor([1, 0]))
    assert hits.tolist() == [[True], [False]]


def test_find_hits_hand_computed_document() -> None:
    """Hits at ranks 1 and 3 of two gold labels and one that is never ranked."""
    hits = find_hits(torch.tensor([[5, 1, 7]]), torch.tensor([0, 3]), torch.tensor([5, 7, 99]))
    assert precision_at_k(hits, 1).tolist() == [1.0]
    assert precision_at_k(hits, 3).tolist() == pytest.approx([2 / 3])
    assert precision_at_k(hits, 5).tolist() == pytest.approx([2 / 5])
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    found = ndcg_at_k(hits, torch.tensor([3]), 3)
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx([(1 + 1 / 2) / ideal])


def test_RankingMeter_precision_at_1_equals_ndcg_at_1() -> None:
    """P@1 is NDCG@1 where there is a gold label.

    The identity below the paper's definitions.
    """
    scores, gold = random_case()
    meter = RankingMeter((1,), "skip")
    meter.update(rank_labels(scores, 1), *pack_dense(gold))
    measures = meter.compute()
    assert measures["P@1"] == measures["NDCG@1"] > 0


@pytest.mark.parametrize("k", [1, 3, 5, 30])
def test_RankingMeter_ndcg_equals_scikit_learn(k: int) -> None:
    """Scores without ties; scikit-learn gives 0 to documents without gold labels too."""
    scores, gold = random_case()
    meter = RankingMeter((k,))
    meter.update(rank_labels(scores, k), *pack_dense(gold))
    expected = ndcg_score(gold.numpy().astype(int), scores.numpy(), k=k, ignore_ties=True)
    assert meter.compute()[f"NDCG@{k}"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("k", [1, 3, 5, 30])
def test_RankingMeter_precision_and_recall_equal_scikit_learn(k: int) -> None:
    """The k best labels as a set prediction; its sample precision divides by k, and its sample
    recall is 0 for documents without gold labels."""
    scores, gold = random_case()
    ranked = rank_labels(scores, k)
    meter = RankingMeter((k,))
    meter.update(ranked, *pack_dense(gold))
    predicted = np.zeros(scores.shape, dtype=int)
    np.put_along_axis(predicted, ranked.numpy(), 1, axis=1)
    for name, score in (("P", precision_score), ("R", recall_score)):
        expected = score(gold.numpy().astype(int), predicted, average="samples", zero_division=0.0)
        assert meter.compute()[f"{name}@{k}"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("k", [1, 3, 5, 40])
def test_RankingMeter_empty_skip_equals_pytorch_geometric(k: int) -> None:
    """PyG leaves documents without gold labels out of the mean; over two batches."""
    scores, gold = random_case()
    peers = {"P": LinkPredPrecision(k), "NDCG": LinkPredNDCG(k), "R": LinkPredRecall(k)}
    meter = RankingMeter((k,), "skip")
    for rows in torch.arange(40).split(25):
        ptr, index = pack_dense(gold[rows])
        ranked = rank_labels(scores[rows], k)
        meter.update(ranked, ptr, index)
        edge_label_index = torch.stack([row_index(ptr), index])
        for peer in peers.values():
            peer.update(ranked, edge_label_index)
    expected = {f"{name}@{k}": float(peer.compute()) for name, peer in peers.items()}
    assert meter.compute() == pytest.approx(expected, abs=1e-6)


def test_RankingMeter_policies_differ_by_unlabelled_documents() -> None:
    """Documents without gold labels count 0, or are left out; never 1."""
    scores, gold = random_case()
    meters = {empty: RankingMeter(empty=empty) for empty in ("zero", "skip")}
    for meter in meters.values():
        meter.update(rank_labels(scores, 5), *pack_dense(gold))
    share = float(gold.any(dim=1).double().mean())
    assert meters["zero"].num_documents == 40
    assert meters["skip"].num_documents == int(gold.any(dim=1).sum()) < 40
    for name, value in meters["zero"].compute().items():
        assert value == pytest.approx(meters["skip"].compute()[name] * share)


def test_RankingMeter_counts_gold_labels_never_ranked() -> None:
    """A label unknown in training lowers NDCG@3 and R@3 and leaves P@3 as it is."""
    ranked = torch.tensor([[0, 1, 2]])
    measures = []
    for gold in ([0], [0, 1000]):
        meter = RankingMeter((3,))
        meter.update(ranked, *pack([gold]))
        measures.append(meter.compute())
    assert measures[0] == pytest.approx({"P@3": 1 / 3, "NDCG@3": 1.0, "R@3": 1.0})
    ideal = 1 + 1 / math.log2(3)
    assert measures[1] == pytest.approx({"P@3": 1 / 3, "NDCG@3": 1 / ideal, "R@3": 1 / 2})


@given(rankings(), st.integers(1, 3), st.sampled_from(["zero", "skip", "at_least_k"]))
def test_RankingMeter_batches_add_up(
    case: tuple[list[list[int]], list[list[int]]], size: int, empty: str
) -> None:
    """Several batches give the measures of one."""
    ranked, gold = case[0] + [case[0][0]], case[1] + [[0]]
    whole, parts = RankingMeter(KS, empty), RankingMeter(KS, empty)
    whole.update(torch.tensor(ranked), *pack(gold))
    for start in range(0, len(gold), size):
        stop = start + size
        parts.update(torch.tensor(ranked[start:stop]), *pack(gold[start:stop]))
    assert parts.compute() == pytest.approx(whole.compute(), abs=1e-12)
    assert parts.num_documents == whole.num_documents


def test_RankingMeter_names_and_order_of_the_measures() -> None:
    """What metrics.json holds."""
    meter = RankingMeter()
    meter.update(torch.tensor([[0]]), *pack([[0]]))
    names = ["P@1", "P@3", "P@5", "NDCG@1", "NDCG@3", "NDCG@5", "R@1", "R@3", "R@5"]
    assert list(meter.compute()) == names


@pytest.mark.parametrize("batches", [[], [[[]]]])
def test_RankingMeter_no_document_is_an_error(batches: list[list[list[int]]]) -> None:
    """No update at all, or only documents without gold labels under empty='skip'."""
    meter = RankingMeter(empty="skip")
    for gold in batches:
        meter.update(torch.tensor([[0, 1]]), *pack(gold))
    with pytest.raises(GraphError) as error:
        meter.compute()
    assert str(error.value) == (
        "Metrics need at least one document, found none; the split is empty, or all of its "
        "documents lack gold labels under empty='skip'."
    )


@pytest.mark.parametrize(
    ("ranked", "ptr", "found"),
    [
        (torch.zeros(2, dtype=torch.int64), torch.tensor([0, 1, 1]), "[2] and [3]"),
        (torch.zeros(2, 3, dtype=torch.int64), torch.tensor([0, 1]), "[2, 3] and [2]"),
    ],
)
def test_find_hits_shapes_that_do_not_fit_are_an_error(
    ranked: Tensor, ptr: Tensor, found: str
) -> None:
    """One dimension too few, and labels of fewer documents."""
    with pytest.raises(GraphError) as error:
        find_hits(ranked, ptr, torch.tensor([0]))
    assert str(error.value) == (
        f"Ranked labels must be [B, K] with label_ptr [B + 1], found {found}."
    )


@given(st.integers(1, 9), st.integers(1, 12))
def test_rank_labels_ranked_labels_are_the_best_in_order(num_labels: int, k: int) -> None:
    """min(k, L) labels by descending score, as sorting them does."""
    generator = torch.Generator().manual_seed(num_labels)
    scores = torch.rand(4, num_labels, generator=generator)
    expected = [
        sorted(range(num_labels), key=lambda label: -row[label])[:k] for row in scores.tolist()
    ]
    assert rank_labels(scores, k).tolist() == expected


@pytest.mark.parametrize("top_k", [None, 0, 3, 10**12])
@pytest.mark.parametrize("with_thresholds", [False, True])
def test_choose_labels_equals_a_loop(top_k: int | None, with_thresholds: bool) -> None:
    """The best labels, those below their threshold left out, with probabilities."""
    logits = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    thresholds = torch.linspace(0.1, 0.9, 9) if with_thresholds else None
    found = choose_labels(logits, top_k, thresholds)
    for scores, pairs in zip(logits.tolist(), found, strict=True):
        best = sorted(range(9), key=lambda label, scores=scores: -scores[label])
        share = [1 / (1 + math.exp(-score)) for score in scores]
        if thresholds is not None:
            best = [label for label in best if share[label] >= thresholds[label]]
        assert [label for label, _ in pairs] == best[:top_k]
        assert [value for _, value in pairs] == pytest.approx([share[one] for one in best[:top_k]])


def test_choose_labels_threshold_itself_is_enough() -> None:
    assert choose_labels(torch.zeros(1, 1), None, torch.tensor([0.5])) == [[(0, 0.5)]]


@pytest.mark.parametrize("label_rank", [None, torch.tensor([0, 1])])
def test_rank_labels_refuses_nan(label_rank: Tensor | None) -> None:
    """Also in the second document alone."""
    with pytest.raises(GraphError, match="NaN"):
        rank_labels(torch.tensor([[1.0, 2.0], [math.nan, 1.0]]), 1, label_rank)


def test_rank_labels_no_documents_give_no_ranks() -> None:
    """An empty batch goes through every function."""
    ranked = rank_labels(torch.empty(0, 4), 3)
    hits = find_hits(ranked, *pack([]))
    assert hits.shape == (0, 3)
    assert precision_at_k(hits, 3).shape == ndcg_at_k(hits, pack([])[0].diff(), 3).shape == (0,)


@given(st.data(), st.integers(1, 9), st.integers(1, 12))
def test_rank_labels_ties_are_broken_by_the_given_rank(
    data: st.DataObject, num_labels: int, k: int
) -> None:
    """As sorting by (score descending, rank) does; for negative scores, both zeros, infinities."""
    values = st.sampled_from([-torch.inf, -2.5, -2.0, -0.0, 0.0, 1.0, 1.0000001, torch.inf])
    rows = data.draw(st.lists(st.lists(values, min_size=num_labels, max_size=num_labels)))
    rank = data.draw(st.permutations(range(num_labels)))
    scores = torch.tensor(rows).view(-1, num_labels)
    expected = [
        sorted(range(num_labels), key=lambda label: (-row[label], rank[label]))[:k]
        for row in scores.tolist()
    ]
    assert rank_labels(scores, k, torch.tensor(rank)).tolist() == expected


@given(st.data(), st.integers(1, 30), st.integers(1, 12))
def test_rank_labels_of_equal_scores_the_lower_number_is_first(
    data: st.DataObject, num_labels: int, k: int
) -> None:
    """As a stable sort, in float64 too; a shorter ranking is the beginning of a longer one."""
    values = st.sampled_from([-2.5, 0.0, 1.0, 1.0 + 1e-12, 2.0])
    rows = data.draw(st.lists(st.lists(values, min_size=num_labels, max_size=num_labels)))
    scores = torch.tensor(rows, dtype=torch.float64).view(-1, num_labels)
    expected = [
        sorted(range(num_labels), key=lambda label: (-row[label], label))[:k]
        for row in scores.tolist()
    ]
    ranked = rank_labels(scores, k)
    assert ranked.tolist() == expected
    assert torch.equal(rank_labels(scores, 1), ranked[:, :1])


def test_RankingMeter_at_least_k_by_hand() -> None:
    """A document of one label counts at 1 alone; none has three."""
    meter = RankingMeter((1, 2, 3), "at_least_k")
    meter.update(torch.tensor([[0, 1, 2], [2, 1, 0], [0, 1, 2]]), *pack([[0], [0, 1], []]))
    found = meter.compute()
    assert list(found) == ["P@1", "P@2", "NDCG@1", "NDCG@2", "R@1", "R@2"]
    assert (found["P@1"], found["P@2"]) == (1 / 2, 1 / 2)
