"""The MeSH trees: tree numbers make a DAG of descriptors."""

from pathlib import Path

import networkx as nx
import pytest

from match_graph.datasets.mesh import read_trees

TREES = b"""Body Regions;A01
Head;A01.456
Ear;A01.456.313
Sense Organs;A09
Ear;A09.246
Persons;M01
Head; of State;M01.001
"""


def read_faults(content: bytes) -> list[str]:
    faults: list[str] = []
    read_trees(content.splitlines(keepends=True), "mtrees.bin", "AM", faults.append)
    return faults


def test_read_trees_descriptor_with_two_numbers_has_two_parents() -> None:
    """Edges go by name, each with its line; a name may hold a semicolon."""
    trees = read_trees(TREES.splitlines(keepends=True), "mtrees.bin", "AM", pytest.fail)
    assert trees.edges == [
        ("Head", "Body Regions", "mtrees.bin:2"),
        ("Ear", "Head", "mtrees.bin:3"),
        ("Ear", "Sense Organs", "mtrees.bin:5"),
        ("Head; of State", "Persons", "mtrees.bin:7"),
    ]
    assert trees.categories["Ear"] == {"A"}
    assert trees.categories["Persons"] == {"M"}


def test_read_trees_edges_of_other_categories_are_left_out() -> None:
    """Their descriptors stay known."""
    trees = read_trees(TREES.splitlines(keepends=True), "mtrees.bin", "M", pytest.fail)
    assert [child for child, _, _ in trees.edges] == ["Head; of State"]
    assert "Ear" in trees.categories


def test_read_trees_faults_name_their_lines() -> None:
    """No number, a number twice, a number under none."""
    assert read_faults(TREES + b"no number\nHair;A01.456\nToe;A02.1\n") == [
        "mtrees.bin:8: a line must be a descriptor, a semicolon and a tree number, found "
        "'no number'; fetch the file again.",
        "mtrees.bin:9: a tree number must be that of one descriptor, but A01.456 is given to "
        "'Hair' and to 'Head' (mtrees.bin:2); fetch the file again.",
        "mtrees.bin:10: the tree number A02.1 must lie under A02, which no line has; "
        "fetch the file again.",
    ]


def test_read_trees_real_trees_are_a_dag(data_folder: Path) -> None:
    """29,638 descriptors; A to H have 36,221 edges by name, and no cycle."""
    with (data_folder / "pubmed" / "mtrees2020.bin").open("rb") as file:
        trees = read_trees(file, "mtrees2020.bin", "ABCDEFGH", pytest.fail)
    graph = nx.DiGraph((child, parent) for child, parent, _ in trees.edges)
    assert len(trees.categories) == 29_638
    assert graph.number_of_edges() == 36_221
    assert nx.is_directed_acyclic_graph(graph)
