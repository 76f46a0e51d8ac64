"""Ablations by name, resolved into plain settings.

============  ====================================================  ================================
ablation      what is left out                                      what the initialisation does
============  ====================================================  ================================
no-metadata   every metadata field: its tokens, nodes and edges     pre-trains on texts and labels
              (``data.drop_fields``)                                alone
no-FIELD      one field, likewise; with ``reference`` also the      pre-trains without the pairs of
              edges from documents to cited documents               the field
no-hierarchy  both hypernymy terms (``train.lambda_parameter``,     pre-trains as before, without
              ``train.lambda_output``)                              (label, parent) pairs
no-pretrain   pre-training (``model.init=random``)                  rows uniform on the unit sphere,
                                                                    the prediction layer at random,
                                                                    a language model's weights too
============  ====================================================  ================================

The number of pairs of pre-training stays: what a field leaves goes to the other kinds. The
hierarchy stays in the data, so that violations of it are measured also where nothing keeps them
low. A field that is named like another ablation ("metadata") is taken out by ``data.drop_fields``.
"""

from typing import Any, NoReturn

from torch_geometric.data import HeteroData

from match_graph.baselines import Baseline
from match_graph.config import Config, parse_settings
from match_graph.errors import ConfigError
from match_graph.graph import metadata_fields
from match_graph.training.fitting import find_encoder
from match_graph.typing import IS_A

NO_METADATA, NO_HIERARCHY, NO_PRETRAIN = "no-metadata", "no-hierarchy", "no-pretrain"


def resolve_ablations(config: Config, data: HeteroData) -> Config:
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
    if missing := [name for name in config.data.drop_fields if name not in fields]:
        raise ConfigError(
            f"data.drop_fields must name metadata fields of the data set, found {missing}; "
            f"choose from {fields}."
        )
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
                f"An ablation must leave out what the data set or the model has, found '{name}'; "
                f"choose from {choices}."
            )
    return config


def _leave_out_fields(config: Config, name: str, left_out: list[str], fields: list[str]) -> Config:
    if not fields:
        _refuse(name, "metadata", "the data set has none")
    if not _reads_metadata(config):
        _refuse(name, "metadata", f"'{config.model.encoder}' does not read them")
    dropped = {*config.data.drop_fields, *left_out}
    drop_fields = [field for field in fields if field in dropped]
    return _update(config, "data", drop_fields=drop_fields)


def _leave_out_hierarchy(config: Config, data: HeteroData) -> Config:
    if _is_baseline(config):
        _refuse(NO_HIERARCHY, "hypernymy terms", f"'{config.model.encoder}' has none")
    if not data[IS_A].edge_index.numel():
        _refuse(NO_HIERARCHY, "a label hierarchy", "the data set has none")
    config = _update(config, "train", lambda_parameter=0.0, lambda_output=0.0)
    config = _update(config, "model", coherent=False)
    return _update(config, "pretrain", label_parent=False)


def _leave_out_pretraining(config: Config) -> Config:
    if _is_baseline(config):
        _refuse(NO_PRETRAIN, "pre-training", f"'{config.model.encoder}' has none")
    settings = config.model.encoder_config
    if "pretrained" in find_encoder(config.model.encoder).Config.model_fields:
        settings = {**settings, "pretrained": False}
    return _update(config, "model", init="random", head_from_labels=False, encoder_config=settings)


def _is_baseline(config: Config) -> bool:
    return issubclass(find_encoder(config.model.encoder), Baseline)


def _reads_metadata(config: Config) -> bool:
    """Whether the model reads metadata: some encoders, and the wide term with them, on request."""
    cls = find_encoder(config.model.encoder)
    summary = "model.encoder_config must be valid"
    settings = parse_settings(cls.Config, config.model.encoder_config, summary)
    return bool(cls.needs & {"tokens", "graph"}) and getattr(settings, "metadata", True)


def _update(config: Config, section: str, **values: Any) -> Config:
    changed = getattr(config, section).model_copy(update=values)
    return config.model_copy(update={section: changed})


def _refuse(name: str, part: str, found: str) -> NoReturn:
    raise ConfigError(f"The ablation '{name}' leaves out {part}, but {found}; run without it.")
