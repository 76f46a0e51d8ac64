"""PyTorch Geometric: tensors that load without unpickling, and names as Parquet."""

from pathlib import Path

import torch
from torch_geometric.data import HeteroData

from match_graph.export.inventory import Inventory
from match_graph.export.parquet import add_node_table, write_batches
from match_graph.export.source import Source, add_graph_edges, list_splits
from match_graph.export.target import Reading, Target
from match_graph.io.files import save_torch
from match_graph.typing import DOCUMENT

DATA, TARGETS = "data.pt", "targets.pt"


class PygTarget(Target):
    """``data.pt``, ``targets.pt``, and the names of the nodes as Parquet."""

    has_attributes = True

    def write(self, source: Source, folder: Path, out: Path) -> None:
        content = source.data.to_dict()
        for node_type, x in source.features.items():
            content[node_type] = {**content[node_type], "x": x}
        save_torch(folder / DATA, content)
        if source.has_gold:
            save_torch(folder / TARGETS, source.targets.to_dict())
        for node_type in source.data.node_types:
            path = Path("names") / f"{node_type}.parquet"
            write_batches(folder, path, source.names(node_type))

    def read(self, source: Source, folder: Path) -> list[Reading]:
        data = HeteroData.from_dict(torch.load(folder / DATA, weights_only=True, mmap=True))
        data.validate()
        inventory = Inventory()
        for node_type in data.node_types:
            store = data[node_type]
            more = {name: store[name].numpy() for name in ("x", "train_count") if name in store}
            if node_type == DOCUMENT:
                more["split"] = list_splits(data)
            add_node_table(inventory, node_type, folder / "names" / f"{node_type}.parquet", **more)
        has_gold = (folder / TARGETS).is_file()
        gold = torch.load(folder / TARGETS, weights_only=True) if has_gold else None
        add_graph_edges(inventory, data, gold)
        return [Reading("all files, by PyTorch Geometric and pyarrow", inventory)]

    def describe(self, source: Source) -> str:
        text = f"""\
- `{DATA}`: a `HeteroData` as dictionary; nothing in it needs unpickling.
- `names/TYPE.parquet`: row i names node i. Names are no part of `{DATA}`, as PyG's loaders stop at
  lists.

```python
import torch
from torch_geometric.data import HeteroData

data = HeteroData.from_dict(torch.load("{DATA}", weights_only=True))
```

- Edges point away from documents: `ToUndirected(merge=False)` adds the reverses; `merge=True` would
  make `cites` symmetric.
{_describe_x(source)}"""
        if not source.has_gold:
            return text
        return (
            text
            + f"""\
- `{TARGETS}`: gold labels, `torch.load("{TARGETS}", weights_only=True)`; those of document i are
  `index[ptr[i]:ptr[i + 1]]`. Documents whose labels are left out have none there.
- `("document", "tagged", "label")` holds the training gold. Take it out of the graph that a model
  is given (`del data["document", "tagged", "label"]`), or it reads the answer.
"""
        )


def _describe_x(source: Source) -> str:
    if not source.features:
        return ""
    names = ", ".join(f"`{name}`" for name in source.features)
    return f"- `data[TYPE].x` are the features of {names}.\n"
