"""The wide term: scores against a slow version, sparse rows, empty documents."""

import math
from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfTransformer

from match_graph.graph import EgoBatch
from match_graph.graph.csr import make_ptr
from match_graph.nn import WideTerm

DOCUMENTS = [[3, 1, 3, 2], [], [0], [5, 5, 5]]


def make_batch(documents: list[list[int]]) -> EgoBatch:
    token_id = torch.tensor([token for tokens in documents for token in tokens], dtype=torch.int64)
    ptr = make_ptr(torch.tensor([len(tokens) for tokens in documents], dtype=torch.int64))
    zero = torch.zeros_like(token_id)
    return EgoBatch(torch.arange(len(documents)), token_id, zero, zero, ptr)


def make_term(count: list[int], num_documents: int) -> WideTerm:
    term = WideTerm(len(count), 3)
    term.set_frequencies(torch.tensor(count), num_documents)
    torch.nn.init.normal_(term.weight, generator=torch.Generator().manual_seed(0))
    return term


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=4))
def test_WideTerm_scores_equal_a_slow_version(documents: list[list[int]]) -> None:
    """A loop over documents and tokens in float64; a document without tokens scores 0."""
    count, num_documents = [0, 1, 4, 7, 9, 10], 10
    term = make_term(count, num_documents)
    found = term(make_batch(documents))
    assert found.shape == (len(documents), 3)
    for scores, tokens in zip(found, documents, strict=True):
        value = {
            token: (1 + math.log(times)) * (math.log((1 + num_documents) / (1 + count[token])) + 1)
            for token, times in Counter(tokens).items()
        }
        norm = math.sqrt(sum(x * x for x in value.values()))
        expected = torch.zeros(3, dtype=torch.float64)
        for token, x in value.items():
            expected += x / norm * term.weight[token].double()
        torch.testing.assert_close(scores.double(), expected, rtol=1e-5, atol=1e-6)


def test_WideTerm_features_are_those_of_scikit_learn() -> None:
    """With the identity as weights, the scores are TfidfTransformer's sublinear rows."""
    counts = torch.zeros(len(DOCUMENTS), 6)
    for row, tokens in enumerate(DOCUMENTS):
        for token in tokens:
            counts[row, token] += 1
    reference = TfidfTransformer(sublinear_tf=True).fit(counts.numpy())
    term = WideTerm(6, 6)
    term.set_frequencies((counts > 0).sum(dim=0), len(DOCUMENTS))
    with torch.no_grad():
        term.weight.copy_(torch.eye(6))
    expected = torch.from_numpy(reference.transform(counts.numpy()).toarray())
    torch.testing.assert_close(term(make_batch(DOCUMENTS)), expected.float())


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=4))
def test_WideTerm_gradient_equals_a_slow_version(documents: list[list[int]]) -> None:
    """Sparse, with one row for each distinct token of the batch; a loop in float64."""
    term = make_term([0, 1, 4, 7, 9, 10], 10)
    outgoing = torch.randn(len(documents), 3, generator=torch.Generator().manual_seed(1))
    scores = term(make_batch(documents))
    if not any(documents):
        return
    scores.backward(outgoing)
    gradient = term.weight.grad
    assert gradient is not None
    assert gradient.is_sparse
    assert gradient._indices()[0].tolist() == sorted(set().union(*documents))
    document, token, value = term._weigh(make_batch(documents))
    expected = torch.zeros(6, 3, dtype=torch.float64)
    for row, column, x in zip(document.tolist(), token.tolist(), value.tolist(), strict=True):
        expected[column] += x * outgoing[row].double()
    torch.testing.assert_close(gradient.to_dense().double(), expected, rtol=1e-5, atol=1e-6)


def test_WideTerm_batch_without_tokens_scores_zero() -> None:
    """No token, no opinion; and the frequencies of an unseen token are finite."""
    assert torch.equal(make_term([0] * 6, 4)(make_batch([[], []])), torch.zeros(2, 3))


def test_WideTerm_weights_start_at_zero_and_return_to_it() -> None:
    """So an untrained term changes no score."""
    term = make_term([1] * 6, 4)
    term.reset_parameters()
    assert not term.weight.any()
    assert not term(make_batch([[1, 2]])).any()


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=4))
def test_WideTerm_contributions_sum_to_the_scores(documents: list[list[int]]) -> None:
    """Token by token, by document and token, each once; their sums are what forward gives."""
    term = make_term([0, 1, 4, 7, 9, 10], 10)
    batch, labels = make_batch(documents), torch.tensor([2, 0])
    document, token, added = term.contributions(batch, labels)
    pairs = list(zip(document.tolist(), token.tolist(), strict=True))
    assert pairs == sorted({(row, one) for row, tokens in enumerate(documents) for one in tokens})
    sums = torch.zeros(len(documents), 2).index_add_(0, document, added)
    torch.testing.assert_close(sums, term(batch)[:, labels])
