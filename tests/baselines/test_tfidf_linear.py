"""One-vs-rest against scikit-learn's own, and what it does where nothing can be told apart."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from match_graph.baselines import TfidfLinear, tfidf, tfidf_linear
from match_graph.baselines.tensors import TENSORS
from match_graph.baselines.tfidf import stack_labels
from match_graph.baselines.tfidf_linear import count_passes
from match_graph.datasets import Synthetic
from match_graph.errors import CheckpointError
from match_graph.graph import EgoBatch
from match_graph.graph.label_clusters import count_clusters
from match_graph.nn.label_tree import join_log_odds


def make(synthetic: Synthetic, **settings) -> TfidfLinear:
    config = TfidfLinear.Config(**settings)
    return TfidfLinear(synthetic.token_space(), synthetic.num_labels, config)


@pytest.mark.parametrize(
    ("loss", "reference"),
    [
        ("squared_hinge", LinearSVC(C=2.0, dual=False)),
        ("log", LogisticRegression(C=2.0, solver="liblinear")),
    ],
)
def test_TfidfLinear_scores_equal_scikit_learns_one_vs_rest(
    synthetic: Synthetic, batches, loss: str, reference
) -> None:
    """Without pruning and scaling, for the labels that some documents have and some lack."""
    scale = {"slope": 1.0, "offset": 0.0} if loss == "squared_hinge" else {}  # none of log-odds
    baseline = make(synthetic, loss=loss, cost=2.0, prune=0.0, **scale)
    baseline.fit(batches("train"))
    train, test = batches("train"), batches("test")
    features = baseline.features
    gold = stack_labels(train, synthetic.num_labels).toarray()
    usual = (gold.sum(0) > 0) & (gold.sum(0) < len(gold))
    rows = features.transform(train).astype(np.float64)
    model = OneVsRestClassifier(reference).fit(rows, gold[:, usual])
    expected = model.decision_function(features.transform(test))
    found = torch.cat([baseline.predict(batch) for batch in test])[:, torch.from_numpy(usual)]
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-3)  # both stop early


def test_TfidfLinear_seed_draws_what_weighs_metadata(
    synthetic: Synthetic, batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documents that choose the weight are drawn by the seed of the run."""
    seeds, draw = [], tfidf.draw_documents
    monkeypatch.setattr(
        tfidf, "draw_documents", lambda number, seed: seeds.append(seed) or draw(number, seed)
    )
    config = TfidfLinear.Config()
    TfidfLinear(synthetic.token_space(), synthetic.num_labels, config, 7).fit(batches("train"))
    assert seeds == [7]


def test_TfidfLinear_fits_the_same_again(synthetic: Synthetic, batches) -> None:
    """To the last bit, whatever else was drawn."""
    results = []
    for seed in (1, 3):
        np.random.seed(seed)  # noqa: NPY002 - that of scikit-learn
        baseline = make(synthetic)
        baseline.fit(batches("train"))
        results.append(torch.cat([baseline.predict(batch) for batch in batches("test")]))
    assert torch.equal(*results)


def test_TfidfLinear_fits_where_the_dual_does_not_converge(
    synthetic: Synthetic, batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights by the other solver."""
    found = []
    for passes in (1000, 0):
        baseline = make(synthetic, prune=0.0)
        with monkeypatch.context() as patch:
            patch.setattr(tfidf_linear, "_MAX_PASSES", passes or 1000)
            if not passes:
                patch.setattr(np, "max", lambda _: 1000)
            baseline.fit(batches("train"))
        found.append(torch.cat([baseline.predict(batch) for batch in batches("test")]))
    assert not torch.equal(*found)
    torch.testing.assert_close(*found, atol=0.02, rtol=0)


def test_TfidfLinear_contributions_sum_to_its_scores(synthetic: Synthetic, batches) -> None:
    """With the offset, for some labels, document by document."""
    baseline = make(synthetic)
    baseline.fit(batches("train"))
    labels = torch.tensor([3, 0, 5])
    bias = 6.0 * torch.from_numpy(baseline.bias)[labels] + 1.0
    for batch in batches("test", batch_size=1)[:5]:
        token, added = baseline.contributions(batch, labels)
        assert torch.equal(token, token.unique())
        expected = baseline.predict(batch)[0, labels]
        torch.testing.assert_close(added.sum(dim=0) + bias, expected, atol=1e-4, rtol=1e-4)


@pytest.fixture
def small_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters of at most four labels."""
    monkeypatch.setattr(tfidf_linear, "_CLUSTER_SIZE", 4)


def test_TfidfLinear_tree_is_the_product_of_two_classifiers(
    synthetic: Synthetic, batches, small_clusters: None
) -> None:
    """One of clusters on all documents, one of labels on the documents of their cluster."""
    baseline = make(synthetic, tree=True, prune=0.0)
    train, test = batches("train"), batches("test")
    baseline.fit(train)
    rows = baseline.features.transform(train).astype(np.float64)
    new_rows = baseline.features.transform(test)
    gold = stack_labels(train, synthetic.num_labels).toarray() > 0
    cluster = baseline.cluster.numpy()
    assert np.bincount(cluster).max() <= 4
    assert len(np.bincount(cluster)) == 8

    def find_probability(rows, is_gold: np.ndarray) -> np.ndarray:
        model = LinearSVC(C=0.5, dual=False).fit(rows, is_gold)
        return 1 / (1 + np.exp(-6 * model.decision_function(new_rows) - 1))

    found = torch.sigmoid(torch.cat([baseline.predict(batch) for batch in test])).numpy()
    for label in range(synthetic.num_labels):
        is_member = gold[:, cluster == cluster[label]].any(axis=1)
        is_gold = gold[is_member, label]
        if 0 < is_gold.sum() < len(is_gold):
            expected = find_probability(rows, is_member)
            expected *= find_probability(rows[is_member], is_gold)
            np.testing.assert_allclose(found[:, label], expected, atol=0.01)


def test_TfidfLinear_tree_ranks_nearly_as_well(
    synthetic: Synthetic, batches, small_clusters: None
) -> None:
    """At least .9 of the precision of the best label without clusters."""
    hits = {}
    for tree in (False, True):
        baseline = make(synthetic, tree=tree)
        baseline.fit(batches("train"))
        gold = stack_labels(batches("test"), synthetic.num_labels).toarray()
        logits = torch.cat([baseline.predict(batch) for batch in batches("test")])
        hits[tree] = gold[np.arange(len(gold)), logits.argmax(dim=1).numpy()].mean()
    assert hits[True] > 0.9 * hits[False]


def test_TfidfLinear_tree_contributions_are_of_first_order(
    synthetic: Synthetic, batches, small_clusters: None
) -> None:
    """A little less of a token changes a label's logit by that part of its contribution."""
    baseline = make(synthetic, tree=True)
    baseline.fit(batches("train"))
    labels, step = torch.tensor([3, 0, 5]), 1e-3
    batch = batches("test", batch_size=1)[0]
    token, added = baseline.contributions(batch, labels)
    row = baseline.features.transform([batch]).astype(np.float64)
    baseline.weight = baseline.weight.astype(np.float64)

    def score(row) -> torch.Tensor:
        values = (row @ baseline.weight).toarray() + baseline.bias
        return join_log_odds(*baseline._split(torch.from_numpy(6 * values + 1)))[0, labels]

    for place in range(min(5, len(token))):
        less = row.copy()
        less[0, int(token[place])] *= 1 - step
        change = (score(row) - score(less)) / step
        torch.testing.assert_close(change.float(), added[place], atol=2e-3, rtol=2e-2)


def test_TfidfLinear_tree_contributions_of_sure_labels(
    synthetic: Synthetic, batches, small_clusters: None
) -> None:
    """Cluster and label are so sure that 1 - P is 0 in float32."""
    baseline = make(synthetic, tree=True)
    baseline.fit(batches("train"))
    labels, batch = torch.tensor([3, 0, 5]), batches("test", batch_size=1)[0]
    baseline.bias[:] = 10.0  # times the slope
    _, added = baseline.contributions(batch, labels)
    assert bool(added.isfinite().all())
    assert bool(added.any())


def test_TfidfLinear_tree_is_read_back(
    synthetic: Synthetic, batches, tmp_path: Path, small_clusters: None
) -> None:
    """The same scores; one of other labels, or with a cluster that is none, is refused."""
    baseline = make(synthetic, tree=True)
    baseline.fit(batches("train"))
    baseline.save(tmp_path)
    again = make(synthetic, tree=True)
    again.load(tmp_path)
    for batch in batches("test"):
        assert torch.equal(again.predict(batch), baseline.predict(batch))
    with pytest.raises(CheckpointError, match="of this run's tokens and labels, found"):
        make(synthetic).load(tmp_path)
    tensors = load_file(tmp_path / TENSORS)
    tensors["cluster"][0] = 8
    save_file(tensors, tmp_path / TENSORS)
    with pytest.raises(CheckpointError, match="its clusters are not of its labels"):
        again.load(tmp_path)


@pytest.mark.parametrize(
    ("labels", "clusters", "passes"),
    [(1, 1, 2), (128, 1, 129), (129, 2, 131), (16_632, 256, 580.84375)],
)
def test_count_passes(labels: int, clusters: int, passes: float) -> None:
    """A power of two clusters, and five labels a document in as many of them."""
    assert count_clusters(labels, 128) == clusters
    assert count_passes(labels, 5.0) == passes


def test_TfidfLinear_labels_on_no_or_every_document_get_prior(
    synthetic: Synthetic, batches
) -> None:
    """Label 0 on every training document, label 1 on none."""
    train = []
    for batch in batches("train", batch_size=1):
        others = [label for label in batch.label_index.tolist() if label not in (0, 1)]
        index = torch.tensor([0, *others])
        train.append(replace(batch, label_ptr=torch.tensor([0, len(index)]), label_index=index))
    for loss in ("squared_hinge", "log"):
        baseline = make(synthetic, loss=loss)
        baseline.fit(train)
        probability = torch.sigmoid(baseline.predict(batches("test")[0]))
        share = 0.5 / (len(train) + 1)
        assert torch.allclose(probability[:, 0], torch.tensor(1 - share))
        assert torch.allclose(probability[:, 1], torch.tensor(share))


def test_TfidfLinear_pruning_costs_little_quality(synthetic: Synthetic, batches) -> None:
    """Fewer weights; the ranking of most documents stays."""
    whole, pruned = make(synthetic, prune=0.0), make(synthetic, prune=0.05)
    best = []
    for baseline in (whole, pruned):
        baseline.fit(batches("train"))
        logits = torch.cat([baseline.predict(batch) for batch in batches("test")])
        best.append(logits.argmax(dim=1))
    assert pruned.weight.nnz < 0.9 * whole.weight.nnz
    assert np.abs(pruned.weight.data).min() >= 0.05
    assert (best[0] == best[1]).float().mean() > 0.9


def test_TfidfLinear_model_of_other_tokens_is_refused(
    synthetic: Synthetic, batches, tmp_path: Path
) -> None:
    """Another minimum count is another token space."""
    baseline = make(synthetic)
    baseline.fit(batches("train"))
    baseline.save(tmp_path)
    space = synthetic.token_space(min_count=1)
    other = TfidfLinear(space, synthetic.num_labels, TfidfLinear.Config())
    with pytest.raises(CheckpointError, match="of this run's tokens and labels, found"):
        other.load(tmp_path)


def test_TfidfLinear_reads_features_of_documents(
    synthetic: Synthetic, batches, tmp_path: Path
) -> None:
    """Labels that follow from them alone are found; kept with the weights; no other number fits."""
    train, test = (
        [make_separable(batch) for batch in batches(split, width=4)] for split in ("train", "test")
    )
    config = TfidfLinear.Config(tokens=False, cost=100.0)
    fitted, other, third = (
        TfidfLinear(synthetic.token_space(), synthetic.num_labels, config, width=width)
        for width in (4, 4, 5)
    )
    fitted.fit(train)
    logits = torch.cat([fitted.predict(batch) for batch in test])
    positive = torch.cat([batch.x[:, 0] > 0 for batch in test])
    assert torch.equal(logits[:, 0] > logits[:, 1], positive)
    fitted.save(tmp_path)
    other.load(tmp_path)
    assert torch.equal(torch.cat([other.predict(batch) for batch in test]), logits)
    with pytest.raises(CheckpointError, match="of this run's tokens and labels, found"):
        third.load(tmp_path)


def make_separable(batch: EgoBatch) -> EgoBatch:
    """The batch with label 0 where the first feature is positive, label 1 elsewhere."""
    x = batch.x.clone()
    x[:, 0] = torch.where(x[:, 0] > 0, 2.0, -2.0)
    label = (x[:, 0] <= 0).long()
    return replace(batch, x=x, label_ptr=torch.arange(len(x) + 1), label_index=label)


@pytest.mark.parametrize(
    ("name", "spoil", "reason"),
    [
        ("weight_ptr", lambda ptr: set_at(ptr, 5, 2**30), "its offsets do not ascend"),
        ("weight_ptr", lambda ptr: set_at(ptr, 5, -1), "its offsets do not ascend"),
        ("weight_ptr", lambda ptr: set_at(ptr, -1, 2**30), "its offsets are not of its values"),
        ("weight_ptr", lambda ptr: set_at(ptr, 0, 1), "its offsets are not of its values"),
        ("weight_index", lambda index: set_at(index, 3, 2**30), "a label is not in 0..{last}"),
        ("weight_index", lambda index: set_at(index, 3, -1), "a label is not in 0..{last}"),
        ("weight_value", lambda value: value[1:], "its offsets are not of its values"),
        (
            "weight_value",
            lambda value: set_at(value, 0, float("nan")),
            "'weight_value' holds values that are not finite",
        ),
        ("idf", lambda idf: set_at(idf, 0, -1), "an idf is negative"),
    ],
)
def test_TfidfLinear_load_refuses_what_would_be_read_beyond_end(
    synthetic: Synthetic, batches, tmp_path: Path, name: str, spoil, reason: str
) -> None:
    """SciPy indexes with offsets and labels without a look: a crafted file crashed the process."""
    baseline = make(synthetic)
    baseline.fit(batches("train"))
    baseline.save(tmp_path)
    tensors = load_file(tmp_path / TENSORS)
    save_file({**tensors, name: spoil(tensors[name]).contiguous()}, tmp_path / TENSORS)
    with pytest.raises(CheckpointError) as caught:
        make(synthetic).load(tmp_path)
    reason = reason.format(last=synthetic.num_labels - 1)
    assert str(caught.value) == (
        f"'{tmp_path / TENSORS}' must hold what fitting the baseline wrote, but {reason}; delete "
        f"the folder '{tmp_path}' and train again."
    )


def set_at(tensor: torch.Tensor, place: int, value: float) -> torch.Tensor:
    """The tensor with another value at a place."""
    tensor = tensor.clone()
    tensor[place] = value
    return tensor
