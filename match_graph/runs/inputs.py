"""Inputs of a run: data set, batches, model, processes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from match_graph.config import Config
from match_graph.datasets import CorpusDataset
from match_graph.datasets.built import hash_source
from match_graph.errors import CheckpointError, CorpusError
from match_graph.graph import (
    EgoGraphs,
    EgoLoader,
    EgoSampler,
    Hierarchy,
    LengthBucketSampler,
    NodeFeatures,
    Targets,
    TokenSpace,
)
from match_graph.io.files import has_file
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import RECORD
from match_graph.io.source import hash_file
from match_graph.nn import MatchModel
from match_graph.own_code import CODE, is_own_code
from match_graph.runs.folder import describe_work
from match_graph.runs.readers import read_record
from match_graph.runs.record import RunRecord
from match_graph.training.models import Model, find_model
from match_graph.typing import DOCUMENT, MASKS, Split

#: Documents per process and batch in evaluation.
_EVAL_BATCH = 256


def hash_inputs(config: Config) -> dict[str, str]:
    """SHA-256 of the files that a model is made from, by the setting that names them.

    They are the code of a user's own encoder and head, a language model's checkpoint in a folder,
    and a file of word vectors. Missing files are left out: a trained run does not need them.
    """
    found = find_model(config).hash_files()
    path = config.model.word_vectors
    if config.model.init == "word_vectors" and path is not None and Path(path).is_file():
        state = Path(path).stat()
        found["model.word_vectors"] = _hash_once(path, state.st_mtime_ns, state.st_size)
    return found


@cache
def _hash_once(path: str, modified: int, size: int) -> str:
    """SHA-256 of a file that many cells of a benchmark may name, once for each of its states."""
    return hash_file(path)


def find_changed_inputs(record: Mapping[str, Any], here: Mapping[str, str]) -> list[str]:
    """Settings whose files are other than when a run was made, by its record and `hash_inputs`."""
    there = record.get("input_checksums", {})
    return sorted(name for name in there.keys() & here.keys() if there[name] != here[name])


def check_inputs(folder: Path, record: Mapping[str, Any], here: Mapping[str, str]) -> None:
    """Checks that the files of some settings are what a run was made with.

    Args:
        folder: Run folder, for the message.
        record: Its record.
        here: Checksums of the files as they are now, as of `hash_inputs`.

    Raises:
        CheckpointError: One of them has changed.
    """
    if changed := find_changed_inputs(record, here):
        raise CheckpointError(
            f"The run in '{folder}' was made with another content of {changed} than is there now; "
            f"restore it, or make the run again (overwrite=True, --overwrite)."
        )


def check_code_unchanged(folder: Path, config: Config) -> None:
    """Checks that a user's own encoder and head are what a run was made with.

    For predictions, which read no other file beside the run; a shared folder has no record of it.

    Args:
        folder: Run folder.
        config: Its settings, whose code the caller has named, see `check_own_code`.

    Raises:
        CheckpointError: Their code has changed since.
    """
    own = [f"model.{kind}" for kind in CODE if is_own_code(getattr(config.model, kind))]
    if own and has_file(folder / RECORD):
        here = find_model(config).hash_files().items()
        check_inputs(folder, read_record(folder), {name: one for name, one in here if name in own})


@dataclass
class RunInputs:
    """Run folder with its data set, and what follows from its configuration.

    Args:
        folder: Run folder; kept absolute, as a script may change its working directory.
        config: Resolved configuration.
        dataset: Built data set.
        reporter: Progress reporter.
        fabric: Lightning Fabric: devices and processes.
    """

    folder: Path
    config: Config
    dataset: CorpusDataset
    reporter: Reporter
    fabric: Fabric

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()

    @property
    def shown(self) -> Path:
        """Run folder for printing, relative if it is below the working directory."""
        here = Path.cwd()
        return self.folder.relative_to(here) if here in self.folder.parents else self.folder

    @property
    def leads(self) -> bool:
        """Whether this is the first process, which writes and prints."""
        return bool(self.fabric.is_global_zero)

    @cached_property
    def origin(self) -> str:
        """SHA-256 of the data and of all settings that determine the result."""
        content = {
            "data": self.dataset.checksum,
            "features": self.dataset.feature_digests,
            "settings": describe_work(self.config),
        }
        return hash_source(content)

    @cached_property
    def space(self) -> TokenSpace:
        """Token space of the run."""
        return self.dataset.token_space(self.config.data.min_count, self.config.data.min_word_count)

    @cached_property
    def features(self) -> NodeFeatures:
        """Features that the model reads."""
        return NodeFeatures.from_data(self.dataset.graph)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Nodes on each level of the label tree, the labels last; one level for a flat model."""
        return self.model.level_sizes(self.dataset.num_labels)

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """Label hierarchy, with the edge weights of training."""
        hierarchy = self.dataset.hierarchy
        if self.config.train.edge_weight == "none":
            return hierarchy
        train_documents = self.dataset.documents(MASKS["train"])
        return hierarchy.weighted(
            hierarchy.parent_given_child(self.dataset.targets, train_documents)
        )

    def loader(
        self,
        split: Split,
        training: bool = False,
        shared: bool = True,
        sample: int | None = None,
        targets: Targets | None = None,
        needs: frozenset[str] | None = None,
    ) -> EgoLoader:
        """Batches of a split: shuffled and sampled anew every epoch for training, else in full.

        Several processes have a part of each, unless they are not ``shared``. A ``sample`` is of
        so many documents, always the same ones. The gold labels are the data set's, unless other
        ``targets`` are given. Batches hold what the model needs, or what ``needs`` says.
        """
        graph, config = self.dataset.graph, self.config
        needs = self.model.needs if needs is None else needs
        graphs = self.graphs if "graph" in needs else None
        documents = self.dataset.documents(MASKS[split])
        if sample is not None and sample < len(documents):
            generator = torch.Generator().manual_seed(config.seed)
            chosen = torch.randperm(len(documents), generator=generator)[:sample]
            documents = documents[chosen.sort().values]
        sampler = EgoSampler(
            graph, config.data.max_metadata, config.data.max_words, training, config.seed
        )
        rank, number = (self.fabric.global_rank, self.fabric.world_size) if shared else (0, 1)
        size = config.train.batch_size if training else _EVAL_BATCH * number
        assert size is not None
        order = LengthBucketSampler(
            sampler.lengths(documents), size, training, config.seed,
            rank=rank, num_processes=number,
        )  # fmt: skip
        return EgoLoader(
            graph,
            sampler,
            self.space,
            documents,
            targets or self.dataset.targets,
            with_graph="graph" in needs,
            graphs=None if graphs is None else graphs.with_random(training),
            texts=self.texts if "text" in needs else None,
            batch_sampler=order,
        )

    @property
    def model(self) -> Model:
        """Encoder with its head, or baseline, that ``model.encoder`` names, with its settings."""
        return find_model(self.config)

    @cached_property
    def graphs(self) -> EgoGraphs | None:
        """Sampler of the encoder's neighbourhoods; None if it asks for none.

        They go through training documents only, or with ``data.transductive`` through all, and
        with ``data.temporal`` through none that is later than the document. This holds in
        evaluation too, so that a document is encoded as a new one would be.

        Raises:
            ConfigError: The encoder's settings are wrong, or do not fit the graph.
        """
        return self.open_graphs(self.space)

    def open_graphs(self, space: TokenSpace) -> EgoGraphs | None:
        """`graphs` with token ids of another space; raises as it."""
        neighborhood, graph, config = self.model.neighborhood, self.dataset.graph, self.config
        if neighborhood is None:
            return None
        train = graph.node_tensor(DOCUMENT, MASKS["train"])
        reachable = None if config.data.transductive else train
        return EgoGraphs(graph, neighborhood, space, reachable, config.seed, config.data.temporal)

    @cached_property
    def texts(self) -> list[str]:
        """Raw texts by document.

        Raises:
            CorpusError: The data set keeps none.
        """
        table = self.dataset.table(DOCUMENT)
        if "text" not in table:
            raise CorpusError(
                f"The encoder '{self.config.model.encoder}' needs raw texts, but "
                f"'{self.config.dataset}' keeps none; choose another encoder or data set."
            )
        return [str(text) for text in table["text"]]

    def make_model(self) -> MatchModel:
        """Model of the configuration, with parameters initialized by the run's seed."""
        model = self.model.build(self.space, self.sizes, self.dataset.hierarchy, self.features)
        assert isinstance(model, MatchModel)
        return model

    def load_model(self) -> nn.Module:
        """Loads the trained model or the fitted baseline; `finish_model` blends and calibrates it.

        Raises:
            CheckpointError: There is none, or it is of another configuration.
        """
        return self.model.load(
            self.folder, self.space, self.dataset.num_labels, self.dataset.hierarchy, self.features
        )

    @cached_property
    def record(self) -> RunRecord:
        """Provenance of the run; written by the first process."""
        content = {
            "dataset": self.dataset.name,
            "data_checksum": self.dataset.checksum,
            "num_train_documents": len(self.dataset.documents(MASKS["train"])),
            "feature_checksums": self.dataset.feature_digests,
            "input_checksums": hash_inputs(self.config),
            "seed": self.config.seed,
            "processes": self.fabric.world_size,
        }
        return RunRecord(self.folder, self.config.train, content, self.leads)
