"""Pre-training in a run folder: trained or resumed, saved, measured, used to initialize models."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import load_file
from torch import Tensor, distributed

from match_graph.config import Config
from match_graph.errors import CheckpointError
from match_graph.graph.view import Graph
from match_graph.io.beside import beside
from match_graph.io.files import has_file, link_file, read_tensors, write_beside, write_json
from match_graph.io.run_folder import DOCUMENT_NAMES, PRETRAIN_STATE, QUALITY, TEXT_VECTORS, VECTORS
from match_graph.io.weights import Layout, order_tensors, write_blocks
from match_graph.nn import MatchModel
from match_graph.pretrain import (
    CONTEXT,
    PretrainCheckpoint,
    ShardedTrainer,
    SphericalTrainer,
    evaluate_vectors,
    find_neighbours,
    hold_out,
    read_word_vectors,
    write_word2vec,
)
from match_graph.runs.folder import open_run_folder
from match_graph.runs.inputs import RunInputs
from match_graph.runs.readers import read_record
from match_graph.training.device import choose_device
from match_graph.training.heartbeat import alone
from match_graph.training.processes import any_of, sum_up
from match_graph.typing import CONTAINS, DOCUMENT, IS_A, LABEL, TAGGED, WORD

#: Seconds between two checkpoints.
SAVE_SECONDS = 30.0
#: Share of (document, metadata) and (document, label) pairs that `Pretraining.evaluate` holds out.
HELD_OUT = 0.05


def describe_pretraining(config: Config) -> dict[str, Any]:
    """Settings that pre-trained vectors depend on besides the data's checksum."""
    return {
        "dataset": config.dataset,
        "seed": config.seed,
        "data": config.data.model_dump(exclude={"features", "temporal", "transductive"}),
        "pretrain": config.pretrain.model_dump(),
        "init": config.model.init,
        "device": choose_device(config.train.accelerator).type,
        "deterministic": config.train.deterministic,
    }


@dataclass(frozen=True)
class Pretraining:
    """Pre-training of the unit vectors of a run.

    Its processes train them together, each with a part of the tables, and all call each method.

    Args:
        run: Run whose folder gets the vectors.
    """

    run: RunInputs

    def is_done(self) -> bool:
        """Whether the vectors are written, as the first process sees it."""
        is_there = self.run.leads and has_file(self.run.folder / VECTORS)
        return any_of(self.run.fabric, is_there)

    def train(self) -> dict[str, Tensor]:
        """Trains unit vectors per node type, resuming if need be; reads those that are there.

        Writes ``vectors.safetensors`` and ``tokens/document.parquet``; the other tables' names are
        in ``tokens`` already, and contexts share the names of words.

        Returns:
            Whole tables by node type, mapped from the file.
        """
        if not self.is_done():
            self._train()
        return read_tensors(self.run.folder / VECTORS)

    def _train(self) -> None:
        trainer = self._make_trainer(self.run.dataset.graph)
        checkpoint = self._checkpoint
        if any_of(self.run.fabric, self.run.leads and checkpoint.is_there()):
            checkpoint.read(trainer, self.run.reporter.warn)
            self.run.reporter.line(f"pretrain: goes on after {trainer.num_seen:,} pairs")
        self._fit(trainer, checkpoint)
        if self.run.leads:  # vectors last: they say that all is there
            names = pd.DataFrame({"id": self.run.dataset.names(DOCUMENT)})
            write_beside(self.run.folder / DOCUMENT_NAMES, names.to_parquet)
            write_beside(self.run.folder / VECTORS, lambda place: _write_tables(trainer, place))
            checkpoint.remove()
        else:
            _send_tables(trainer)
        sum_up(self.run.fabric, torch.tensor(0))  # nobody reads before all is written

    @property
    def _checkpoint(self) -> PretrainCheckpoint:
        return PretrainCheckpoint(self.run.folder / PRETRAIN_STATE, self.run.origin)

    def close(self) -> None:
        """Deletes a checkpoint left by a process that was killed after its last step."""
        self._checkpoint.remove()

    def adopt(self, source: Path) -> None:
        """Takes the vectors of another run's folder, by a hard link where the disk has them.

        Raises:
            CheckpointError: It has none, or they are of other data, settings or another seed.
        """
        there = describe_pretraining(open_run_folder(source)), read_record(source)["data_checksum"]
        if there != (describe_pretraining(self.run.config), self.run.dataset.checksum):
            raise CheckpointError(
                f"Vectors can be taken from a run with the same data, seed and settings of "
                f"pre-training, but the run in '{source}' has others; pre-train anew."
            )
        for name in (DOCUMENT_NAMES, VECTORS):  # vectors last: they say that all is there
            if not has_file(source / name):
                raise CheckpointError(
                    f"A pre-trained run holds {name}, but '{source}' has none; pre-train it first."
                )
            write_beside(self.run.folder / name, partial(link_file, source / name))
        self.close()

    def _make_trainer(self, data: Graph) -> SphericalTrainer:
        arguments: dict[str, Any] = {
            "data": data,
            "config": self.run.config.pretrain,
            "seed": self.run.config.seed,
            "num_rows": self.run.space.kept_by_type,
            "device": self.run.fabric.device,
        }
        if self.run.config.model.init == "spherical_text":
            parents = [IS_A] if self.run.config.pretrain.label_parent else []
            arguments["edge_types"] = [CONTAINS, TAGGED, *parents]
        if self.run.fabric.world_size == 1:
            return SphericalTrainer(**arguments)
        assert distributed.group.WORLD is not None
        return ShardedTrainer(**arguments, group=distributed.group.WORLD)

    def _fit(self, trainer: SphericalTrainer, checkpoint: PretrainCheckpoint | None) -> None:
        samples = self.run.config.pretrain.samples
        assert samples is not None
        with self.run.reporter.track("pretrain", samples, "pairs") as advance:
            trainer.fit(
                samples,
                lambda done, loss: advance(done, f"loss {loss:.4f}"),
                None if checkpoint is None else lambda: checkpoint.write(trainer),
                SAVE_SECONDS,
            )

    def write_text(self) -> Path:
        """Writes all tables except the contexts as ``vectors.txt`` in the word2vec format.

        Names are those of `escape_name`: words as they are, others as ``type/name``, white space
        as percent escapes. The first process writes.
        """
        tables = {name: table for name, table in self.train().items() if name != CONTEXT}
        order = [name for name in (*self.run.space.types, LABEL, DOCUMENT) if name in tables]
        names = {name: map(str, self.run.dataset.names(name)) for name in order}
        path = self.run.folder / TEXT_VECTORS
        if not self.run.leads:
            return path
        ordered = {name: tables[name] for name in order}
        write_beside(path, lambda beside: write_word2vec(beside, ordered, names))
        return path

    def evaluate(self) -> dict[str, Any]:
        """Trains other vectors on 95 % of the pairs, ranks the rest; writes ``pretrain.json``.

        The vectors of the run are neither read nor written: those that a model starts from have
        seen all pairs of the training documents. The first process ranks, the others get nothing.
        """
        held = hold_out(
            self.run.dataset.graph, self.run.space.kept_by_type, HELD_OUT, self.run.config.seed
        )
        trainer = self._make_trainer(held.data)
        self._fit(trainer, None)
        if not self.run.leads:
            _send_tables(trainer)
            return {}
        tables = trainer.tables
        with beside(self.run.folder / QUALITY) as place:
            if self.run.fabric.world_size > 1:
                _write_tables(trainer, place)
                tables = load_file(place)  # mapped
            with alone():  # the others are done
                quality = {
                    "held_out": HELD_OUT,
                    "samples": trainer.num_seen,
                    "loss": trainer.loss,
                    "margin": self.run.config.pretrain.margin,
                    "types": evaluate_vectors(tables, held, self.run.config.pretrain.margin),
                    "neighbours": self._neighbours(tables),
                }
                write_json(self.run.folder / QUALITY, quality)
        return quality

    def _neighbours(self, tables: Mapping[str, Tensor]) -> dict[str, dict[str, list[str]]]:
        """Nearest nodes of the same type, for a few nodes of middling frequency."""
        found: dict[str, dict[str, list[str]]] = {}
        for node_type in (name for name in (WORD, LABEL, *self.run.space.types) if name in tables):
            names, table = self.run.dataset.names(node_type), tables[node_type]
            rows = torch.tensor([len(table) // share for share in (50, 20, 10)]).unique()
            near = find_neighbours(table, rows.to(table.device)).tolist()
            found[node_type] = {
                str(names[int(row)]): [str(names[other]) for other in others]
                for row, others in zip(rows.tolist(), near, strict=True)
            }
        return found

    def initialise(self, model: MatchModel) -> None:
        """Initializes a model's embedding, and its prediction layer if asked, from vectors."""
        settings = self.run.config.model
        vectors: dict[str, Tensor] = {}
        if settings.init in ("spherical", "spherical_text"):
            vectors = self.train()
        elif settings.init == "word_vectors":
            vectors = {WORD: self._read_word_vectors()}
        model.embedding.load_vectors(vectors)
        if settings.head_from_labels:
            width = model.encoder.out_channels
            slot_channels = getattr(model.encoder, "channels", width)
            model.head.load_label_vectors(vectors[LABEL], width, slot_channels)

    def _read_word_vectors(self) -> Tensor:
        settings = self.run.config.model
        assert settings.word_vectors is not None, "a configuration without is refused"
        kept = self.run.space.num_kept[self.run.space.field_index(WORD)]
        words = self.run.dataset.names(WORD).head(kept).tolist()
        path = Path(settings.word_vectors)
        table, found = read_word_vectors(path, words, settings.channels, self.run.config.seed)
        self.run.reporter.line(
            f"word vectors: {found:,} of {kept:,} words ({found / max(kept, 1):.1%}) are in "
            f"{path.name}; the others start at random"
        )
        return table


def _write_tables(trainer: SphericalTrainer, place: Path) -> None:
    """Writes the tables of all processes block by block; the others `_send_tables`."""
    layouts = {
        name: Layout(torch.float32, (rows, trainer.config.channels))
        for name, rows in trainer.sizes.items()
    }
    write_blocks(place, layouts, chain.from_iterable(map(trainer.gather, order_tensors(layouts))))


def _send_tables(trainer: SphericalTrainer) -> None:
    for name in sorted(trainer.sizes):
        deque(trainer.gather(name), maxlen=0)
