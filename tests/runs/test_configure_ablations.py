"""Ablations: resolved to settings, idempotent, refused where they make no sense."""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pytest
import yaml
from torch_geometric.data import HeteroData

from match_graph import Encoder, load, load_config, start_run
from match_graph.config import Config, StrictModel
from match_graph.errors import ConfigError
from match_graph.graph import BuiltGraph, DropFields, build_graph, metadata_fields
from match_graph.runs import open_run
from match_graph.runs.configure import resolve_ablations
from match_graph.runs.start import default_folder
from match_graph.testing import toy_corpus

FIELDS = ["venue", "author", "reference"]


class WordsOnly(Encoder):
    """A text encoder that reads metadata on request."""

    class Config(StrictModel):
        metadata: bool = False

    def reset_parameters(self) -> None: ...

    def forward(self, batch): ...


class TextOnly(Encoder):
    """An encoder of raw texts with pre-trained weights of its own."""

    class Config(StrictModel):
        pretrained: bool = True

    needs: ClassVar[frozenset[str]] = frozenset({"text"})

    def reset_parameters(self) -> None: ...

    def forward(self, batch): ...


@pytest.fixture
def data(toy_graph: BuiltGraph) -> HeteroData:
    return toy_graph.data


def resolve(data: HeteroData, *ablations: str, settings: tuple[str, ...] = ()) -> Config:
    named = f"ablation=[{', '.join(ablations)}]"
    return resolve_ablations(load_config(None, [named, *settings]), data)


def refusal(data: HeteroData, *ablations: str, settings: tuple[str, ...] = ()) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(data, *ablations, settings=settings)
    return str(caught.value)


def test_resolve_ablations_without_ablations_nothing_changes(data: HeteroData) -> None:
    """Without ablations the configuration is returned as it is."""
    config = load_config()
    assert resolve_ablations(config, data) == config


@pytest.mark.parametrize(
    ("ablations", "dropped"),
    [
        (["no-metadata"], FIELDS),
        (["no-author"], ["author"]),
        (["no-reference", "no-venue"], ["venue", "reference"]),
        (["no-author", "no-metadata", "no-author"], FIELDS),
    ],
)
def test_resolve_ablations_fields_are_left_out_by_name(
    data: HeteroData, ablations, dropped: list[str]
) -> None:
    """One, some or all fields are dropped; no other setting changes."""
    config = resolve(data, *ablations)
    assert config.data.drop_fields == dropped
    assert config.model_copy(update={"data": Config().data, "ablation": []}) == Config()


def test_resolve_ablations_no_hierarchy_turns_both_terms_off(data: HeteroData) -> None:
    """no-hierarchy turns off both terms, coherent output and (label, parent) pairs."""
    settings = ("pretrain.label_parent=true", "model.coherent=true")
    config = resolve(data, "no-hierarchy", settings=settings)
    assert (config.train.lambda_parameter, config.train.lambda_output) == (0, 0)
    assert not config.pretrain.label_parent
    assert not config.model.coherent
    assert config.data == Config().data


def test_resolve_ablations_no_hierarchy_refuses_a_label_graph(data: HeteroData) -> None:
    """no-hierarchy refuses a head that passes messages over the hierarchy."""
    assert refusal(data, "no-hierarchy", settings=("model.head=label_graph",)) == (
        "The ablation 'no-hierarchy' leaves out a label hierarchy, but the head 'label_graph' "
        "passes messages over it; choose another head."
    )


def test_resolve_ablations_no_pretrain_starts_at_random(data: HeteroData) -> None:
    """no-pretrain starts embedding, prediction layer and a language model at random."""
    config = resolve(data, "no-pretrain", settings=("model.head_from_labels=true",))
    assert (config.model.init, config.model.head_from_labels) == ("random", False)
    assert config.model.encoder_config == {}
    own = resolve(data, "no-pretrain", settings=(f"model.encoder={__name__}:TextOnly",))
    assert own.model.encoder_config == {"pretrained": False}


def test_resolve_ablations_resolving_twice_changes_nothing(
    data: HeteroData, tmp_path: Path
) -> None:
    """Resolving is idempotent, so that a run's config.yaml can start another run."""
    config = resolve(data, "no-author", "no-hierarchy", "no-pretrain")
    assert resolve_ablations(config, data) == config
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert resolve_ablations(load_config(path), data) == config


def test_resolve_ablations_unknown_names_one_sentence_choices(data: HeteroData) -> None:
    """An unknown field or ablation is refused with the choices and the nearest one."""
    clauses = {
        "no-autor": "the nearest is 'no-author'",
        "hierarchy": "the nearest is 'no-hierarchy'",
        "no-": "check the name",
    }
    for name, clause in clauses.items():
        assert refusal(data, name) == (
            f"An ablation must leave out what the data set or the model has, one of "
            f"['no-metadata', 'no-hierarchy', 'no-pretrain', 'no-venue', 'no-author', "
            f"'no-reference'], found '{name}'; {clause}."
        )
    assert refusal(data, settings=("data.drop_fields=[venue, autor]",)) == (
        "data.drop_fields must name metadata fields of the data set, found ['autor']; choose from "
        "['venue', 'author', 'reference']."
    )


@pytest.mark.parametrize("name", ["no-reference", "no-metadata"])
def test_resolve_ablations_refuses_neighbours_without_citations(
    data: HeteroData, name: str
) -> None:
    """Features of predicted neighbours are refused where citations are left out."""
    near = "data.features.document={latent: 16, neighbors: 5}"
    assert refusal(data, name, settings=(near,)).startswith(
        "Features of predicted neighbours learn from citations, but 'reference', of which these "
        "are made, is left out; leave out data.features.*.neighbors too"
    )
    own = "data.features.document={latent: 16}"
    assert resolve(data, name, settings=(own,)).data.drop_fields
    assert resolve(data, "no-author", settings=(near,)).data.drop_fields == ["author"]


@pytest.mark.parametrize(
    ("encoder", "name", "sentence"),
    [
        (
            "tfidf_linear",
            "no-hierarchy",
            "The ablation 'no-hierarchy' leaves out hypernymy terms, but 'tfidf_linear' has none; "
            "run without it.",
        ),
        (
            "omikuji",
            "no-pretrain",
            "The ablation 'no-pretrain' leaves out pre-training, but 'omikuji' has none; run "
            "without it.",
        ),
        (
            f"{__name__}:WordsOnly",
            "no-metadata",
            f"The ablation 'no-metadata' leaves out metadata, but '{__name__}:WordsOnly' does not "
            f"read them; run without it.",
        ),
        (
            f"{__name__}:TextOnly",
            "no-venue",
            f"The ablation 'no-venue' leaves out metadata, but '{__name__}:TextOnly' does not "
            f"read them; run without it.",
        ),
        (
            "prior",
            "no-author",
            "The ablation 'no-author' leaves out metadata, but 'prior' does not read them; run "
            "without it.",
        ),
    ],
)
def test_resolve_ablations_ablation_makes_no_sense_is_refused(
    data: HeteroData, encoder: str, name: str, sentence: str
) -> None:
    """An ablation of what the encoder does not have or read is refused."""
    settings = (f"model.encoder={encoder}",)
    assert refusal(data, name, settings=settings) == sentence


def test_resolve_ablations_setting_can_make_sense_of_an_ablation(data: HeteroData) -> None:
    """no-metadata is accepted once an encoder is set to read metadata."""
    settings = (f"model.encoder={__name__}:WordsOnly", "model.encoder_config={metadata: true}")
    assert resolve(data, "no-venue", settings=settings).data.drop_fields == ["venue"]
    assert resolve(data, "no-venue", settings=("model.encoder=tfidf_linear",)).data.drop_fields


def test_data_without_hierarchy_or_metadata_refuse(toy_graph: BuiltGraph) -> None:
    """Ablations of a hierarchy or metadata that the data lack are refused."""
    corpus = toy_corpus()
    flat = build_graph(replace(corpus, hierarchy=corpus.hierarchy.iloc[:0])).data
    assert refusal(flat, "no-hierarchy") == (
        "The ablation 'no-hierarchy' leaves out a label hierarchy, but the data set has none; "
        "run without it."
    )
    plain = DropFields(FIELDS)(toy_graph.data)
    assert refusal(plain, "no-metadata") == (
        "The ablation 'no-metadata' leaves out metadata, but the data set has none; run without it."
    )


def test_default_folder_names_the_ablations() -> None:
    """The default folder names the ablations, apart from that of the whole model."""
    config = load_config(None, ["seed=3", "ablation=[no-author, no-pretrain]"])
    assert default_folder("x", config) == Path("runs/x-match-no-author-no-pretrain-seed3")
    assert default_folder("x", load_config()) == Path("runs/x-match-seed0")


def test_metadata_fields_run_without_fields_never_sees_them(tmp_path: Path, small_settings) -> None:
    """Dropped fields are in no tokens, vectors or predictions, also when opened again."""
    config = small_settings("ablation=[no-author, no-hierarchy]", "train.accelerator=cpu")
    run = start_run("synthetic", config, tmp_path / "run", tmp_path / "root")
    run.train()
    metrics = run.evaluate()
    written = yaml.safe_load((run.folder / "config.yaml").read_text())
    assert written["data"]["drop_fields"] == ["author"]
    assert written["train"]["lambda_output"] == 0
    assert metrics["test"]["violation_rate"] > 0  # the hierarchy is still there to measure by
    assert run.space.types == ("venue", "reference", "word")
    assert "author" not in run.pretrain()
    assert not (run.folder / "tokens" / "author.parquet").exists()
    again = open_run(run.folder, tmp_path / "root")
    assert metadata_fields(again.dataset[0]) == ["venue", "reference"]
    assert again.evaluate() == metrics
    known = pd.read_parquet(run.folder / "tokens" / "venue.parquet")["id"][0]
    classifier = load(run.folder, device="cpu")
    plain, named = classifier.predict(
        [{"text": "w1", "venue": known}, {"text": "w1", "venue": known, "author": ["author1"]}]
    )
    assert plain == named
    resumed = start_run("synthetic", config, tmp_path / "run", tmp_path / "root")
    assert resumed.config == run.config


def test_start_run_no_metadata_pre_trains_on_texts_and_labels(
    tmp_path: Path, small_settings
) -> None:
    """no-metadata pre-trains words, contexts, labels and documents alone."""
    config = small_settings("ablation=[no-metadata]", "pretrain.samples=5000")
    run = start_run("synthetic", config, tmp_path / "run", tmp_path / "root")
    assert set(run.pretrain()) == {"document", "label", "word", "context"}
    assert run.space.types == ("word",)
