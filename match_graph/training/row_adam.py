"""Lazy Adam on tables of tokens: a row is updated when a batch looks it up."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor, optim

from match_graph.errors import GraphError
from match_graph.io.exchange import BLOCK_ROWS
from match_graph.nn.tables import READS_OWN_ROWS, TokenTable
from match_graph.training.average import WeightAverage


class StepTables:
    r"""Closed form of Adam's updates of a row over steps in which it has no gradient.

    In steps without a gradient Adam's moments of a weight shrink, by :math:`\beta_1` and
    :math:`\beta_2`, and the weight still moves by its momentum. With
    :math:`r = \beta_1 / \sqrt{\beta_2}`, the rate :math:`\alpha_j` and the bias correction of step
    j, its displacement from step t to step s is

    .. math::
        w_t - w_s = \frac{m_t}{\sqrt{v_t} + \epsilon'} (B_t - r^{s - t} B_s), \quad
        B_t = \sum_{j > t} r^{j - t} \alpha_j \frac{\sqrt{1 - \beta_2^j}}{1 - \beta_1^j}

    where :math:`\epsilon'` is the mean of what the steps add to the root, in units of
    :math:`\sqrt{v_t}`, :math:`\epsilon \sqrt{1 - \beta_2^j} \beta_2^{(t - j) / 2}`,
    each weighted by its term of the sum. The error is of second order in their spread, and they
    are smaller than the root by orders of magnitude. An average
    :math:`a_j = k_j a_{j-1} + (1 - k_j) w_j` becomes in the same steps

    .. math::
        a_s = K a_t + (1 - K) w_t - \frac{m_t}{\sqrt{v_t} + \epsilon'} \left(
        (1 - K) B_t - C_s (T_t - r^{s - t} T_s) \right), \quad
        C_s = \prod_{j \le s} k_j, \quad K = \frac{C_s}{C_t}, \quad
        T_t = \sum_{j > t} r^{j - t} \frac{1 - k_j}{C_j} B_j

    All of these depend on the step alone, so that a row costs the same however many steps it was
    not read for. Source: Kingma and Ba 2015, https://arxiv.org/abs/1412.6980,
    Algorithm 1, and the sums of its geometric series.

    Args:
        rates: Learning rates of the steps, from the first one, [T].
        kept: Decay k of the average in each step, [T], 1 where it is not updated; None without an
            average.
        betas: Decay of the two moments.
        device: Device of the table.
    """

    def __init__(
        self,
        rates: Sequence[float],
        kept: Sequence[float] | None,
        betas: tuple[float, float],
        device: torch.device,
    ) -> None:
        self.last, self.kept = len(rates), kept
        self.ratio = betas[0] / betas[1] ** 0.5
        step = np.arange(1, self.last + 1)
        size = np.asarray(rates) * np.sqrt(1 - betas[1] ** step) / (1 - betas[0] ** step)
        ahead = self._sum_ahead(size, self.ratio)
        self.ahead = torch.from_numpy(ahead).to(device)
        #: The same with the factors of epsilon, whose ratio differs.
        self.ratio_epsilon = betas[0] / betas[1]
        factor = np.sqrt(1 - betas[1] ** step)
        self.ahead_epsilon = torch.from_numpy(
            self._sum_ahead(size * factor, self.ratio_epsilon)
        ).to(device)  # fmt: skip
        #: The first step of the average; after the last step if there is none.
        self.first = self.last + 1
        if kept is None or min(kept, default=1.0) == 1.0:
            return
        keeps = np.asarray(kept)
        self.first = 1 + int(np.argmax(keeps < 1))
        # from its first step on an average is that of the weights, whatever it was before
        factor = np.where(step <= self.first, 1, keeps)
        log = np.concatenate([[0.0], np.cumsum(np.log(factor))])
        self.log_kept = torch.from_numpy(log).to(device)
        #: The step up to which the average forgets faster than the first moment does.
        self.turn = int(np.argmin((log - np.arange(len(log)) * np.log(self.ratio))[self.first :]))
        self.turn += self.first
        taken = self._sum_taken((1 - keeps) * ahead[1:], factor)
        self.taken = torch.from_numpy(taken).to(device)

    def keep(self, upto: Tensor, now: int) -> Tensor:
        """Decay of weight averages from the last update of rows to step `now`, [n, 1], in 0..1."""
        return self._share(upto, now).masked_fill(upto < self.first, 0)

    def take(self, upto: Tensor, now: int) -> Tensor:
        """:math:`C_s (T_t - r^{s - t} T_s)` from a row's last update t to the step s = now, [n, 1].

        In two sums, up to the turn and from there on.
        """
        middle = min(now, self.turn)
        before = upto.clamp(max=middle)
        taken = self._take(before, middle, self.taken[0])
        if now == middle:
            return taken
        behind = upto.clamp(min=middle)
        shrunk = self.ratio ** (behind - upto).double()
        return self._share(middle, now) * taken + shrunk * self._take(behind, now, self.taken[1])

    def _share(self, upto: Tensor | int, now: int) -> Tensor:
        return torch.exp(self.log_kept[now] - self.log_kept[upto])

    def _take(self, upto: Tensor, now: int, solved: Tensor) -> Tensor:
        shrunk = self.ratio ** (now - upto).double()
        return self._share(upto, now) * solved[upto] - shrunk * solved[now]

    def _sum_taken(self, values: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """Two solutions S of :math:`S_t = r / k_{t + 1} (S_{t + 1} + (1 - k_{t + 1}) B_{t + 1})`.

        For any of them the sum from t to s is :math:`C_s / C_t S_t - r^{s - t} S_s`. One goes
        forwards from the first step to the turn, one backwards from the last step to the turn, so
        that neither grows: the sums T themselves do, beyond all digits, where the average forgets
        faster than the first moment.
        """
        found = np.zeros((2, len(values) + 1))
        for step in range(self.turn):
            found[0, step + 1] = factor[step] / self.ratio * found[0, step] - values[step]
        for step in range(len(values) - 1, self.turn - 1, -1):
            found[1, step] = self.ratio / factor[step] * (found[1, step + 1] + values[step])
        return found

    @staticmethod
    def _sum_ahead(values: np.ndarray, ratio: float) -> np.ndarray:
        """Sums over the steps behind each step 0..T, with a factor for each step between."""
        behind = accumulate(
            values[::-1].tolist(), lambda total, x: ratio * (total + x), initial=0.0
        )
        return np.fromiter(behind, float, len(values) + 1)[::-1].copy()

    def clamp(self, step: int) -> int:
        """The step, at most the last one of the training."""
        return min(step, self.last)


@dataclass
class _Rows:
    """Rows of a table with moments and averages, [n, C] each.

    Args:
        weight: Weights.
        mean: First moments.
        square: Second moments.
        average: Averages of the weights, if there are any.
    """

    weight: Tensor
    mean: Tensor
    square: Tensor
    average: Tensor | None

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that there are, in order."""
        average = [] if self.average is None else [self.average]
        return [self.weight, self.mean, self.square, *average]

    def at(self, where: Tensor | slice) -> "_Rows":
        """Copies of the rows of an index, or a view of consecutive rows."""
        average = None if self.average is None else self.average[where]
        return _Rows(self.weight[where], self.mean[where], self.square[where], average)

    def put(self, index: Tensor, rows: "_Rows") -> None:
        """Overwrites the rows of an index."""
        for own, value in zip(self.tensors, rows.tensors, strict=True):
            own.index_copy_(0, index, value)


@dataclass
class _Read:
    """Rows that one look-up of a forward pass read.

    Args:
        index: Numbers of the distinct rows, [n].
        rows: The rows, up to date.
        leaf: Leaf tensor of their weights, which collects the gradient.
    """

    index: Tensor
    rows: _Rows
    leaf: Tensor


class RowAdam:
    """Adam that updates the rows of a table when a batch looks them up.

    Adam updates every row of a table in each step, also those of tokens that no document of the
    batch has: their momentum goes on for some tens of steps. Here these updates are made up for
    when the row is looked up next, all at once by `StepTables`, so that the weights are those of
    `torch.optim.Adam` up to rounding, while the cost of a step depends on its batch's tokens alone.
    The moments are kept in the optimizer's state and format. `settle` brings all rows up to date,
    before anything but a forward pass in training reads the table, its moments or its average.

    An encoder that reads the table's ``weight`` itself, not by a look-up, gives it a dense
    gradient. The optimizer then updates all rows, from the first such step on; with a sharded table
    that is an error.

    Args:
        table: Table of tokens, such as the embedding.
        optimizer: Optimizer whose state has the moments; it skips the table, which has no gradient
            of its own.
        rates: Learning rates of the table in all steps, [T].
        average: Average of the model's weights; that of the table is updated here.
        kept: `WeightAverage.keeps` of all steps, [T].
    """

    def __init__(
        self,
        table: TokenTable,
        optimizer: optim.Optimizer,
        rates: Sequence[float],
        average: WeightAverage | None = None,
        kept: Sequence[float] | None = None,
    ) -> None:
        self.table, self.optimizer, self._of_model = table, optimizer, average
        self.average = None if average is None else average.leave_out(table.weight)
        self.tables = StepTables(rates, kept, self.group["betas"], table.weight.device)
        #: Number of steps done, and the step up to which each row is updated, [V].
        self.done = 0
        self._upto = torch.zeros(len(table.weight), dtype=torch.int64, device=table.weight.device)
        self._is_settled = True
        self._read: list[_Read] = []
        table.rows = self

    @property
    def group(self) -> dict[str, Any]:
        """The optimizer's group of the table; a new dictionary once it has read a checkpoint."""
        return next(
            group
            for group in self.optimizer.param_groups
            if any(one is self.table.weight for one in group["params"])
        )

    def start(self, step: int) -> None:
        """Begins a step; after `settle` it may be any, as in a training that is resumed.

        Args:
            step: Number of the step, from 1.
        """
        self._read.clear()
        self.done = step - 1
        if self._is_settled:
            self._upto.fill_(self.tables.clamp(self.done))

    def look_up(self, token_id: Tensor) -> tuple[Tensor, Tensor]:
        """Up-to-date rows of tokens.

        Args:
            token_id: Tokens, any shape, int64.

        Returns:
            Rows of the distinct tokens, [n, C], a leaf of autograd, and the index of each token's
            row in them, of the shape of ``token_id``.
        """
        index, place = token_id.unique(return_inverse=True)
        rows = self._bring(index)
        leaf = rows.weight.detach().requires_grad_(torch.is_grad_enabled())
        if torch.is_grad_enabled():
            self._read.append(_Read(index, rows, leaf))
        return leaf, place

    def collect(self) -> Tensor | None:
        """The gradient of the rows that were looked up, [n, C], after the backward pass.

        Returns:
            None if no row has one, or if the optimizer has taken the table over.

        Raises:
            GraphError: The encoder read the weight of a sharded table itself.
        """
        self._read = [read for read in self._read if read.leaf.grad is not None]
        if self.table.weight.grad is not None:
            if self.table.shard is not None:
                raise GraphError(READS_OWN_ROWS)
            self._hand_over()
        if len(self._read) > 1:
            self._read = [self._join()]
        return self._read[0].leaf.grad if self._read else None

    @torch.no_grad()
    def update(self) -> None:
        """Adam's step on the rows that were looked up, with the gradient from `collect`."""
        self.done += 1
        self._is_settled = False
        for read in self._read:
            assert read.leaf.grad is not None
            self._step(read.rows, read.leaf.grad)
            self._whole().put(read.index, read.rows)
            self._upto.index_fill_(0, read.index, self.tables.clamp(self.done))
        self._read.clear()

    @torch.no_grad()
    def settle(self) -> None:
        """Brings all rows up to date."""
        if self._is_settled:
            return
        whole = self._whole()
        for first in range(0, len(self._upto), BLOCK_ROWS):
            block = slice(first, first + BLOCK_ROWS)
            torch._foreach_copy_(whole.at(block).tensors, self._bring(block).tensors)
        self.optimizer.state[self.table.weight]["step"].fill_(self.done)
        self._is_settled = True

    def _hand_over(self) -> None:
        """Leaves the table to the optimizer, adding the gradients of look-ups to the dense one."""
        gradient = self.table.weight.grad
        assert gradient is not None
        for read in self._read:
            assert read.leaf.grad is not None
            gradient.index_add_(0, read.index, read.leaf.grad)
        self._read.clear()
        self.close()

    def close(self) -> None:
        """Leaves the table to the optimizer and the average from here on, all rows up to date."""
        self.settle()
        self.table.rows = None
        if self._of_model is not None:
            self._of_model.take_in(self.table.weight)

    @property
    def is_active(self) -> bool:
        """True while updates are lazy; false once the optimizer updates all rows of the table."""
        return self.table.rows is self

    def _join(self) -> _Read:
        """All look-ups as one, of the distinct rows."""
        index, place = torch.cat([read.index for read in self._read]).unique(return_inverse=True)
        rows = self._bring(index)
        gradients = [read.leaf.grad for read in self._read if read.leaf.grad is not None]
        leaf = rows.weight.detach().requires_grad_()
        leaf.grad = torch.zeros_like(leaf).index_add_(0, place, torch.cat(gradients))
        return _Read(index, rows, leaf)

    def _bring(self, where: Tensor | slice) -> _Rows:
        """Rows as Adam would have them after the last step; nothing is written."""
        rows, upto = self._whole().at(where), self._upto[where].unsqueeze(1)
        tables, group = self.tables, self.group
        beta1, beta2 = group["betas"]
        now = tables.clamp(self.done)
        gap = (now - upto).double()
        shrunk, behind = tables.ratio**gap, tables.ahead[upto]
        size = behind - shrunk * tables.ahead[now]
        epsilon = tables.ahead_epsilon[upto] - tables.ratio_epsilon**gap * tables.ahead_epsilon[now]
        epsilon = group["eps"] * (epsilon / size).nan_to_num(nan=1.0)  # nan: no step, no matter
        direction = rows.mean / (rows.square.sqrt() + epsilon.to(rows.square))
        average = rows.average
        if average is not None and now >= tables.first:
            kept = tables.keep(upto, now)
            size_taken = (1 - kept) * behind - tables.take(upto, now)
            kept = kept.to(average)
            average = torch.lerp(rows.weight, average, kept) - size_taken.to(average) * direction
        return _Rows(
            rows.weight - size.to(direction) * direction,
            rows.mean * (beta1**gap).to(rows.mean),
            rows.square * (beta2**gap).to(rows.square),
            average,
        )

    def _step(self, rows: _Rows, gradient: Tensor) -> None:
        """A step of Adam and of the average on up-to-date rows, in place."""
        group, done = self.group, self.done
        beta1, beta2 = group["betas"]
        rows.mean.lerp_(gradient, 1 - beta1)
        rows.square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = rows.square.sqrt().div_((1 - beta2**done) ** 0.5).add_(group["eps"])
        size = group["lr"] / (1 - beta1**done)
        rows.weight.addcdiv_(rows.mean, root, value=-size)
        if rows.average is not None and self.tables.kept is not None:
            kept = self.tables.kept[self.tables.clamp(done) - 1]
            if kept < 1:
                rows.average.lerp_(rows.weight, 1 - kept)

    def _whole(self) -> _Rows:
        """The table with moments and averages; the moments are created at the first call."""
        weight = self.table.weight
        state = self.optimizer.state[weight]
        if not state:
            state["step"] = torch.zeros((), device=weight.device)
            state["exp_avg"] = torch.zeros_like(weight, requires_grad=False)
            state["exp_avg_sq"] = torch.zeros_like(weight, requires_grad=False)
        return _Rows(weight.detach(), state["exp_avg"], state["exp_avg_sq"], self.average)
