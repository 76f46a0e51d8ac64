"""Fragments: the documents of one partition of a source, as a folder.

Fragments are independent of each other. Each indexes its strings by a sorted dictionary of its own;
`merge` maps them to node indices. The files::

    fragment.json       partition, notes, warnings, faults, hierarchy edges, notes of the reader
    documents.parquet   id, split, text, time (null where unknown), in reading order
    document.arrow      the ids again, ascending, each with its row and place
    TYPE.arrow          the strings of a type, ascending, each with its training count
    TYPE.npy            dictionary indices, packed by document, int32
    TYPE.lengths.npy    number of strings of each document, int32
    TYPE.names.arrow    strings with a name or a depth, ascending; left out if there are none
"""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from match_graph.corpus import Array
from match_graph.corpus_builder import CorpusBuilder, CorpusFault
from match_graph.io.beside import beside, finish
from match_graph.io.tables import map_arrow, write_arrow
from match_graph.typing import DOCUMENT, LABEL

ABOUT, DOCUMENTS = "fragment.json", "documents.parquet"


class Fragment:
    """Fragment folder, opened; its arrays are mapped.

    Args:
        folder: Folder that `write_fragment` made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def about(self) -> dict[str, Any]:
        """Content of ``fragment.json``."""
        return json.loads((self.folder / ABOUT).read_text(encoding="utf-8"))

    @property
    def num_documents(self) -> int:
        return int(self.about["num_documents"])

    @property
    def faults(self) -> list[CorpusFault]:
        return [CorpusFault(*fault) for fault in self.about["faults"]]

    def strings(self, node_type: str) -> pa.Table:
        """Strings of a type, ascending: ``id``, ``count``; of documents ``row`` and ``place``."""
        return map_arrow(self.folder / f"{node_type}.arrow")

    def names(self, node_type: str) -> pa.Table | None:
        """Strings that have a name or a depth, ascending: ``id``, ``name``, ``depth``."""
        path = self.folder / f"{node_type}.names.arrow"
        return map_arrow(path) if path.is_file() else None

    def codes(self, node_type: str) -> Array:
        """Dictionary indices of the strings, packed by document, [E], int32."""
        return np.load(self.folder / f"{node_type}.npy", mmap_mode="r")

    def lengths(self, node_type: str) -> Array:
        """Number of strings of each document, [D], int32."""
        return np.load(self.folder / f"{node_type}.lengths.npy")

    def documents(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Documents in reading order."""
        with pq.ParquetFile(self.folder / DOCUMENTS) as file:
            return file.read(None if columns is None else list(columns))


def write_fragment(folder: Path, builder: CorpusBuilder, partition: Mapping[str, Any]) -> None:
    """Writes the content of a builder as a fragment, atomically.

    Args:
        folder: Final path of the fragment.
        builder: Builder of the documents of one partition.
        partition: Identity of the partition, as JSON values.
    """
    documents = pa.table(
        {name: pa.array(values, pa.large_string()) for name, values in builder.columns.items()}
        | {"time": pa.array(builder.time, pa.int64())}
    )
    in_train = mask_training(documents)
    about = {
        "partition": dict(partition),
        "num_documents": len(builder.place),
        "num_train": int(in_train.sum()),
        "has_time": None not in builder.time,
        "has_text": builder.has_text,
        "tokenizer": builder.tokenizer,
        "notes": builder.notes,
        "warnings": builder.warnings,
        "faults": builder.noted,
        "edges": [[*edge, place] for edge, place in builder.edges.items()],
        "seen": builder.seen,
        "repeated_values": [*builder.repeated_values.items()],
        "replaceable": [*builder.replaceable.items()],
    }
    with beside(folder) as place:
        place.mkdir()
        places = [os.fsencode(one) for one in builder.place.values()]  # a file may be named so
        _write_documents(place, documents, pa.array(places, pa.large_binary()))
        for name, interner in builder.types.items():
            ids = pa.array(list(interner.code), pa.large_string())
            save_strings(place, name, ids, interner.codes, interner.lengths, in_train)
        for name in {*builder.names, *([LABEL] if builder.depths else [])}:
            depths = builder.depths if name == LABEL else {}
            write_arrow(
                place / f"{name}.names.arrow", _list_names(builder.names.get(name, {}), depths)
            )
        (place / ABOUT).write_text(json.dumps(about), encoding="utf-8")
        finish(place)
        place.replace(folder)


def _write_documents(folder: Path, documents: pa.Table, places: pa.Array) -> None:
    pq.write_table(documents, folder / DOCUMENTS, compression="zstd")
    ids = documents["id"].combine_chunks()
    order = pc.sort_indices(ids)
    columns = {
        "id": ids.take(order),
        "row": order.cast(pa.int32()),
        "place": places.take(order),
    }
    write_arrow(folder / f"{DOCUMENT}.arrow", pa.table(columns))


def save_strings(
    folder: Path, name: str, ids: pa.Array, codes: Array, lengths: Array, in_train: Array
) -> None:
    """Writes the sorted dictionary of a type, and the indices into it.

    Args:
        folder: Folder of the fragment.
        name: Node type.
        ids: Distinct strings in any order.
        codes: Index into ``ids``, packed by document, [E].
        lengths: Number of strings of each document, [D].
        in_train: Mask of training documents, [D].
    """
    ids, codes = sort_strings(ids, codes)
    count = np.bincount(codes[np.repeat(in_train, lengths)], minlength=len(ids))
    write_arrow(folder / f"{name}.arrow", pa.table({"id": ids, "count": count.astype(np.int64)}))
    np.save(folder / f"{name}.npy", codes)
    np.save(folder / f"{name}.lengths.npy", lengths)


def sort_strings(ids: pa.Array, codes: Array) -> tuple[pa.Array, Array]:
    """Distinct strings, ascending, and indices [E] into them, int32, from those into ``ids``."""
    order = pc.sort_indices(ids)
    place = np.empty(len(ids), np.int32)
    place[order.to_numpy()] = np.arange(len(ids), dtype=np.int32)
    return ids.take(order), place[codes]


def _list_names(names: Mapping[str, str], depths: Mapping[str, int]) -> pa.Table:
    """Table of names and depths by id, ascending."""
    ids = sorted({**names, **depths})
    return pa.table(
        {
            "id": pa.array(ids, pa.large_string()),
            "name": pa.array([names.get(one) for one in ids], pa.large_string()),
            "depth": pa.array([depths.get(one) for one in ids], pa.int16()),
        }
    )


def drop_documents(fragment: Fragment, rows: Array, types: Sequence[str], folder: Path) -> Fragment:
    """A fragment without some of its documents.

    Args:
        fragment: Fragment.
        rows: Rows of the documents to drop, ascending.
        types: Node types besides documents.
        folder: Final path of the new fragment.
    """
    kept = np.ones(fragment.num_documents, bool)
    kept[rows] = False
    documents = fragment.documents().filter(pa.array(kept))
    places = fragment.strings(DOCUMENT).sort_by("row")["place"].filter(pa.array(kept))
    in_train = mask_training(documents)
    dropped = set(rows.tolist())
    notes = Counter(fragment.about["notes"])
    for row, counts in fragment.about["replaceable"]:
        if row in dropped:
            notes.update(counts)
    repeated = [pair for pair in fragment.about["repeated_values"] if pair[0] not in dropped]
    about = {
        **fragment.about,
        "num_documents": len(documents),
        "num_train": int(in_train.sum()),
        "has_time": not documents["time"].null_count,
        "notes": notes,
        "repeated_values": repeated,
    }
    with beside(folder) as place:
        place.mkdir()
        _write_documents(place, documents, places.combine_chunks())
        for name in types:
            lengths, codes = fragment.lengths(name), fragment.codes(name)
            codes = codes[np.repeat(kept, lengths)]
            used, codes = np.unique(codes, return_inverse=True)
            ids = fragment.strings(name)["id"].combine_chunks().take(pa.array(used))
            save_strings(place, name, ids, codes, lengths[kept], in_train)
            names = fragment.names(name)
            if names is not None:
                write_arrow(place / f"{name}.names.arrow", names)
        (place / ABOUT).write_text(json.dumps(about), encoding="utf-8")
        place.replace(folder)
    return Fragment(folder)


def mask_training(documents: pa.Table) -> Array:
    """Mask of the training documents of a table, [D]."""
    return pc.equal(documents["split"], "train").to_numpy(zero_copy_only=False)
