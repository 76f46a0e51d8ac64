"""Documents per second of building from JSON lines, against rows collected for pandas."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from match_graph.corpus import split_words
from match_graph.datasets.assemble import assemble
from match_graph.datasets.match_folder import (
    SPLIT_FILES,
    MatchFolder,
    MatchReader,
    write_match_folder,
)
from match_graph.speed.measure import Bench, Speed, compare, watch_memory
from match_graph.typing import DOCUMENT, MASKS, WORD, Tokenizer

_DOCUMENTS = 20_000


def build_by_rows(
    folder: Path, fields: list[str], tokenizer: Tokenizer = "regex"
) -> dict[str, tuple[list[str], Tensor]]:
    """Baseline: nodes and edges of a folder in the MATCH format, from one row per token.

    Returns:
        By type the ids of its nodes in the order of `build_graph`, and its edges [2, E].
    """
    rows: list[dict[str, Any]] = []
    document = 0
    for split, file_name in SPLIT_FILES.items():
        for line in (folder / file_name).read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            lists = {"label": record["label"], WORD: split_words(record["text"], tokenizer)}
            for field in fields:
                values = record.get(field) or []
                lists[field] = [values] if isinstance(values, str) else values
            for kind, values in lists.items():
                kept = values if kind == WORD else dict.fromkeys(filter(None, values))
                rows += [
                    {"type": kind, "document": document, "id": value, "train": split == "train"}
                    for value in kept
                ]
            document += 1
    found = {}
    for node_type, table in pd.DataFrame(rows).groupby("type", sort=False):
        count = table.groupby("id")["train"].sum().reset_index()
        ids: list[str] = count.sort_values(["train", "id"], ascending=[False, True])["id"].tolist()
        place = dict(zip(ids, range(len(ids)), strict=True))
        edges = [table["document"].tolist(), [place[value] for value in table["id"]]]
        found[str(node_type)] = ids, torch.tensor(edges, dtype=torch.int32)
    return found


def measure_build(bench: Bench) -> Iterator[Speed]:
    """Measures building from JSON lines of some documents; labels without a hierarchy.

    Ours reads, merges, and writes the folder to disk; the baseline stops at lists in memory.
    """
    dataset, bench = bench.dataset, bench.on_cpu
    fields = [
        edge_type[2] for edge_type in dataset.graph.edge_types if edge_type[:2] == (DOCUMENT, "has")
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        number = write_sample(bench, folder, fields)

        config = MatchFolder.Config(fields=fields, tokenizer=dataset.tokenizer, hierarchy="ignore")
        about: dict[str, object] = {"name": "speed", "tokenizer": dataset.tokenizer, "source": {}}

        def ours() -> int:
            assemble(folder / "built", MatchReader(folder, config), about, lambda: None)
            return number

        def rows() -> int:
            build_by_rows(folder, fields, dataset.tokenizer)
            return number

        yield from compare(
            bench, "build", f"{number:,} documents", "documents/s",
            {"ours": ours, "a row for each token": rows}, watch_memory(bench, ours),
        )  # fmt: skip


def write_sample(bench: Bench, folder: Path, fields: list[str]) -> int:
    """Writes some documents of each split as JSON lines; returns their number."""
    share = _DOCUMENTS / bench.dataset.graph.num_nodes(DOCUMENT)
    written = {}
    for split, mask in MASKS.items():
        documents = bench.dataset.documents(mask)
        number = max(1, min(len(documents), round(share * len(documents))))
        written[split] = bench.dataset.as_json(documents[:number].tolist())
    write_match_folder(folder, written, [], fields)
    return sum(map(len, written.values()))
