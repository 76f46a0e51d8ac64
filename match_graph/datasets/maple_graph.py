"""MAPLE's graph release: papers, labels, venues and authors as nodes, and edges between them.

Source: https://github.com/yuzhimanhua/MAPLE, README_Graph.md.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from match_graph.corpus import Corpus, CorpusBuilder, Faults
from match_graph.datasets.maple_names import read_columns
from match_graph.datasets.match_folder import Hierarchy
from match_graph.datasets.splits import SplitRule
from match_graph.datasets.taxonomy import read_taxonomy
from match_graph.datasets.text import Tokenizer, split_words
from match_graph.io.source import Sources, Track, is_there, open_sources

LabelKind: TypeAlias = Literal["mag", "mesh"]
#: The files of edges by field; the prefix of the ids at their far end.
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
TAXONOMY = "taxonomy.txt"


@dataclass(frozen=True)
class _Edges:
    """Edges in CSR: neighbours of paper i are ``index[ptr[i]:ptr[i + 1]]``, in the file's order."""

    ptr: np.ndarray[Any, np.dtype[np.int64]]
    index: np.ndarray[Any, np.dtype[np.int32]]
    names: list[str]

    def of(self, paper: int) -> list[str]:
        start, end = self.ptr[paper], self.ptr[paper + 1]
        return [self.names[index] for index in self.index[start:end]]


def read_maple_graph(
    folder: Path,
    fields: Sequence[str] = tuple(EDGE_FILES),
    tokenizer: Tokenizer = "whitespace",
    labels: LabelKind = "mag",
    hierarchy: Hierarchy = "use",
    rule: SplitRule | None = None,
    track: Track | None = None,
    faults: Faults = "refuse",
) -> Corpus:
    """Reads a folder of the graph release; ids lose their prefixes, as in the JSON release.

    Args:
        folder: Folder with ``papers.txt`` and the label edges; files of other edges and of names
            may be missing.
        fields: Metadata fields, among venue, author, reference.
        tokenizer: Text tokenization: "whitespace" for the texts as they are.
        labels: Label set: "mag" for fields of study, "mesh" for MeSH, which three subjects have.
        hierarchy: Use of ``taxonomy.txt``: "use" or "ignore".
        rule: Split rule, at random, as there are no dates.
        track: Progress tracker.
        faults: Policy for faulty documents, as for `CorpusDataset`.

    Raises:
        CorpusError: With every fault of the files, each with file:line.
    """
    rule = rule or SplitRule()
    summary = f"The folder '{folder}' must be one of MAPLE's"
    builder = CorpusBuilder("maple", fields, summary, faults)
    edge_file, prefix, name_file = LABEL_FILES[labels]
    paths = [folder / name for name in (*GRAPH_FILES, TAXONOMY)]
    hierarchy_edges: list[tuple[str, str, str]] = []
    with open_sources(paths, "maple", track) as sources:
        kinds = {"label": (edge_file, prefix)} | {name: EDGE_FILES[name] for name in fields}
        with builder.documents():
            papers = _read_papers(folder / "papers.txt", builder, sources)
            edges = {
                name: _read_edges(folder / file, papers, start, builder, sources)
                for name, (file, start) in kinds.items()
            }
            if not builder.faults:
                _add_papers(folder / "papers.txt", papers, edges, rule, tokenizer, builder, sources)
        for name, file, start in (
            ("label", name_file, prefix), ("venue", "venues.txt", "VENUE_"),
            ("author", "authors.txt", "AUTHOR_"),
        ):  # fmt: skip
            if name in kinds and is_there(folder / file):
                for _, columns in read_columns(folder / file, builder, sources):
                    builder.set_name(name, columns[0].removeprefix(start), columns[1])
        if hierarchy == "use" and is_there(folder / TAXONOMY):
            lines = sources.lines(folder / TAXONOMY)
            hierarchy_edges = read_taxonomy(lines, TAXONOMY, builder.fail)
    return builder.build(hierarchy_edges)


def _read_papers(path: Path, builder: CorpusBuilder, sources: Sources) -> dict[str, int]:
    """Indices of the papers by id; texts are read again when the edges are known."""
    papers: dict[str, int] = {}
    for _, columns in read_columns(path, builder, sources):
        if builder.is_hopeless:
            break
        papers.setdefault(columns[0], len(papers))
    return papers


def _read_edges(
    path: Path, papers: dict[str, int], prefix: str, builder: CorpusBuilder, sources: Sources
) -> _Edges:
    """Reads the edges of a file, which need not be in the order of the papers."""
    codes: dict[str, int] = {}
    paper, index = array("i"), array("i")
    if is_there(path):
        for place, columns in read_columns(path, builder, sources):
            if builder.is_hopeless:
                break
            number = papers.get(columns[0])
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


def _add_papers(
    path: Path,
    papers: dict[str, int],
    edges: dict[str, _Edges],
    rule: SplitRule,
    tokenizer: Tokenizer,
    builder: CorpusBuilder,
    sources: Sources,
) -> None:
    for place, columns in read_columns(path, builder, sources):
        document, number = columns[0].removeprefix("PAPER_"), papers[columns[0]]
        if document in builder:
            builder.add(document, "train", "", [], {}, [], place)  # a fault with both places
            continue
        text = "\t".join(columns[1:])
        values = {name: found.of(number) for name, found in edges.items()}
        labels = values.pop("label")
        split = rule.choose(document, text, None)
        words = split_words(text, tokenizer)
        builder.add(document, split, text, words, values, labels, place)
