"""Resolution of a run's configuration: preset, paths, ablations, sizes of the corpus.

============  ====================================================  ================================
ablation      what is left out                                      what the initialisation does
============  ====================================================  ================================
no-metadata   every metadata field: its tokens, nodes and edges     pre-trains on texts and labels
              (``data.drop_fields``)                                alone
no-FIELD      one field, likewise; with ``reference`` also the      pre-trains without the pairs of
              edges from documents to cited documents               the field
no-hierarchy  both hypernymy terms (``train.lambda_parameter``,     pre-trains as before, without
              ``train.lambda_output``) and coherent scores          (label, parent) pairs
              (``model.coherent``)
no-pretrain   pre-training (``model.init=random``)                  rows uniform on the unit sphere,
                                                                    the prediction layer at random,
                                                                    a language model's weights too
============  ====================================================  ================================

The number of pairs of pre-training stays: what a field leaves goes to the other kinds. The
hierarchy stays in the data, so that violations of it are measured also where nothing keeps them
low; so a head that passes messages over it is refused with ``no-hierarchy``. A field that is named
like another ablation ("metadata") is taken out by ``data.drop_fields``.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, NoReturn

from match_graph.baselines.tfidf_linear import count_passes
from match_graph.config import Config, FeatureSource, ModelConfig, read_given
from match_graph.datasets import CorpusDataset, locate_dataset, resolve_paths
from match_graph.errors import ConfigError, list_faults, suggest
from match_graph.graph import DropFields, NodeFeatures, metadata_fields
from match_graph.graph.build import CITATION_FIELD
from match_graph.graph.view import Graph, view_graph
from match_graph.io.source import is_folder, resolve_path
from match_graph.io.yaml import put
from match_graph.nn.model import find_head
from match_graph.own_code import CODE, locate_code, name_code
from match_graph.training.device import choose_precision
from match_graph.training.models import find_model
from match_graph.training.setting_faults import find_setting_faults
from match_graph.typing import CITES, CONTAINS, DOCUMENT, IS_A, MASKS

NO_METADATA, NO_HIERARCHY, NO_PRETRAIN = "no-metadata", "no-hierarchy", "no-pretrain"
#: P(parent | child) in training from which labels count as closed upwards.
_CLOSED = 0.99


def load_preset_config(
    path: str | Path | None = None, settings: list[str] | None = None, preset: str | None = None
) -> Config:
    """Configuration of a file, changed by settings, above a preset of the encoder.

    Args:
        path: Path of a YAML file; None for the defaults.
        settings: Dotted keys with YAML values, such as ``train.epochs=3``.
        preset: Preset, such as "paper"; None takes none.

    Raises:
        ConfigError: With every fault and its path, those of the encoder's and head's own settings
            among them; or the encoder has no such preset.
    """
    content = read_preset_settings(path, settings, preset)
    if faults := find_setting_faults(content):
        texts = [fault.text for fault in faults]
        raise ConfigError(list_faults("The configuration must be valid", texts))
    return Config.model_validate(content)


def read_preset_settings(
    path: str | Path | None = None, settings: list[str] | None = None, preset: str | None = None
) -> dict[str, Any]:
    """Keys and values of `load_preset_config`, not validated; arguments and errors as there."""
    content, below = read_given(path, settings), dict[str, Any]()
    if preset is not None:
        encoder = str(name_code(content).get("encoder", ModelConfig().encoder))
        model = find_model(Config().change("model", encoder=encoder))
        for key, value in model.find_preset(preset).items():
            put(below, key, deepcopy(value))
    return _merge(below, content)


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def locate_config(dataset_name: str, config: Config) -> Config:
    """Configuration with its data set, and with absolute paths."""
    options = resolve_paths(dataset_name, config.data.options)
    features = {name: _locate_source(source) for name, source in config.data.features.items()}
    config = config.change("data", options=options, features=features)
    code = {kind: getattr(config.model, kind) for kind in CODE}
    model = {kind: locate_code(name) for kind, name in code.items() if name is not None}
    if config.model.word_vectors is not None:
        model["word_vectors"] = str(resolve_path(config.model.word_vectors))
    return config.change("model", **model).model_copy(
        update={"dataset": locate_dataset(dataset_name)}
    )


def _locate_source(source: FeatureSource) -> FeatureSource:
    """Source with absolute paths; a model that is no folder is a name on the hub."""
    names = [name for name in ("path", "ids", "model") if getattr(source, name)]
    if source.model is not None and not is_folder(source.model):
        names.remove("model")
    return source.model_copy(update={n: str(resolve_path(getattr(source, n))) for n in names})


def settle_config(config: Config, dataset: CorpusDataset) -> Config:
    """Complete settings of a run on a data set, as its file will hold them.

    Args:
        config: Configuration; what depends on the corpus is filled in.
        dataset: Data set opened with it; loses the fields that the run drops.

    Raises:
        ConfigError: An ablation makes no sense here, or a name or setting is unknown.
    """
    dataset.transform = None
    config = resolve_ablations(config, dataset.graph)
    dataset.transform = DropFields(config.data.drop_fields)
    return resolve_config(config, dataset)


def check_drop_fields(config: Config, data: Graph) -> None:
    """Checks that dropped fields exist, and that no features are learned from them.

    Raises:
        ConfigError: One is not, or features learn from the citations that are left out.
    """
    fields = metadata_fields(data)
    if missing := [name for name in config.data.drop_fields if name not in fields]:
        raise ConfigError(
            f"data.drop_fields must name metadata fields of the data set, found {missing}; "
            f"choose from {fields}."
        )
    predicts = any(source.neighbors for source in config.data.features.values())
    hides = CITATION_FIELD in config.data.drop_fields and CITES in view_graph(data).edge_types
    if predicts and hides:
        raise ConfigError(
            f"Features of predicted neighbours learn from citations, but '{CITATION_FIELD}', of "
            f"which these are made, is left out; leave out data.features.*.neighbors too, or keep "
            f"the field."
        )


def resolve_ablations(config: Config, data: Graph) -> Config:
    """Resolves a configuration's ablations into settings; resolving twice changes nothing.

    Args:
        config: Configuration; ``ablation`` names what to leave out, ``data.drop_fields`` may name
            fields too.
        data: Built graph with all of its fields.

    Raises:
        ConfigError: An ablation or a field is not known, or makes no sense for the encoder or the
            data.
    """
    fields = metadata_fields(data)
    check_drop_fields(config, data)
    for name in config.ablation:
        if name == NO_HIERARCHY:
            config = _leave_out_hierarchy(config, data)
        elif name == NO_PRETRAIN:
            config = _leave_out_pretraining(config)
        elif name in (NO_METADATA, *(f"no-{field}" for field in fields)):
            left_out = fields if name == NO_METADATA else [name.removeprefix("no-")]
            config = _leave_out_fields(config, name, left_out, fields)
        else:
            choices = [NO_METADATA, NO_HIERARCHY, NO_PRETRAIN, *(f"no-{one}" for one in fields)]
            raise ConfigError(
                f"An ablation must leave out what the data set or the model has, one of {choices}, "
                f"found '{name}'; {suggest(name, choices)}."
            )
    check_drop_fields(config, data)  # those of ablations too
    return config


def _leave_out_fields(config: Config, name: str, left_out: list[str], fields: list[str]) -> Config:
    if not fields:
        _refuse(name, "metadata", "the data set has none")
    if not find_model(config).reads_metadata:
        _refuse(name, "metadata", f"'{config.model.encoder}' does not read them")
    dropped = {*config.data.drop_fields, *left_out}
    return config.change("data", drop_fields=[field for field in fields if field in dropped])


def _leave_out_hierarchy(config: Config, data: Graph) -> Config:
    if not find_model(config).is_neural:
        _refuse(NO_HIERARCHY, "hypernymy terms", f"'{config.model.encoder}' has none")
    if not view_graph(data).num_edges(IS_A):
        _refuse(NO_HIERARCHY, "a label hierarchy", "the data set has none")
    if find_head(config.model).needs_label_graph:
        raise ConfigError(
            f"The ablation '{NO_HIERARCHY}' leaves out a label hierarchy, but the head "
            f"'{config.model.head}' passes messages over it; choose another head."
        )
    config = config.change("train", lambda_parameter=0.0, lambda_output=0.0)
    return config.change("model", coherent=False).change("pretrain", label_parent=False)


def _leave_out_pretraining(config: Config) -> Config:
    model, settings = find_model(config), config.model.encoder_config
    if not model.is_neural:
        _refuse(NO_PRETRAIN, "pre-training", f"'{config.model.encoder}' has none")
    if "pretrained" in model.cls.Config.model_fields:
        settings = {**settings, "pretrained": False}
    return config.change("model", init="random", head_from_labels=False, encoder_config=settings)


def _refuse(name: str, part: str, found: str) -> NoReturn:
    raise ConfigError(f"The ablation '{name}' leaves out {part}, but {found}; run without it.")


def _check_temporal(config: Config) -> None:
    """Checks that with ``data.temporal`` predicted neighbours are earlier documents too."""
    sources = config.data.features.items()
    if config.data.temporal and (late := [k for k, v in sources if v.neighbors and not v.earlier]):
        raise ConfigError(
            f"With data.temporal no document may be seen by an earlier one, but predicted "
            f"neighbours of data.features.{late[0]} may be later; set "
            f"data.features.{late[0]}.earlier=true, or leave out neighbors."
        )


def resolve_config(config: Config, dataset: CorpusDataset) -> Config:
    """Fills in the settings that depend on the corpus, so that the run's file is complete.

    With a label tree there is no hypernymy in the output space.

    Args:
        config: Configuration; ``pretrain.samples``, ``model.head``, ``model.blend``,
            ``model.coherent``, ``train.epochs``, ``train.batch_size`` and
            ``train.valid_documents`` may be None, ``train.precision`` "auto".
        dataset: Built data set.

    Raises:
        ConfigError: An encoder, a head or one of their settings is unknown; hypernymy in the output
            space is asked for with a label tree; predicted neighbours may be later than
            ``data.temporal`` allows.
    """
    _check_temporal(config)
    graph = dataset.graph
    train_documents = dataset.documents(MASKS["train"])
    num_train, num_valid = len(train_documents), len(dataset.documents(MASKS["valid"]))
    num_words = graph.num_edges(CONTAINS) * num_train // graph.num_nodes(DOCUMENT)
    config = config.model_copy(update={"model": find_model(config).complete()})
    model = find_model(config)
    train: dict[str, Any] = {"precision": choose_precision(config.train, "text" in model.needs)}
    if len(model.level_sizes(dataset.num_labels)) > 1:
        if config.train.lambda_output and "lambda_output" in config.train.model_fields_set:
            raise ConfigError(
                f"A label tree learns probabilities given the parent, so that hypernymy in the "
                f"output space has no meaning there, but train.lambda_output is "
                f"{config.train.lambda_output:g}; leave it out, or raise flat_labels of "
                f"model.head_config above {dataset.num_labels}."
            )
        train["lambda_output"] = 0.0
    if config.pretrain.samples is None:
        config = config.change("pretrain", samples=derive_samples(num_words))
    derived = {
        "batch_size": derive_batch_size(num_train),
        "epochs": derive_epochs(num_train),
        "valid_documents": derive_valid_documents(num_valid),
    }
    train |= {name: value for name, value in derived.items() if getattr(config.train, name) is None}
    config = config.change("train", **train)
    if config.model.blend is None:
        num_words = graph.num_edges(CONTAINS) // graph.num_nodes(DOCUMENT)
        width = NodeFeatures.from_data(graph).width + min(num_words, config.data.max_words)
        per_document = int(dataset.targets.count(train_documents).sum()) / max(1, num_train)
        blend = derive_blend(dataset.num_labels, per_document, width, config.train.epochs)
        config = config.change("model", blend=model.is_neural and blend)
    if config.model.coherent is None:
        is_closed = dataset.hierarchy.num_edges > 0 and dataset.closed_share >= _CLOSED
        config = config.change("model", coherent=is_closed)
    return config


def derive_samples(num_words: int) -> int:
    """Pre-training positives: 25 per word of the training texts, within 1 to 400 million."""
    return min(max(25 * num_words, 1_000_000), 400_000_000)


def derive_batch_size(num_train: int) -> int:
    """Batch size: the paper's 256, halved to at least 16 until an epoch has 400 steps."""
    size = 16
    while size < 256 and num_train // (2 * size) >= 400:
        size *= 2
    return size


def derive_epochs(num_train: int) -> int:
    """Epochs: 6 for 15,000 documents, 18 for 1,000, at least 5 for more.

    The learning rate falls to 0 over them, so that too many cost quality as well as time: a
    corpus of thousands of documents is overfitted after a few.
    """
    return round(min(40.0, max(5.0, 6.0 * (15_000 / num_train) ** 0.4)))


def derive_blend(
    num_labels: int, per_document: float, width: int, epochs: int | None
) -> bool | Literal["tree"]:
    """Linear classifier beside the network, flat or a tree, where it is the cheaper of the two.

    On one core it takes 35 ns per label and word of a document, the network about 5 ms per document
    and epoch; what is allowed is 4 ms.

    Args:
        num_labels: Number of labels.
        per_document: Mean number of labels of a document.
        width: Mean number of words and features of a document, as far as they are read.
        epochs: Epochs of the network.
    """
    passes = 4e-3 * (epochs or 1) / (35e-9 * max(1, width))
    if num_labels <= passes:
        return True
    return "tree" if count_passes(num_labels, per_document) <= passes else False


def derive_valid_documents(num_valid: int) -> int:
    """Validation documents per epoch: all up to 10,000, which gives a mean to about .003.

    After the training the whole split is evaluated in any case.
    """
    return max(1, min(num_valid, 10_000))
