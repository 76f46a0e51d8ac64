"""The slow baselines give what ours give: loops over documents, tokens and label edges."""

from pathlib import Path

import pytest
import torch

from match_graph.datasets.match_folder import MatchFolder, MatchReader
from match_graph.graph import EgoSampler, Hierarchy, TokenSpace, build_graph
from match_graph.graph.build import BuiltGraph
from match_graph.graph.tokens import make_batch
from match_graph.nn import hypernymy_output_penalty, hypernymy_parameter_penalty
from match_graph.speed import Bench
from match_graph.speed.build import build_by_rows, write_sample
from match_graph.speed.hypernymy import loop_penalties
from match_graph.speed.sample import LoopSampler
from match_graph.testing import write_match_folder

FIELDS = ["venue", "author", "reference"]


def check_build(folder: Path, fields: list[str], tokenizer: str) -> None:
    config = MatchFolder.Config(fields=fields, tokenizer=tokenizer, hierarchy="ignore")
    graph = build_graph(MatchReader(folder, config).read_corpus())
    found = build_by_rows(folder, fields, tokenizer)
    for name, (ids, edge_index) in found.items():
        assert ids == graph.tables[name]["id"].tolist(), name
        if name == "label":
            ptr = graph.targets.ptr
            document = torch.repeat_interleave(torch.arange(len(ptr) - 1), ptr.diff())
            ours = set(zip(document.tolist(), graph.targets.index.tolist(), strict=True))
            assert set(zip(*edge_index.tolist(), strict=True)) == ours
        else:
            relation = "contains" if name == "word" else "has"
            assert torch.equal(graph.data["document", relation, name].edge_index, edge_index)


def test_build_by_rows_build_the_same_graph(tmp_path: Path) -> None:
    """Nodes, in order, and edges of the toy folder are those of `build_graph`."""
    write_match_folder(tmp_path / "toy")
    check_build(tmp_path / "toy", FIELDS, "regex")


def test_write_sample_of_the_documents_is_what_is_built(bench: Bench, tmp_path: Path) -> None:
    """Both builders read a sample with documents of every split."""
    assert write_sample(bench, tmp_path, FIELDS) == 400
    check_build(tmp_path, FIELDS, "whitespace")


@pytest.mark.parametrize(("max_metadata", "max_words"), [(64, 500), (4, 3), (0, 1), (3, 0)])
def test_LoopSampler_loop_draws_the_same_tokens(
    toy_graph: BuiltGraph, max_metadata: int, max_words: int
) -> None:
    """Tokens of the toy graph are those of EgoSampler, for any budgets."""
    data = toy_graph.data
    space = TokenSpace.from_data(data, 1, 2)
    documents = torch.arange(data["document"].num_nodes).flip(0)
    expected = make_batch(EgoSampler(data, max_metadata, max_words).sample(documents), space)
    found = LoopSampler(data, space, max_metadata, max_words).sample(documents)
    for name in ("document", "token_id", "field", "position", "ptr"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


@pytest.mark.parametrize("weighted", [False, True])
def test_loop_penalties_loop_over_edges_gives_the_same_penalties(weighted: bool) -> None:
    """Both terms and their gradients are those of the sparse code."""
    generator = torch.Generator().manual_seed(0)
    weight, logits = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((6, 5), (3, 6))
    )
    edges = torch.tensor([[1, 2, 3, 3, 5], [0, 0, 1, 2, 4]])
    factors = torch.rand(5, generator=generator, dtype=torch.float64) if weighted else None
    loop = loop_penalties(weight, logits, edges, factors)
    ours = (
        hypernymy_parameter_penalty(weight, Hierarchy(edges, 6, factors)),
        hypernymy_output_penalty(logits, Hierarchy(edges, 6, factors)),
    )
    for left, right, values in zip(loop, ours, (weight, logits), strict=True):
        torch.testing.assert_close(left, right)
        torch.testing.assert_close(
            *(torch.autograd.grad(side, values)[0] for side in (left, right))
        )
