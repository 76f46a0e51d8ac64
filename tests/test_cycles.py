"""Label hierarchies as tables: equal edges, cycles."""

import itertools

import networkx as nx
import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from match_graph.corpus import hierarchy_frame
from match_graph.cycles import find_cycle


def test_hierarchy_frame_equal_hierarchy_edges_are_kept_once() -> None:
    """Of an edge on two lines the first is kept, so that messages name it."""
    frame = hierarchy_frame([("c", "p", "f:1"), ("c", "p", "f:2"), ("c", "q", "f:3")])
    assert frame.to_dict("list") == {
        "child": ["c", "c"],
        "parent": ["p", "q"],
        "origin": ["f:1", "f:3"],
    }


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=9))
def test_find_cycle_agrees_with_networkx(pairs: list[tuple[int, int]]) -> None:
    """A cycle is named where there is one, its steps are edges, and its origin is the last."""
    edges = [(f"n{child}", f"n{parent}", f"f:{line}") for line, (child, parent) in enumerate(pairs)]
    sentence = find_cycle(hierarchy_frame(edges))
    graph = nx.DiGraph([edge[:2] for edge in edges])
    if nx.is_directed_acyclic_graph(graph):
        assert sentence is None
        return
    assert sentence is not None
    path = sentence.split(", but ")[1].split(" is a cycle")[0].split(" -> ")
    assert path[0] == path[-1]
    assert all(graph.has_edge(*step) for step in itertools.pairwise(path))
    first = next(edge[2] for edge in edges if edge[:2] == (path[-2], path[-1]))
    assert f"({first})" in sentence


def test_find_cycle_of_a_long_cycle_shows_both_ends() -> None:
    """5,000 labels in a ring, with a shortcut that is taken: the sentence stays short."""
    ring = [(f"n{label}", f"n{(label + 1) % 5000}", f"f:{label}") for label in range(5000)]
    assert find_cycle(hierarchy_frame([*ring, ("n2", "n4990", "f:x")])) == (
        "the label hierarchy must be acyclic, but n0 -> n1 -> n2 -> n4990 -> n4991 -> "
        "... (4 more) ... -> n4996 -> n4997 -> n4998 -> n4999 -> n0 is a cycle (f:4999); "
        "remove one of these edges, or leave the hierarchy out (of files: data.hierarchy=ignore)."
    )


def test_find_cycle_of_a_good_hierarchy_is_linear() -> None:
    """20,000 labels in 12 layers with 2 parents each, and a chain of 20,000: no cycle, at once.

    A search that gives up a label whenever one of its edges leads nowhere took 30 s for the first.
    """
    size, draw = 20_000 // 12, np.random.default_rng(0)
    child = np.repeat(np.arange(size, size * 12), 2)
    parent = (child // size - 1) * size + draw.integers(0, size, len(child))
    for frame in (
        pd.DataFrame({"child": child, "parent": parent}),
        pd.DataFrame({"child": np.arange(1, 20_000), "parent": np.arange(19_999)}),
    ):
        assert find_cycle(frame) is None
