"""NetworkX formats: node-link JSON and, for small graphs, GraphML."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import networkx as nx
import numpy as np

from match_graph.corpus import Array
from match_graph.errors import ExportError
from match_graph.export.inventory import Inventory
from match_graph.export.source import NONE, Source
from match_graph.export.target import NOT_IN_XML, Reading, Target, escape_all, unescape
from match_graph.typing import EdgeType

Graph: TypeAlias = "nx.Graph[str]"

JSON, GRAPHML = "graph.json", "graph.graphml"
#: Limits of nodes and edges of a graph of Python objects: about 1 KiB each, GraphML 3 KiB.
MAX_ITEMS, MAX_GRAPHML_ITEMS = 10_000_000, 500_000
#: Attribute of a GraphML graph that lists its columns with percent escapes.
ESCAPED = "percent_escaped"
#: Renamed columns, as node-link JSON uses "id" for the node itself.
_NAMES = {"id": "name", "name": "title"}
_STRINGS = {"name", "title", "definition", "split", "text"}


class NetworkxTarget(Target):
    """``graph.json`` (node-link) and ``graph.graphml``: a directed multigraph.

    A node is named ``TYPE/NUMBER``; its id, which may hold any character, is an attribute.

    Reading back makes a Python object of every node and edge, in NetworkX's own loops: that is most
    of the time of an export, and of GraphML nearly all of it.
    """

    texts = ("none", "raw", "words")

    def check(self, source: Source) -> None:
        if source.num_items > MAX_ITEMS:
            raise ExportError(
                f"NetworkX holds every node and edge as a Python object, here "
                f"{source.num_items:,} of them or about {source.num_items / 2**20:,.0f} GiB, above "
                f"the limit of {MAX_ITEMS:,}; export to pyg or parquet."
            )

    def write(self, source: Source, folder: Path, out: Path) -> None:
        with (folder / JSON).open("w", encoding="utf-8", newline="") as file:
            file.write('{"directed": true, "multigraph": true, "graph": {}')
            _write_list(file, "nodes", _node_lines(source))
            _write_list(file, "edges", _edge_lines(source))
            file.write("}\n")
        if source.num_items <= MAX_GRAPHML_ITEMS:
            nx.write_graphml(
                _for_graphml(_read_json(folder / JSON)), folder / GRAPHML, prettyprint=False
            )

    def read(self, source: Source, folder: Path) -> list[Reading]:
        inventory = _take_inventory(source, _read_json(folder / JSON))
        readings = [Reading(f"{JSON}, by NetworkX", inventory)]
        if (folder / GRAPHML).is_file():
            graph = nx.read_graphml(folder / GRAPHML, force_multigraph=True)
            inventory = _take_inventory(source, _unescape(graph))
            left_out = {"*.x": f"Features in {GRAPHML}: GraphML has no lists."}
            readings.append(Reading(f"{GRAPHML}, by NetworkX", inventory, left_out))
        return readings

    def describe(self, source: Source) -> str:
        text = f"""\
- `{JSON}`: node-link JSON, a directed multigraph.
- A node is `TYPE/NUMBER` with `type`, its id as `name`, and what people call it as `title`, where
  that is known, and features as the list `x`; an edge has its relation as `type`, and words have
  `position`.

```python
import json
import networkx as nx

with open("{JSON}", encoding="utf-8") as file:
    graph = nx.node_link_graph(json.load(file), edges="edges")
```
"""
        if source.has_gold:
            text += (
                "\nEdges `gold` are gold labels; `tagged` repeats those of training. Take both out "
                "of the graph that a model is given, or it reads the answer.\n"
            )
        if source.num_items > MAX_GRAPHML_ITEMS:
            return text + (
                f"\n`{GRAPHML}` is not written: {source.num_items:,} nodes and edges are above its "
                f"limit of {MAX_GRAPHML_ITEMS:,}.\n"
            )
        return text + (
            f"\n- `{GRAPHML}`: the same as GraphML, for Gephi and others. XML cannot hold control "
            f"characters: columns that have some are written with percent escapes "
            f"(`urllib.parse.unquote`) and named in the graph's attribute `{ESCAPED}`. Empty "
            f"strings are left out, as NetworkX reads them so.\n"
        )


def _node_lines(source: Source) -> Iterator[str]:
    for node_type in source.graph.node_types:
        number = 0
        for batch in source.nodes(node_type):
            columns = [_NAMES.get(name, name) for name in batch.schema.names]
            for record in batch.rename_columns(columns).to_pylist():
                node = {"id": f"{node_type}/{number}", "type": node_type, **record}
                yield json.dumps(node, ensure_ascii=False)
                number += 1


def _edge_lines(source: Source) -> Iterator[str]:
    """JSON lines of edges, formatted without `json`, as edge types need no escapes."""
    for head, relation, tail in source.edge_types:
        for batch in source.edges((head, relation, tail)):
            columns = [batch.column(name).to_pylist() for name in ("source", "target")]
            start, middle = f'{{"source": "{head}/', f'", "target": "{tail}/'
            if "position" in batch.schema.names:
                columns.append(batch.column("position").to_pylist())
                end = f'", "type": "{relation}", "position": '
                for first, second, position in zip(*columns, strict=True):
                    yield f"{start}{first}{middle}{second}{end}{position}}}"
            else:
                end = f'", "type": "{relation}"}}'
                for first, second in zip(*columns, strict=True):
                    yield f"{start}{first}{middle}{second}{end}"


def _write_list(file: TextIO, name: str, lines: Iterable[str]) -> None:
    file.write(f',\n"{name}": [')
    before = "\n"
    for line in lines:
        file.write(before + line)
        before = ",\n"
    file.write("\n]")


def _read_json(path: Path) -> Graph:
    with path.open(encoding="utf-8") as file:
        return nx.node_link_graph(json.load(file), edges="edges")


def _for_graphml(graph: Graph) -> Graph:
    """Removes lists from a graph and escapes control characters, which GraphML cannot hold."""
    columns: dict[tuple[str, str], list[str]] = {}
    for _, node in graph.nodes(data=True):
        for key in [key for key, value in node.items() if key == "x" or value is None]:
            del node[key]
        for key in _STRINGS & node.keys():
            columns.setdefault((node["type"], key), []).append(node[key])
    escaped = {key: escape_all(values, NOT_IN_XML) for key, values in columns.items()}
    escapes = {key: iter(values) for key, values in escaped.items() if values is not None}
    for _, node in graph.nodes(data=True):
        for key in _STRINGS & node.keys():
            if (node["type"], key) in escapes:
                node[key] = next(escapes[node["type"], key])
    graph.graph[ESCAPED] = " ".join(sorted(f"{kind}.{key}" for kind, key in escapes))
    return graph


def _unescape(graph: Graph) -> Graph:
    escaped = set(graph.graph.get(ESCAPED, "").split())
    for _, node in graph.nodes(data=True):
        for key in _STRINGS & node.keys():
            if f"{node['type']}.{key}" in escaped:
                node[key] = unescape(node[key])
    return graph


def _take_inventory(source: Source, graph: Graph) -> Inventory:
    inventory = Inventory()
    place: dict[str, tuple[str, int]] = {}  # type and number by name
    nodes: dict[str, list[dict[str, Any]]] = {name: [] for name in source.graph.node_types}
    for name, node in graph.nodes(data=True):
        records = nodes[node["type"]]
        place[name] = node["type"], len(records)
        records.append(node)
    for node_type, records in nodes.items():
        schema = next(iter(source.nodes(node_type))).schema
        columns = {}
        for name in schema.names:
            if name != "x" or any("x" in node for node in records):
                columns[name] = _gather(records, _NAMES.get(name, name))
        inventory.add_nodes(node_type, columns.pop("id"), columns)
    _add_edges(inventory, graph, place)
    return inventory


def _gather(records: list[dict[str, Any]], key: str) -> Array:
    """Attribute of all nodes; GraphML leaves out empty strings and missing numbers."""
    if key in _STRINGS:
        return np.array([node.get(key, "") for node in records], dtype=object)
    values = (node.get(key) for node in records)
    return np.array([NONE if value is None else value for value in values])


def _add_edges(inventory: Inventory, graph: Graph, place: dict[str, tuple[str, int]]) -> None:
    edges: dict[EdgeType, tuple[list[int], list[int], list[int]]] = {}
    for head, tail, edge in graph.edges(data=True):
        (head_type, first), (tail_type, second) = place[head], place[tail]
        edge_type = head_type, edge["type"], tail_type
        if edge_type not in edges:
            edges[edge_type] = [], [], []
        firsts, seconds, positions = edges[edge_type]
        firsts.append(first)
        seconds.append(second)
        if "position" in edge:
            positions.append(edge["position"])
    for edge_type, (firsts, seconds, positions) in edges.items():
        more = {"position": np.array(positions)} if positions else {}
        inventory.add_edges(edge_type, (firsts, seconds), more)
