"""Pre-training in a run folder: trained or resumed, saved, measured, used to initialize models."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from match_graph.config import Config
from match_graph.datasets import CorpusDataset
from match_graph.errors import CheckpointError, ConfigError
from match_graph.graph import TokenSpace
from match_graph.io.files import (
    has_file,
    has_state,
    read_state,
    read_tensors,
    remove_state,
    write_beside,
    write_json,
    write_state,
    write_tensors,
)
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import DOCUMENT_NAMES, PRETRAIN_STATE, QUALITY, TEXT_VECTORS, VECTORS
from match_graph.nn import LinearHead, MatchModel
from match_graph.pretrain import (
    CONTEXT,
    SphericalTrainer,
    evaluate_vectors,
    find_neighbours,
    hold_out,
    read_word_vectors,
    spread_label_vectors,
    write_word2vec,
)
from match_graph.runs.folder import open_run_folder
from match_graph.runs.readers import read_record
from match_graph.training.device import choose_device
from match_graph.typing import CONTAINS, DOCUMENT, LABEL, TAGGED, WORD

#: Between two checkpoints.
SAVE_SECONDS = 30.0
#: Share of (document, metadata) and (document, label) pairs that `Pretraining.evaluate` holds out.
HELD_OUT = 0.05


def describe_pretraining(config: Config) -> dict[str, Any]:
    """Settings that pre-trained vectors depend on besides the data's checksum."""
    return {
        "dataset": config.dataset,
        "seed": config.seed,
        "data": config.data.model_dump(),
        "pretrain": config.pretrain.model_dump(),
        "init": config.model.init,
        "device": choose_device(config.train.accelerator).type,
        "deterministic": config.train.deterministic,
    }


@dataclass(frozen=True)
class Pretraining:
    """The pre-training of one run folder.

    Args:
        folder: Run folder.
        config: Resolved configuration.
        dataset: Built data set.
        space: Token space of the kept tokens.
        reporter: Progress reporter.
        origin: Checksum of data and settings; a checkpoint of others is refused.
    """

    folder: Path
    config: Config
    dataset: CorpusDataset
    space: TokenSpace
    reporter: Reporter
    origin: str = ""

    def is_done(self) -> bool:
        """Whether the vectors are written."""
        return has_file(self.folder / VECTORS)

    def train(self) -> dict[str, Tensor]:
        """Trains unit vectors per node type, resuming if need be; reads those that are there.

        Writes ``vectors.safetensors`` and ``tokens/document.parquet``; the other tables' names are
        in ``tokens`` already, and contexts share the names of words.
        """
        path = self.folder / PRETRAIN_STATE
        if self.is_done():
            return read_tensors(self.folder / VECTORS)
        trainer = self._make_trainer()
        if has_state(path):
            self._resume(trainer, path)
        self._fit(trainer, lambda state: write_state(path, {**state, "origin": self.origin}))
        names = pd.DataFrame({"id": self.dataset.names(DOCUMENT)})
        write_beside(self.folder / DOCUMENT_NAMES, names.to_parquet)
        write_tensors(self.folder / VECTORS, trainer.tables)  # last: it says that all is there
        remove_state(path)
        return {name: table.cpu() for name, table in trainer.tables.items()}

    def close(self) -> None:
        """Deletes a checkpoint left by a process that was killed after its last step."""
        remove_state(self.folder / PRETRAIN_STATE)

    def adopt(self, source: Path) -> None:
        """Takes the vectors of another run's folder, by a hard link where the disk has them.

        Raises:
            CheckpointError: It has none, or they are of other data, settings or another seed.
        """
        there, here = (
            describe_pretraining(open_run_folder(source)),
            describe_pretraining(self.config),
        )
        checksum = read_record(source)["data_checksum"]
        if (there, checksum) != (here, self.dataset.checksum):
            raise CheckpointError(
                f"Vectors can be taken from a run with the same data, seed and settings of "
                f"pre-training, but the run in '{source}' has others; pre-train anew."
            )
        for name in (DOCUMENT_NAMES, VECTORS):  # vectors last: they say that all is there
            if not has_file(source / name):
                raise CheckpointError(
                    f"A pre-trained run holds {name}, but '{source}' has none; pre-train it first."
                )
            original = source / name
            write_beside(self.folder / name, partial(_link, original))
        remove_state(self.folder / PRETRAIN_STATE)

    def _make_trainer(self, **changes: Any) -> SphericalTrainer:
        config, data = self.config, self.dataset[0]
        arguments: dict[str, Any] = {"data": data, **changes}
        if config.model.init == "spherical_text":
            arguments["edge_types"] = [CONTAINS, TAGGED]
        return SphericalTrainer(
            config=config.pretrain,
            seed=config.seed,
            num_rows=self._num_rows(),
            device=choose_device(config.train.accelerator),
            **arguments,
        )

    def _num_rows(self) -> dict[str, int]:
        return dict(zip(self.space.types, self.space.num_kept, strict=True))

    def _resume(self, trainer: SphericalTrainer, path: Path) -> None:
        state = read_state(path, self.reporter.warn)
        if state.get("origin") != self.origin:
            raise CheckpointError(
                f"The checkpoint '{path}' must be of the data and settings of this run, but it was "
                f"made with others; delete the folder '{path.parent}' to start again."
            )
        try:
            trainer.load_state_dict(state)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise CheckpointError(
                f"A pre-training checkpoint must hold tables, draws and counters of this run, but "
                f"'{path}' does not ({' '.join(str(error).split())}); delete it to start again."
            ) from error
        self.reporter.line(f"pretrain: goes on after {trainer.num_seen:,} pairs")

    def _fit(
        self, trainer: SphericalTrainer, save: Callable[[dict[str, Any]], None] | None
    ) -> None:
        samples = self.config.pretrain.samples
        assert samples is not None
        with self.reporter.track("pretrain", samples, "pairs") as advance:
            trainer.fit(
                samples,
                lambda done, loss: advance(done, f"loss {loss:.4f}"),
                save,
                SAVE_SECONDS,
            )

    def write_text(self) -> Path:
        """Writes all tables except the contexts as ``vectors.txt`` in the word2vec format.

        Names are those of `escape_name`: words as they are, others as ``type/name``, white space
        as percent escapes.
        """
        tables = {name: table for name, table in self.train().items() if name != CONTEXT}
        order = [name for name in (*self.space.types, LABEL, DOCUMENT) if name in tables]
        names = {name: map(str, self.dataset.names(name)) for name in order}
        path = self.folder / TEXT_VECTORS
        ordered = {name: tables[name] for name in order}
        write_beside(path, lambda beside: write_word2vec(beside, ordered, names))
        return path

    def evaluate(self) -> dict[str, Any]:
        """Trains apart on 95 % of the pairs and ranks the others; writes ``pretrain.json``.

        The vectors of the run are neither read nor written: those that a model starts from have
        seen all pairs of the training documents.
        """
        held = hold_out(self.dataset[0], self._num_rows(), HELD_OUT, self.config.seed)
        trainer = self._make_trainer(data=held.data)
        self._fit(trainer, None)
        quality = {
            "held_out": HELD_OUT,
            "samples": trainer.num_seen,
            "loss": trainer.loss,
            "margin": self.config.pretrain.margin,
            "types": evaluate_vectors(trainer.tables, held, self.config.pretrain.margin),
            "neighbours": self._neighbours(trainer.tables),
        }
        write_json(self.folder / QUALITY, quality)
        return quality

    def _neighbours(self, tables: Mapping[str, Tensor]) -> dict[str, dict[str, list[str]]]:
        """Nearest nodes of the same type, for a few nodes of middling frequency."""
        found: dict[str, dict[str, list[str]]] = {}
        for node_type in (name for name in (WORD, LABEL, *self.space.types) if name in tables):
            names, table = self.dataset.names(node_type), tables[node_type]
            rows = torch.tensor([len(table) // share for share in (50, 20, 10)]).unique()
            near = find_neighbours(table, rows.to(table.device)).tolist()
            found[node_type] = {
                str(names[int(row)]): [str(names[other]) for other in others]
                for row, others in zip(rows.tolist(), near, strict=True)
            }
        return found

    def initialise(self, model: MatchModel) -> None:
        """Initializes a model's embedding, and its prediction layer if asked, from vectors.

        Raises:
            ConfigError: The settings do not go together.
        """
        settings = self.config.model
        vectors: dict[str, Tensor] = {}
        if settings.init in ("spherical", "spherical_text"):
            vectors = self.train()
        elif settings.init == "word_vectors":
            vectors = {WORD: self._read_word_vectors()}
        model.embedding.load_vectors(vectors)
        if settings.head_from_labels:
            self._initialise_head(model, vectors)

    def _read_word_vectors(self) -> Tensor:
        settings = self.config.model
        if settings.word_vectors is None:
            raise ConfigError(
                "model.init=word_vectors needs a file, found none; set model.word_vectors to a "
                "GloVe or word2vec text file."
            )
        kept = self.space.num_kept[self.space.field_index(WORD)]
        words = self.dataset.names(WORD).head(kept).tolist()
        path = Path(settings.word_vectors)
        table, found = read_word_vectors(path, words, settings.channels, self.config.seed)
        self.reporter.line(
            f"word vectors: {found:,} of {kept:,} words ({found / max(kept, 1):.1%}) are in "
            f"{path.name}; the others start at random"
        )
        return table

    def _initialise_head(self, model: MatchModel, vectors: Mapping[str, Tensor]) -> None:
        if LABEL not in vectors or not isinstance(model.head, LinearHead):
            raise ConfigError(
                f"model.head_from_labels needs pre-trained label vectors and the linear head, "
                f"found model.init={self.config.model.init} with tables {sorted(vectors)} and "
                f"model.head={self.config.model.head}; set it to false."
            )
        weight = model.head.weight
        slot = getattr(model.encoder, "channels", weight.size(1))
        with torch.no_grad():
            weight.copy_(spread_label_vectors(weight, vectors[LABEL], slot))


def _link(source: Path, target: Path) -> None:
    """Hard link to a file, or a copy where the disk has no links."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
