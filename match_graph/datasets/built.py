"""Built folder: written atomically, checked when it is opened.

A build lists its files with bytes and SHA-256 in ``manifest.json``. A file is compared with it
before it is read: below 256 MiB by its content, from there on by its size, as SHA-256 would cost
more than reading; `check_all` compares the content of all. What tensors say of each other is
checked in any case, before anything is looked up by them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.errors import CorpusError
from match_graph.io.beside import beside, finish
from match_graph.io.manifest import MANIFEST, find_damage, read_manifest, write_manifest
from match_graph.io.source import is_there
from match_graph.typing import DOCUMENT, LABEL, MASKS, EdgeType

DATA, TARGETS, CORPUS, FAULTS = "data.pt", "targets.pt", "corpus.json", "faults.parquet"

_NODE_KEYS = {"train_count": torch.int32, **dict.fromkeys(MASKS.values(), torch.bool)}


def write_built(built: Path, write: Callable[[Path], None]) -> None:
    """Writes a new built folder through ``write``, lists its files, and puts it in its place.

    Raises:
        CorpusError: The disk refuses.
    """
    try:
        with beside(built) as place:
            place.mkdir()
            write(place)
            finish(place)
            write_manifest(place)
            if built.exists():
                built.replace(place.with_name("before"))  # goes with the room
            place.replace(built)
    except OSError as error:
        raise cannot_write(built, error) from error


def cannot_write(built: Path, error: OSError | ValueError) -> CorpusError:
    """Error for a disk that is full or read-only, or for an impossible name."""
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
    return CorpusError(
        f"A data set must be built whole, but {str(built)!r} could not be written ({reason}); "
        f"nothing of it is left. Make room on the disk, or choose another --root."
    )


def is_built(built: Path) -> bool:
    """Whether a whole build exists; it is renamed when whole, so no lock is needed to ask."""
    return all(is_there(built / name) for name in (MANIFEST, DATA, TARGETS, CORPUS))


def save_tensors(path: Path, content: dict[str, Any]) -> None:
    """Writes tensors and plain values with `torch.save`."""
    with path.open("wb") as file:  # so that a full disk is an OSError
        torch.save(content, file)


@contextmanager
def check_file(path: Path, name: str) -> Iterator[Path]:
    """Checks a file of a build against its manifest; faults in the block become one `CorpusError`.

    Args:
        path: Built folder.
        name: Relative path of the file.

    Raises:
        CorpusError: It is damaged.
    """
    damage = find_damage(path, name)
    if damage:
        raise _damaged(path / name, damage)
    try:
        yield path / name
    except Exception as error:
        raise _damaged(path / name, f"it cannot be read: {type(error).__name__}") from error


def _damaged(path: Path, damage: str) -> CorpusError:
    return CorpusError(
        f"Built data must be what match-graph wrote, but '{path}' is not ({damage}); delete its "
        f"folder, or build with force_reload."
    )


def check_all(built: Path) -> int:
    """Checks every file of a build against its manifest; returns their number.

    Raises:
        CorpusError: One is damaged, missing, or no file of the build.
    """
    with check_file(built, CORPUS):
        names = sorted(read_manifest(built))
    for name in names:
        damage = find_damage(built, name, whole=True)
        if damage:
            raise _damaged(built / name, damage)
    return len(names)


def load_data(built: Path) -> HeteroData:
    """Loads the graph of a build, memory-mapped, with all indices checked.

    Raises:
        CorpusError: The file is damaged.
    """
    with check_file(built, DATA) as path:
        content = torch.load(path, weights_only=True, mmap=True)
        if not isinstance(content, dict) or DOCUMENT not in content:
            raise TypeError
        data = HeteroData.from_dict(content)
    damage = find_graph_fault(data)
    if damage:
        raise _damaged(built / DATA, damage)
    return data


def find_graph_fault(data: HeteroData) -> str:
    """Fault of a graph's indices as a clause; empty if all are in range."""
    sizes: dict[str, int] = {}
    for name in data.node_types:
        sizes[name] = data[name].get("num_nodes")
        if not isinstance(sizes[name], int) or sizes[name] < 0:
            return f"'{name}' has no number of nodes"
        for key, dtype in _NODE_KEYS.items():
            value = data[name].get(key)
            if value is not None and not _is_tensor(value, dtype, (sizes[name],)):
                return f"'{key}' of '{name}' is not one {dtype} a node"
    if LABEL not in sizes:
        return "it has no labels"
    faults = (_find_edge_fault(data, edge_type, sizes) for edge_type in data.edge_types)
    return next(filter(None, faults), "")


def _find_edge_fault(data: HeteroData, edge_type: EdgeType, sizes: Mapping[str, int]) -> str:
    edges, position = data[edge_type].get("edge_index"), data[edge_type].get("position")
    if edges is None:  # taken out by a pre_transform
        return ""
    is_index = isinstance(edges, Tensor) and edges.dtype in (torch.int32, torch.int64)
    if not is_index or edges.dim() != 2 or edges.size(0) != 2:
        return f"the edges {edge_type} are not [2, E] of int32 or int64"
    for row, end in zip(edges, (edge_type[0], edge_type[2]), strict=True):
        if end not in sizes or not _in_range(row, sizes[end]):
            return f"the edges {edge_type} name a '{end}' that is none"
    if position is not None and not _is_tensor(position, torch.int16, (edges.size(1),)):
        return f"the positions of {edge_type} are not one int16 an edge"
    return ""


def load_targets(built: Path, num_documents: int, num_labels: int) -> Mapping[str, Any]:
    """Loads the targets of a build, as `Targets` takes them.

    Raises:
        CorpusError: The file is damaged.
    """
    with check_file(built, TARGETS) as path:
        content = torch.load(path, weights_only=True, mmap=True)
        if not isinstance(content, dict) or content.keys() != {"ptr", "index", "num_labels"}:
            raise TypeError
        ptr, index = content["ptr"], content["index"]
        is_whole = (
            _is_tensor(ptr, torch.int64, (num_documents + 1,))
            and isinstance(index, Tensor)
            and _is_tensor(index, torch.int32, (index.numel(),))
            and content["num_labels"] == num_labels
            and int(ptr[0]) == 0
            and int(ptr[-1]) == index.numel()
            and not bool((ptr.diff() < 0).any())
            and _in_range(index, num_labels)
        )
    if not is_whole:
        raise _damaged(built / TARGETS, "it names documents or labels that the graph has not")
    return content


def _is_tensor(value: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> bool:
    return isinstance(value, Tensor) and value.dtype == dtype and tuple(value.shape) == shape


def _in_range(values: Tensor, size: int) -> bool:
    if not values.numel():
        return True
    least, most = torch.aminmax(values)
    return int(least) >= 0 and int(most) < size


def load_faults(built: Path) -> pd.DataFrame:
    """Documents that ``faults="skip"`` left out: columns ``place`` and ``reason``."""
    if not (built / FAULTS).exists():
        return pd.DataFrame({"place": [], "reason": []}, dtype=str)
    with check_file(built, FAULTS) as path:
        return pd.read_parquet(path)
