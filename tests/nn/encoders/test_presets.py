"""Presets: the values of papers and releases, key by key, and that no default of ours slips in."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from match_graph.config import Config
from match_graph.datasets import Synthetic
from match_graph.nn import ENCODERS, HEADS, MatchEncoder
from match_graph.nn.model import choose_head
from match_graph.pretrain import margin_gradients
from match_graph.runs.configure import load_preset_config, resolve_config

PRESETS = [
    (encoder, name)
    for encoder, cls in ENCODERS.items()
    for name in cls.presets
    if encoder != "match_hetero"  # of no paper: it has those of MATCH for what the two share
]
#: What is read and where it is computed: no preset names them.
OF_THE_RUN = {
    "format", "dataset", "seed", "ablation",
    "data.fields", "data.drop_fields", "data.tokenizer", "data.hierarchy", "data.options",
    "data.faults",
    "model.encoder", "model.head", "model.word_vectors", "model.head_config.chunk_values",
    "train.accelerator", "train.devices", "train.num_nodes", "train.strategy",
    "train.shard_embeddings", "train.logger",
    "train.deterministic",
    "model.feature_dropout", "model.feature_hidden", "model.feature_scale",
}  # fmt: skip
BY_CORPUS = {"pretrain.samples", "train.valid_documents"}
#: Section 4.1 of MATCH where a comment says so, else the release: joint/run.sh, preprocess.py,
#: configure/models/MATCH-MAG.yaml and deepxml/models.py.
MATCH = {
    "data.min_count": 1,
    "data.min_word_count": 1,
    "data.max_words": 500,
    "data.transductive": False,
    "data.temporal": False,
    "pretrain.channels": 100,  # section 4.1
    "pretrain.negatives": 5,
    "pretrain.shared_negatives": False,
    "pretrain.window": 5,
    "pretrain.margin": 0.3,  # section 4.1
    "pretrain.learning_rate": 0.2,  # 0.04, summed over 5 negatives
    "pretrain.filter_positives": False,
    "pretrain.label_parent": False,  # section 3.1: four proximities
    "pretrain.cited_documents": False,  # likewise
    "model.encoder_config.num_cls": 8,  # section 4.1
    "model.encoder_config.num_layers": 3,  # section 4.1
    "model.encoder_config.num_heads": 2,  # section 4.1
    "model.encoder_config.feed_forward": 4,
    "model.encoder_config.dropout": 0.1,  # section 4.1
    "model.encoder_config.field_vectors": False,  # section 3.2
    "model.coherent": False,
    "model.channels": 100,  # section 4.1
    "model.init": "spherical",  # section 3.2
    "model.blend": False,
    "model.blend_metadata_weight": None,
    "model.head_from_labels": False,
    "model.label_prior": False,
    "model.scale_embedding": False,
    "model.embedding_dropout": 0.1,
    "model.token_dropout": 0.0,
    "train.epochs": 15,
    "train.batch_size": 256,  # section 4.1
    "train.optimizer": "adam",  # section 4.1
    "train.learning_rate": 1e-3,
    "train.weight_decay": 0.0,
    "train.warmup": 0.0,
    "train.schedule": "constant",
    "train.average": 0.5,
    "train.average_after": 4,
    "train.calibrate": False,
    "train.lambda_parameter": pytest.approx(1e-8 * 15_809),  # beside a loss averaged over labels
    "train.lambda_output": pytest.approx(1e-8 * 15_809 * 256),  # and the sum over a batch
    "train.edge_weight": "none",  # section 3.4
    "train.precision": "32-true",
}
#: What the preset of MATCH does not keep: settings with their values, and what is no setting.
EXCEPTIONS = {
    "pretrain.samples": 1_000_000,
    "pretrain.chunk_size": 1024,
    "data.max_metadata": 500,
    "train.valid_documents": 40,
    "train.patience": 15,
    "train.clip_norm": 5 * 15_809,
    "model.encoder_config.position_channels": 28,
}
NO_SETTINGS = {
    "sign", "step", "vectors", "LayerNorm", "layers", "hypernymy", "dropout", "draws",
}  # fmt: skip
#: CorNet's configure/models, but for what MATCH says of all that it compares (section 4.1).
CORNET = {
    "model.channels": 100, "pretrain.channels": 100, "train.batch_size": 256,
    "train.epochs": 10, "train.average": 0.5, "train.average_after": 2,
    "train.schedule": "constant", "train.learning_rate": 1e-3, "train.clip_norm": 5 * 15_809,
    "data.min_word_count": 1,
}  # fmt: skip
#: NeuralClassifier's conf/train.json, likewise.
NEURAL_CLASSIFIER = {
    "model.channels": 100, "pretrain.channels": 100, "train.batch_size": 256,
    "train.epochs": 5, "train.average": 0.0, "train.schedule": "constant",
    "train.learning_rate": 0.008, "train.clip_norm": 100 * 15_809, "data.min_word_count": 2,
    "data.max_words": 256,
}  # fmt: skip
VALUES: dict[tuple[str, str], Mapping[str, Any]] = {
    ("match", "paper"): MATCH,
    ("xml_cnn", "paper"): CORNET,
    ("mesh_probe_net", "paper"): CORNET,
    ("attention_xml", "paper"): {
        **CORNET,
        "model.encoder_config.hidden_channels": 200,
        "model.head_config.hidden_channels": [100],
    },
    ("bert_xml", "paper"): CORNET,
    ("star_transformer", "paper"): NEURAL_CLASSIFIER,
    ("transformer", "paper"): NEURAL_CLASSIFIER,
    ("xml_cnn", "own"): {
        "model.channels": 300, "train.batch_size": 20, "train.epochs": 100, "train.average": 0.0,
        "train.schedule": "constant", "model.encoder_config.dropout": 0.0,
    },
    ("mesh_probe_net", "own"): {
        "model.channels": 355, "train.batch_size": 340, "train.epochs": 5, "train.average": 0.0,
        "train.schedule": "linear", "train.warmup": 0.2, "train.weight_decay": 0.0,
    },
    ("attention_xml", "own"): {
        "model.channels": 300, "train.batch_size": 40, "train.epochs": 30, "train.average": 0.5,
        "train.average_after": 10, "train.schedule": "constant",
    },
    ("bert_xml", "own"): {
        "model.channels": 300, "train.batch_size": 200, "train.epochs": 10, "train.average": 0.5,
        "train.average_after": 2, "train.schedule": "constant",
    },
    ("star_transformer", "own"): {
        "model.channels": 300, "train.batch_size": 128, "train.average": 0.0,
        "train.learning_rate": 1e-4, "train.schedule": "constant", "train.epochs": 50,
        "train.weight_decay": 0.0,
    },
    ("transformer", "own"): {
        "model.channels": 512, "model.scale_embedding": True, "train.average": 0.0,
        "train.learning_rate": 7e-4, "train.warmup": 0.04, "train.schedule": "linear",
    },
}  # fmt: skip


def flatten(content: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Dotted keys with values."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping) and f"{path}{key}" != "data.options":
            flat |= flatten(value, f"{path}{key}.")
        else:
            flat[f"{path}{key}"] = value
    return flat


def resolve(synthetic: Synthetic, encoder: str, name: str) -> dict[str, Any]:
    config = load_preset_config(None, [f"model.encoder={encoder}"], name)
    return flatten(resolve_config(config, synthetic).model_dump(mode="json"))


def test_resolve_config_preset_of_match_is_the_paper_key_by_key(synthetic: Synthetic) -> None:
    """Nothing is resolved that is neither the paper's, nor an exception, nor of the run."""
    resolved = resolve(synthetic, "match", "paper")
    expected = {**MATCH, **EXCEPTIONS}
    assert {key: resolved[key] for key in expected} == expected
    assert resolved.keys() == expected.keys() | OF_THE_RUN - {"model.head_config.chunk_values"}
    assert MATCH.keys().isdisjoint(EXCEPTIONS)


def test_MatchEncoder_docstring_lists_preset_exceptions() -> None:
    """One entry each, with a reason; nothing is excepted silently."""
    listed = re.findall(r"^    - (\S+): \S", MatchEncoder.__doc__ or "", re.MULTILINE)
    settings = {key.removeprefix("model.encoder_config.") for key in EXCEPTIONS}
    assert {name.strip("`") for name in listed if name.startswith("`")} == settings
    assert {name for name in listed if not name.startswith("`")} == NO_SETTINGS


@pytest.mark.parametrize(("encoder", "name"), PRESETS)
def test_choose_head_presets_name_every_relevant_setting(encoder: str, name: str) -> None:
    """So that a change of a default changes no preset; the encoder's and the head's own too."""
    cls = ENCODERS[encoder]
    named = flatten(cls.presets[name])
    keys = set(flatten(Config().model_dump())) - {"model.encoder_config", "model.head_config"}
    keys |= {f"model.encoder_config.{key}" for key in cls.Config.model_fields}
    head = HEADS[choose_head(cls)]
    keys |= {f"model.head_config.{key}" for key in head.Config.model_fields}
    assert sorted(named) == sorted(keys - OF_THE_RUN - BY_CORPUS)


@pytest.mark.parametrize(("encoder", "name"), PRESETS)
def test_resolve_config_presets_have_the_values_of_their_sources(
    synthetic: Synthetic, encoder: str, name: str
) -> None:
    """As published; float32, without what this package adds."""
    resolved = resolve(synthetic, encoder, name)
    values = VALUES[encoder, name]
    assert {key: resolved[key] for key in values} == dict(values)
    added = ["model.blend", "model.label_prior", "model.coherent", "pretrain.shared_negatives"]
    assert not any(resolved[key] for key in [*added, "train.calibrate", "model.token_dropout"])
    assert resolved["train.precision"] == "32-true"


def test_paper_steps_by_the_sum_over_negatives() -> None:
    """Equations 2 to 8 of MATCH sum over pairs, each with its negative; the release has .04."""
    config = load_preset_config(preset="paper").pretrain
    shape = (config.negatives, 7, 16)
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = torch.nn.functional.normalize(rows, dim=-1)
    anchor, positive = rows[0], rows[1].requires_grad_()
    negative = rows.transpose(0, 1)
    near = (anchor * positive).sum(dim=1)
    far = torch.einsum("pc,pkc->pk", anchor, negative.detach())
    (gradient,) = torch.autograd.grad((config.margin + far - near[:, None]).relu().sum(), positive)
    allowed = torch.ones(7, config.negatives, dtype=torch.bool)
    _, _, ours, _ = margin_gradients(
        anchor, positive.detach(), negative.detach(), config.margin, allowed
    )
    assert not config.shared_negatives
    assert torch.allclose(config.learning_rate * ours, 0.04 * gradient, atol=1e-15)
