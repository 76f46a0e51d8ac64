"""Evaluators against the meters and by hand; a sentence for every wrong input."""

import math

import numpy as np
import pytest
import torch

from match_graph.errors import GraphError
from match_graph.metrics import Evaluator, PropensityMeter, RankingMeter, inverse_propensity

NAMES = ("ranking", "ranked_sum", "propensity", "f1", "sets", "hierarchical", "violation")

#: No document has more than two gold labels.
KS = {"ranked_sum": (1, 2)}


def make_inputs(name: str) -> dict:
    """Three documents, the second without gold labels, six labels under 0."""
    gold = {"label_ptr": torch.tensor([0, 2, 2, 3]), "label_index": torch.tensor([4, 1, 2])}
    ranked = {"ranked": torch.tensor([[4, 0, 1, 2, 3], [0, 1, 2, 3, 4], [5, 2, 0, 1, 3]])}
    predicted = {
        "predicted_ptr": torch.tensor([0, 1, 2, 3]),
        "predicted_index": torch.tensor([4, 0, 5]),
    }
    edges = {"label_edge_index": torch.tensor([[1, 2, 4, 5], [0, 0, 1, 2]])}
    return {
        "ranking": {**ranked, **gold},
        "propensity": {
            **ranked, **gold,
            "train_count": torch.tensor([90, 40, 30, 9, 5, 1]), "num_train_documents": 100,
        },
        "ranked_sum": {"logits": torch.arange(18.0).reshape(3, 6) / 18, **gold},
        "f1": {**predicted, **gold, "num_labels": 6},
        "sets": {**predicted, **gold, "num_labels": 6},
        "hierarchical": {**predicted, **gold, "num_labels": 6, **edges},
        "violation": {
            "logits": torch.tensor([[2.0, 1.0, 3.0, 0.0, -1.0, 0.0]]), **edges,
        },
    }[name]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_Evaluator_formats_name_what_goes_in_and_comes_out(name: str) -> None:
    """Each key of the input a line, each measure named; NumPy arrays give what tensors give."""
    evaluator, inputs = Evaluator(name, ks=KS.get(name, (1, 3, 5))), make_inputs(name)
    lines = evaluator.expected_input_format.splitlines()[1:]
    assert [line.split(":")[0].strip() for line in lines] == list(inputs)
    measures = evaluator.eval(inputs)
    shown = evaluator.expected_output_format.splitlines()[1]
    assert [part.strip() for part in shown.split(",")] == list(measures)
    assert all(0 <= value <= (6 if name == "ranked_sum" else 1) for value in measures.values())
    arrays = {
        key: value.numpy() if isinstance(value, torch.Tensor) else np.int64(value)
        for key, value in inputs.items()
    }
    arrays = {
        key: value.astype(np.int32) if "ptr" in key else value for key, value in arrays.items()
    }
    assert evaluator.eval(arrays) == measures


def test_Evaluator_ranking_and_propensity_are_those_of_meters() -> None:
    """All documents at once, with the cuts and the policy given."""
    inputs = make_inputs("propensity")
    batch = inputs["ranked"], inputs["label_ptr"], inputs["label_index"]
    meter = RankingMeter((1, 4), "skip")
    meter.update(*batch)
    found = Evaluator("ranking", ks=(1, 4), empty="skip").eval(make_inputs("ranking"))
    assert found == meter.compute()
    weighted = PropensityMeter(inverse_propensity(inputs["train_count"], 100))
    weighted.update(*batch)
    assert Evaluator("propensity").eval(inputs) == weighted.compute()


def test_Evaluator_sets_and_violations_by_hand() -> None:
    """Closed: {4, 1, 0}, {0}, {5, 2, 0} predicted; {4, 1, 0}, {}, {2, 0} gold; 5 in common."""
    assert Evaluator("f1").eval(make_inputs("f1")) == {
        "F1_micro": pytest.approx(2 / 6),
        "F1_macro": pytest.approx(1 / 5),  # label 4 is right; 0, 1, 2, 5 are not
    }
    assert Evaluator("hierarchical").eval(make_inputs("hierarchical")) == {
        "hierarchical_P": pytest.approx(5 / 7),
        "hierarchical_R": pytest.approx(5 / 5),
        "hierarchical_F1": pytest.approx(10 / 12),
    }
    excess = 1 / (1 + math.exp(-3)) - 1 / (1 + math.exp(-2))
    assert Evaluator("violation").eval(make_inputs("violation")) == {
        "violation_rate": 1 / 4,
        "violation_size": pytest.approx(excess, abs=1e-6),
    }


def test_Evaluator_measures_of_oaxmlc_bench_by_hand() -> None:
    """Gold {4, 1}, {}, {2}: label 4 is predicted rightly, 0 and 5 wrongly, 1 and 2 missed."""
    found = Evaluator("sets").eval(make_inputs("sets"))
    assert found == pytest.approx({
        "P_micro": 1 / 3, "R_micro": 1 / 3, "F1_micro": 1 / 3,
        "P_macro": 1 / 6, "R_macro": 1 / 6, "F1_of_macro": 1 / 6,
    })  # fmt: skip
    ranks = Evaluator("ranked_sum", ks=(1, 2)).eval(make_inputs("ranked_sum"))
    assert ranks == {"RankedSum@1": (2 + 4) / 2, "RankedSum@2": 5.0}
    policy = Evaluator("ranking", ks=(1, 2), empty="at_least_k").eval(make_inputs("ranking"))
    assert (policy["P@1"], policy["P@2"]) == (1 / 2, 1 / 2)
    with pytest.raises(GraphError) as error:
        Evaluator("ranked_sum", ks=(3,)).eval(make_inputs("ranked_sum"))
    assert str(error.value) == (
        "Every measure of 'ranked_sum' must be defined, but RankedSum@3 would be 0/0 for these "
        "documents; give smaller ks, or documents with as many gold labels."
    )


def test_Evaluator_wrong_names_and_cuts() -> None:
    """At once, not at `eval`."""
    with pytest.raises(GraphError) as error:
        Evaluator("accuracy")
    assert str(error.value) == (
        "The name of an evaluator must be one of ranking, ranked_sum, propensity, f1, sets, "
        "hierarchical, violation, found 'accuracy'."
    )
    with pytest.raises(GraphError) as error:
        Evaluator("ranking", ks=(0, 3))
    assert str(error.value) == "Cuts must be a list of whole numbers of 1 or more, found (0, 3)."
    for wrong in (5, "5", [1.5], [], None):
        with pytest.raises(GraphError, match="Cuts must be a list of whole numbers"):
            Evaluator("ranking", ks=wrong)
    assert Evaluator("ranking", ks=[np.int64(3)]).measures[0].endswith("3")
    with pytest.raises(GraphError, match="must be one of zero, skip, at_least_k, found 'skp'"):
        Evaluator("ranking", empty="skp")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"scores": torch.zeros(1)},
            "Evaluator('ranking') must get exactly ranked, label_ptr, label_index, found ranked, "
            "label_ptr, label_index, scores.",
        ),
        (
            {"ranked": [[1, 2]]},
            "'ranked' must be a tensor or a NumPy array, found list.",
        ),
        (
            {"ranked": torch.zeros(3, 5)},
            "'ranked' must be int64 or int32: label indices, best first, [B, K], K at least the "
            "largest k, found [3, 5] torch.float32.",
        ),
        (
            {"label_ptr": torch.zeros(4, 1).long()},
            "'label_ptr' must be int64 or int32: offsets of the documents' gold labels, [B + 1], "
            "found [4, 1] torch.int64.",
        ),
        (
            {"label_index": torch.tensor([4, -1, 2])},
            "'label_index' must hold no negative number, found -1.",
        ),
        (
            {"label_ptr": torch.tensor([0, 2, 2, 4])},
            "'label_ptr' must rise from 0 to the 3 entries of 'label_index', found [0, 2, 2, 4].",
        ),
        (
            {"label_ptr": torch.tensor([1, 2, 2, 3])},
            "'label_ptr' must rise from 0 to the 3 entries of 'label_index', found [1, 2, 2, 3].",
        ),
        (
            {"label_index": torch.tensor([4, 4, 2])},
            "'label_index' must name a label once per document, but document 0 has label 4 twice.",
        ),
        (
            {"ranked": torch.tensor([[4, 0, 1, 2, 3], [0, 1, 2, 3, 4], [5, 2, 0, 2, 3]])},
            "'ranked' must name a label once per document, but document 2 has label 2 twice.",
        ),
        (
            {"ranked": torch.tensor([[4, 0], [0, 1], [5, 2]])},
            "'ranked' must hold at least 5 labels per document, found 2; rank more, or give "
            "ks up to the number of labels.",
        ),
        (
            {"ranked": torch.arange(5).expand(2, 5)},
            "Ranked labels must be [B, K] with label_ptr [B + 1], found [2, 5] and [4].",
        ),
    ],
)
def test_Evaluator_wrong_inputs(change: dict, sentence: str) -> None:
    """One sentence: what must hold and what was found."""
    with pytest.raises(GraphError) as error:
        Evaluator("ranking").eval({**make_inputs("ranking"), **change})
    assert str(error.value) == sentence


def test_Evaluator_takes_arrays_in_any_order_of_memory() -> None:
    """A ranking from the last place of an `argsort` has strides below 0."""
    inputs = make_inputs("ranking")
    ranked = inputs["ranked"].numpy()
    turned = np.ascontiguousarray(ranked[:, ::-1])[:, ::-1]
    assert turned.strides[1] < 0
    assert Evaluator("ranking").eval({**inputs, "ranked": turned}) == (
        Evaluator("ranking").eval(inputs)
    )
    scalar = {"num_labels": np.array(int(inputs["num_labels"]))} if "num_labels" in inputs else {}
    assert Evaluator("ranking").eval({**inputs, **scalar}) == Evaluator("ranking").eval(inputs)
    for odd, kind in ((np.full((3, 5), "a"), "<U1"), (ranked.astype(">i8"), ">i8")):
        fault = f"^'ranked' must hold numbers, found an array of {kind}"
        with pytest.raises(GraphError, match=fault):
            Evaluator("ranking").eval({**inputs, "ranked": odd})


def test_Evaluator_nothing_given() -> None:
    """No key at all."""
    with pytest.raises(GraphError) as error:
        Evaluator("violation").eval({})
    assert str(error.value) == (
        "Evaluator('violation') must get exactly logits, label_edge_index, found nothing."
    )


def test_Evaluator_scores_that_are_not_finite() -> None:
    """Scores of a diverged model are refused rather than counted as free of violations."""
    inputs = {**make_inputs("violation"), "logits": torch.tensor([[math.nan] * 6])}
    with pytest.raises(GraphError) as error:
        Evaluator("violation").eval(inputs)
    assert str(error.value) == "'logits' must be finite, found NaN or infinity."


def test_Evaluator_measure_that_is_not_defined_is_an_error() -> None:
    """Never 0: nothing predicted, no gold label, no edge."""
    nothing = {
        "predicted_ptr": torch.zeros(4, dtype=torch.int64),
        "predicted_index": torch.zeros(0, dtype=torch.int64),
    }
    with pytest.raises(GraphError) as error:
        Evaluator("hierarchical").eval({**make_inputs("hierarchical"), **nothing})
    assert str(error.value) == (
        "Every measure of 'hierarchical' must be defined, but hierarchical_P would be 0/0 for "
        "these documents; give documents with gold and predicted labels."
    )
    flat = {"label_edge_index": torch.zeros(2, 0, dtype=torch.int64)}
    with pytest.raises(GraphError, match=r"0/0 .*; give label_edge_index with an edge\.$"):
        Evaluator("violation").eval({**make_inputs("violation"), **flat})
