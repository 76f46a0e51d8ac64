"""Two processes that share the tables: what they fetch, move, save and gather."""

import copy
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from together import run_forked
from torch import distributed
from torch_geometric.data import HeteroData

from match_graph.config import PretrainConfig
from match_graph.datasets import Synthetic
from match_graph.pretrain import (
    Chunk,
    PretrainCheckpoint,
    ShardedTrainer,
    SphericalTrainer,
    evaluate_vectors,
    hold_out,
)
from match_graph.pretrain import checkpoint as checkpoints
from match_graph.pretrain.shards import Share

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

SMALL = PretrainConfig(channels=16, negatives=8, chunk_size=64)
#: Pairs of which the last step has one: a process has none.
SAMPLES = 70 * 128 + 1


def run_in_group(work: Callable[..., None], folder: Path, *args: object) -> list[int | None]:
    """Calls ``work`` in two processes of a group; their exit codes."""
    meeting = folder / f"meeting-{work.__name__}"

    def start(rank: int) -> None:
        distributed.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2
        )
        work(folder, *args)
        distributed.destroy_process_group()

    return run_forked(start, 2, 120)


def make_sharded(data: HeteroData, config: PretrainConfig = SMALL, seed: int = 0) -> ShardedTrainer:
    return ShardedTrainer(data, config, seed, {"word": 41}, group=distributed.group.WORLD)


def gather_all(trainer: SphericalTrainer) -> dict[str, torch.Tensor]:
    """Whole tables on process 0, copies."""
    return {name: torch.cat([*trainer.gather(name)]).clone() for name in sorted(trainer.sizes)}


def whole_trainer(data: HeteroData, tables: dict[str, torch.Tensor], config: PretrainConfig):
    trainer = SphericalTrainer(data, config, num_rows={"word": 41})
    trainer.tables = {name: table.clone() for name, table in tables.items()}
    return trainer


def step_together(folder: Path, data: HeteroData, config: PretrainConfig) -> None:
    """Saves tables before and after some steps, and the steps of each process."""
    trainer = make_sharded(data, config)
    before, steps = gather_all(trainer), trainer._sample(SAMPLES, 9 * 128)
    chunks = [(step.relation.name, step.chunk, step.learning_rate) for step in steps]
    losses = [float(loss) for loss in trainer._take(steps)]
    content = {"before": before, "after": gather_all(trainer), "chunks": chunks, "losses": losses}
    torch.save(content, folder / f"{trainer.share.rank}.pt")


@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_Share_parts_make_up_the_whole(number: int) -> None:
    """Parts of pairs and rows of all processes are as many as there are, and of like size."""
    for size in range(15):
        shares = [Share(rank, number) for rank in range(number)]
        for parts in ([one.split(size) for one in shares], [one.count(size) for one in shares]):
            assert sum(parts) == size
            assert max(parts) - min(parts) <= 1


@pytest.mark.parametrize("shared", [True, False])
def test_ShardedTrainer_steps_are_those_of_both_chunks(
    synthetic: Synthetic, tmp_path: Path, shared: bool
) -> None:
    """The tables move by the sum of both processes' tangents, taken at the same vectors."""
    config = SMALL.model_copy(update={"shared_negatives": shared, "label_parent": True})
    data = synthetic[0]
    assert run_in_group(step_together, tmp_path, data, config) == [0, 0]
    found = [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2)]
    expected = found[0]["before"]
    assert len(found[0]["chunks"]) == 9
    moved = set()
    for place, pair in enumerate(zip(found[0]["chunks"], found[1]["chunks"], strict=True)):
        name, rate = pair[0][0], pair[0][2]
        assert pair[1][::2] == (name, rate)
        assert not torch.equal(pair[0][1].anchor, pair[1][1].anchor)
        total = {name: torch.zeros_like(table) for name, table in expected.items()}
        for rank, (_, chunk, _) in enumerate(pair):
            trainer = whole_trainer(data, expected, config)
            relation = trainer.feeds[name].relation
            moved |= {relation.anchor, relation.target}
            loss, tangents = trainer._pull(
                expected[relation.anchor], expected[relation.target], Chunk(*chunk),
                trainer._allow(relation, Chunk(*chunk)),
            )  # fmt: skip
            assert float(loss) == pytest.approx(found[rank]["losses"][place], rel=1e-4)
            total[relation.anchor].index_add_(0, chunk[0], tangents[0])
            total[relation.target].index_add_(0, chunk[1], tangents[1])
            total[relation.target].index_add_(0, chunk[2].view(-1), tangents[2])
        for table, change in total.items():
            stepped = expected[table] - rate * change
            expected[table] = stepped / stepped.norm(dim=1, keepdim=True)
    assert moved >= {"document", "label", "word", "context"}
    for table, rows in expected.items():
        assert torch.allclose(found[0]["after"][table], rows, atol=1e-5), table
        assert len(rows) == whole_trainer(data, expected, config).sizes[table]
        assert not len(found[1]["after"][table])


def fit_and_resume(folder: Path, data: HeteroData, held: HeteroData) -> None:
    """A whole training; one that is resumed from its checkpoint; one on fewer pairs."""
    whole = make_sharded(data)
    whole.fit(SAMPLES)
    halves = [table.numel() / (whole.sizes[name] * 16) for name, table in whole.tables.items()]
    saved = PretrainCheckpoint(folder / "state.pt", "origin")
    first = make_sharded(data)
    first.fit(SAMPLES, stop=SAMPLES // 3)
    saved.write(first)
    first.fit(SAMPLES, stop=SAMPLES // 2)  # the processes have drawn on, and save again
    saved.write(first)
    resumed = make_sharded(data, seed=7)
    resumed.tables["word"].fill_(0)
    saved.read(resumed)
    content = {"middle": gather_all(resumed), "seen": resumed.num_seen, "halves": halves}
    resumed.fit(SAMPLES)
    measured = make_sharded(held)
    measured.fit(60_000)
    content |= {"whole": gather_all(whole), "resumed": gather_all(resumed)}
    content |= {"pairs": whole.num_seen, "loss": whole.loss, "held": gather_all(measured)}
    alone = PretrainCheckpoint(folder / "one.pt", "origin")
    fewer = make_sharded(data)
    alone.read(fewer)  # that one process wrote
    torch.save({**content, "fewer": gather_all(fewer)}, folder / f"{whole.share.rank}.pt")


def test_ShardedTrainer_and_its_checkpoint(synthetic: Synthetic, tmp_path: Path) -> None:
    """A resumed training ends at the same bits, one of another number at unit vectors."""
    held = hold_out(synthetic[0], {"word": 41})
    one = SphericalTrainer(synthetic[0], SMALL, num_rows={"word": 41})
    one.fit(SAMPLES, stop=2_000)
    PretrainCheckpoint(tmp_path / "one.pt", "origin").write(one)
    assert run_in_group(fit_and_resume, tmp_path, synthetic[0], held.data) == [0, 0]
    found = [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2)]
    assert found[0]["pairs"] == found[1]["pairs"] == SAMPLES
    assert found[0]["loss"] == found[1]["loss"] > 0
    assert sum(found[0]["halves"]) == pytest.approx(len(one.sizes) / 2, rel=0.02)
    for name, table in found[0]["whole"].items():
        assert torch.equal(found[0]["resumed"][name], table)
        assert (table.double().norm(dim=1) - 1).abs().max() < 1e-6
        assert torch.equal(found[0]["fewer"][name], one.tables[name])

    saved = PretrainCheckpoint(tmp_path / "state.pt", "origin")
    alone = SphericalTrainer(synthetic[0], SMALL, num_rows={"word": 41})
    saved.read(alone)
    assert not any(feed.anchor.numel() for feed in alone.feeds.values())  # samples are others
    assert SAMPLES // 2 <= alone.num_seen == found[0]["seen"] < SAMPLES
    for name, table in found[0]["middle"].items():
        assert torch.equal(alone.tables[name], table)
    alone.fit(SAMPLES)
    assert alone.num_seen == SAMPLES
    saved.remove()
    assert not list(tmp_path.glob("state*"))

    mine = SphericalTrainer(held.data, SMALL, num_rows={"word": 41})
    mine.fit(60_000)
    both = [evaluate_vectors(tables, held, 0.3) for tables in (found[0]["held"], mine.tables)]
    for name, measures in both[0].items():
        chance = sum(1 / rank for rank in range(1, measures["candidates"] + 1))
        chance /= measures["candidates"]
        gain = [one[name]["mrr_filtered"] - chance for one in both]
        assert gain[0] > 0.5 * gain[1] - 0.02, name


def test_PretrainCheckpoint_killed_between_shards_and_state(
    synthetic: Synthetic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older state stays complete; unreferenced shards are deleted with the next one."""
    trainer = SphericalTrainer(synthetic[0], SMALL)
    saved = PretrainCheckpoint(tmp_path / "state.pt", "origin")
    trainer.fit(SAMPLES, stop=1_000)
    saved.write(trainer)
    before = copy.deepcopy(trainer.tables)
    trainer.fit(SAMPLES, stop=2_000)

    def die(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_state", die)
        with pytest.raises(KeyboardInterrupt):
            saved.write(trainer)
    assert len(list(tmp_path.glob("state-0-of-1-*.pt"))) == 2
    resumed = SphericalTrainer(synthetic[0], SMALL)
    saved.read(resumed)
    assert resumed.num_seen == 1_024
    assert all(torch.equal(table, before[name]) for name, table in resumed.tables.items())
    for stop in (3_000, 4_000):
        trainer.fit(SAMPLES, stop=stop)
        saved.write(trainer)
    assert len(list(tmp_path.glob("state-0-of-1-*.pt"))) == 2  # of this state and the previous one

    newest = max(tmp_path.glob("state-0-of-1-*.pt"), key=os.path.getmtime)
    newest.write_bytes(newest.read_bytes()[:-1])
    warnings: list[str] = []
    saved.read(resumed, warnings.append)
    assert resumed.num_seen == 3_008
    assert "has not the" in warnings[0]
    assert warnings[0].endswith("going on from the one before")
