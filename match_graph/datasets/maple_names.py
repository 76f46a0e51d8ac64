"""Tables of names in MAPLE's folders: labels with depths, authors, venues."""

from collections.abc import Iterator
from pathlib import Path

from match_graph.corpus import CorpusBuilder
from match_graph.io.json_lines import read_lines
from match_graph.io.source import Sources, is_there


def read_columns(
    path: Path, builder: CorpusBuilder, sources: Sources
) -> Iterator[tuple[str, list[str]]]:
    """(file:line, at least two tab-separated columns) per line; other lines are faults."""
    for place, line in read_lines(sources.lines(path), path.name, builder.fail):
        columns = line.rstrip("\r\n").split("\t")
        if len(columns) < 2:
            builder.fail(
                f"{place}: a line must have two columns by tab, found '{line.strip()[:60]}'; "
                f"fetch the file again."
            )
            continue
        yield place, columns


def read_names(path: Path, node_type: str, builder: CorpusBuilder, sources: Sources) -> None:
    """Reads names of a type from an optional file: id, normalised name, own name."""
    if is_there(path):
        for _, columns in read_columns(path, builder, sources):
            name = columns[2] if len(columns) > 2 and columns[2] else columns[1]
            builder.set_name(node_type, columns[0], name)


def read_label_names(path: Path, builder: CorpusBuilder, sources: Sources) -> None:
    """Reads names and depths of labels from an optional file: id, name, depth."""
    if not is_there(path):
        return
    for place, columns in read_columns(path, builder, sources):
        builder.set_name("label", columns[0], columns[1])
        depth = columns[2].strip() if len(columns) > 2 else ""
        if depth.isdecimal() and len(depth) < 4:
            builder.set_depth(columns[0], int(depth))
        elif depth:
            builder.fail(
                f"{place}: the depth of a label must be a whole number below 1,000, "
                f"found '{depth[:60]}'; fetch the file again."
            )
