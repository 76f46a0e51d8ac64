"""``EXPORT.md``: contents of an export, how to load it, and what it lacks."""

import fnmatch
from importlib.metadata import version
from pathlib import Path

from match_graph.export.inventory import Inventory
from match_graph.export.source import GOLD, Source
from match_graph.export.target import Reading, Target
from match_graph.graph.view import GraphView
from match_graph.io.escape import escape_markdown
from match_graph.typing import DOCUMENT, MASKS, SPLITS

DESCRIPTION = "EXPORT.md"
#: Attributes that all formats carry, or that have a sentence of their own.
_CARRIED = {*MASKS.values(), "time", "train_count", "x", "edge_attr"}
_LABELS = {
    "none": "No gold label is written, but labels as nodes stand in the order of how many training "
    "documents have them: leave their numbers out of what a model is given.",
    "train": "Gold labels of training documents only (`--include-labels train`). Labels as nodes "
    "are those of all splits, so that some have no document here.",
    "all": "Gold labels of all splits (`--include-labels all`): never train on those of validation "
    "and test. Where they are edges, these are of the type `gold`.",
}
_TEXTS = {
    "none": "No texts (`--text none`); the words of each document are edges.",
    "raw": "Texts as they were read (`--text raw`).",
    "words": "Texts as the words of the graph with spaces between (`--text words`).",
}


def describe_export(
    to: str,
    target: Target,
    source: Source,
    expected: Inventory,
    readings: list[Reading],
    run: str | Path | None,
) -> str:
    """Text of ``EXPORT.md``.

    Args:
        to: Name of the target.
        target: Target that wrote the export.
        source: Source of the export.
        expected: Inventory that was to be written.
        readings: Readings of the export, equal to the expected inventory.
        run: Run of the pre-trained vectors; None if they were trained for the export.
    """
    options = source.options
    held = [_LABELS[options.include_labels], _TEXTS[options.text or "none"]]
    held += _describe_features(source, run)
    left_out = _list_left_out(target, source, expected, readings)
    parts = [
        f"# {escape_markdown(source.dataset.name)} as {to}",
        f"Written by match-graph {version('match-graph')} from the data set "
        f"{escape_markdown(source.dataset.name)}, whose inputs and options have the SHA-256 "
        f"`{source.dataset.checksum[:16]}...`.",
        "\n".join(f"- {sentence}" for sentence in held),
        "## Files",
        target.describe(source).strip(),
        "## Not carried",
        "\n".join(f"- {sentence}" for sentence in left_out),
        "## Verified",
        "Read back and compared with the source: every count below, and for every node and edge "
        "its ids and its attributes, but those of a `pre_transform`, by a fingerprint.",
        _make_table(expected, readings),
    ]
    return "\n\n".join(parts) + "\n"


def sum_up(source: Source, expected: Inventory, readings: list[Reading]) -> str:
    """Summary of the verified counts in one line; `describe_export` has them by type.

    Args:
        source: Source of the export.
        expected: Inventory that was to be written.
        readings: Readings of the export; a type that is in none was left out and does not count.
    """
    gold = " ".join(GOLD)
    found = {name for reading in readings for name in reading.inventory.counts}
    counts = {name: count for name, count in expected.counts.items() if name in found}
    nodes = {name: count for name, count in counts.items() if " " not in name}
    edges = [count for name, count in counts.items() if " " in name and name != gold]
    splits = ", ".join(f"{int((source.split == name).sum()):,} {name}" for name in SPLITS)
    parts = [
        f"{nodes.pop(DOCUMENT):,} documents ({splits})",
        f"{sum(nodes.values()):,} other nodes of {len(nodes)} types",
        f"{sum(edges):,} edges of {len(edges)} types",
    ]
    parts += [f"{counts[gold]:,} gold labels"] if gold in counts else []
    return ", ".join(parts)


def _describe_features(source: Source, run: str | Path | None) -> list[str]:
    if source.options.features == "none":
        return ["No features (`--features none`)."]
    if source.options.features == "ids":
        return ["`x` is the number of the node within its type, for an embedding table."]
    if source.options.features == "data":
        widths = ", ".join(
            f"`{name}` [{len(x):,}, {x.size(1)}]" for name, x in source.features.items()
        )
        return [f"`x` holds the features of the data, float32: {widths}."]
    channels = next(iter(source.features.values())).size(1)
    origin = "trained for this export" if run is None else "of a run"
    seen = source.options.include_labels != "none"
    return [
        f"`x` holds pre-trained unit vectors of {channels} channels, {origin}. Nodes that are too "
        f"rare for one have zeros. A document's is the normalised mean of those of its words and "
        f"metadata, in all splits alike.",
        f"Pre-training saw training documents only, {'with' if seen else 'without'} their labels.",
    ]


def _list_left_out(
    target: Target, source: Source, expected: Inventory, readings: list[Reading]
) -> list[str]:
    """Sentences on parts of the source that the export lacks."""
    sentences = {
        sentence: None
        for reading in readings
        for pattern, sentence in reading.left_out.items()
        if any(fnmatch.fnmatchcase(key, pattern) for key in [*expected.counts, *expected.prints])
    }
    if source.options.include_labels != "all":
        number = int((~source.shown).sum())
        sentences[f"Gold labels of {number:,} documents, left out on purpose."] = None
    if fields := list(getattr(source.dataset.transform, "fields", ())):
        sentences[f"Fields {fields}, left out on purpose."] = None
    if source.options.text == "none" and source.dataset.keeps_texts:
        sentences["Raw texts, left out on purpose."] = None
    graph = source.graph
    has_x = any(graph.node_tensor(name, "x") is not None for name in graph.node_types)
    if source.options.features != "data" and has_x:
        sentences["Features of the data set, left out on purpose."] = None
    if not target.has_attributes:
        sentences |= dict.fromkeys(_name_attributes(graph))
    return [*sentences] or ["Nothing was left out."]


def _name_attributes(graph: GraphView) -> list[str]:
    """Sentences on attributes of nodes and edges that the format cannot hold."""
    edges = [(one, name) for one in graph.edge_types for name in graph.list_attributes(one)]
    nodes = [(one, name) for one in graph.node_types for name in graph.list_attributes(one)]
    others = [f"{one}.{name}" for one, name in [*nodes, *edges] if name not in _CARRIED]
    sentences = []
    if any(name == "edge_attr" for _, name in edges):
        sentences.append("Attributes of edges (`edge_attr`); the target pyg carries them.")
    if others:
        listed = escape_markdown(", ".join(others))
        sentences.append(f"Attributes of a `pre_transform`, {listed}; the target pyg carries them.")
    return sentences


def _make_table(expected: Inventory, readings: list[Reading]) -> str:
    """Table of counts in the source and in each reading; a dash for a type that it lacks."""
    lines = [f"| | source | {' | '.join(reading.files for reading in readings)} |"]
    lines.append("|---|---:|" + "---:|" * len(readings))
    for name, count in expected.counts.items():
        found = (reading.inventory.counts.get(name) for reading in readings)
        cells = (f"{number:,}" if number is not None else "-" for number in found)
        lines.append(f"| {name} | {count:,} | {' | '.join(cells)} |")
    return "\n".join(lines)
