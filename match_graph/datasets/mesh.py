"""MeSH trees as the NLM publishes them: tree numbers of descriptors as a label hierarchy.

Source: ``mtreesYEAR.bin`` of https://www.nlm.nih.gov/mesh/filelist.html, a descriptor's name, a
semicolon and one of its tree numbers a line.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from match_graph.io.json_lines import Fail, read_lines

#: The categories that the paper keeps, https://arxiv.org/abs/2102.07349, section 4.1.
CATEGORIES = "ABCDEFGH"


@dataclass(frozen=True)
class MeshTrees:
    """MeSH descriptors by name and their places in the trees; made by `read_trees`.

    Args:
        categories: First letters of each descriptor's tree numbers.
        edges: Hierarchy edges by name, (descriptor, one right above it in some tree, file:line):
            a DAG, as most descriptors have several tree numbers.
    """

    categories: dict[str, frozenset[str]]
    edges: list[tuple[str, str, str]]


def read_trees(lines: Iterable[bytes], name: str, categories: str, fail: Fail) -> MeshTrees:
    """Reads a file of tree numbers.

    Args:
        lines: Lines of the file.
        name: Name of the file, for messages.
        categories: First letters of the trees whose edges are kept; all categories are noted.
        fail: Callback that takes the faults: a line without a tree number, a number that is given
            twice or lies under none.
    """
    descriptors: dict[str, tuple[str, str]] = {}  # by tree number, with the place
    letters: dict[str, set[str]] = {}
    for place, line in read_lines(lines, name, fail):
        descriptor, semicolon, number = line.strip().rpartition(";")
        if not semicolon or not descriptor or not number:
            fail(
                f"{place}: a line must be a descriptor, a semicolon and a tree number, "
                f"found '{line.strip()[:60]}'; fetch the file again."
            )
            continue
        if number in descriptors:
            fail(
                f"{place}: a tree number must be that of one descriptor, but {number} is given to "
                f"'{descriptor}' and to '{descriptors[number][0]}' ({descriptors[number][1]}); "
                f"fetch the file again."
            )
            continue
        descriptors[number] = (descriptor, place)
        letters.setdefault(descriptor, set()).add(number[0])
    edges = []
    for number, (descriptor, place) in descriptors.items():
        above = number.rpartition(".")[0]
        if above and above not in descriptors:
            fail(
                f"{place}: the tree number {number} must lie under {above}, which no line has; "
                f"fetch the file again."
            )
        elif above and number[0] in categories:
            edges.append((descriptor, descriptors[above][0], place))
    return MeshTrees({name: frozenset(found) for name, found in letters.items()}, edges)
