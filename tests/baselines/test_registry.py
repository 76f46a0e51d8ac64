"""Every registered baseline keeps the contract of baselines."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from match_graph.baselines import BASELINES, Baseline
from match_graph.datasets import Synthetic
from match_graph.graph import EgoBatch
from match_graph.metrics import RankingMeter, rank_labels
from match_graph.nn import ENCODERS

#: Settings of each registered baseline.
CASES: dict[str, list[dict[str, Any]]] = {
    "omikuji": [{}, {"num_trees": 1, "min_branch_size": 5, "num_threads": 1}],
    "prior": [{}],
    "tfidf_linear": [{}, {"loss": "log", "cost": 30.0, "sublinear": False}],
}
EACH = [(name, settings) for name, cases in CASES.items() for settings in cases]


@pytest.fixture(params=EACH, ids=lambda case: f"{case[0]}-{len(case[1])}")
def make(request: pytest.FixtureRequest, synthetic: Synthetic):
    """A baseline of the case, not fitted."""
    name, settings = request.param
    if name == "omikuji":
        pytest.importorskip("omikuji", reason="omikuji is not installed (extra: peers)")
    cls = BASELINES[name]
    space, num_labels = synthetic.token_space(), synthetic.num_labels
    return lambda: cls(space, num_labels, cls.Config(**settings), seed=1)


@pytest.fixture
def fitted(make, batches) -> Baseline:
    baseline = make()
    baseline.fit(batches("train"))
    return baseline


def scores(baseline: Baseline, some: list[EgoBatch]) -> torch.Tensor:
    return torch.cat([baseline.predict(batch) for batch in some])


def measure(baseline: Baseline, some: list[EgoBatch]) -> float:
    meter = RankingMeter()
    for batch in some:
        ranked = rank_labels(baseline.predict(batch), 5)
        meter.update(ranked, batch.label_ptr, batch.label_index)
    return meter.compute()["NDCG@5"]


def test_BASELINES_every_registered_baseline_is_tested() -> None:
    """Fails when a baseline is registered and not named above, or named as an encoder is."""
    assert set(CASES) == set(BASELINES)
    assert all(CASES.values())
    assert not set(BASELINES) & set(ENCODERS)


def test_Baseline_scores_are_finite_log_odds_of_every_label(fitted: Baseline, batches) -> None:
    """[B, L], float32, whatever is unknown or missing in the documents."""
    for batch in batches("test"):
        logits = fitted.predict(batch)
        assert logits.shape == (batch.num_documents, fitted.num_labels)
        assert logits.dtype == torch.float32
        assert bool(logits.isfinite().all())


def test_Baseline_document_scores_alone_as_in_a_batch(fitted: Baseline, batches) -> None:
    """Batches of 1 and of 64; gold labels of the documents are not read."""
    together = scores(fitted, batches("test"))
    alone = [
        replace(batch, label_ptr=None, label_index=None) for batch in batches("test", batch_size=1)
    ]
    assert torch.allclose(scores(fitted, alone), together, atol=1e-5)


def test_Baseline_document_without_tokens_has_scores(fitted: Baseline) -> None:
    """Neither text nor metadata."""
    none = torch.empty(0, dtype=torch.int64)
    ptr = torch.zeros(3, dtype=torch.int64)
    logits = fitted.predict(EgoBatch(torch.tensor([0, 1]), none, none, none, ptr))
    assert logits.shape == (2, fitted.num_labels)
    assert bool(logits.isfinite().all())
    assert torch.equal(logits[0], logits[1])


def test_Baseline_what_is_saved_scores_the_same(
    fitted: Baseline, make, batches, tmp_path: Path
) -> None:
    """The same probabilities but for the order of summation; nothing there is a pickle."""
    fitted.save(tmp_path)
    other = make()
    other.load(tmp_path)
    found, expected = (torch.sigmoid(scores(one, batches("test"))) for one in (other, fitted))
    assert torch.allclose(found, expected, atol=1e-6)
    suffixes = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert suffixes <= {".safetensors", ".cbor", ".json"}


def test_Baseline_progress_ends_with_every_label(make, batches) -> None:
    """`advance` rises to L."""
    seen: list[int] = []
    baseline = make()
    baseline.fit(batches("train"), seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == baseline.num_labels


def test_Baseline_learns_planted_labels(fitted: Baseline, make, batches) -> None:
    """Better than the prior, but for the prior itself; at chance where labels are shuffled."""
    prior = BASELINES["prior"](fitted.space, fitted.num_labels, BASELINES["prior"].Config())
    prior.fit(batches("train"))
    chance = measure(prior, batches("test"))
    if type(fitted) is type(prior):
        assert measure(fitted, batches("test")) == chance
        return
    assert measure(fitted, batches("test")) > chance + 0.1
    train = batches("train", batch_size=1)
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(train), generator=generator).tolist()
    shuffled = [
        replace(batch, label_ptr=train[other].label_ptr, label_index=train[other].label_index)
        for batch, other in zip(train, order, strict=True)
    ]
    blind = make()
    blind.fit(shuffled)
    assert measure(blind, batches("test")) < chance + 0.05
