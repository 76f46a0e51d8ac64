"""Resolved configurations: presets below all that the user gives, sizes by the corpus."""

from pathlib import Path

import pandas as pd
import pytest

from match_graph.config import TrainConfig, load_config
from match_graph.datasets import Synthetic, from_frames, open_dataset
from match_graph.errors import ConfigError
from match_graph.graph import TokenSpace
from match_graph.nn import ENCODERS, MatchModel, TextEncoder, XmlCnnEncoder
from match_graph.runs import configure
from match_graph.runs.configure import (
    derive_batch_size,
    derive_blend,
    derive_epochs,
    derive_samples,
    derive_valid_documents,
    load_preset_config,
    locate_config,
    resolve_config,
)
from match_graph.training.models import find_model
from match_graph.typing import CONTAINS, MASKS

OFFERED = [(encoder, name) for encoder, cls in ENCODERS.items() for name in cls.presets]
TEXT_ENCODERS = sorted(name for name, cls in ENCODERS.items() if issubclass(cls, TextEncoder))


def message(encoder: str, name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_preset_config(None, [f"model.encoder={encoder}"], name)
    return str(caught.value)


@pytest.mark.parametrize(("encoder", "name"), OFFERED)
def test_load_preset_config_offered_settings_valid_fit_together(encoder: str, name: str) -> None:
    """Every preset holds known settings that fit together, and a model can be made of it."""
    config = load_preset_config(None, [f"model.encoder={encoder}"], name)
    MatchModel(TokenSpace(("venue", "word"), (0, 0)), 2, config.model)
    dumped = config.model_dump()
    for key, value in find_model(config).find_preset(name).items():
        found = dumped
        for part in key.split("."):
            found = found[part]
        assert found == value, key


@pytest.mark.parametrize("encoder", TEXT_ENCODERS)
def test_load_preset_config_encoders_text_offer_both(encoder: str) -> None:
    """Text encoders have the presets paper and own, both without metadata.

    As compared in MATCH: delta 100, batches of 256; neither metadata nor hierarchy in either.
    """
    assert {"paper", "own"} <= set(ENCODERS[encoder].presets)
    for name in ("paper", "own"):
        config = load_preset_config(None, [f"model.encoder={encoder}"], name)
        assert config.model.init == "spherical_text"
        assert config.model.blend is False
        assert (config.train.lambda_parameter, config.train.lambda_output) == (0, 0)
        assert not config.model.encoder_config.get("metadata", False)
    paper = load_preset_config(None, [f"model.encoder={encoder}"], "paper")
    assert (paper.model.channels, paper.train.batch_size, paper.train.optimizer) == (
        100, 256, "adam",
    )  # fmt: skip


def test_load_preset_config_file_settings_win_file_may_name(tmp_path: Path) -> None:
    """Defaults give way to the preset, it to the file, and that to --set, key by key.

    Default < named < file < --set, key by key, within the encoder's settings too.
    """
    path = tmp_path / "c.yaml"
    path.write_text(
        "model: {encoder: xml_cnn, encoder_config: {num_filters: 7}}\ntrain: {batch_size: 8}\n"
    )
    settings = ["model.encoder_config.num_chunks=2", "train.epochs=3"]
    config = load_preset_config(path, settings, "own")
    assert config.train.batch_size == 8
    assert config.train.epochs == 3
    assert config.model.channels == config.pretrain.channels == 300
    assert config.model.encoder_config == {
        "metadata": False, "widths": [2, 4, 8], "num_filters": 7, "num_chunks": 2,
        "bottleneck": 512, "dropout": 0.0,
    }  # fmt: skip
    assert XmlCnnEncoder.presets["own"]["model.encoder_config"]["num_chunks"] == 32


def test_load_preset_config_without_name_there_defaults_alone() -> None:
    """Without a preset nothing changes; it is the default encoder's where none is named."""
    assert load_preset_config(preset="paper").train.batch_size == 256
    assert load_preset_config(None, ["model.encoder=xml_cnn"]).train.batch_size is None


def test_load_preset_config_unknown_name_is_one_sentence() -> None:
    """An unknown preset is refused with the choices, an unknown encoder as such."""
    assert message("xml_cnn", "best") == (
        "The preset of the encoder 'xml_cnn' must be one of ['own', 'paper'], found 'best'; "
        "choose one, or leave --preset out."
    )
    assert message("prior", "paper") == (
        "The preset of the encoder 'prior' must be left out, as it has none, found 'paper'; choose "
        "one, or leave --preset out."
    )
    assert message("xml_rnn", "paper").startswith("The encoder must be one of ['")


def test_load_preset_config_broken_file_keeps_its_own_sentence(tmp_path: Path) -> None:
    """A section that is no mapping is refused in the same words as without a preset."""
    path = tmp_path / "c.yaml"
    path.write_text("model: 3\n")
    with pytest.raises(ConfigError, match=r"'model': Input should be .* found 3\."):
        load_preset_config(path, None, "paper")


def test_load_preset_config_resolved_settings_hold_every_number(synthetic: Synthetic) -> None:
    """Resolved settings hold those of encoder and head, given or not."""
    config = load_preset_config(None, ["model.encoder=xml_cnn"], "own")
    config = resolve_config(config, synthetic)
    resolved = config.model
    assert resolved.encoder_config == {
        "metadata": False, "widths": [2, 4, 8], "num_filters": 32, "num_chunks": 32,
        "bottleneck": 512, "dropout": 0.0,
    }  # fmt: skip
    assert find_model(config).complete() == resolved


def test_resolve_config_what_given_stays_and_what_not_filled_in(synthetic: Synthetic) -> None:
    """Given epochs stay; samples and batch size are filled in."""
    config = resolve_config(load_config(None, ["train.epochs=3"]), synthetic)
    assert config.train.epochs == 3
    assert config.pretrain.samples == 1_000_000
    assert config.train.batch_size == derive_batch_size(320)
    assert config.train.valid_documents == 40


@pytest.mark.parametrize(
    "derive",
    [
        derive_batch_size,
        lambda n: -derive_epochs(n),
        derive_samples,
    ],
)
def test_derive_batch_size_derived_values_are_monotone_in_size(derive) -> None:
    """Larger corpora never get smaller batches, more epochs or fewer pairs."""
    values = [derive(number) for number in (200, 1_000, 5_000, 20_000, 100_000, 1_000_000)]
    assert values == sorted(values)


def test_derive_batch_size_batches_reach_the_size_of_the_paper() -> None:
    """Batches have 256 documents at the size of MAG-CS, and 16 at least."""
    assert derive_batch_size(564_340) == 256
    assert derive_batch_size(1) == 16


def test_derive_batch_size_doubles_with_400_steps() -> None:
    """An epoch keeps 400 steps, up to 256 documents."""
    sizes = [12_799, 12_800, 25_600, 51_200, 102_399, 102_400, 10_000_000]
    assert [*map(derive_batch_size, sizes)] == [16, 32, 64, 128, 128, 256, 256]


def test_derive_epochs_are_those_of_its_formula() -> None:
    """Epochs are 6 (15,000 / n)^.4, within 5 and 40."""
    sizes = [100, 1_000, 3_000, 15_000, 24_195, 10_000_000]
    assert [*map(derive_epochs, sizes)] == [40, 18, 11, 6, 5, 5]


def test_resolve_config_counts_words_and_labels(
    synthetic: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs count words of training documents, a blend those of all as far as read."""
    found: list[tuple[float, ...]] = []
    monkeypatch.setattr(configure, "derive_samples", lambda number: found.append((number,)) or 7)
    monkeypatch.setattr(configure, "derive_blend", lambda *given: found.append(given) or "tree")
    config = resolve_config(load_config(None, ["train.epochs=3"]), synthetic)
    resolve_config(load_config(None, ["train.epochs=3", "data.max_words=5"]), synthetic)
    assert config.pretrain.samples == 7
    assert config.model.blend == "tree"
    train = synthetic.documents(MASKS["train"])
    num_words, mean = synthetic.graph.num_edges(CONTAINS), len(train) / synthetic.num_documents
    labels = int(synthetic.targets.count(train).sum()) / len(train)
    expected = (synthetic.num_labels, labels, num_words // synthetic.num_documents, 3)
    assert found[:2] == [(int(num_words * mean),), expected]
    assert found[3] == (*expected[:2], 5, 3)


def test_derive_valid_documents_validation_sample_where_would() -> None:
    """Validation takes all documents of small corpora, and 10,000 at the size of MAG-CS.

    Everything in small corpora, 10,000 documents at the size of MAG-CS.
    """
    assert [derive_valid_documents(number) for number in (0, 2_976, 70_534)] == [1, 2_976, 10_000]


def test_resolve_config_temporal_refuses_later_neighbours(synthetic: Synthetic) -> None:
    """Predicted neighbours must be earlier documents where ``data.temporal`` is set."""
    near = "data.features.document={latent: 4, neighbors: 2, earlier: %s}"
    with pytest.raises(ConfigError) as caught:
        resolve_config(load_config(None, [near % "false", "data.temporal=true"]), synthetic)
    assert str(caught.value) == (
        "With data.temporal no document may be seen by an earlier one, but predicted neighbours of "
        "data.features.document may be later; set data.features.document.earlier=true, or leave "
        "out neighbors."
    )
    for settings in ([near % "true", "data.temporal=true"], [near % "false"]):
        assert resolve_config(load_config(None, settings), synthetic).data.features


def test_resolve_config_head_is_named(synthetic: Synthetic) -> None:
    """The resolved head is the one that fits the encoder, unless it is given."""
    for settings, head in (
        ([], "linear"),
        (["model.encoder=attention_xml"], "label_attention"),
        (["model.encoder=attention_xml", "model.head=linear"], "linear"),
    ):
        assert resolve_config(load_config(None, settings), synthetic).model.head == head


@pytest.mark.parametrize(
    ("encoder", "expected"), [("match", False), ("hetero_sage", False), ("language_model", True)]
)
def test_resolve_config_precision_knows_who_reads_text(
    monkeypatch: pytest.MonkeyPatch, synthetic: Synthetic, encoder: str, expected: bool
) -> None:
    """The resolved precision depends, on a GPU, on whether the encoder reads text."""

    def choose(config: TrainConfig, reads_text: bool = False) -> str:
        return "bf16-mixed" if reads_text else "32-true"

    monkeypatch.setattr(configure, "choose_precision", choose)
    config = resolve_config(load_config(None, [f"model.encoder={encoder}"]), synthetic)
    assert (config.train.precision == "bf16-mixed") == expected


def test_resolve_config_unknown_encoder_is_an_error(synthetic: Synthetic) -> None:
    """An unknown encoder is refused, as no head can be chosen for it."""
    with pytest.raises(ConfigError, match=r"The encoder must be one of \['attention_xml', "):
        resolve_config(load_config(None, ["model.encoder=attention"]), synthetic)


def test_derive_blend_is_there_where_it_costs_less() -> None:
    """A network is blended where the linear classifier costs less; many labels are clustered."""
    assert derive_blend(800, 5.0, 90, 6) is True
    assert derive_blend(16_000, 5.0, 90, 20) is True
    assert derive_blend(16_000, 5.0, 90, 6) == "tree"
    assert derive_blend(2_000_000, 5.0, 90, 6) is False
    assert derive_blend(800, 5.0, 90 + 1000, 5) == "tree"
    assert derive_blend(800, 5.0, 90 + 3000, 5) is False


def test_resolve_config_blends_networks_alone(synthetic: Synthetic) -> None:
    """By default networks with few labels are blended, and no baseline is."""
    tree = ["model.encoder=attention_xml", "model.head_config={flat_labels: 10, cluster_size: 4}"]
    for settings, expected in (
        ([], True),
        (["model.blend=false"], False),
        (["model.blend=tree"], "tree"),
        (["model.encoder=tfidf_linear"], False),
        (tree, True),
    ):
        assert resolve_config(load_config(None, settings), synthetic).model.blend == expected


@pytest.mark.parametrize(("share", "expected"), [(0.985, False), (0.995, True), (1.0, True)])
def test_resolve_config_is_coherent_where_labels_are_closed(
    tmp_path: Path, share: float, expected: bool
) -> None:
    """Output is coherent if nearly all documents with a child have the parent, or as set."""
    both = round(share * 200)
    labels = [["top"], *[["leaf", "top"]] * both, *[["leaf"]] * (200 - both)]
    folds = ["train"] * 201 + ["valid", "test"]
    labels += [["leaf"], ["new"]]  # other splits do not count, nor labels of theirs alone
    names = [f"w{n}" for n in range(203)]
    frame = pd.DataFrame({"id": names, "text": names, "label": labels, "fold": folds})
    edges = [("leaf", "top"), ("new", "top")]
    corpus = from_frames(frame, hierarchy=edges, columns={"split": "fold"})
    dataset = open_dataset(corpus, root=tmp_path)
    for encoder in ("match", "tfidf_linear"):
        settings = [f"model.encoder={encoder}", "model.encoder_config={}"]
        assert resolve_config(load_config(None, settings), dataset).model.coherent is expected
        given = load_config(None, [*settings, f"model.coherent={not expected}"])
        assert resolve_config(given, dataset).model.coherent is not expected


def test_resolve_config_without_edges_is_not_coherent(tmp_path: Path) -> None:
    """Output is not coherent without a hierarchy."""
    frame = pd.DataFrame({"id": ["a", "b"], "text": ["w", "v"], "label": [["x"], ["y"]]})
    dataset = open_dataset(from_frames(frame), root=tmp_path)
    assert resolve_config(load_config(None, []), dataset).model.coherent is False


def test_resolve_config_label_tree_refuses_hypernymy_output(synthetic: Synthetic) -> None:
    """A label tree refuses hypernymy in the output space, unless it is the default or 0.

    Where it is asked for; the default gives way, and a given 0 stays.
    """
    tree = ["model.encoder=attention_xml", "model.head_config={flat_labels: 10, cluster_size: 4}"]
    assert resolve_config(load_config(None, tree), synthetic).train.lambda_output == 0
    given = load_config(None, [*tree, "train.lambda_output=0"])
    assert resolve_config(given, synthetic).train.lambda_output == 0
    with pytest.raises(ConfigError) as caught:
        resolve_config(load_config(None, [*tree, "train.lambda_output=0.5"]), synthetic)
    assert str(caught.value) == (
        "A label tree learns probabilities given the parent, so that hypernymy in the output space "
        "has no meaning there, but train.lambda_output is 0.5; leave it out, or raise flat_labels "
        f"of model.head_config above {synthetic.num_labels}."
    )


def test_locate_config_makes_paths_of_features_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths of files, ids and model folders become absolute; a name on the hub stays."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lm").mkdir()
    config = load_config(
        None,
        [
            "data.features.document={path: x.npy, ids: x.txt}",
            "data.features.label={model: lm}",
            "data.features.author={model: org/lm}",
        ],
    )
    features = locate_config("synthetic", config).data.features
    assert features["document"].path == str(tmp_path / "x.npy")
    assert features["document"].ids == str(tmp_path / "x.txt")
    assert features["label"].model == str(tmp_path / "lm")
    assert features["author"].model == "org/lm"


def test_locate_config_makes_the_path_of_word_vectors_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of word vectors becomes absolute, for any working folder."""
    monkeypatch.chdir(tmp_path)
    settings = ["model.init=word_vectors", "model.word_vectors=glove.txt"]
    located = locate_config("synthetic", load_config(None, settings))
    assert located.model.word_vectors == str(tmp_path / "glove.txt")
