"""Tables with a row per token, whole or sharded by rows over processes."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from match_graph.errors import GraphError
from match_graph.io.exchange import BLOCK_ROWS, RowRoute, RowShard

#: Message for an encoder that reads a sharded weight as if it held all rows.
READS_OWN_ROWS = (
    "An encoder that reads the embedding's weight itself needs all of its rows, but each process "
    "has rows of its own alone; set train.shard_embeddings=false, or look tokens up by the "
    "embedding."
)


class RowReader(Protocol):
    """Optimizer that updates the rows of a table lazily, and is asked for them in training."""

    def look_up(self, token_id: Tensor) -> tuple[Tensor, Tensor]:
        """Up-to-date rows of the distinct tokens, [n, C], and the index of each token's row."""
        ...


class TokenTable(nn.Module):
    """Base of modules whose ``weight`` has a row per token, [V, C].

    Sharded, ``weight`` has this process's rows alone. What a batch needs of the others is fetched
    into a leaf of autograd before the forward pass, and its gradient sent to the owners after the
    backward pass, by `reduce_gradient`: both once per step by every process, so that none waits for
    one whose documents have no token, or whose encoder leaves the table out. A function of autograd
    that communicates in its own backward pass would hang there.

    Args:
        num_tokens: Number of tokens V.
        channels: Width of a row.
        sharded: Whether processes share the table, where there are several.
    """

    def __init__(self, num_tokens: int, channels: int, sharded: bool) -> None:
        super().__init__()
        self.num_tokens = num_tokens
        shard = RowShard.here(num_tokens) if sharded else None
        #: This process's share; None where it has the whole table.
        self.shard = None if shard is None or shard.num_processes == 1 else shard
        size = num_tokens if self.shard is None else self.shard.size
        self.weight = nn.Parameter(torch.empty(size, channels))
        #: Lazy optimizer of the table; None while all rows of ``weight`` are up to date.
        self.rows: RowReader | None = None

    @torch.no_grad()
    def set_rows(self, first: int, values: Tensor) -> None:
        """Sets consecutive rows, those from ``first`` on; of a sharded table the process's own.

        Args:
            first: First row.
            values: New rows, [n, C]; may be mapped from a file, of which the own ones are read.
        """
        if self.shard is None:
            self.weight[first : first + len(values)] = values.to(self.weight)
        else:
            put_rows(self.weight, self.shard, first, values)

    def reduce_gradient(self) -> None:
        """Makes the gradient of a sharded ``weight`` the mean over processes of the loss's.

        Every process calls it after each backward pass. Where `rows` updates the table the gradient
        is that of the rows that any process named.
        """
        raise NotImplementedError

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Takes the process's own rows of a whole table."""
        name = f"{prefix}weight"
        whole = state_dict.get(name)
        if self.shard is not None and whole is not None and len(whole) == self.num_tokens:
            own = torch.empty_like(self.weight)
            put_rows(own, self.shard, 0, whole)
            state_dict = {**state_dict, name: own}
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def put_rows(own: Tensor, shard: RowShard, first: int, values: Tensor) -> None:
    """Copies those of consecutive rows that a process holds into its share.

    Args:
        own: The process's rows, [size, C].
        shard: Its share of the table.
        first: First of the consecutive rows.
        values: Consecutive rows, [n, C].
    """
    for start in range(0, len(values), BLOCK_ROWS):
        row, local = shard.find_own(first + start, first + min(start + BLOCK_ROWS, len(values)))
        chosen = values[(row - first).to(values.device)]
        own.index_copy_(0, local.to(own.device), chosen.to(own))


def blocks_of(num_rows: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that exist at once; the last one has no fewer than the others.

    What is drawn for them one after the other is what would be drawn for all at once: torch draws
    normal numbers in groups of 16, which end where a range does.
    """
    stops = [*range(BLOCK_ROWS, num_rows - BLOCK_ROWS + 1, BLOCK_ROWS), num_rows]
    yield from zip([0, *stops[:-1]], stops, strict=True)


class FetchedRows:
    """Rows of a sharded table for one batch, fetched from the processes that own them.

    Args:
        weight: The process's rows of the table, [size, C].
        shard: Its share of the table.
        token_id: Tokens that may be looked up, in any order, [N], int64.
        reader: Lazy optimizer of the process's rows, which counts them from 0; None where all are
            up to date.
    """

    def __init__(
        self,
        weight: nn.Parameter,
        shard: RowShard,
        token_id: Tensor,
        reader: RowReader | None = None,
    ) -> None:
        self.token_id = token_id.unique()  # sorted
        self._route, self._shard = RowRoute(shard, self.token_id), shard
        #: Own rows that collect the gradient, and where those that were named lie in them.
        self._own: Tensor = weight
        self._place = self._route.local
        if reader is not None:
            self._own, self._place = reader.look_up(self._route.local)
        values = self._route.deliver(self._own.detach().index_select(0, self._place))
        #: The rows, [M, C], a leaf that collects their gradient.
        self.values = values.requires_grad_(torch.is_grad_enabled() and weight.requires_grad)

    def find(self, token_id: Tensor) -> Tensor:
        """Where tokens lie in ``values``, any shape.

        Raises:
            GraphError: One was not fetched.
        """
        place = torch.searchsorted(self.token_id, token_id).clamp(max=len(self.token_id) - 1)
        missing = self.token_id[place] != token_id
        if bool(missing.any()):
            raise GraphError(
                f"Of a sharded embedding the tokens of a batch and its graph alone can be looked "
                f"up, found token {int(token_id[missing][0])}, which is none of them; set "
                f"train.shard_embeddings=false with this encoder."
            )
        return place

    def reduce_gradient(self) -> None:
        """Sets the gradient of the process's rows, or of those that were read, to processes' mean.

        That is ``weight.grad``, dense, or the gradient that a lazy optimizer collects.
        """
        gradient = self.values.grad
        received = self._route.send(torch.zeros_like(self.values) if gradient is None else gradient)
        total = torch.zeros_like(self._own).index_add_(0, self._place, received)
        self._own.grad = total.div_(self._shard.num_processes)
