"""Label edges per second of both hypernymy terms with gradients, against a loop over edges."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from match_graph.errors import ConfigError
from match_graph.nn import hypernymy_output_penalty, hypernymy_parameter_penalty
from match_graph.speed.batches import find_batch_size, open_bench, repeat, sample_batches
from match_graph.speed.measure import Bench, Speed, compare, watch_memory
from match_graph.speed.step import Trainer

#: Edges that the loop runs over; its time is proportional to their number.
_LOOP_EDGES = 20
#: Batches of the training steps that the terms are compared with.
_NUM_BATCHES = 10


def loop_penalties(
    weight: Tensor, logits: Tensor, label_edge_index: Tensor, edge_weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Parameter and output penalty, edge by edge; the baseline, and the oracle of tests.

    Args:
        weight: Parameters of each label, [L, C].
        logits: Label scores before the sigmoid, [B, L].
        label_edge_index: Label edges, [2, E], int64; row 0 child, row 1 parent.
        edge_weight: Edge weights, [E]; None for 1.
    """
    parameter, output = weight.new_zeros(()), logits.new_zeros(())
    probability = torch.sigmoid(logits)
    factors = [1.0] * label_edge_index.size(1) if edge_weight is None else edge_weight.tolist()
    for child, parent, factor in zip(*label_edge_index.tolist(), factors, strict=True):
        gap = weight[child] - weight[parent]
        parameter = parameter + factor * 0.5 * (gap * gap).sum()
        excess = torch.relu(probability[:, child] - probability[:, parent])
        output = output + factor * excess.sum() / len(logits)
    return parameter, output


def measure_hypernymy(bench: Bench) -> Iterator[Speed]:
    """Measures both terms, forward and backward, at the size of a training batch.

    ``share_of_step`` is their share of the time of a training step. The loop runs over some of the
    edges.

    Raises:
        ConfigError: The data set has no label hierarchy.
    """
    run = open_bench(bench)
    hierarchy = run.hierarchy.to(bench.device)
    num_edges, num_labels = hierarchy.num_edges, hierarchy.num_labels
    if not num_edges:
        raise ConfigError(
            f"The speed of hypernymy is measured on label edges, but '{bench.dataset.name}' has "
            f"none; choose another data set."
        )
    loader = run.loader("train", training=True)
    batches = sample_batches(loader, _NUM_BATCHES)
    trainer = Trainer(bench)
    weight = trainer.model.head.label_weight.detach().clone().requires_grad_()
    dtype = torch.bfloat16 if trainer.config.precision == "bf16-mixed" else torch.float32
    shape = (num_labels, find_batch_size(batches))
    logits = torch.randn(shape, device=bench.device, dtype=dtype).t().requires_grad_()

    def ours() -> float:
        parameter = hypernymy_parameter_penalty(weight, hierarchy)
        output = hypernymy_output_penalty(logits, hierarchy)
        torch.autograd.grad(parameter + output, (weight, logits))
        return num_edges

    some = torch.linspace(0, num_edges - 1, min(_LOOP_EDGES, num_edges)).long().to(bench.device)
    some_edges, some_weight = hierarchy.edge_index[:, some], hierarchy.edge_weight[some]

    def loop() -> float:
        parameter, output = loop_penalties(weight, logits, some_edges, some_weight)
        torch.autograd.grad(parameter + output, (weight, logits))
        return len(some)

    def relate(rates: Mapping[str, float]) -> dict[str, float]:
        seconds, step = num_edges / rates["ours"], shape[1] / rates["step"]
        return {"share_of_step": seconds / step, "milliseconds": 1000 * seconds}

    yield from compare(
        bench, "hypernymy",
        f"batches of {shape[1]}, {num_labels:,} labels, {num_edges:,} edges, "
        f"{weight.size(1):,} channels",
        "edges/s",
        {"ours": ours, "a loop over the edges": loop, "step": repeat(trainer.step, batches)},
        watch_memory(bench, ours), more=relate,
    )  # fmt: skip
