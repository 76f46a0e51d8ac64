"""Label hierarchy as lines of a parent and its children; labels may hold blanks."""

from collections.abc import Iterable

from match_graph.io.json_lines import Fail, read_lines


def read_taxonomy(lines: Iterable[bytes], name: str, fail: Fail) -> list[tuple[str, str, str]]:
    """(child, parent, file:line) triples.

    Args:
        lines: Text lines, each a parent and its children, by tabs where the line has one, else by
            white space.
        name: Name of the file, for places.
        fail: Callback that takes the faults of encoding.
    """
    edges = []
    for place, line in read_lines(lines, name, fail):
        labels = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
        parent, *children = [label for label in labels if label]
        edges += [(child, parent, place) for child in children]
    return edges
