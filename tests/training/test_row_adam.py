"""Adam on rows of the embedding against torch's own on the whole table, in float64 and trained."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from together import run_together
from torch import Tensor, nn
from torch.nn import functional as F

from match_graph.config import Config
from match_graph.errors import GraphError
from match_graph.io.exchange import RowShard
from match_graph.nn.tables import TokenTable
from match_graph.runs import Run, start_run
from match_graph.training import learner
from match_graph.training.average import WeightAverage
from match_graph.training.learner import make_learner
from match_graph.training.loop import train_step
from match_graph.training.row_adam import RowAdam, StepTables

_STEPS, _TOKENS, _CHANNELS = 160, 40, 3


class _Table(TokenTable):
    """An embedding with Adam and average, moved by rows or as a whole."""

    def __init__(self, rates: list[float], share: float, after: int, by_rows: bool) -> None:
        super().__init__(_TOKENS, _CHANNELS, sharded=False)
        generator = torch.Generator().manual_seed(1)
        start = torch.randn(_TOKENS, _CHANNELS, generator=generator, dtype=torch.float64)
        self.weight = torch.nn.Parameter(start)
        self.after, self.rates = after, rates
        # the exact sums leave epsilon out
        self.optimizer = torch.optim.AdamW([self.weight], weight_decay=0.0, eps=1e-16)
        self.average = WeightAverage(self, share) if share else None
        if by_rows:
            kept = None
            if self.average is not None:
                kept = [self.average.keeps(step - after) for step in range(1, _STEPS + 1)]
            RowAdam(self, self.optimizer, rates, self.average, kept)

    def look_up(self, token_id: Tensor) -> Tensor:
        if self.rows is None:
            return F.embedding(token_id, self.weight)
        values, place = self.rows.look_up(token_id)
        return values[place]

    def step(self, step: int, loss: Callable[[], Tensor]) -> float:
        """One step of a training; the loss before it."""
        self.optimizer.param_groups[0]["lr"] = self.rates[step - 1]
        self.optimizer.zero_grad()
        if self.rows is not None:
            self.rows.start(step)
        value = loss()
        value.backward()
        if self.rows is not None:
            self.rows.collect()
        self.optimizer.step()
        if self.rows is not None:
            self.rows.update()
        if self.average is not None:
            self.average.update(step - self.after)
        return value.item()

    def state(self) -> list[Tensor]:
        if self.rows is not None:
            self.rows.settle()
        averages = [] if self.average is None else self.average.values
        return [self.weight.detach(), *self.optimizer.state[self.weight].values(), *averages]


def _draw(step: int) -> tuple[Tensor, Tensor]:
    """Tokens of a step, a few frequent ones and rare ones, and factors of their vectors."""
    generator = torch.Generator().manual_seed(step)
    token_id = torch.randint(_TOKENS, (4,), generator=generator) ** 2 // _TOKENS
    return token_id, torch.randn(4, _CHANNELS, generator=generator, dtype=torch.float64)


def _make_rates(schedule: str) -> list[float]:
    end = [1.0] * _STEPS if schedule == "constant" else [1 - s / _STEPS for s in range(_STEPS)]
    return [0.02 * min(step / 20, end[step]) for step in range(_STEPS)]


@settings(max_examples=20, deadline=None)
@given(
    schedule=st.sampled_from(["linear", "constant"]),
    share=st.sampled_from([0.0, 0.005, 0.02, 0.1, 0.25, 0.5]),
    after=st.sampled_from([0, 70, _STEPS]),
    lookups=st.integers(1, 3),
    settle_every=st.sampled_from([1, 50, 1000]),
)
def test_RowAdam_equals_torch_adam_on_all_rows(
    schedule: str, share: float, after: int, lookups: int, settle_every: int
) -> None:
    """Losses of all steps, then weights, moments, count and average: whatever stayed behind."""
    whole, rows = (_Table(_make_rates(schedule), share, after, part) for part in (False, True))
    for step in range(1, _STEPS + 1):

        def loss(table: _Table, step: int = step) -> Tensor:
            draws = [_draw(step + _STEPS * number) for number in range(lookups)]
            return torch.stack(
                [(table.look_up(token_id) * by).square().sum() for token_id, by in draws]
            ).sum()

        expected, found = (table.step(step, lambda t=table: loss(t)) for table in (whole, rows))
        assert found == pytest.approx(expected, rel=1e-9)
        if step % settle_every == 0:
            rows.state()
    for left, right in zip(whole.state(), rows.state(), strict=True):
        torch.testing.assert_close(right, left.to(right), rtol=1e-8, atol=1e-10)


def test_RowAdam_a_row_that_nobody_reads_stays() -> None:
    """A row without moments neither moves nor becomes NaN, and equals its average."""
    table = _Table([0.01] * _STEPS, 0.25, 0, by_rows=True)
    before = table.weight.detach().clone()
    for step in range(1, 30):
        table.step(step, lambda: table.look_up(torch.tensor([1, 2])).sum())
    weight, _, _, _, average = table.state()
    assert torch.equal(weight[3:], before[3:])
    torch.testing.assert_close(average[3:], before[3:])
    assert not torch.equal(weight[1:3], before[1:3])


def test_RowAdam_goes_on_from_what_an_optimizer_left() -> None:
    """Rows after a training of the whole table, as from a checkpoint, and the other way round."""
    table = _Table([0.01] * _STEPS, 0.25, 0, by_rows=True)
    expected = _Table([0.01] * _STEPS, 0.25, 0, by_rows=False)

    def train(one: _Table, steps: range) -> None:
        for step in steps:
            token_id, by = _draw(step)
            one.step(step, lambda t=token_id, b=by: (one.look_up(t) * b).square().sum())

    train(expected, range(1, 61))
    train(table, range(1, 21))
    assert table.rows is not None
    table.rows.close()
    train(table, range(21, 41))
    assert table.average is not None
    kept = [table.average.keeps(step) for step in range(1, _STEPS + 1)]
    RowAdam(table, table.optimizer, table.rates, table.average, kept)
    train(table, range(41, 61))
    for left, right in zip(expected.state(), table.state(), strict=True):
        torch.testing.assert_close(right, left.to(right), rtol=1e-8, atol=1e-10)


def test_RowAdam_leaves_a_table_that_is_read_itself() -> None:
    """A loss on the weight beside that of look-ups: the optimizer moves all rows from then on."""
    whole, rows = (_Table([0.01] * _STEPS, 0.25, 0, by_rows=part) for part in (False, True))
    moved = rows.rows
    assert isinstance(moved, RowAdam)
    for step in range(1, 30):
        token_id, by = _draw(step)

        def loss(table: _Table, token_id: Tensor = token_id, by: Tensor = by) -> Tensor:
            return (table.look_up(token_id) * by).square().sum() + table.weight.square().sum()

        whole.step(step, lambda: loss(whole))
        if step == 1:
            rows.optimizer.zero_grad()
            moved.start(step)
            loss(rows).backward()
            assert moved.collect() is None
            assert not moved.is_active
            rows.optimizer.param_groups[0]["lr"] = 0.01
            rows.optimizer.step()
            assert rows.average is not None
            rows.average.update(step)
        else:
            rows.step(step, lambda: loss(rows))
    for left, right in zip(whole.state(), rows.state(), strict=True):
        torch.testing.assert_close(right, left.to(right))


def test_RowAdam_refuses_a_share_that_is_read_itself() -> None:
    """Each of several processes has a part of the rows, which an encoder would take for all."""
    table = _Table([0.01] * _STEPS, 0.0, 0, by_rows=True)
    table.shard = RowShard(2 * _TOKENS, rank=0, num_processes=2)
    with pytest.raises(GraphError) as caught:
        table.step(1, lambda: table.weight.square().sum())
    assert str(caught.value) == (
        "An encoder that reads the embedding's weight itself needs all of its rows, but each "
        "process has rows of its own alone; set train.shard_embeddings=false, or look tokens up by "
        "the embedding."
    )


def test_StepTables_ahead_is_the_sum_over_later_steps() -> None:
    """The definition, term by term; nothing is ahead of the last step."""
    rates, betas = [0.1, 0.3, 0.2, 0.0, 0.4], (0.9, 0.999)
    tables = StepTables(rates, None, betas, torch.device("cpu"))
    for step in range(6):
        expected = sum(
            tables.ratio ** (j - step) * rates[j - 1] * (1 - betas[1] ** j) ** 0.5
            / (1 - betas[0] ** j) for j in range(step + 1, 6)
        )  # fmt: skip
        assert float(tables.ahead[step]) == pytest.approx(expected, rel=1e-12)
    assert (tables.clamp(4), tables.clamp(9)) == (4, 5)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.02, 0.1, 0.5])
def test_StepTables_take_is_the_sum_of_what_is_averaged(share: float) -> None:
    """The definition, term by term, also where an average forgets faster than a moment."""
    num_steps, after = 1000, 5
    average = WeightAverage(nn.Linear(1, 1), share)
    kept = [average.keeps(step - after) for step in range(1, num_steps + 1)]
    tables = StepTables([0.1] * num_steps, kept, (0.9, 0.999), torch.device("cpu"))
    for upto, now in [(0, 9), (3, 400), (20, 21), (20, 600), (700, 950), (990, num_steps)]:
        expected = of_average = 0.0
        for step in range(upto + 1, now + 1):
            keeps = 1.0 if step <= tables.first else kept[step - 1]
            ahead = tables.ratio ** (step - upto) * float(tables.ahead[step])
            expected = keeps * expected + (1 - kept[step - 1]) * ahead
            of_average = kept[step - 1] if step == upto + 1 else of_average * kept[step - 1]
        found = tables.take(torch.tensor([[upto]]), now)
        torch.testing.assert_close(
            found, torch.tensor([[expected]], dtype=torch.float64), rtol=1e-9, atol=1e-12
        )
        found = tables.keep(torch.tensor([[upto]]), now)
        assert float(found) == pytest.approx(of_average, abs=1e-12)


@pytest.mark.parametrize("encoder", ["match", "hetero_sage"])
def test_train_step_rows_alone_train_as_the_whole_table(
    tmp_path: Path, small_settings, encoder: str
) -> None:
    """Forty clipped steps in float32: what a weight or an average has gone differs by .1 % at most.

    That is epsilon's doing, in weights whose gradients are as small. An encoder of graphs looks
    tokens up several times in a step.
    """
    config = small_settings(
        f"model.encoder={encoder}", "train.precision=32-true", "train.clip_norm=0.05",
        *(["model.encoder_config={num_layers: 1}"] if encoder != "match" else []),
    )  # fmt: skip
    _compare(start_run("synthetic", config, tmp_path / "run", tmp_path / "root"))


@pytest.mark.gpu
def test_make_learner_updates_rows_of_a_large_table_alone(
    tmp_path: Path, small_settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, where the weights are the same too; a small one's by the optimizer."""
    config = small_settings("train.precision=32-true", "train.clip_norm=0.05")
    run = start_run("synthetic", config, tmp_path / "run", tmp_path / "root")
    assert make_learner(run.fabric, run.make_model(), config.train, 100, origin="").rows is None
    monkeypatch.setattr(learner, "_WHOLE_ON_GPU", 0)
    _compare(run)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_train_step_rows_of_a_share_train_as_the_whole_share(
    tmp_path: Path, small_settings
) -> None:
    """Two processes that share the table, by the rows that either named and by all of their own."""
    config = small_settings(
        "train.precision=32-true", "train.clip_norm=0.05", "train.strategy=ddp",
        "train.accelerator=cpu",
    )  # fmt: skip
    assert run_together(_compare_shares, config, tmp_path) == [0, 0]


def _compare_shares(config: Config, folder: Path) -> None:
    run = start_run("synthetic", config, folder / "run", folder / "root")
    assert run.make_model().embedding.shard is not None
    _compare(run)


def _compare(run: Run) -> None:
    """Checks that lazy and dense Adam change weights and their averages alike, to .1 %."""
    rows, whole = (_train(run, by_rows) for by_rows in (True, False))
    for name, gone in whole.items():
        assert float((rows[name] - gone).norm()) <= 0.001 * float(gone.norm()), name


def _train(run: Run, by_rows: bool) -> dict[str, Tensor]:
    """Differences of all weights and averages from the initial weights, by name."""
    torch.manual_seed(0)
    model, config = run.make_model(), run.config.train
    learner = make_learner(run.fabric, model, config, 100, origin="")
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    if not by_rows:
        learner.close()
    learner.wrapped.train()
    torch.manual_seed(0)
    loader = run.loader("train", training=True)
    loader.order.set_epoch(0)
    hierarchy = run.hierarchy.to(run.fabric.device)
    for step, batch in enumerate(islice(loader, 40), start=1):
        train_step(learner, batch, hierarchy, config, step, 100)
        assert (learner.rows is not None) == (model.embedding.weight.grad is None) == by_rows
    learner.close()
    assert learner.average is not None
    averages = dict(zip(learner._trained, learner.average.values, strict=True))
    gone = {f"average {name}": value - before[name] for name, value in averages.items()}
    return gone | {name: value.detach() - before[name] for name, value in model.named_parameters()}
