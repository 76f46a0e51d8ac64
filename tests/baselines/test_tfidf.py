"""TF-IDF against a slow loop over documents and tokens."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from match_graph.baselines.metadata_weight import choose_metadata_weight, draw_documents
from match_graph.baselines.tfidf import TfidfConfig, TfidfFeatures, stack_labels
from match_graph.datasets import Synthetic
from match_graph.errors import CheckpointError, ConfigError, GraphError
from match_graph.graph import EgoBatch


def tokens_of(batches: list[EgoBatch], num_special: int) -> list[Counter[int]]:
    """The known tokens of each document."""
    found = []
    for batch in batches:
        for start, end in zip(batch.ptr[:-1].tolist(), batch.ptr[1:].tolist(), strict=True):
            ids = batch.token_id[start:end].tolist()
            found.append(Counter(token for token in ids if token > num_special))
    return found


def fit(features: TfidfFeatures, batches: list[EgoBatch], synthetic: Synthetic) -> Any:
    """Rows of training documents."""
    return features.fit(batches, stack_labels(batches, synthetic.num_labels))


@pytest.mark.parametrize("sublinear", [True, False])
def test_TfidfFeatures_equal_the_formula(synthetic: Synthetic, batches, sublinear: bool) -> None:
    """Counts, smoothed inverse document frequencies, unit length; [UNK]s are no features."""
    space = synthetic.token_space()
    features = TfidfFeatures(space, TfidfConfig(sublinear=sublinear, metadata_weight=None))
    fit(features, batches("train"), synthetic)
    found = features.transform(batches("test"))
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


@pytest.mark.parametrize("weight", [None, "auto", 0.3])
def test_TfidfFeatures_takes_what_was_fitted(
    synthetic: Synthetic, batches, weight: Any, tmp_path: Path
) -> None:
    """What is read gives the same features as what was fitted."""
    config = TfidfConfig(metadata_weight=weight)
    features = TfidfFeatures(synthetic.token_space(), config)
    expected = fit(features, batches("train"), synthetic)
    other = TfidfFeatures(synthetic.token_space(), config)
    other.take(tmp_path, features.tensors)
    found = other.transform(batches("train"))
    assert abs(found - expected).max() < 1e-6
    assert {name: [*value.shape] for name, value in features.tensors.items()} == features.shapes
    negative = {"idf": features.tensors["idf"], "metadata_weight": -torch.ones(1)}
    with pytest.raises(CheckpointError, match="the weight of metadata is not positive"):
        other.take(tmp_path, negative)


def test_TfidfFeatures_weighs_metadata(synthetic: Synthetic, batches) -> None:
    """Words have the length 1 and metadata the weight, in rows of unit length."""
    space, train = synthetic.token_space(), batches("train")
    rows = fit(TfidfFeatures(space, TfidfConfig(metadata_weight=2.0)), train, synthetic).toarray()
    words = space.span("word")
    of_words = np.linalg.norm(rows[:, words], axis=1)
    of_metadata = np.linalg.norm(np.delete(rows, words, axis=1), axis=1)
    both = (of_words > 0) & (of_metadata > 0)
    assert both.any()
    np.testing.assert_allclose(of_metadata[both], 2 * of_words[both], rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1)[both], 1, rtol=1e-5)


def test_TfidfFeatures_chooses_the_weight_of_metadata(synthetic: Synthetic, batches) -> None:
    """By what `choose_metadata_weight` says of the rows of words and of metadata."""
    space, train = synthetic.token_space(), batches("train")
    features = TfidfFeatures(space, TfidfConfig())
    fit(features, train, synthetic)
    plain = fit(TfidfFeatures(space, TfidfConfig(metadata_weight=None)), train, synthetic)
    is_word = np.zeros(space.num_tokens, dtype=bool)
    is_word[space.span("word")] = True
    gold = stack_labels(train, synthetic.num_labels)
    drawn = draw_documents(gold.shape[0], 0)
    expected = choose_metadata_weight(plain[drawn], is_word, gold[drawn])
    assert features.metadata_weight == expected


def test_TfidfFeatures_appends_features_of_a_length(synthetic: Synthetic, batches) -> None:
    """Behind the tokens, which stay; a row of zeros stays too; without tokens they are alone."""
    space, train = synthetic.token_space(), batches("train", width=3)
    plain = fit(TfidfFeatures(space, TfidfConfig()), train, synthetic).toarray()
    for tokens in (True, False):
        config = TfidfConfig(feature_weight=0.5, tokens=tokens)
        features = TfidfFeatures(space, config, width=3)
        found = fit(features, train, synthetic)
        assert found.shape == (len(plain), features.num_features)
        assert found.dtype == np.float32
        rows = found.toarray()
        np.testing.assert_array_equal(rows[:, :-3], plain * tokens)
        x = np.concatenate([batch.x.numpy() for batch in train]).astype(np.float64)
        length = np.linalg.norm(x, axis=1, keepdims=True)
        expected = 0.5 * x / np.where(length, length, 1)
        np.testing.assert_allclose(rows[:, -3:], expected, atol=1e-6)
        assert (length == 0).any()
        np.testing.assert_array_equal(features.transform(train).toarray(), rows)


def test_TfidfFeatures_refuses_other_features(synthetic: Synthetic, batches) -> None:
    """None, or another number; none where tokens are left out."""
    features = TfidfFeatures(synthetic.token_space(), TfidfConfig(), width=3)
    for width, found in ((0, "none"), (2, "2")):
        with pytest.raises(GraphError) as caught:
            fit(features, batches("train", width=width), synthetic)
        assert str(caught.value) == (
            f"Documents must have the 3 features that the model was made for, found {found}; give "
            f"x with the batch."
        )
    with pytest.raises(ConfigError) as error:
        TfidfFeatures(synthetic.token_space(), TfidfConfig(tokens=False))
    assert str(error.value) == (
        "A linear model reads tokens or features, but model.encoder_config.tokens is false and "
        "documents have no features; set data.features.document."
    )


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
