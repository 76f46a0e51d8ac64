"""State of a training, saved and loaded: model, optimizer, average, progress."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from match_graph.config import TrainConfig
from match_graph.errors import CheckpointError
from match_graph.io.exchange import RowShard
from match_graph.io.files import is_finite, write_state, write_tensors
from match_graph.io.run_folder import MODEL, STATE
from match_graph.nn import MatchModel
from match_graph.nn.tables import TokenTable
from match_graph.training.average import WeightAverage
from match_graph.training.checkpoint import LossMeter, TrainState
from match_graph.training.device import keep_apart
from match_graph.training.optimizers import find_progress, make_optimizer, schedule
from match_graph.training.parts import PartsReader, Share, remove_parts, write_parts, write_weights
from match_graph.training.processes import gather, lead
from match_graph.training.row_adam import RowAdam
from match_graph.training.shards import find_shard, is_sharded, list_parameters, load_moments

#: Saved tensors by key, each with the tensor to place it as, and its rows if that is a share.
Places: TypeAlias = dict[tuple[Any, ...], tuple[Any, Tensor, RowShard | None]]

#: Size of an embedding below which Adam on the whole table is faster on a GPU.
_WHOLE_ON_GPU = 2**27


@dataclass
class Learner:
    """Model, optimizer, average and progress of a training.

    Args:
        fabric: Devices and processes.
        model: Model on its device; its parameters may be shards.
        wrapped: Model as training calls it, wrapped by Fabric.
        optimizer: Optimizer of the model's parameters.
        stepper: Optimizer as training calls it, wrapped by Fabric.
        average: Average of the model's weights, if any.
        rows: Lazy optimizer of the embedding; None where ``optimizer`` updates all of its rows.
        origin: Identifier of the data and settings of the training.
        state: Progress of the training.
        history: Losses and measures, a row per epoch.
        losses: Mean losses of the current epoch.
        tables: Tables of the model that processes share, by name.
        best: Copies of the best weights so far, while they are not written.
    """

    fabric: Fabric
    model: MatchModel
    wrapped: nn.Module
    optimizer: torch.optim.Optimizer
    stepper: Any
    average: WeightAverage | None
    rows: RowAdam | None
    origin: str
    state: TrainState = field(default_factory=TrainState)
    history: pd.DataFrame = field(default_factory=pd.DataFrame)
    losses: LossMeter = field(init=False)
    tables: dict[str, TokenTable] = field(init=False)
    best: dict[str, Tensor | Share] | None = None
    _parts: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.losses = LossMeter(self.fabric.device)
        self.tables = self.model.sharded_tables
        self._shards = {f"{name}.weight": table.shard for name, table in self.tables.items()}
        self._trained = [
            name for name, value in self.model.named_parameters() if value.requires_grad
        ]

    def averaged(self) -> AbstractContextManager[None]:
        """Context in which the model has the averaged parameters, once averaging has started."""
        if self.average is None or self.state.epoch < self.average.after:
            return nullcontext()
        return self.average.shown()

    def settle(self) -> None:
        """Brings all rows of the embedding up to date, see `RowAdam.settle`."""
        if self.rows is not None:
            self.rows.settle()

    def collect_rows(self) -> Tensor | None:
        """The gradient of the embedding's rows after the backward pass, see `RowAdam.collect`."""
        if self.rows is None:
            return None
        gradient = self.rows.collect()
        if not self.rows.is_active:
            self.rows = None
        return gradient

    def close(self) -> None:
        """Detaches the lazy optimizer from the embedding."""
        if self.rows is not None:
            self.rows.close()
        self.rows = None

    def add_row(self, row: Mapping[str, float]) -> None:
        """Adds an epoch to the history."""
        self.history = pd.concat([self.history, pd.DataFrame([row])], ignore_index=True)

    def keep_weights(self, folder: Path, write: bool) -> None:
        """Keeps the model's current weights as the best ones.

        Args:
            folder: Run folder.
            write: Whether to write them now; otherwise they are copied, until `save` writes them.
        """
        weights = self._weights()
        self.best = None
        if write:
            self._write_weights(folder, weights)
        else:
            self.best = {name: value.clone() for name, value in weights.items()}

    def _weights(self) -> dict[str, Tensor | Share]:
        """Parameters and buffers, shares of tables marked as such."""
        weights = self.model.state_dict()
        return {name: self._share(value, self._shards.get(name)) for name, value in weights.items()}

    @staticmethod
    def _share(value: Tensor, shard: RowShard | None) -> Tensor | Share:
        return value if shard is None or not value.dim() else Share(value.detach(), shard)

    def _write_weights(self, folder: Path, weights: Mapping[str, Tensor | Share]) -> None:
        if any(isinstance(value, Share) or is_sharded(value) for value in weights.values()):
            write_weights(self.fabric, folder / MODEL, weights)
        else:
            whole = {name: value for name, value in weights.items() if isinstance(value, Tensor)}
            lead(self.fabric, lambda: write_tensors(folder / MODEL, whole))

    def save(self, folder: Path) -> None:
        """Writes the checkpoint; every process must call this, and writes its own shards."""
        self.settle()
        if self.best is not None:
            self._write_weights(folder, self.best)
        self.best = None
        path = folder / STATE
        sharded = {
            "model": self._weights(),
            "average": None if self.average is None else self._list_averages(),
            "optimizer": self._list_moments(),
        }
        content, parts = write_parts(self.fabric, path.parent, sharded)
        content |= {
            "parts": parts,
            "origin": self.origin,
            "train": asdict(self.state),
            "history": self.history.to_dict("list"),
            "losses": self.losses.state_dict(self.fabric),
            "random": self._random_states(),
        }

        def write() -> None:
            write_state(path, content)
            remove_parts(path.parent, [parts, self._parts])

        lead(self.fabric, write)
        self._parts = parts

    def _list_averages(self) -> list[Tensor | Share]:
        assert self.average is not None
        pairs = zip(self._trained, self.average.values, strict=True)
        return [self._share(value, self._shards.get(name)) for name, value in pairs]

    def _list_moments(self) -> dict[str, Any]:
        content = self.optimizer.state_dict()
        state = {
            number: {
                name: self._share(value, self._shard_of(number)) for name, value in moments.items()
            }
            for number, moments in content["state"].items()
        }
        return {**content, "state": state}

    def _shard_of(self, number: int) -> RowShard | None:
        """The rows of a parameter of the optimizer that is a share of a table; None of others."""
        parameter = list_parameters(self.optimizer)[number]
        shards = (table.shard for table in self.tables.values() if table.weight is parameter)
        return next(shards, None)

    def load(self, content: Mapping[str, Any], path: Path) -> None:
        """Restores a checkpoint, except for random states, see `restore_random`.

        Raises:
            CheckpointError: It is of another model.
        """
        try:
            self._parts = content["parts"]
            self._load_tensors(content, PartsReader(self.fabric, path.parent, self._parts))
            self.losses.load_state_dict(content["losses"], self.fabric)
            for name, states in content["random"].items():
                for each in states if name in (self.fabric.device.type, "cpu") else ():
                    torch.Generator(name).set_state(each.clone())  # raises if it is invalid
            self.state = TrainState.from_checkpoint(content, path)
            self.history = pd.DataFrame(content["history"])
            if self.history.get("epoch", pd.Series()).tolist() != [*range(1, self.state.epoch + 1)]:
                raise ValueError("the history is of other epochs")
        except (
            AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError,
            CheckpointError,
        ) as error:  # fmt: skip
            raise CheckpointError(
                f"The checkpoint '{path}' must hold the weights, moments and counts of this run's "
                f"model, but it cannot be used ({type(error).__name__}); delete the folder "
                f"'{path.parent}' to train again."
            ) from error

    def _load_tensors(self, content: Mapping[str, Any], reader: PartsReader) -> None:
        """Loads weights, average and moments, written by any number of processes."""
        places = {**self._place_weights(content["model"])}
        if self.average is not None:
            places |= self._place_averages(content["average"])
        places |= self._place_moments(content["optimizer"]["state"])
        for place in places.values():
            reader.ask(*place)
        reader.read()
        found = {key: reader.take(*place) for key, place in places.items()}
        weights = {name: found["model", name] for name in self.model.state_dict()}
        for name, value in weights.items():
            if value.is_floating_point() and not is_finite(find_shard(value)):
                raise ValueError(f"the weights '{name}' are not finite")
        self.model.load_state_dict(weights)
        if self.average is not None:
            self.average.load([found["average", name] for name in self._trained])
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in found.items():
            if key[0] == "optimizer":
                state.setdefault(key[1], {})[key[2]] = value
        load_moments(self.optimizer, content["optimizer"]["param_groups"], state)

    def _place_weights(self, saved: Mapping[str, Any]) -> Places:
        here = self.model.state_dict()
        if here.keys() != saved.keys():
            raise ValueError("the weights are of another model")
        return {
            ("model", name): (saved[name], like, self._shards.get(name))
            for name, like in here.items()
        }

    def _place_averages(self, saved: list[Any]) -> Places:
        assert self.average is not None
        triples = zip(self._trained, saved, self.average.values, strict=True)
        return {
            ("average", name): (value, like, self._shards.get(name))
            for name, value, like in triples
        }

    def _place_moments(self, saved: Mapping[int, Mapping[str, Any]]) -> Places:
        places: Places = {}
        parameters = list_parameters(self.optimizer)
        for number, moments in saved.items():
            if not 0 <= number < len(parameters):
                raise ValueError(f"there is no parameter {number}")
            shard = self._shard_of(number)
            for name, value in moments.items():
                key = "optimizer", number, name
                if isinstance(value, Tensor) and not value.dim():  # a count
                    places[key] = value, value, None
                else:
                    places[key] = value, parameters[number], shard
        return places

    def _random_states(self) -> dict[str, Tensor]:
        """The states of all processes' generators, each [num_processes, bytes]."""
        states = {"cpu": gather(self.fabric, torch.get_rng_state())}
        if self.fabric.device.type == "cuda":
            state = torch.cuda.get_rng_state(self.fabric.device)
            states["cuda"] = gather(self.fabric, state)
        return states

    def restore_random(self, states: Mapping[str, Tensor]) -> None:
        """Restores the random states of a checkpoint, if it is of as many processes."""
        kinds = {"cpu", "cuda"} if self.fabric.device.type == "cuda" else {"cpu"}
        if states.keys() != kinds or len(states["cpu"]) != self.fabric.world_size:
            return
        torch.set_rng_state(states["cpu"][self.fabric.global_rank].clone())
        if "cuda" in states:
            torch.cuda.set_rng_state(
                states["cuda"][self.fabric.global_rank].clone(), self.fabric.device
            )


def make_learner(
    fabric: Fabric, model: MatchModel, config: TrainConfig, num_steps: int, origin: str
) -> Learner:
    """The model on its device with optimizer and average, before the first step.

    `RowAdam` updates the embedding if this is the only process, or if the table is sharded. Where
    several processes each have the whole table, whose gradient is reduced as a whole, the optimizer
    does; so it does for a small table on a GPU: launching the kernels that find and update rows
    takes 2 of 10.6 ms (debtags, 32 documents), in which an H100 updates a table at the limit.
    """
    keep_apart(model, fabric.device)
    wrapped = fabric.setup_module(model)
    optimizer = make_optimizer(model, config)  # only now: of the shards, if there are any
    average = None
    if config.average:
        average = WeightAverage(model, config.average, config.average_after)
    rows = None
    table = model.embedding
    is_small = fabric.device.type == "cuda" and table.weight.numel() < _WHOLE_ON_GPU
    by_rows = table.shard is not None or (fabric.world_size == 1 and not is_small)
    if by_rows and table.weight.requires_grad:
        steps = range(1, num_steps + 1)
        rates = [
            config.learning_rate
            * schedule(find_progress(step, num_steps), config.warmup, config.schedule)
            for step in steps
        ]
        start = start_average(config, num_steps)
        kept = None if average is None else [average.keeps(step - start) for step in steps]
        rows = RowAdam(table, optimizer, rates, average, kept)
    stepper = fabric.setup_optimizers(optimizer)
    return Learner(fabric, model, wrapped, optimizer, stepper, average, rows, origin)


def start_average(config: TrainConfig, num_steps: int) -> int:
    """The step after which weights are averaged."""
    assert config.epochs is not None
    return num_steps * config.average_after // config.epochs
