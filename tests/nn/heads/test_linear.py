"""`LinearHead`: its scores, its prior, its start."""

import math

import pytest
import torch

from match_graph.nn import EncoderOutput, LinearHead


def make_head(in_channels: int = 5, num_labels: int = 7, seed: int = 0) -> LinearHead:
    torch.manual_seed(seed)
    head = LinearHead(in_channels, num_labels, LinearHead.Config())
    with torch.no_grad():
        head.bias.normal_()
    return head


def output_of(document: torch.Tensor) -> EncoderOutput:
    return EncoderOutput(document, None, torch.arange(len(document) + 1))


@torch.no_grad()
def test_LinearHead_scores_equal_the_formula() -> None:
    """w_l h_d + b_l, label by label and channel by channel, in float64."""
    head = make_head().double()
    document = torch.randn(4, 5, dtype=torch.float64)
    logits = head(output_of(document))
    assert logits.shape == (4, 7)
    for row in range(4):
        for label in range(7):
            expected = float(head.bias[label]) + sum(
                float(head.weight[label, channel] * document[row, channel]) for channel in range(5)
            )
            assert float(logits[row, label]) == pytest.approx(expected, abs=1e-12)


def test_LinearHead_scores_are_a_transposed_view() -> None:
    """Rows of labels are contiguous, as the hypernymy term reads them."""
    assert make_head()(output_of(torch.randn(4, 5))).t().is_contiguous()


def test_LinearHead_gradients_equal_those_of_a_linear_layer() -> None:
    """For weight, bias and states, against torch.nn.functional.linear; and gradcheck."""
    head = make_head().double()
    document = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    outgoing = torch.randn(4, 7, dtype=torch.float64)
    inputs = (document, head.weight, head.bias)
    found = torch.autograd.grad(head(output_of(document)), inputs, outgoing)
    linear = torch.nn.functional.linear(document, head.weight, head.bias)
    for one, other in zip(found, torch.autograd.grad(linear, inputs, outgoing), strict=True):
        assert torch.allclose(one, other, rtol=1e-12)
    assert torch.autograd.gradcheck(lambda states: head(output_of(states)), document)


def test_LinearHead_prior_is_log_odds_of_training_frequencies() -> None:
    """log(p / (1 - p)) with half a document added; finite for labels on none and on all."""
    head = make_head(num_labels=3).double()
    head.set_prior(torch.tensor([0, 3, 10]), 10)
    expected = [math.log((count + 0.5) / (10.5 - count)) for count in (0, 3, 10)]
    assert head.bias.tolist() == pytest.approx(expected, abs=1e-12)
    logits = head(output_of(torch.zeros(1, 5, dtype=torch.float64)))
    assert torch.sigmoid(logits).tolist()[0] == pytest.approx([0.5 / 11, 3.5 / 11, 10.5 / 11])
    assert head.bias.requires_grad


def test_LinearHead_reset_draws_xavier_weights_and_no_bias() -> None:
    """Within the bound and of its variance, by the seed."""
    head = make_head(300, 200)
    torch.manual_seed(1)
    head.reset_parameters()
    bound = math.sqrt(6 / 500)
    first = head.weight.detach().clone()
    assert float(first.abs().max()) <= bound
    assert float(first.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert not head.bias.any()
    torch.manual_seed(1)
    head.reset_parameters()
    assert torch.equal(head.weight, first)


def test_LinearHead_label_vectors_stand_in_the_encoders_state() -> None:
    """Label vectors fill both slots of the state; the two columns of features behind it stay."""
    head = make_head(in_channels=6)
    before = head.weight.detach().clone()
    vectors = torch.nn.functional.normalize(torch.randn(7, 2))
    head.load_label_vectors(vectors, width=4, slot_channels=2)
    slots = torch.nn.functional.normalize(head.weight[:, :4].view(7, 2, 2), dim=2)
    assert torch.allclose(slots, vectors.unsqueeze(1).expand(-1, 2, -1))
    assert torch.equal(head.weight[:, 4:], before[:, 4:])


def test_LinearHead_label_weight_is_the_parameter_itself() -> None:
    """One row per label, [L, C], so that the regulariser trains it."""
    head = make_head()
    assert head.label_weight is head.weight
    assert head.label_weight.shape == (7, 5)
    assert (head.in_channels, head.num_labels, head.takes) == (5, 7, "document")


def test_LinearHead_scores_in_float32_outside_training() -> None:
    """In bfloat16 the best of many labels tie; the gradient's pass stays as fast as it was."""
    head = make_head(in_channels=16, num_labels=3000)
    document = torch.randn(40, 16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        rounded = head.train()(output_of(document.bfloat16()))
        found = head.eval()(output_of(document.bfloat16()))
    assert rounded.dtype == torch.bfloat16
    assert found.dtype == torch.float32
    exact = head.double()(output_of(document.bfloat16().double())).float()
    assert torch.allclose(found, exact, rtol=1e-4, atol=1e-5)

    def count_ties(scores: torch.Tensor) -> int:
        best = scores.topk(6, dim=1).values
        return int((best.diff(dim=1) == 0).any(dim=1).sum())

    assert count_ties(rounded) > 10
    assert count_ties(found) == 0
