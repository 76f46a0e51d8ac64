"""MAPLE's graph release: papers, labels, venues and authors as nodes, and edges between them.

Source: https://github.com/yuzhimanhua/MAPLE, README_Graph.md.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.options import SplitConfig
from match_graph.io.json_lines import Fail, read_lines
from match_graph.io.source import Sources, is_there

LabelKind: TypeAlias = Literal["mag", "mesh"]
#: The files of edges by field, and the prefix of the ids of their targets.
EDGE_FILES = {
    "venue": ("paper-venue.txt", "VENUE_"),
    "author": ("paper-author.txt", "AUTHOR_"),
    "reference": ("paper-paper.txt", "PAPER_"),
}
LABEL_FILES: dict[LabelKind, tuple[str, str, str]] = {
    "mag": ("paper-label.txt", "LABEL_", "labels.txt"),
    "mesh": ("paper-mesh.txt", "MESH_", "meshs.txt"),
}
GRAPH_FILES = (
    "papers.txt", "venues.txt", "authors.txt", *(name for name, _ in EDGE_FILES.values()),
    *(name for edges, _, names in LABEL_FILES.values() for name in (edges, names)),
)  # fmt: skip


@dataclass(frozen=True)
class _Edges:
    """Edges in CSR; neighbours of paper i are ``index[ptr[i]:ptr[i + 1]]``, in the file's order."""

    ptr: np.ndarray[Any, np.dtype[np.int64]]
    index: np.ndarray[Any, np.dtype[np.int32]]
    names: list[str]

    def of(self, paper: int) -> list[str]:
        start, end = self.ptr[paper], self.ptr[paper + 1]
        return [self.names[index] for index in self.index[start:end]]


def read_graph(
    folder: Path,
    labels: LabelKind,
    builder: CorpusBuilder,
    sources: Sources,
    config: SplitConfig,
) -> None:
    """Adds the papers of a folder; ids lose their prefixes, as in the JSON release.

    Args:
        folder: Folder with ``papers.txt`` and the label edges; files of other edges and of names
            may be missing.
        labels: Label set: "mag" for fields of study, "mesh" for MeSH, which three subjects have.
        builder: Builder that takes papers and names.
        sources: Files of the folder.
        config: Split options, at random, as there are no dates.
    """
    edge_file, prefix, name_file = LABEL_FILES[labels]
    kinds = {"label": (edge_file, prefix)} | {name: EDGE_FILES[name] for name in builder.fields}
    papers: dict[str, int] = {}  # texts are read in a second pass, after the edges
    left_out: set[str] = set()
    path = folder / "papers.txt"
    lines = split_columns(_note_papers(sources.lines(path), left_out), path.name, builder.fail)
    for _, columns in builder.documents(lines):
        papers.setdefault(columns[0], len(papers))
        left_out.discard(columns[0])
    edges = {
        name: _read_edges(folder / file, papers, left_out, start, builder, sources)
        for name, (file, start) in kinds.items()
    }
    if not builder.faults:
        for place, columns in builder.documents(read_columns(path, builder, sources)):
            _add_paper(builder, place, columns, papers, edges, config)
    for name, file, start in (
        ("label", name_file, prefix), ("venue", "venues.txt", "VENUE_"),
        ("author", "authors.txt", "AUTHOR_"),
    ):  # fmt: skip
        if name in kinds and is_there(folder / file):
            for _, columns in read_columns(folder / file, builder, sources):
                builder.set_name(name, columns[0].removeprefix(start), columns[1])


def _note_papers(lines: Iterable[bytes], papers: set[str]) -> Iterator[bytes]:
    """Passes lines on, after adding the first column of each to ``papers``."""
    for line in lines:
        papers.add(line.rstrip(b"\r\n").partition(b"\t")[0].decode("utf-8", "replace"))
        yield line


def read_columns(
    path: Path, builder: CorpusBuilder, sources: Sources
) -> Iterator[tuple[str, list[str]]]:
    """(file:line, at least two tab-separated columns) per line; other lines are faults."""
    return split_columns(sources.lines(path), path.name, builder.fail)


def split_columns(
    lines: Iterable[bytes], name: str, fail: Fail, first: int = 1
) -> Iterator[tuple[str, list[str]]]:
    """As `read_columns`, of lines from number ``first`` on."""
    for place, line in read_lines(lines, name, fail, first):
        columns = line.rstrip("\r\n").split("\t")
        if len(columns) < 2:
            fail(
                f"{place}: a line must have two columns by tab, found '{line.strip()[:60]}'; "
                f"fetch the file again."
            )
            continue
        yield place, columns


def _read_edges(
    path: Path,
    papers: dict[str, int],
    left_out: set[str],
    prefix: str,
    builder: CorpusBuilder,
    sources: Sources,
) -> _Edges:
    """Reads the edges of a file, in any order.

    Edges of papers that are left out for a fault are left out, too.
    """
    codes: dict[str, int] = {}
    paper, index = array("i"), array("i")
    if is_there(path):
        lines = split_columns(sources.lines(path), path.name, builder.fail_file)
        for place, columns in builder.documents(lines):
            number = papers.get(columns[0])
            if number is None and columns[0] in left_out:
                continue
            if number is None:
                builder.fail(
                    f"{place}: an edge must start at a paper of papers.txt, "
                    f"found '{columns[0][:60]}'; fetch the files again."
                )
                continue
            paper.append(number)
            index.append(codes.setdefault(columns[1].removeprefix(prefix), len(codes)))
    rows = np.frombuffer(paper, np.int32) if paper else np.empty(0, np.int32)
    ends = np.frombuffer(index, np.int32) if index else np.empty(0, np.int32)
    order = np.argsort(rows, kind="stable")
    ptr = np.zeros(len(papers) + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=len(papers)), out=ptr[1:])
    return _Edges(ptr, ends[order], list(codes))


def _add_paper(
    builder: CorpusBuilder,
    place: str,
    columns: list[str],
    papers: dict[str, int],
    edges: dict[str, _Edges],
    config: SplitConfig,
) -> None:
    document, number = columns[0].removeprefix("PAPER_"), papers[columns[0]]
    if document in builder:
        builder.add(document, "train", "", {}, [], place)  # a fault with both places
        return
    text = "\t".join(columns[1:])
    values = {name: found.of(number) for name, found in edges.items()}
    labels = values.pop("label")
    builder.add(document, config.choose_split(document, text), text, values, labels, place)
