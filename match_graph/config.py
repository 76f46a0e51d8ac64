"""Settings of a run: strict, all faults of a file at once, each with its path."""

from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from match_graph.errors import ConfigError, describe_faults, list_faults
from match_graph.io.names import read_path
from match_graph.io.yaml import parse_given, put, read_mapping
from match_graph.own_code import check_code, name_code
from match_graph.typing import Tokenizer

FORMAT_VERSION = 1
#: Arguments of data set classes that say where and when to build, not what.
_NO_OPTIONS = frozenset(
    {"name", "folder", "root", "transform", "pre_transform", "force_reload", "track"}
)
#: Maximum layer width; the memory of the whole model is estimated in ``runs.checks``.
MAX_CHANNELS = 2**16
#: Settings of ``train`` on how processes share it, and its logger: a resumed run may have others.
SHARING = ("devices", "num_nodes", "strategy", "shard_embeddings", "logger")

#: Bounds that several settings share.
Width = Annotated[int, Field(ge=2, le=MAX_CHANNELS)]
Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Rate = Annotated[float, Field(gt=0, le=1000)]
Weight = Annotated[float, Field(ge=0, le=10**9)]
#: Norm of a document's metadata features in linear models, relative to that of its words.
MetadataWeight = Annotated[float, Field(gt=0, le=10**6)] | Literal["auto"] | None


class StrictModel(BaseModel):
    """Configuration section; unknown keys, wrong types and non-finite numbers are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


#: Keys that name the source of features, each with the keys that may accompany it.
_SOURCES = {
    "path": ("key", "ids"),
    "model": ("column", "max_pieces", "neighbors", "earlier"),
    "latent": ("column", "neighbors", "earlier"),
}


class FeatureSource(StrictModel):
    """Features of a node type: a file, whose path alone suffices, or made of texts."""

    path: str | None = Field(None, description="vectors: a file .npy, .safetensors or .parquet")
    key: str | None = Field(None, description="tensor or column of the file; none: the only one")
    ids: str | None = Field(None, description="text file of each row's id; none: rows are nodes")
    model: str | None = Field(None, description="sentence model: a folder, or a name on the hub")
    latent: int | None = Field(
        None, ge=1, le=4096, description="number of latent semantic components of the texts"
    )
    neighbors: int | None = Field(
        None, ge=1, le=1000, description="documents: predicted neighbours (PINA), whose mean "
        "vector stands behind a document's own",
    )  # fmt: skip
    earlier: bool | None = Field(
        None,
        description="with neighbors: no document that is later; needs times. What "
        "predicts them, and vectors of labels, are of all training documents",
    )
    column: list[str] | None = Field(
        None, description="text, name, definition, id, or several joined; none: text, else name"
    )
    max_pieces: int | None = Field(
        None, ge=2, le=2**16, description="word pieces read of a text; none: the model's maximum"
    )

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, given: Any) -> Any:
        given = {"path": given} if isinstance(given, str) else given
        column = given.get("column") if isinstance(given, dict) else None
        return {**given, "column": [column]} if isinstance(column, str) else given

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        given = {name for name in type(self).model_fields if getattr(self, name)}
        fits = any({one} <= given <= {one, *with_it} for one, with_it in _SOURCES.items())
        if not fits or (self.earlier and not self.neighbors):
            raise ValueError(
                "Input should be path (with key, ids), model (column, max_pieces, neighbors) or "
                "latent (column, neighbors); earlier belongs to neighbors"
            )
        return self


class DataConfig(StrictModel):
    """Data set and token settings."""

    fields: list[str] | None = Field(None, description="metadata fields; none: the data set's")
    drop_fields: list[str] = Field([], description="metadata fields that the run does not use")
    tokenizer: Tokenizer | None = Field(
        None, description="how texts become words; none: the data set's"
    )
    hierarchy: Literal["use", "ignore"] | None = Field(
        None, description="ignore: labels have no parents; none: the data set's"
    )
    min_count: Count = Field(2, description="training documents below which metadata are [UNK]")
    min_word_count: Count = Field(2, description="training occurrences below which words are [UNK]")
    max_metadata: int = Field(64, ge=0, le=100_000, description="metadata tokens per document")
    max_words: int = Field(500, ge=1, le=10**6, description="words per document")
    transductive: bool = Field(False, description="graph encoders may reach documents of any split")
    temporal: bool = Field(
        False, description="graph encoders reach no document later than the seed"
    )
    faults: Literal["refuse", "skip"] | None = Field(
        None, description="skip: build without faulty documents, and list them; none: refuse"
    )
    features: dict[str, FeatureSource] = Field(
        {}, description="features by node type: a file of vectors, or {model: ..., column: ...}"
    )
    options: dict[str, Any] = Field({}, description="arguments of the data set's class")

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Refuses the class's Python-only arguments; the class checks the others."""
        if "faults" in options:
            raise ValueError("faults is no option of a class; set data.faults")
        taken = sorted(options.keys() & _NO_OPTIONS)
        if taken:
            raise ValueError(f"{', '.join(taken)} cannot be set here, but only in Python")
        return options

    def dataset_options(self) -> dict[str, Any]:
        """Arguments for the data set's class; None where it shall use its own default."""
        named = {"fields": self.fields, "tokenizer": self.tokenizer, "hierarchy": self.hierarchy}
        return {**named, **self.options, "faults": self.faults}


class PretrainConfig(StrictModel):
    """Spherical pre-training; section 3.1 of the paper."""

    samples: int | None = Field(
        None, ge=0, le=10**12, description="positive pairs in all; none: by corpus size"
    )
    channels: Width = Field(100, description="vector length; the paper's delta")
    negatives: int = Field(
        32, ge=1, le=2**16, description="negatives per chunk if shared, per positive otherwise"
    )
    shared_negatives: bool = Field(True, description="share one set of negatives per chunk")
    chunk_size: int = Field(1024, ge=1, le=2**20, description="positives per step and process")
    window: int = Field(5, ge=0, le=10_000, description="words on each side that count as context")
    margin: float = Field(0.3, gt=0, le=100, description="margin of the loss; the paper's gamma")
    learning_rate: Rate = Field(0.05, description="initial learning rate; falls linearly to 0")
    filter_positives: bool = Field(
        False, description="exclude negatives that are positives of the anchor, but word contexts"
    )
    label_parent: bool = Field(
        False, description="also train on (label, parent) pairs; not in the paper"
    )
    cited_documents: bool = Field(False, description="also train on (document, cited one) pairs")


class ModelConfig(StrictModel):
    """Encoder and head by name, with their own settings.

    What ``init`` means: "spherical" starts words and metadata from unit vectors pre-trained with
    all four proximities; "spherical_text" pre-trains on words and labels only, so that metadata
    start at random and reach no word (the fair start of an encoder of words alone, and of ablations
    without metadata); "word_vectors" reads the words' from a file, as the paper's baselines and its
    ablation without pre-training do from GloVe; "random" draws all rows.
    """

    encoder: str = Field(
        "match", description="a registered encoder or baseline, module:Class, or file.py:Class"
    )
    encoder_config: dict[str, Any] = Field({}, description="settings of the encoder, by name")
    head: str | None = Field(
        None, description="a registered head; none: the one that fits the encoder"
    )
    head_config: dict[str, Any] = Field({}, description="settings of the head, by name")
    coherent: bool | None = Field(
        None,
        description="hierarchy-coherent output: no label scores below its descendants; none: where "
        "training documents have the parents of their labels",
    )
    channels: Width = Field(100, description="size of token embeddings; the paper's delta")
    init: Literal["spherical", "spherical_text", "word_vectors", "random"] = Field(
        "spherical", description="initialization of token embeddings"
    )
    word_vectors: str | None = Field(
        None, description="GloVe or word2vec text file for the initialization"
    )
    blend: bool | Literal["tree"] | None = Field(
        None,
        description="blend the network with a linear classifier over the same tokens; tree: with "
        "one of clustered labels; none: by size",
    )
    blend_metadata_weight: MetadataWeight = Field(
        "auto", description="metadata_weight of the linear classifier of a blend"
    )
    head_from_labels: bool = Field(
        False, description="initialize the prediction layer from the labels' vectors"
    )
    label_prior: bool = Field(
        True, description="initialize biases from the labels' log-odds in training"
    )
    scale_embedding: bool = Field(
        True, description="multiply token vectors by the square root of channels"
    )
    embedding_dropout: Share = Field(0.3, description="dropout on embedded tokens")
    token_dropout: Share = Field(0.1, description="share of tokens shown as [UNK]")
    feature_dropout: Share = Field(0.2, description="dropout on features of nodes, data.features")
    feature_hidden: Share = Field(
        0.5, description="share of training documents whose features beside the state are hidden"
    )
    feature_scale: float = Field(
        0.3, gt=0, le=100, description="factor of features as input; 1: several times a token"
    )


class TrainConfig(StrictModel):
    """Training settings: schedule, optimizer, regularization, precision, devices."""

    epochs: int | None = Field(None, ge=1, le=10**6, description="epochs; none: by corpus size")
    batch_size: int | None = Field(
        None,
        ge=1,
        le=2**20,
        description="documents per step, over all processes; none: by corpus size",
    )
    optimizer: Literal["adam", "adamw"] = Field(
        "adamw", description="optimizer; adamw: decoupled weight decay"
    )
    learning_rate: Rate = Field(1e-3, description="peak learning rate, after warmup")
    weight_decay: float = Field(
        0.01, ge=0, le=1000, description="weight decay of weight matrices, by adamw"
    )
    warmup: float = Field(0.05, ge=0, le=1, description="warmup, as a share of all steps")
    schedule: Literal["linear", "constant"] = Field(
        "linear", description="learning rate after warmup: falls to 0 at the end, or stays"
    )
    clip_norm: float = Field(5.0, gt=0, le=10**9, description="gradient clipping: largest norm")
    average: float = Field(
        0.25,
        ge=0,
        le=0.5,
        description="weight averaging window, as a share of the steps so far; 0: none, 0.5: all",
    )
    average_after: int = Field(0, ge=0, le=10**6, description="epochs before the average starts")
    calibrate: bool = Field(
        True, description="Platt scaling of logits, fitted on at least 1,000 validation documents"
    )
    patience: int = Field(
        3, ge=1, le=10**6, description="early stopping: epochs without a better validation NDCG@5"
    )
    valid_documents: int | None = Field(
        None,
        ge=1,
        le=10**9,
        description="validation documents per epoch, always the same; none: by corpus size",
    )
    lambda_parameter: Weight = Field(
        1e-5, description="weight of hypernymy in parameter space; the paper's lambda_1"
    )
    lambda_output: Weight = Field(
        1.0, description="weight of hypernymy in output space; the paper's lambda_2"
    )
    edge_weight: Literal["none", "parent_given_child"] = Field(
        "parent_given_child",
        description="label edge weights in both terms: 1, or P(parent | child) in training",
    )
    precision: Literal["auto", "32-true", "bf16-mixed"] = Field(
        "auto",
        description="floating-point precision; auto: bfloat16 autocast on a CPU that has it, and "
        "on a GPU that has it for language models",
    )
    accelerator: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="accelerator; auto: CUDA if there is a device"
    )
    devices: int = Field(1, ge=1, le=4096, description="devices per machine, a process each")
    num_nodes: int = Field(1, ge=1, le=2**16, description="number of machines")
    strategy: Literal["auto", "ddp", "fsdp"] = Field(
        "auto",
        description="strategy for several processes; ddp: a model each, fsdp: a sharded model",
    )
    shard_embeddings: bool = Field(
        True,
        description="whether several processes have rows of their own of the table of tokens, or "
        "all of it each, as encoders that read its weight themselves need",
    )
    deterministic: bool = Field(False, description="bit-identical results on CUDA too, but slower")
    logger: Literal["tensorboard", "csv", "wandb", "mlflow", "none"] = Field(
        "tensorboard", description="where history and measures are logged besides their files"
    )


class Config(StrictModel):
    """Everything that a run depends on besides the data."""

    format: int = Field(
        FORMAT_VERSION,
        ge=FORMAT_VERSION,
        le=FORMAT_VERSION,
        description="format version of this file",
    )
    dataset: str = Field("", description="data set: a name, a folder or a class of one's own")
    seed: int = Field(0, ge=0, lt=2**32, description="seed of all randomness")
    ablation: list[str] = Field(
        [], description="ablations: no-metadata, no-FIELD, no-hierarchy, no-pretrain"
    )
    data: DataConfig = Field(default_factory=DataConfig)
    pretrain: PretrainConfig = Field(default_factory=PretrainConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    train: TrainConfig = Field(default_factory=TrainConfig)

    @model_validator(mode="after")
    def _check_init(self) -> Self:
        """Refuses settings of the initialization that would fail later, or be ignored."""
        model, channels = self.model, self.pretrain.channels
        spherical = model.init in ("spherical", "spherical_text")
        faults = {
            f"model.init={model.init} starts the embedding from pre-trained vectors, which must be "
            f"as wide, found pretrain.channels={channels} and model.channels={model.channels}; set "
            f"both to one value.": spherical and channels != model.channels,
            "model.init=word_vectors needs a file, found none; set model.word_vectors to a GloVe "
            "or word2vec text file.": model.init == "word_vectors" and model.word_vectors is None,
            f"model.head_from_labels needs pre-trained label vectors, found model.init="
            f"{model.init}; set it to false, or model.init to spherical.": model.head_from_labels
            and not spherical,
        }
        if any(faults.values()):
            raise ValueError("\n".join(text for text, is_fault in faults.items() if is_fault))
        return self

    def change(self, section: Literal["data", "pretrain", "model", "train"], **values: Any) -> Self:
        """Copy with other settings of a section, which are not validated."""
        changed = getattr(self, section).model_copy(update=values)
        return self.model_copy(update={section: changed})


M = TypeVar("M", bound=StrictModel)


def load_config(path: str | Path | None = None, settings: list[str] | None = None) -> Config:
    """Loads the configuration from a file, overridden by ``key=value`` settings.

    Args:
        path: Path of a YAML file; None for the defaults.
        settings: Dotted keys with YAML values, such as ``train.epochs=3``.

    Raises:
        ConfigError: With every fault and its path; or the file names code (``module:Class``) that
            the settings do not name.
    """
    return parse_settings(Config, read_given(path, settings), "The configuration must be valid")


def read_given(path: str | Path | None, settings: list[str] | None) -> dict[str, Any]:
    """Keys and values of a file, overridden by settings; arguments and errors as `load_config`."""
    content = {} if path is None else read_settings(read_path(path, "A configuration"))
    given: dict[str, Any] = {}
    if isinstance(settings, dict):
        raise ConfigError(
            f"Settings must be a list of key=value, such as ['train.epochs=1'], found the mapping "
            f"{settings!r:.60}; write each of its settings as one text of the list."
        )
    for key, value in parse_given(settings):
        put(given, key, value)
        put(content, key, deepcopy(value))
    names, allowed = name_code(content).items(), [*name_code(given).values()]
    check_code(names, allowed, f"The configuration '{path}'", "--set model.{kind}=")
    return content


def read_settings(path: Path) -> dict[str, Any]:
    """Keys and values of a configuration file; only its format version is checked.

    Raises:
        ConfigError: It is not a YAML mapping, or of another format version.
    """
    example = "docs/how_to/own_data.md for an example"
    found = read_mapping(path, "A configuration", FORMAT_VERSION, example)
    return {key: value for key, value in found.items() if value is not None}  # all commented out


def parse_settings(cls: type[M], content: dict[str, Any], summary: str) -> M:
    """Validates settings against a pydantic model.

    Args:
        cls: Model class to validate against.
        content: Keys and values of the settings.
        summary: Requirement that was broken, for the message.

    Raises:
        ConfigError: With every fault and its path. A ValueError of a validator of the whole model
            is taken as one fault a line, each a sentence that names its settings.
    """
    try:
        return cls.model_validate(content)
    except ValidationError as error:
        raise ConfigError(list_faults(summary, describe_faults(cls, error))) from error
