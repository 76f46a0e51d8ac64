"""`LabelGraphHead` against loops over labels and edges; its states, kept and forgotten."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from largest import Largest
from torch import Tensor, nn

from match_graph.errors import ConfigError, GraphError
from match_graph.graph import Hierarchy, LabelGraph
from match_graph.nn import EncoderOutput, Head, LabelGraphHead, LinearHead, match_loss

IN_CHANNELS, NUM_LABELS = 5, 6
CONVS = ("GCNConv", "SAGEConv", "GATv2Conv")
#: A diamond (3 below 1 and 2, those below 0), a child with two parents, label 5 by itself.
DAG = [(1, 0), (2, 0), (3, 1), (3, 2), (4, 0), (4, 2)]
BY_CONV = pytest.mark.parametrize("conv", CONVS)


def make_graph(
    edges: list[tuple[int, int]], x: Tensor | None = None, num_labels: int = NUM_LABELS
) -> LabelGraph:
    edge_index = torch.tensor(edges, dtype=torch.int64).view(-1, 2).t()
    return LabelGraph(Hierarchy(edge_index, num_labels), x)


def make_head(graph: LabelGraph | None = None, seed: int = 0, **settings: Any) -> LabelGraphHead:
    """Of float64, no parameter at its neutral start, without dropout unless asked for."""
    graph = make_graph(DAG) if graph is None else graph
    torch.manual_seed(seed)
    config = LabelGraphHead.Config(**{"channels": 3, "dropout": 0.0, **settings})
    head = LabelGraphHead(IN_CHANNELS, graph.hierarchy.num_labels, config, graph).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return head


def output_of(document: Tensor) -> EncoderOutput:
    return EncoderOutput(document, None, torch.arange(len(document) + 1))


def documents(number: int = 4) -> EncoderOutput:
    torch.manual_seed(7)
    return output_of(torch.randn(number, IN_CHANNELS, dtype=torch.float64))


def naive_gcn(conv: Any, states: list[Tensor], sources: list[list[int]]) -> list[Tensor]:
    """Kipf & Welling: each label among its own neighbours, by the roots of both numbers."""
    lists = [[*found, label] for label, found in enumerate(sources)]
    mapped = [conv.lin.weight @ state for state in states]
    return [
        conv.bias
        + sum(mapped[other] / math.sqrt(len(found) * len(lists[other])) for other in found)
        for found in lists
    ]


def naive_mean(conv: Any, states: list[Tensor], sources: list[list[int]]) -> list[Tensor]:
    """Hamilton et al. 2017: the mean of the neighbours, zero without any, and the own state."""
    zero = torch.zeros_like(states[0])
    return [
        conv.lin_l(sum((states[other] for other in found), zero) / max(len(found), 1))
        + conv.lin_r(states[label])
        for label, found in enumerate(sources)
    ]


def naive_attention(conv: Any, states: list[Tensor], sources: list[list[int]]) -> list[Tensor]:
    """Brody et al. 2022, one head; each label is among its own neighbours."""
    results = []
    for label, found in enumerate(sources):
        values = [conv.lin_l(states[other]) for other in (*found, label)]
        own = conv.lin_r(states[label])
        scores = [conv.att[0, 0] @ nn.functional.leaky_relu(value + own, 0.2) for value in values]
        shares = torch.softmax(torch.stack(scores), dim=0)
        received = sum(share * value for share, value in zip(shares, values, strict=True))
        results.append(conv.bias + received)
    return results


NAIVE: dict[str, Callable[..., list[Tensor]]] = {
    "GCNConv": naive_gcn,
    "GATv2Conv": naive_attention,
    "SAGEConv": naive_mean,
}


def naive_states(head: LabelGraphHead, graph: LabelGraph) -> list[Tensor]:
    """Label by label, neighbour by neighbour."""
    config = head.config
    assert isinstance(config, LabelGraphHead.Config)
    pairs = [(int(child), int(parent)) for child, parent in graph.hierarchy.edge_index.t()]
    labels = range(head.num_labels)
    children = [[child for child, parent in pairs if parent == label] for label in labels]
    parents = [[parent for child, parent in pairs if child == label] for label in labels]
    states = [torch.zeros(config.channels, dtype=torch.float64) for _ in labels]
    for label in labels:
        if head.start is not None:
            states[label] = states[label] + head.start[label]
        if graph.x is not None and head.project_x is not None:
            x = graph.x[label].double()
            states[label] = states[label] + head.project_x.weight @ (x / x.norm())
    naive = NAIVE[config.conv]
    for layer in range(config.num_layers):
        received = [torch.zeros_like(state) for state in states]
        for way, convs, sources in (("up", head.up, children), ("down", head.down, parents)):
            if config.direction in ("both", way):
                found = naive(convs[layer], states, sources)
                received = [one + other for one, other in zip(received, found, strict=True)]
        states = [
            state + torch.relu(message) for state, message in zip(states, received, strict=True)
        ]
    return states


def naive_scores(head: LabelGraphHead, graph: LabelGraph, document: Tensor) -> Tensor:
    labels = list(enumerate(naive_states(head, graph)))
    rows = [
        [state @ (head.project.weight @ one) + head.bias[label] for label, state in labels]
        for one in document
    ]
    return torch.stack([torch.stack(row) for row in rows])


@st.composite
def dag_edges(draw: st.DrawFn) -> list[tuple[int, int]]:
    """(child, parent) edges from higher to lower labels; also none, also labels without."""
    pairs = st.tuples(st.integers(0, NUM_LABELS - 1), st.integers(0, NUM_LABELS - 1))
    chosen = draw(st.lists(pairs.filter(lambda pair: pair[0] != pair[1]), max_size=10))
    return sorted({(max(pair), min(pair)) for pair in chosen})


@BY_CONV
@settings(max_examples=25)
@given(
    edges=dag_edges(),
    num_layers=st.integers(1, 3),
    direction=st.sampled_from(["both", "up", "down"]),
    start=st.sampled_from(["learned", "features", "both"]),
)
def test_LabelGraphHead_equals_naive_loop(
    conv: str, edges: list[tuple[int, int]], num_layers: int, direction: str, start: str
) -> None:
    """Scores and the gradients of all parameters, on any DAG."""
    torch.manual_seed(3)
    x = None if start == "learned" else torch.randn(NUM_LABELS, 4, dtype=torch.float64).float()
    graph = make_graph(edges, x)
    head = make_head(
        graph, learned=start != "features", conv=conv, num_layers=num_layers, direction=direction
    )
    assert (head.start is None, head.project_x is None) == (start == "features", x is None)
    document = documents().document
    assert document is not None
    outgoing = torch.randn(4, NUM_LABELS, dtype=torch.float64)
    parameters = list(head.parameters())
    expected = naive_scores(head, graph, document)
    wanted = torch.autograd.grad(expected, parameters, outgoing, allow_unused=True)
    logits = head(output_of(document))
    found = torch.autograd.grad(logits, parameters, outgoing)
    atol = 1e-10 if x is None else 1e-5  # features are scaled in float32
    assert torch.allclose(logits, expected, atol=atol)
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, torch.zeros_like(one) if other is None else other, atol=atol)


@BY_CONV
def test_LabelGraphHead_isolated_label_gets_no_messages(conv: str) -> None:
    """Other labels' vectors change the states of their neighbours alone."""
    head = make_head(conv=conv).eval()
    before = head.label_weight
    with torch.no_grad():
        head.start[1] += 1
    changed = (head.label_weight != before).any(dim=1)
    assert bool(changed[1])
    assert not changed[[2, 4, 5]].any()


def test_LabelGraphHead_features_are_of_any_length() -> None:
    """Scaled to 1, so that it does not matter in which units they come; zeros stay zeros."""
    x = torch.randn(NUM_LABELS, 4)
    x[2] = 0
    one, two = (make_head(make_graph(DAG, factor * x), learned=False) for factor in (1, 1000))
    assert torch.allclose(one(documents()), two(documents()))
    assert bool(one(documents()).isfinite().all())
    half = make_head(make_graph(DAG, x.half()), learned=False)
    assert torch.allclose(half(documents()), one(documents()), atol=1e-2)


def test_LabelGraphHead_label_weight_is_what_scored() -> None:
    """In training the same states, dropped channels included; its gradient reaches all of them."""
    head = make_head(dropout=0.5).train()
    output = documents()
    logits = head(output)
    weight = head.label_weight
    assert head.label_weight is weight
    assert weight.shape == (NUM_LABELS, 3)
    expected = head.project(output.document) @ weight.t() + head.bias
    assert torch.allclose(logits, expected)
    (logits.sum() + weight.square().sum()).backward()
    assert all(parameter.grad is not None for parameter in head.parameters())
    head.label_weight.sum().backward()  # of new states, as the others' graph is used up
    assert not torch.equal(head.label_weight, weight)


def test_LabelGraphHead_label_weight_without_gradients_is_new() -> None:
    """Not the states of a training pass before it that had gradients."""
    head = make_head().train()
    head(documents())
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
        head(documents())
    assert not bool(head.label_weight.any())


class Calls:
    """Counts how often the first convolution is computed."""

    def __init__(self, head: LabelGraphHead) -> None:
        self.number = 0
        head.up[0].register_forward_hook(self._count)

    def _count(self, *_: object) -> None:
        self.number += 1


def test_LabelGraphHead_one_message_passing_a_step() -> None:
    """For the scores and the hypernymy of the parameters together."""
    head = make_head().train()
    calls = Calls(head)
    targets = torch.tensor([0, 1, 1, 2, 3]), torch.tensor([3, 4, 0])
    losses = match_loss(
        head(documents()), targets, head, make_graph(DAG).hierarchy, lambda_parameter=1.0
    )
    losses.total.backward()
    assert calls.number == 1
    assert float(losses.parameter) > 0


@torch.no_grad()
def test_LabelGraphHead_states_are_kept_while_weights_stay() -> None:
    """Over batches, and for `label_weight`; computed again after each change of weights."""
    head = make_head().eval()
    calls = Calls(head)
    expected = head(documents())
    assert not torch.equal(head(documents(2)), expected[:2])
    assert head.label_weight is head.label_weight
    assert calls.number == 1
    other = make_head(seed=1).eval()
    head.load_state_dict(other.state_dict())
    assert torch.equal(head(documents()), other(documents()))
    head.load_state_dict(make_head(seed=2).state_dict(), assign=True)
    assert torch.equal(head(documents()), make_head(seed=2).eval()(documents()))
    assert calls.number == 3
    head.reset_parameters()
    assert not torch.equal(head(documents()), make_head(seed=2).eval()(documents()))
    assert calls.number == 4
    head.float()
    found = head(documents())
    assert found.dtype == torch.float32
    assert calls.number == 5
    assert head.train().label_weight.isfinite().all()
    assert torch.equal(head.eval()(documents()), found)
    assert calls.number == 7


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("way", ["foreach", "fused"])
def test_LabelGraphHead_step_in_evaluation_changes_states(optimizer: Any, way: str) -> None:
    """Every kind of step of torch's optimizers is noticed."""
    head = make_head().eval()
    with torch.no_grad():
        before = head(documents())
    step = optimizer(head.parameters(), lr=0.1, **{way: True})
    head(documents()).square().sum().backward()
    step.step()
    with torch.no_grad():
        after = head(documents())
        fresh = make_head()
        fresh.load_state_dict(head.state_dict())
        assert torch.equal(after, fresh.eval()(documents()))
    assert not torch.equal(after, before)


def test_LabelGraphHead_gradients_in_evaluation_are_whole() -> None:
    """Explanations and tests ask for them; what was kept without gradient is not used."""
    head = make_head().eval()
    with torch.no_grad():
        expected = head(documents())
    logits = head(documents())
    assert torch.equal(logits, expected)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in head.parameters())
    with torch.inference_mode():
        assert torch.equal(head(documents()), expected)
    assert torch.equal(head.requires_grad_(False)(documents()), expected)


def test_LabelGraphHead_notices_changes_in_inference_mode() -> None:
    """Its weights have no version numbers."""
    with torch.inference_mode():
        head = make_head().eval()
        before = head(documents())
        head.start += 1
        assert not torch.equal(head(documents()), before)


def test_LabelGraphHead_scores_in_float32_outside_training() -> None:
    """States of labels always; scores in training are as narrow as autocast makes them."""
    head = make_head().float()
    output = output_of(torch.randn(3, IN_CHANNELS).bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert head.train()(output).dtype == torch.bfloat16
        assert head.label_weight.dtype == torch.float32
        with torch.no_grad():
            found = head.eval()(output)
    assert output.document is not None
    assert found.dtype == torch.float32
    assert torch.allclose(found, head(output_of(output.document.float())), atol=1e-6)


@BY_CONV
def test_LabelGraphHead_makes_nothing_of_labels_squared(conv: str) -> None:
    """Neither forward nor backward."""
    edges = [(label, label // 2) for label in range(1, 400)]
    head = make_head(make_graph(edges, num_labels=400), conv=conv)
    with Largest() as largest:
        head(documents()).sum().backward()
    assert largest.most < 400 * 400 / 20


def test_LabelGraphHead_reset_draws_vectors_of_length_one() -> None:
    """On average, whatever their width; biases zero."""
    graph = make_graph([], num_labels=500)
    head = LabelGraphHead(8, 500, LabelGraphHead.Config(channels=64), graph)
    assert head.start is not None
    assert float(head.start.detach().norm(dim=1).mean()) == pytest.approx(1, abs=0.02)
    assert not head.bias.any()
    assert not any(name in head.state_dict() for name in ("x", "edge_index"))


def test_LabelGraphHead_label_vectors_become_start_vectors() -> None:
    """In the first channels, as long as what they replace; refused without start vectors."""
    torch.manual_seed(0)
    vectors = nn.functional.normalize(torch.randn(NUM_LABELS, 2))
    head = make_head().float()
    before = head.start.detach().clone()
    head.load_label_vectors(vectors, 999, 999)
    assert torch.equal(head.start[:, 2:], before[:, 2:])
    cosine = nn.functional.cosine_similarity(head.start[:, :2], vectors)
    assert torch.allclose(cosine, torch.ones(NUM_LABELS))
    with pytest.raises(GraphError, match="must fit into slots of 3 channels"):
        head.load_label_vectors(torch.randn(NUM_LABELS, 4), 999, 999)
    head = make_head(make_graph(DAG, torch.ones(NUM_LABELS, 2)), learned=False)
    with pytest.raises(ConfigError) as caught:
        head.load_label_vectors(vectors, 999, 999)
    assert str(caught.value) == (
        "model.head_from_labels needs a head whose labels start from vectors of their own, found a "
        "LabelGraphHead without; set it to false."
    )


def test_LabelGraphHead_edges_are_its_own() -> None:
    """Moving its buffers in place, as FSDP does, leaves the hierarchy unchanged."""
    graph = make_graph(DAG)
    before = graph.hierarchy.edge_index.clone()
    head = make_head(graph)
    head.get_buffer("edge_index").zero_()
    assert graph.hierarchy.edge_index.equal(before)


def test_LabelGraphHead_needs_something_to_start_from() -> None:
    """A label graph, of its labels, and features where nothing is learned; a sentence each."""
    config = LabelGraphHead.Config()
    with pytest.raises(ConfigError) as caught:
        LabelGraphHead(IN_CHANNELS, NUM_LABELS, config)
    assert str(caught.value) == (
        "A LabelGraphHead needs the label graph, but there is none above the labels of a label "
        "tree, or where a model is made without a hierarchy; choose another head."
    )
    with pytest.raises(GraphError, match="must be of the 6 labels of the hierarchy, found 5"):
        LabelGraphHead(IN_CHANNELS, 5, config, make_graph(DAG))
    with pytest.raises(ConfigError) as caught:
        make_head(learned=False)
    assert str(caught.value) == (
        "Label states must start from learned vectors or from features of labels, found neither; "
        "set model.head_config.learned=true, or give labels features."
    )


#: Labels of the planted corpus: topics, then one label below each pair of them.
TOPICS = 8
PAIRS = [(one, two) for one in range(TOPICS) for two in range(one)]
WITHHELD = {TOPICS + number for number in range(0, len(PAIRS), 4)}


def rank_of_withheld(make: Callable[[LabelGraph], Head], with_features: bool, seed: int) -> float:
    """Mean rank among the withheld labels, in 0..1, of the one that a new document carries.

    A document of a label below two topics carries all three and looks like the sum of what its
    topics look like; no document with a withheld label is in training.
    """
    torch.manual_seed(seed)
    num_labels = TOPICS + len(PAIRS)
    edges = [(TOPICS + number, topic) for number, pair in enumerate(PAIRS) for topic in pair]
    look = torch.randn(TOPICS, 32)
    pairs = torch.tensor(PAIRS)
    x = torch.cat([look, look[pairs].sum(1)]) if with_features else None
    graph = make_graph([] if with_features else edges, x, num_labels)
    numbers = torch.randint(len(PAIRS), (300,))
    document = look[pairs[numbers]].sum(1) + torch.randn(300, 32)
    gold = torch.cat([pairs[numbers], TOPICS + numbers.unsqueeze(1)], dim=1)  # [300, 3]
    withheld = torch.tensor(sorted(WITHHELD))
    new = torch.isin(gold[:, 2], withheld)
    ptr = torch.arange(0, 3 * int((~new).sum()) + 1, 3)
    head = make(graph)
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        logits = head(output_of(document[~new]))
        match_loss(logits, (ptr, gold[~new].flatten()), head, graph.hierarchy).total.backward()
        optimizer.step()
    with torch.no_grad():
        scores = head.eval()(output_of(document[new]))
    own = scores.gather(1, gold[new, 2:])
    return float((scores[:, withheld] > own).float().mean())


@pytest.mark.parametrize("with_features", [False, True])
def test_LabelGraphHead_ranks_labels_without_training_documents(with_features: bool) -> None:
    """By their parents in the DAG, or by their features; a linear head ranks them by chance."""

    def make_states(graph: LabelGraph) -> Head:
        config = LabelGraphHead.Config(channels=32, learned=not with_features)
        return LabelGraphHead(32, graph.hierarchy.num_labels, config, graph)

    def make_linear(graph: LabelGraph) -> Head:
        return LinearHead(32, graph.hierarchy.num_labels, LinearHead.Config(), graph)

    ranks = [
        [rank_of_withheld(make, with_features, seed) for seed in range(2)]
        for make in (make_states, make_linear)
    ]
    by_states, by_chance = (sum(found) / len(found) for found in ranks)
    assert by_states < (0.05 if with_features else 0.2)
    assert by_chance > 0.33
