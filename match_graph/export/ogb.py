"""Layout of OGB's node property prediction, with splits: https://ogb.stanford.edu."""

import errno
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from match_graph.corpus import Array
from match_graph.errors import ExportError, import_extra
from match_graph.export.inventory import Inventory
from match_graph.export.parquet import add_node_table, write_batches
from match_graph.export.source import GOLD, Source
from match_graph.export.target import Reading, Target
from match_graph.graph.csr import row_index
from match_graph.io.files import save_torch
from match_graph.typing import DOCUMENT, MASKS, EdgeType

#: Limit of the dense label matrix in OGB's loader, 8 bytes an entry.
MAX_LABEL_BYTES = 2 * 2**30
META, SPLIT = "meta_dict.pt", "given"


class OgbTarget(Target):
    """A heterogeneous ``ogbn`` folder in OGB's binary form, one binary task per label."""

    include_labels = ("train", "all")
    texts = ("none", "raw", "words")

    def check(self, source: Source) -> None:
        documents, labels = source.graph.num_nodes(DOCUMENT), source.targets.num_labels
        size = documents * labels * 8
        if size > MAX_LABEL_BYTES:
            raise ExportError(
                f"OGB's layout holds labels as a dense matrix, here {documents:,} documents x "
                f"{labels:,} labels = {size / 2**30:,.1f} GiB when loaded, above the limit of "
                f"{MAX_LABEL_BYTES / 2**30:.0f} GiB; export to pyg or parquet, which keep them "
                f"sparse."
            )
        _import_ogb()

    def write(self, source: Source, folder: Path, out: Path) -> None:
        data, raw = source.data, folder / "raw"
        raw.mkdir()
        (folder / "processed").mkdir()
        (folder / "RELEASE_v1.txt").write_text(f"# ogbn-{source.dataset.name}\n", encoding="utf-8")
        nodes = {name: np.array([data[name].num_nodes], np.int64) for name in data.node_types}
        _write_arrays(raw / "num_nodes_dict.npz", nodes.items())
        edges = {edge_type: data[edge_type].edge_index for edge_type in data.edge_types}
        _write_edges(raw / "edge_index_dict.npz", edges)
        sizes = {
            "___".join(edge_type): np.array([edges[edge_type].size(1)], np.int64)
            for edge_type in edges
        }
        _write_arrays(raw / "num_edges_dict.npz", sizes.items())
        if source.features:
            features = ((name, x.numpy()) for name, x in source.features.items())
            _write_arrays(raw / "node_feat_dict.npz", features)
        counts = (
            (name, data[name].train_count.numpy().astype(np.int64)[:, None])
            for name in data.node_types
            if "train_count" in data[name]
        )
        _write_arrays(raw / "node_train_count.npz", counts)
        positions = {
            edge_type: data[edge_type].position
            for edge_type in edges
            if "position" in data[edge_type]
        }
        _write_edges(
            raw / "edge_position.npz", {edge_type: p[:, None] for edge_type, p in positions.items()}
        )
        _write_arrays(raw / "node-label.npz", [(DOCUMENT, _dense_labels(source))])
        self._write_split(source, folder / "split" / SPLIT)
        for name in data.node_types:
            write_batches(folder, Path("mapping") / f"{name}.parquet", source.names(name))
        save_torch(folder / META, _make_meta(source, str(out.resolve())))
        text = "Row i of TYPE.parquet names node i of that type.\n"
        (folder / "mapping" / "README.md").write_text(text, encoding="utf-8")

    def _write_split(self, source: Source, folder: Path) -> None:
        folder.mkdir(parents=True)
        documents = source.data[DOCUMENT]
        split: dict[str, dict[str, Tensor]] = {
            name: {DOCUMENT: documents[mask].nonzero().view(-1)} for name, mask in MASKS.items()
        }
        save_torch(folder / "split_dict.pt", split)

    def read(self, source: Source, folder: Path) -> list[Reading]:
        dataset = load_ogb(source.dataset.name, _make_meta(source, str(folder)))
        graph, labels = dataset[0]
        inventory = Inventory()
        for name, number in graph["num_nodes_dict"].items():
            more = {}
            if graph["node_feat_dict"] and name in graph["node_feat_dict"]:
                more["x"] = graph["node_feat_dict"][name]
            if name in graph["node_train_count"]:
                more["train_count"] = graph["node_train_count"][name][:, 0]
            if name == DOCUMENT:
                more["split"] = np.full(int(number), "", dtype=object)
                for split, rows in dataset.get_idx_split().items():
                    more["split"][rows[DOCUMENT].numpy()] = split
            add_node_table(inventory, name, folder / "mapping" / f"{name}.parquet", **more)
        for edge_type, edge_index in graph["edge_index_dict"].items():
            position = graph["edge_position"].get(edge_type)
            more = {} if position is None else {"position": position[:, 0]}
            inventory.add_edges(edge_type, edge_index, more)
        inventory.add_edges(GOLD, np.nonzero(labels[DOCUMENT] == 1))
        _remove_processed(folder)
        return [Reading("all files, by OGB's NodePropPredDataset and pyarrow", inventory)]

    def describe(self, source: Source) -> str:
        hidden = "" if source.shown.all() else ", NaN for documents whose labels are left out"
        return f"""\
- `raw/`: graph, labels and features as OGB's `DatasetSaver` lays them out (binary).
- `raw/node_feat_dict.npz`, where there are features: `graph["node_feat_dict"][TYPE]`, or `x_dict`
  with `PygNodePropPredDataset`; types without features are not in it.
- `raw/node-label.npz`: a column per label, 1 or 0{hidden}.
- `split/{SPLIT}/split_dict.pt`: documents per split; tensors, so that every torch loads them.
- `mapping/TYPE.parquet`: row i names node i.
- `{META}`: what OGB's classes take; `dir_path` in it is this folder: change it where you move it.

A known fault of OGB 1.3.6 with torch 2.6 and newer: it pickles what it has read to `processed/` and
reads that back by `torch.load`, which takes tensors alone now. `NodePropPredDataset` works at the
first start and fails at the second, `PygNodePropPredDataset` fails at once, both with
`_pickle.UnpicklingError: Weights only load failed`. Unpickling runs what a file says, so allow it
for what your own machine has written and nothing else: set `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1`
for that program. Or use `NodePropPredDataset` and empty `processed/` before each start.

```python
import torch
from ogb.nodeproppred import Evaluator, NodePropPredDataset

meta = torch.load("{META}", weights_only=True)
dataset = NodePropPredDataset("ogbn-{source.dataset.name}", meta_dict=meta)
graph, labels = dataset[0]
split = dataset.get_idx_split()
evaluator = Evaluator("ogbn-proteins")  # knows OGB's own names alone; this one has ROC-AUC
evaluator.num_tasks = {source.targets.num_labels}
```

- `("document", "tagged", "label")` holds the training gold. Take it out of the graph that a model
  is given, or it reads the answer.
- Importing `ogb` starts a thread that asks PyPI for its newest version; this export did not.
"""


def load_ogb(name: str, meta: dict[str, Any]) -> Any:
    """Loads the exported folder as OGB's library-agnostic `NodePropPredDataset`.

    Args:
        name: Name of the data set.
        meta: Content of ``meta_dict.pt``.
    """
    found = _import_ogb()
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # it prints its progress
            return found.NodePropPredDataset(f"ogbn-{name}", meta_dict=meta)
    except RuntimeError as error:  # it writes a cache, too; torch hides why that fails
        if "inline_container" not in str(error):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error


def _import_ogb() -> Any:
    with _no_version_check():
        return import_extra("ogb.nodeproppred", "The target 'ogb'", "export", ExportError)


@contextmanager
def _no_version_check() -> Iterator[None]:
    """Hides the package with which OGB asks PyPI for its newest version when imported."""
    if "ogb" in sys.modules or "outdated" in sys.modules:
        yield
        return
    sys.modules["outdated"] = None  # type: ignore[assignment]  # an import of it then fails
    try:
        yield
    finally:
        del sys.modules["outdated"]


def _make_meta(source: Source, folder: str) -> dict[str, str | int]:
    name = source.dataset.name
    return {
        "version": 1,
        "dir_path": folder,
        "binary": "True",
        "num tasks": source.targets.num_labels,
        "num classes": 2,
        "task type": "binary classification",
        "eval metric": "rocauc",
        "add_inverse_edge": "False",
        "split": SPLIT,
        "download_name": name,
        "url": "",
        "has_node_attr": str(bool(source.features)),
        "has_edge_attr": "False",
        "additional node files": "node_train_count",
        "additional edge files": "edge_position",
        "is hetero": "True",
    }


def _dense_labels(source: Source) -> Array:
    """Dense labels, 1 or 0, [D, L], int8; float32 with NaN where labels are left out."""
    shape = (source.graph.num_nodes(DOCUMENT), source.targets.num_labels)
    shown = source.shown.numpy()
    labels = np.zeros(shape, dtype=np.int8 if shown.all() else np.float32)
    if not shown.all():
        labels[~shown] = np.nan
    labels[row_index(source.targets.ptr).numpy(), source.targets.index.numpy()] = 1
    return labels


def _write_edges(path: Path, tensors: dict[EdgeType, Tensor]) -> None:
    arrays = {"___".join(edge_type): values.numpy() for edge_type, values in tensors.items()}
    _write_arrays(path, ((name, values.astype(np.int64)) for name, values in arrays.items()))


def _write_arrays(path: Path, arrays: Iterable[tuple[str, Array]]) -> None:
    """Writes arrays as `numpy.savez_compressed` does, with one in memory at a time."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, values in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, values, allow_pickle=False)


def _remove_processed(folder: Path) -> None:
    """Removes the pickled cache that OGB makes on reading."""
    for path in (folder / "processed").iterdir():
        path.unlink()
