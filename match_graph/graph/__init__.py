"""`Corpus` -> `HeteroData`, token space, targets, hierarchy; ego-networks sampled from them."""

from match_graph.graph.build import BuiltGraph, DropFields, build_graph, metadata_fields
from match_graph.graph.ego_graphs import EgoGraphs, NeighborhoodConfig
from match_graph.graph.labels import Hierarchy, LabelGraph, Targets
from match_graph.graph.loader import EgoLoader, LengthBucketSampler
from match_graph.graph.neighborhood import Neighborhood, NeighborhoodSampler
from match_graph.graph.sampler import EgoSample, EgoSampler
from match_graph.graph.statistics import compare_counts, count_twins, describe_graph
from match_graph.graph.store import MappedGraph
from match_graph.graph.tokens import EgoBatch, NodeFeatures, TokenSpace

__all__ = [
    "BuiltGraph",
    "DropFields",
    "EgoBatch",
    "EgoGraphs",
    "EgoLoader",
    "EgoSample",
    "EgoSampler",
    "Hierarchy",
    "LabelGraph",
    "LengthBucketSampler",
    "MappedGraph",
    "Neighborhood",
    "NeighborhoodConfig",
    "NeighborhoodSampler",
    "NodeFeatures",
    "Targets",
    "TokenSpace",
    "build_graph",
    "compare_counts",
    "count_twins",
    "describe_graph",
    "metadata_fields",
]
