"""`LabelAttentionHead` against a loop over documents, labels and tokens; its memory; its start."""

import math
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from match_graph.config import parse_settings
from match_graph.errors import ConfigError
from match_graph.nn import EncoderOutput, LabelAttentionHead

IN_CHANNELS, NUM_LABELS = 5, 7


def make_head(seed: int = 0, **settings: Any) -> LabelAttentionHead:
    """In float64, with no parameter at its neutral start."""
    torch.manual_seed(seed)
    config = LabelAttentionHead.Config(**{"hidden_channels": [4], **settings})
    head = LabelAttentionHead(IN_CHANNELS, NUM_LABELS, config).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_()
    return head


def make_output(*lengths: int, seed: int = 1) -> EncoderOutput:
    generator = torch.Generator().manual_seed(seed)
    ptr = torch.tensor([0, *lengths]).cumsum(0)
    states = torch.randn(
        int(ptr[-1]), IN_CHANNELS, dtype=torch.float64, generator=generator, requires_grad=True
    )
    return EncoderOutput(None, states, ptr)


def naive_score(head: LabelAttentionHead, tokens: list[Tensor], label: int) -> Tensor:
    """Equations 2 and 3 of the paper as they stand: attend first, then the shared layers."""
    attended = torch.zeros(IN_CHANNELS, dtype=torch.float64)
    if tokens:
        shares = [torch.exp(head.attention[label] @ token) for token in tokens]
        for share, token in zip(shares, tokens, strict=True):
            attended = attended + share / sum(shares) * token
    hidden = attended
    for layer in (head.project, *head.hidden):
        hidden = torch.stack(
            [
                (row @ hidden + bias).clamp(min=0)
                for row, bias in zip(layer.weight, layer.bias, strict=True)
            ]
        )
    return head.out.weight[0] @ hidden + head.bias[label]


def naive_scores(head: LabelAttentionHead, output: EncoderOutput, labels: Tensor) -> Tensor:
    """Of labels [B, M], document by document and label by label."""
    bounds = output.ptr.tolist()
    rows = []
    for document, chosen in enumerate(labels.tolist()):
        tokens = list(output.states[bounds[document] : bounds[document + 1]])
        rows.append(torch.stack([naive_score(head, tokens, label) for label in chosen]))
    return torch.stack(rows)


def gradients(head: LabelAttentionHead, output: EncoderOutput, logits: Tensor) -> list[Tensor]:
    torch.manual_seed(9)
    outgoing = torch.randn(logits.shape, dtype=torch.float64)
    return list(torch.autograd.grad(logits, [output.states, *head.parameters()], outgoing))


@pytest.mark.parametrize("lengths", [(3, 1, 4), (2, 2), (0, 3, 0, 1), (6,)])
@pytest.mark.parametrize("hidden", [[4], [3, 2, 6]])
@pytest.mark.parametrize("chunk_values", [1, 60, 2**20])
def test_LabelAttentionHead_scores_gradients_equal_naive_loop(
    lengths: tuple[int, ...], hidden: list[int], chunk_values: int
) -> None:
    """All labels, in chunks of one, of some and of all; documents without tokens among them."""
    head = make_head(hidden_channels=hidden, chunk_values=chunk_values)
    output = make_output(*lengths)
    logits = head(output)
    every = torch.arange(NUM_LABELS).expand(len(lengths), -1)
    expected = naive_scores(head, output, every)
    assert torch.allclose(logits, expected, rtol=1e-10, atol=1e-12)
    pairs = zip(gradients(head, output, logits), gradients(head, output, expected), strict=True)
    assert all(torch.allclose(one, other, rtol=1e-9, atol=1e-11) for one, other in pairs)


@given(data=st.data())
def test_LabelAttentionHead_candidates_equal_the_naive_loop(data: st.DataObject) -> None:
    """Labels of each document's own, in their order, repeated ones too; scores and gradients."""
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))
    if not sum(lengths):
        lengths[0] = 1
    number = data.draw(st.integers(1, 9))
    rows = st.lists(st.integers(0, NUM_LABELS - 1), min_size=number, max_size=number)
    candidates = torch.tensor([data.draw(rows) for _ in lengths])
    head = make_head(chunk_values=data.draw(st.sampled_from([1, 50, 2**20])))
    output = make_output(*lengths)
    logits = head(output, candidates)
    assert logits.shape == candidates.shape
    expected = naive_scores(head, output, candidates)
    assert torch.allclose(logits, expected, rtol=1e-10, atol=1e-12)
    pairs = zip(gradients(head, output, logits), gradients(head, output, expected), strict=True)
    assert all(torch.allclose(one, other, rtol=1e-9, atol=1e-11) for one, other in pairs)


def test_LabelAttentionHead_candidates_are_columns_of_all_scores() -> None:
    """With 70 documents, which lie in several blocks by length."""
    head = make_head()
    lengths = [(7 * number) % 11 for number in range(70)]
    output = make_output(*lengths)
    torch.manual_seed(2)
    candidates = torch.randint(NUM_LABELS, (70, 3))
    found = head(output, candidates)
    assert torch.allclose(found, head(output).gather(1, candidates), rtol=1e-12)


def test_LabelAttentionHead_scores_empty_documents_by_bias() -> None:
    """Documents without any token score by bias alone.

    All of them empty; the same score but for the labels' biases.
    """
    head = make_head()
    logits = head(make_output(0, 0))
    shared = logits - head.bias
    assert torch.allclose(shared, shared[0, 0].expand_as(shared))
    candidates = torch.tensor([[2, 0], [6, 6]])
    found = head(make_output(0, 0), candidates)
    assert torch.allclose(found, logits.gather(1, candidates))


def test_LabelAttentionHead_start_is_the_prior() -> None:
    """Where the shared layers say nothing, probabilities are the training frequencies."""
    head = make_head()
    head.set_prior(torch.tensor([0, 1, 2, 3, 4, 5, 6]), 6)
    with torch.no_grad():
        head.out.weight.zero_()
        found = torch.sigmoid(head(make_output(3)))
    assert found[0].tolist() == pytest.approx([(count + 0.5) / 7 for count in range(7)])


def test_LabelAttentionHead_reset_draws_weights_of_stated_size() -> None:
    """Shared layers within Xavier's bound; label vectors of standard deviation 4 / sqrt(C)."""
    head = LabelAttentionHead(300, 200, LabelAttentionHead.Config(hidden_channels=[150, 50]))
    for weight in (head.project.weight, head.hidden[0].weight, head.out.weight):
        bound = math.sqrt(6 / sum(weight.shape))
        assert float(weight.detach().abs().max()) <= bound
        assert float(weight.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.15)
    assert float(head.attention.detach().std()) == pytest.approx(4 / math.sqrt(300), rel=0.02)
    assert not head.bias.any()
    assert not head.project.bias.any()


def test_LabelAttentionHead_gradient_precision_under_autocast() -> None:
    """Under autocast to bfloat16 they are near those of float32, and float32 themselves."""
    head = make_head().float()
    output = make_output(4, 2, 5)
    states = output.states.detach().float().requires_grad_()
    output = EncoderOutput(None, states, output.ptr)
    exact = torch.autograd.grad(head(output).square().mean(), [states, *head.parameters()])
    with torch.autocast("cpu", torch.bfloat16):
        loss = head(output).square().mean()
    rough = torch.autograd.grad(loss, [states, *head.parameters()])
    for one, other in zip(exact, rough, strict=True):
        assert other.dtype == torch.float32
        assert not torch.equal(one, other)
        assert float((one - other).norm() / one.norm()) < 0.05


def test_LabelAttentionHead_bfloat16_gradient_for_any_chunks() -> None:
    """The sum over many chunks is that of one chunk within rounding."""

    def find_gradients(chunk_values: int) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        config = LabelAttentionHead.Config(hidden_channels=[16], chunk_values=chunk_values)
        head = LabelAttentionHead(32, 1000, config)
        states = torch.randn(40, 32).bfloat16().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            logits = head(EncoderOutput(None, states, torch.tensor([0, 25, 40])))
        loss = torch.nn.functional.softplus(logits.float() - 4).sum()
        return torch.autograd.grad(loss, [states, *head.project.parameters()])

    for one, other in zip(find_gradients(2**24), find_gradients(1), strict=True):
        assert float((one - other).norm() / one.norm()) < 0.015


def test_LabelAttentionHead_scores_in_float32_outside_training() -> None:
    """In bfloat16 the best of many labels tie; those of candidates are the same numbers."""

    def count_ties(scores: Tensor) -> int:
        best = scores.topk(6, dim=1).values
        return int((best.diff(dim=1) == 0).any(dim=1).sum())

    torch.manual_seed(0)
    head = LabelAttentionHead(64, 2000, LabelAttentionHead.Config(hidden_channels=[128]))
    states = torch.randn(20 * 30, 64).bfloat16()
    output = EncoderOutput(None, states, torch.arange(0, 601, 30))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        rounded = head.train()(output)
        found = head.eval()(output)
        chosen = head(output, torch.arange(2000).repeat(20, 1))
    assert count_ties(rounded) > 10
    assert count_ties(found) == 0
    assert torch.allclose(chosen, found, atol=0.02)
    exact = head.double()(EncoderOutput(None, states.double(), output.ptr)).detach().float()
    assert float((found - exact).norm() / exact.norm()) < 0.02


class LiveMemory(TorchDispatchMode):
    """The largest number of bytes of tensors made within that live at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.live, self.peak = 0, 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._seen:
            return
        self._seen.add(key)
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._release, key, storage.nbytes())

    def _release(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.live -= size


def measure_peak(chunk_values: int, with_candidates: bool = False) -> int:
    """Peak bytes of scores and gradients of 8 documents, 600 labels, 32 channels."""
    torch.manual_seed(0)
    config = LabelAttentionHead.Config(hidden_channels=[32], chunk_values=chunk_values)
    head = LabelAttentionHead(32, 600, config)
    output = EncoderOutput(None, torch.randn(80, 32, requires_grad=True), torch.arange(9) * 10)
    candidates = torch.randint(600, (8, 600)) if with_candidates else None
    with LiveMemory() as memory:
        head(output, candidates).sum().backward()
    return memory.peak


@pytest.mark.parametrize("with_candidates", [False, True])
def test_LabelAttentionHead_memory_is_bounded_by_chunks(with_candidates: bool) -> None:
    """Nothing of documents times labels times channels exists.

    In small chunks the peak is below one [B, L, C], in one chunk far above it.
    """
    whole = 8 * 600 * 32 * 4
    assert measure_peak(2**12, with_candidates) < whole
    assert measure_peak(2**30, with_candidates) > 3 * whole


def test_LabelAttentionHead_settings_are_checked() -> None:
    """At least one shared layer, none without a channel."""
    for settings, fault in (
        ({"hidden_channels": []}, "'hidden_channels': List should have at least 1 item"),
        ({"hidden_channels": [3, 0]}, "'hidden_channels.1': Input should be greater than or"),
        ({"chunk_values": 0}, "'chunk_values': Input should be greater than or equal to 1"),
    ):
        with pytest.raises(ConfigError) as caught:
            parse_settings(LabelAttentionHead.Config, settings, "model.head_config must be valid")
        assert f"model.head_config must be valid: {fault}" in str(caught.value)
