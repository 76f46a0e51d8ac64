"""TF-IDF against a slow loop over documents and tokens."""

import math
from collections import Counter

import numpy as np
import pytest

from match_graph.baselines.tfidf import TfidfFeatures, stack_labels
from match_graph.datasets import Synthetic
from match_graph.graph import EgoBatch


def tokens_of(batches: list[EgoBatch], num_special: int) -> list[Counter[int]]:
    """The known tokens of each document."""
    found = []
    for batch in batches:
        for start, end in zip(batch.ptr[:-1].tolist(), batch.ptr[1:].tolist(), strict=True):
            ids = batch.token_id[start:end].tolist()
            found.append(Counter(token for token in ids if token > num_special))
    return found


@pytest.mark.parametrize("sublinear", [True, False])
def test_TfidfFeatures_equal_the_formula(synthetic: Synthetic, batches, sublinear: bool) -> None:
    """Counts, smoothed inverse document frequencies, unit length; [UNK]s are no features."""
    space = synthetic.token_space()
    features = TfidfFeatures(space, sublinear)
    features.fit(features.count(batches("train")))
    found = features.transform(features.count(batches("test")))
    train, test = (tokens_of(batches(split), len(space.types)) for split in ("train", "test"))
    number = Counter(token for document in train for token in document)
    idf = {token: 1 + math.log((1 + len(train)) / (1 + number[token])) for token in number}
    for row, document in zip(found.toarray(), test, strict=True):
        expected = np.zeros(space.num_tokens)
        for token, count in document.items():
            expected[token] = (1 + math.log(count) if sublinear else count) * idf[token]
        length = np.linalg.norm(expected)
        np.testing.assert_allclose(row, expected / length if length else expected, atol=1e-6)
    assert found.dtype == np.float32
    columns = set(found.indices.tolist())
    for name in space.types:  # words and every metadata field take part
        assert columns & set(range(space.span(name).start, space.span(name).stop)), name


def test_TfidfFeatures_factors_can_be_set(synthetic: Synthetic, batches) -> None:
    """What is read gives the same features as what was fitted."""
    features = TfidfFeatures(synthetic.token_space(), True)
    expected = features.fit(features.count(batches("train")))
    other = TfidfFeatures(synthetic.token_space(), True)
    other.idf = features.idf
    found = other.transform(other.count(batches("train")))
    assert abs(found - expected).max() < 1e-6


def test_stack_labels_are_stacked_in_the_order_of_the_batches(
    synthetic: Synthetic, batches
) -> None:
    """Each row holds the gold labels of its document."""
    rows = stack_labels(batches("valid"), synthetic.num_labels)
    documents = [document for batch in batches("valid") for document in batch.document.tolist()]
    targets = synthetic.targets
    for row, document in enumerate(documents):
        gold = targets.index[targets.ptr[document] : targets.ptr[document + 1]].tolist()
        assert sorted(rows[row].indices.tolist()) == gold
