"""Models by name: any encoder with any head, and baselines, behind one protocol."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from lightning_fabric import Fabric
from torch import nn

from match_graph.baselines import BASELINES, Baseline
from match_graph.config import SHARING, Config, ModelConfig, StrictModel, parse_settings
from match_graph.errors import CheckpointError, ConfigError, suggest
from match_graph.graph import (
    Hierarchy,
    NeighborhoodConfig,
    NodeFeatures,
    TokenSpace,
)
from match_graph.io.files import has_folder, write_folder
from match_graph.io.run_folder import ENCODER_FILES, FITTED
from match_graph.io.weights import advise_training, load_weights
from match_graph.nn import ENCODERS, Encoder, MatchModel
from match_graph.nn.contract import check_encoder_class
from match_graph.nn.label_tree import level_sizes, make_levels
from match_graph.nn.model import choose_head, find_head, head_settings
from match_graph.nn.tables import TokenTable
from match_graph.own_code import find_class, hash_code, is_own_code
from match_graph.training.device import keep_apart
from match_graph.training.loop import FitInputs, train_model
from match_graph.training.processes import lead
from match_graph.typing import DOCUMENT, LABEL, WORD


class Model(ABC):
    """Model that ``model.encoder`` names, with its settings.

    What `build` and `load` give is a module: batches of ego-networks -> logits [B, L].

    Args:
        cls: Class of the encoder or baseline.
        config: Configuration of a run.
    """

    #: Whether it is trained by gradients, in epochs, with a head; a baseline is fitted at once.
    is_neural: ClassVar[bool]
    #: Settings that it uses, by section, of sections that it does not use in full.
    used: ClassVar[Mapping[str, set[str]]] = {}

    def __init__(self, cls: type[Any], config: Config) -> None:
        self.cls, self.config = cls, config

    @property
    def needs(self) -> frozenset[str]:
        """Parts of a batch that it reads, out of "tokens", "graph" and "text"."""
        return frozenset(self.cls.needs)

    @cached_property
    def settings(self) -> StrictModel:
        """Settings of the class, defaults filled in.

        Raises:
            ConfigError: One is unknown or impossible.
        """
        summary = "model.encoder_config must be valid"
        given = self.config.model.encoder_config
        settings: StrictModel = parse_settings(self.cls.Config, given, summary)
        return settings

    @property
    def reads_metadata(self) -> bool:
        """Whether it reads metadata: some encoders on request."""
        return bool(self.needs & {"tokens", "graph"}) and getattr(self.settings, "metadata", True)

    def reads_features(self, node_type: str) -> bool:
        """Whether it reads features of the nodes of a type."""
        return node_type == DOCUMENT and bool(self.needs)

    @property
    def is_own(self) -> bool:
        """Whether the encoder or baseline is custom (``module:Class``), and not registered."""
        return is_own_code(self.config.model.encoder)

    @property
    def is_pretrained(self) -> bool:
        """Whether it starts from pre-trained unit vectors."""
        return self.is_neural and self.config.model.init.startswith("spherical")

    def hash_files(self) -> dict[str, str]:
        """SHA-256 of the code of a user's own classes, and of the encoder's files, by setting."""
        return {"model.encoder": hash_code(self.cls, nn.Module)} if self.is_own else {}

    @property
    def may_leave_unused(self) -> bool:
        """True if a step may leave parameters without gradient: graph, text, custom encoders."""
        return self.is_own or bool(self.needs & {"graph", "text"})

    def find_preset(self, name: str) -> Mapping[str, Any]:
        """Dotted keys with values of a preset.

        Raises:
            ConfigError: There is none of that name.
        """
        offered: Mapping[str, Mapping[str, Any]] = getattr(self.cls, "presets", {})
        if name not in offered:
            choices = f"one of {sorted(offered)}" if offered else "left out, as it has none"
            clause = suggest(name, offered, "choose one, or leave --preset out")
            raise ConfigError(
                f"The preset of the encoder '{self.config.model.encoder}' must be {choices}, found "
                f"'{name}'; {clause}."
            )
        return offered[name]

    def complete(self) -> ModelConfig:
        """Model settings with the defaults of encoder and head filled in.

        A head that is not named is the one that fits the encoder.

        Raises:
            ConfigError: A name or setting is unknown.
        """
        settings = self.settings.model_dump(mode="json")
        return self.config.model.model_copy(update={"encoder_config": settings})

    def check_used(self, base: Config | None = None) -> None:
        """Refuses settings that the model does not use, in a configuration as given by the caller.

        Args:
            base: What the caller started from, such as the configuration of a run, which holds all
                settings; None for the defaults.

        Raises:
            ConfigError: Such a setting is another than there.
        """
        base = Config() if base is None else base
        unused = [
            f"{section}.{name}"
            for section, used in self.used.items()
            for name, value in getattr(self.config, section)
            if name not in used and value != getattr(getattr(base, section), name)
        ]
        if unused:
            raise ConfigError(
                f"The baseline '{self.config.model.encoder}' must be given settings that it uses, "
                f"found {', '.join(unused)}; leave these out (its own stand in "
                f"model.encoder_config)."
            )

    @property
    def neighborhood(self) -> NeighborhoodConfig | None:
        """Neighbourhoods of several hops to be sampled for it; None without any."""
        return None

    def level_sizes(self, num_labels: int) -> tuple[int, ...]:
        """Nodes on each level of the label tree, the labels last; one level for a flat model."""
        return (num_labels,)

    @abstractmethod
    def build(
        self,
        space: TokenSpace,
        sizes: tuple[int, ...],
        hierarchy: Hierarchy | None,
        features: NodeFeatures | None = None,
    ) -> nn.Module:
        """The model before training or fitting.

        Args:
            space: Token space of the run.
            sizes: Nodes on each level, from `level_sizes`.
            hierarchy: Label hierarchy, for the head; None for a level above the labels.
            features: Features of documents and other nodes.

        Raises:
            ConfigError: Settings are wrong or do not fit together, or a package is missing.
        """

    @abstractmethod
    def fit(self, module: nn.Module, inputs: FitInputs) -> None:
        """Trains the module of `build` and writes it into a folder, unless that was done before.

        Raises:
            CheckpointError: A checkpoint is broken, or of another training.
            ConfigError: The loss did not stay finite.
        """

    @abstractmethod
    def load(
        self,
        folder: Path,
        space: TokenSpace,
        num_labels: int,
        hierarchy: Hierarchy | None,
        features: NodeFeatures | None = None,
    ) -> nn.Module:
        """The trained or fitted model of a run folder; arguments as for `build`.

        Raises:
            CheckpointError: There is none, or it cannot be read.
        """

    def set_up(self, module: nn.Module, fabric: Fabric) -> nn.Module:
        """The module on its device."""
        return module


class NeuralModel(Model):
    """Any encoder with any head."""

    is_neural = True

    def __init__(self, cls: type[Encoder], config: Config) -> None:
        super().__init__(cls, config)
        check_encoder_class(cls, config.model.encoder)

    def complete(self) -> ModelConfig:
        complete = super().complete()
        head_cls = find_head(complete)
        settings = head_settings(head_cls, complete).model_dump(mode="json")
        head = complete.head or choose_head(self.cls)
        return complete.model_copy(update={"head": head, "head_config": settings})

    @property
    def has_own_head(self) -> bool:
        """Whether the head is custom (``module:Class``), and not registered."""
        return is_own_code(self.config.model.head)

    def hash_files(self) -> dict[str, str]:
        files = self.cls.hash_files(self.settings)
        found = {f"model.encoder_config.{name}": digest for name, digest in files.items()}
        if self.has_own_head:
            found["model.head"] = hash_code(find_head(self.config.model), nn.Module)
        return super().hash_files() | found

    def reads_features(self, node_type: str) -> bool:
        if node_type == LABEL:  # a custom head may read them without saying so
            return self.has_own_head or find_head(self.config.model).needs_label_graph
        if node_type == WORD:
            return "text" not in self.needs
        return node_type == DOCUMENT or self.reads_metadata

    @property
    def neighborhood(self) -> NeighborhoodConfig | None:
        found: NeighborhoodConfig | None = self.cls.neighborhood(self.settings)
        return found

    def level_sizes(self, num_labels: int) -> tuple[int, ...]:
        return level_sizes(num_labels, self.config.model)

    def build(
        self,
        space: TokenSpace,
        sizes: tuple[int, ...],
        hierarchy: Hierarchy | None,
        features: NodeFeatures | None = None,
    ) -> MatchModel:
        torch.default_generator.manual_seed(self.config.seed)
        sharded = self.config.train.shard_embeddings
        return make_levels(space, sizes, self.config.model, hierarchy, features, sharded)

    def fit(self, module: nn.Module, inputs: FitInputs) -> None:
        assert isinstance(module, MatchModel)
        train_model(module, inputs, self.config.train, self.config.seed)

    def load(
        self,
        folder: Path,
        space: TokenSpace,
        num_labels: int,
        hierarchy: Hierarchy | None,
        features: NodeFeatures | None = None,
    ) -> nn.Module:
        sizes = self.level_sizes(num_labels)
        with torch.random.fork_rng(devices=[]):  # initializing must not change the caller's state
            model = self.with_files(folder).build(space, sizes, hierarchy, features)
        load_weights(model, folder, self.config.dataset)
        return model

    def set_up(self, module: nn.Module, fabric: Fabric) -> nn.Module:
        assert isinstance(module, MatchModel)
        keep_apart(module, fabric.device)
        return fabric.setup_module(module)

    @staticmethod
    def write_files(encoder: Encoder, folder: Path) -> None:
        """Writes an encoder's files besides its weights, once; no folder if it has none."""
        if not has_folder(folder / ENCODER_FILES):
            write_folder(folder / ENCODER_FILES, encoder.save_files)

    def with_files(self, folder: Path) -> "NeuralModel":
        """The model, built from the files that `write_files` wrote into a run folder.

        Raises:
            CheckpointError: A file is missing or damaged.
        """
        kept = folder / ENCODER_FILES
        if not has_folder(kept):
            return self
        settings = {**self.config.model.encoder_config, **self.cls.kept_settings(kept)}
        return NeuralModel(self.cls, self.config.change("model", encoder_config=settings))


class BaselineModel(Model):
    """Non-neural baseline."""

    is_neural = False
    used: ClassVar[Mapping[str, set[str]]] = {
        "model": {"encoder", "encoder_config", "coherent"},
        "train": {"calibrate", "accelerator", "precision", "deterministic", *SHARING},
        "pretrain": set(),
    }

    def build(
        self,
        space: TokenSpace,
        sizes: tuple[int, ...],
        hierarchy: Hierarchy | None,
        features: NodeFeatures | None = None,
    ) -> Baseline:
        width = 0 if features is None else features.width
        baseline: Baseline = self.cls(space, sizes[-1], self.settings, self.config.seed, width)
        return baseline

    def fit(self, module: nn.Module, inputs: FitInputs) -> None:
        assert isinstance(module, Baseline)

        folder, reporter = inputs.folder, inputs.reporter

        def fit_once() -> None:
            if has_folder(folder / FITTED):
                return
            start = time.monotonic()
            with reporter.track("fit", module.num_labels, "labels") as advance:
                module.fit(inputs.train_loader, lambda done: advance(done, ""))
            write_folder(folder / FITTED, module.save)
            seconds = time.monotonic() - start
            weight = module.metadata_weight
            told = "" if weight is None else f", metadata weigh {weight:g} beside words"
            reporter.line(f"train: {self.config.model.encoder} fitted in {seconds:.1f} s{told}")

        lead(inputs.fabric, fit_once)

    def load(
        self,
        folder: Path,
        space: TokenSpace,
        num_labels: int,
        hierarchy: Hierarchy | None,
        features: NodeFeatures | None = None,
    ) -> nn.Module:
        baseline = self.build(space, (num_labels,), hierarchy, features)
        if not has_folder(folder / FITTED):
            raise CheckpointError(
                f"A trained run of a baseline holds a folder '{FITTED}', but '{folder}' has none; "
                f"train it with `{advise_training(self.config.dataset, folder)}`."
            )
        baseline.load(folder / FITTED)
        return baseline


def find_model(config: Config) -> Model:
    """The model that a configuration names: a registered or custom encoder or baseline.

    Raises:
        ConfigError: There is none, or it does not keep the contract of encoders.
    """
    cls = find_model_class(config.model.encoder)
    return NeuralModel(cls, config) if issubclass(cls, Encoder) else BaselineModel(cls, config)


def find_model_class(name: str) -> type[Any]:
    """Class of an encoder or baseline; arguments and errors as `find_class`."""
    registered: dict[str, type[Any]] = {**ENCODERS, **BASELINES}
    return find_class(name, registered, (Encoder, Baseline), "encoder")


def count_parameters(module: nn.Module) -> int:
    """Number of parameters of a module, shards of other processes included."""
    elsewhere = sum(
        (table.num_tokens - len(table.weight)) * table.weight.size(1)
        for table in module.modules()
        if isinstance(table, TokenTable)
    )
    return elsewhere + sum(parameter.numel() for parameter in module.parameters())
