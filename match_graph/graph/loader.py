"""Batches of ego-networks: token sets for encoders, in PyG's loader."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Sampler
from torch_geometric.data import HeteroData
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import HeteroSamplerOutput

from match_graph.errors import GraphError
from match_graph.graph.sampler import EgoDraw, EgoSampler
from match_graph.graph.targets import Targets
from match_graph.graph.tokens import TokenSpace
from match_graph.typing import DOCUMENT

if TYPE_CHECKING:
    from match_graph.graph.ego_graphs import EgoGraphs


@dataclass  # not frozen: Lightning Fabric rebuilds its inputs field by field
class EgoBatch:
    """Token sets of B documents, packed: per document first metadata, then words.

    Args:
        document: Document rows in the built graph, [B], int64, in training and evaluation; -1 for
            a new document, which is in no graph (see `as_new`).
        token_id: Ids in the token space, [N], int64.
        field: Index of the token's type in the token space, [N], int64.
        position: Place in the text for words, 0 for metadata (they are a set), [N], int64.
        ptr: Offsets per document, [B + 1], int64.
        label_ptr: Offsets of the gold labels, [B + 1], int64; None without targets.
        label_index: Gold labels, packed, [sum of labels], int64; None without targets.
        graph: The sampled subgraph, for encoders that need one; ``n_id`` of its documents counts
            as ``document`` does.
        text: The raw texts, for encoders that need them.
        share: Share of these documents among those of all processes at this step; 0 if they are
            another's, and only there because every process must have some.
        num_together: Number of documents of all processes at this step; None if only these.
    """

    document: Tensor
    token_id: Tensor
    field: Tensor
    position: Tensor
    ptr: Tensor
    label_ptr: Tensor | None = None
    label_index: Tensor | None = None
    graph: HeteroData | None = None
    text: list[str] | None = None
    share: float = 1.0
    num_together: int | None = None

    @property
    def num_documents(self) -> int:
        return self.document.numel()

    @property
    def gold(self) -> tuple[Tensor, Tensor]:
        """Offsets [B + 1] and packed gold labels of a batch that has them."""
        assert self.label_ptr is not None
        assert self.label_index is not None
        return self.label_ptr, self.label_index

    def as_new(self) -> "EgoBatch":
        """The batch as one of new documents, as prediction gives it: of no row in any graph.

        The documents around them are known, and keep theirs.
        """
        graph = copy.copy(self.graph)
        if graph is not None:
            store = graph[DOCUMENT]
            store.n_id = store.n_id.clone()
            store.n_id[: self.num_documents] = -1
        return replace(self, document=torch.full_like(self.document, -1), graph=graph)

    def select_tokens(self, kept: Tensor) -> "EgoBatch":
        """The batch with some of its tokens, [N], bool; documents, labels and graph stay."""
        ptr = torch.cat([self.ptr.new_zeros(1), kept.cumsum(0)])[self.ptr]
        return replace(
            self,
            token_id=self.token_id[kept],
            field=self.field[kept],
            position=self.position[kept],
            ptr=ptr,
        )

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "EgoBatch":
        """The batch with every tensor, and the graph, on a device."""
        moved = {
            item.name: copy.copy(getattr(self, item.name)).to(device, non_blocking=non_blocking)
            for item in fields(self)  # a graph would be moved in place
            if isinstance(getattr(self, item.name), Tensor | HeteroData)
        }
        return replace(self, **moved)


class EgoLoader(NodeLoader):
    """A `NodeLoader` whose batches are `EgoBatch`.

    Args:
        data: A built graph.
        node_sampler: Sampler of the ego-networks.
        token_space: Token space; node types that it lacks are left out of the token sets.
        input_nodes: Documents to load, [num_documents], int64.
        targets: Gold labels to be added, for loss and metrics.
        with_graph: Whether to add the sampled subgraph, without any label node.
        graphs: Sampler of subgraphs of several hops, to be added instead.
        texts: Raw texts by document, to be added.
        transform: PyG transform of the sampled subgraph, which holds only what was drawn.
        **kwargs: Further arguments of `torch.utils.data.DataLoader`.

    Raises:
        GraphError: Workers would outlive the epoch whose draws they make.
    """

    def __init__(
        self,
        data: HeteroData,
        node_sampler: EgoSampler,
        token_space: TokenSpace,
        input_nodes: Tensor,
        targets: Targets | None = None,
        with_graph: bool = False,
        graphs: "EgoGraphs | None" = None,
        texts: Sequence[str] | None = None,
        transform: Callable[[HeteroData], HeteroData] | None = None,
        **kwargs: Any,
    ) -> None:
        self.token_space, self.targets = token_space, targets
        self.with_graph, self.texts, self.graph_transform = with_graph, texts, transform
        self.graphs = graphs
        if node_sampler.random and kwargs.get("persistent_workers"):
            raise GraphError(
                "Workers of a loader that draws by chance must start anew every epoch to learn its "
                "number, found persistent_workers=True; leave it out."
            )
        seeds = (node_sampler.seed_type, input_nodes)
        super().__init__(data, node_sampler, seeds, filter_per_worker=True, **kwargs)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the random draws of the next iteration; the order is the batch sampler's."""
        self.node_sampler.set_epoch(epoch)
        if self.graphs is not None:
            self.graphs.set_epoch(epoch)

    def __iter__(self) -> Iterator[EgoBatch]:
        """The batches, with the process's share of each."""
        batches: Iterator[EgoBatch] = super().__iter__()
        sampler = self.batch_sampler
        if not isinstance(sampler, LengthBucketSampler) or sampler.num_processes == 1:
            return batches
        pairs = zip(batches, sampler.shares(), strict=True)
        return (replace(batch, share=part, num_together=size) for batch, (part, size) in pairs)

    def collate_fn(self, index: Tensor | list[int]) -> Any:
        """Draws for positions [B] of ``input_nodes``; the subgraph only where it is wanted."""
        inputs = self.input_data[torch.as_tensor(index)]
        if self.graphs is not None:
            graph = self._transform_graph(self.graphs.draw(inputs.node))
            return replace(self._make_batch(self.node_sampler.draw(inputs.node)), graph=graph)
        if self.with_graph:
            return self.filter_fn(self.node_sampler.sample_from_nodes(inputs))
        return self._make_batch(self.node_sampler.draw(inputs.node))

    def filter_fn(self, out: HeteroSamplerOutput | EgoBatch) -> EgoBatch:
        """The batch of a sampler's output; PyG calls it on what `collate_fn` gave."""
        if isinstance(out, EgoBatch):
            return out
        draw = out.metadata[2]
        node_types, edge_types = set(out.node), set(out.row)  # PyG adds the others, empty
        graph = super().filter_fn(out)
        for node_type in [name for name in graph.node_types if name not in node_types]:
            del graph[node_type]  # labels above all
        for edge_type in [
            edge_type for edge_type in graph.edge_types if edge_type not in edge_types
        ]:
            del graph[edge_type]
        return replace(self._make_batch(draw), graph=self._transform_graph(graph))

    def _transform_graph(self, graph: HeteroData) -> HeteroData:
        return graph if self.graph_transform is None else self.graph_transform(graph)

    def _make_batch(self, draw: EgoDraw) -> EgoBatch:
        batch = make_batch(draw, self.token_space, self.targets)
        if self.texts is None:
            return batch
        return replace(batch, text=[self.texts[document] for document in draw.seed.tolist()])


def make_batch(draw: EgoDraw, space: TokenSpace, targets: Targets | None = None) -> EgoBatch:
    """The token sets of a draw, with gold labels where targets are given."""
    token_id = torch.zeros_like(draw.node)
    field = torch.zeros_like(draw.node)
    known = torch.zeros_like(draw.node, dtype=torch.bool)
    for number, edge_type in enumerate(draw.edge_types):
        if edge_type[2] not in space.types:
            continue
        mask = draw.edge_type == number
        token_id[mask] = space.encode(edge_type[2], draw.node[mask])
        field[mask] = space.field_index(edge_type[2])
        known |= mask
    label_ptr, label_index = targets.select(draw.seed) if targets else (None, None)
    batch = EgoBatch(draw.seed, token_id, field, draw.position, draw.ptr, label_ptr, label_index)
    return batch if bool(known.all()) else batch.select_tokens(known)


class LengthBucketSampler(Sampler[list[int]]):
    """Batches of items of similar length, in an order that depends on (seed, epoch) alone.

    Items are shuffled, cut into pools of ``pool`` batches, sorted by length within a pool, cut into
    batches, and the batches shuffled: padding stays small and batches stay random.

    Several processes take a part each of the same batches: every so many-th item, so that the parts
    are of like length. The last batch may have fewer items than there are processes; a process
    that gets none takes the first item, with a share of 0.

    Args:
        lengths: Length of each item, [num_items].
        batch_size: Items per batch over all processes; one batch, of the last pool, may be smaller.
        shuffle: Whether to shuffle; otherwise all items are one pool and keep their order within
            equal length.
        seed: Random seed of the shuffling.
        pool: Number of batches per pool.
        rank: Rank of this process.
        num_processes: Number of processes that share each batch.
    """

    def __init__(
        self,
        lengths: Tensor,
        batch_size: int,
        shuffle: bool,
        seed: int = 0,
        pool: int = 20,
        rank: int = 0,
        num_processes: int = 1,
    ) -> None:
        self.lengths, self.batch_size = lengths, batch_size
        self.shuffle, self.seed, self.pool = shuffle, seed, pool
        self.rank, self.num_processes = rank, num_processes
        self.epoch = self.start = 0

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Chooses the order of the next iteration, and how many batches it leaves out."""
        self.epoch, self.start = epoch, start

    def __len__(self) -> int:
        return math.ceil(self.lengths.numel() / self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self._batches()[self.start :]:
            part = batch[self.rank :: self.num_processes]
            yield (part if part.numel() else batch[:1]).tolist()

    def shares(self) -> Iterator[tuple[float, int]]:
        """The process's share of each batch of an iteration, and the items of the whole batch."""
        for batch in self._batches()[self.start :]:
            size = batch.numel()
            yield len(range(self.rank, size, self.num_processes)) / size, size

    def _batches(self) -> Sequence[Tensor]:
        """The whole batches of the epoch."""
        num_items = self.lengths.numel()
        if num_items == 0:
            return []
        if not self.shuffle:
            return torch.argsort(self.lengths, stable=True).split(self.batch_size)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(num_items, generator=generator)
        pool_of = torch.arange(num_items) // (self.pool * self.batch_size)
        longest = int(self.lengths.max()) + 1
        key = pool_of * longest + self.lengths[order]
        batches = order[torch.argsort(key, stable=True)].split(self.batch_size)
        numbers = torch.randperm(len(batches), generator=generator)
        return [batches[number] for number in numbers.tolist()]
