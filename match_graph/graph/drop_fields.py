"""A graph without some of its metadata fields, without building it anew."""

from collections.abc import Sequence

from torch_geometric.data import HeteroData
from torch_geometric.transforms import BaseTransform

from match_graph.errors import GraphError
from match_graph.graph.build import CITATION_FIELD
from match_graph.typing import CITES, DOCUMENT


class DropFields(BaseTransform):
    """Takes metadata fields out of a graph: their nodes and every edge of theirs.

    (document, cites, document) is made of references and goes with them. The built data stay as
    they are; nothing is copied.

    Args:
        fields: Names of the metadata fields to remove.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = tuple(fields)

    def forward(self, data: HeteroData) -> HeteroData:
        """The graph without the fields.

        Raises:
            GraphError: A field is not in the graph.
        """
        known = metadata_fields(data)
        if missing := [name for name in self.fields if name not in known]:
            raise GraphError(
                f"Only metadata fields of the graph can be taken out, found {missing}; "
                f"choose from {known}."
            )
        for edge_type in data.edge_types:
            if edge_type[0] in self.fields or edge_type[2] in self.fields:
                del data[edge_type]
        if CITATION_FIELD in self.fields and CITES in data.edge_types:
            del data[CITES]
        for name in self.fields:
            del data[name]
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.fields)})"


def metadata_fields(data: HeteroData) -> list[str]:
    """The metadata fields of a built graph, in their order."""
    return [edge_type[2] for edge_type in data.edge_types if edge_type[:2] == (DOCUMENT, "has")]
