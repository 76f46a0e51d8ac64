"""Case studies: variants side by side, as JSON and back, and each refusal."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from match_graph import Run, from_frames, load_config, start_run
from match_graph.errors import CheckpointError, CorpusError
from match_graph.predict.case_study import CaseLabel, CaseStudy
from match_graph.predict.explain import Explainer
from match_graph.predict.variants import (
    _make_variant,
    compare_variants,
    find_document,
    open_explainers,
)
from match_graph.typing import MASKS


@pytest.fixture(scope="module")
def explainers(trained_run: Run, baseline_run: Run, text_run: Run) -> list[Explainer]:
    return [Explainer(run, "cpu") for run in (trained_run, baseline_run, text_run)]


@pytest.fixture(scope="module")
def document(trained_run: Run) -> str:
    number = int(trained_run.dataset.documents(MASKS["test"])[3])
    return str(trained_run.dataset.names("document")[number])


def test_compare_variants_case_study_of_three_variants(
    explainers: list[Explainer], document: str, trained_run: Run
) -> None:
    """A study has text, metadata, gold labels and each variant's predicted and missed ones."""
    study = compare_variants(explainers, document)
    dataset = trained_run.dataset
    number = dataset.names("document").tolist().index(document)
    gold = dataset.targets.select(torch.tensor([number]))[1]
    names = dataset.names("label")
    assert (study.dataset, study.document, study.split) == (dataset.name, document, "test")
    assert set(study.metadata) == {"venue", "author", "reference"}
    assert {label.label for label in study.gold} == set(names[gold.numpy()])
    child, parent = dataset.hierarchy.edge_index
    for label in study.labels:
        row = names.tolist().index(label.label)
        assert label.parents == names[parent[child == row].numpy()].tolist()
        assert label.depth == int(dataset.hierarchy.depth[row])
    shown = {label.label for label in study.labels}
    assert all(set(label.parents) <= shown for label in study.labels)
    assert [one.encoder for one in study.variants] == ["match", "tfidf_linear", "bert_xml"]
    for variant, explainer in zip(study.variants, explainers, strict=True):
        best = [one.label for one in variant.predictions]
        assert len(best) == 5
        assert set(variant.probability) == shown
        right = {one.label for one in variant.predictions if one.is_right}
        assert right | {one.label for one in variant.missed} == set(names[gold.numpy()])
        for one in variant.missed:
            assert one.rank > 5
            assert one.probability == pytest.approx(variant.probability[one.label])
        assert variant.run == explainer.run.folder.name


def test_find_document_missed_label_ranks_below_best(
    explainers: list[Explainer], document: str
) -> None:
    """A missed label ranks below the best where all scores are equal.

    As those of labels that a baseline does not know.
    """
    explainer = explainers[1]
    dataset = explainer.run.dataset
    (record,) = dataset.as_json([find_document(dataset, document)])
    found = explainer.explain(record)
    same = replace(found, logits=torch.zeros_like(found.logits))
    labels = [
        CaseLabel(label=label, name=None, is_gold=True, depth=0, parents=[])
        for label in explainer.labels
    ]
    missed = _make_variant(explainer, same, labels).missed
    assert len(missed) == len(labels) - 5
    assert {one.rank for one in missed} == {6}


def test_compare_variants_json_and_back(explainers: list[Explainer], document: str) -> None:
    """The JSON of a study is plain, reproducible, and parsed to the same study."""
    study = compare_variants(explainers, document, top_k=2)
    text = study.model_dump_json()
    assert CaseStudy.model_validate_json(text) == study
    assert json.loads(text)["variants"][0]["predictions"][0]["verdict"]
    assert compare_variants(explainers, document, top_k=2).model_dump_json() == text


def test_compare_variants_folders_are_opened(
    trained_run: Run, baseline_run: Run, explainers: list[Explainer], document: str
) -> None:
    """Explainers of folders give the study of opened runs."""
    folders = [trained_run.folder, baseline_run.folder]
    opened = open_explainers(folders, root=trained_run.dataset.root, device="cpu")
    assert compare_variants(opened, document) == compare_variants(explainers[:2], document)


def test_compare_variants_of_a_new_document(
    explainers: list[Explainer], document: str, trained_run: Run
) -> None:
    """A new document gives the study of the same known one; without labels none is right."""
    (record,) = trained_run.dataset.as_json([find_document(trained_run.dataset, document)])
    study, known = (compare_variants(explainers, one) for one in (record, document))
    assert (study.split, study.document) == ("new", document)
    assert study == known.model_copy(update={"split": "new"})
    unknown = [*record.pop("label"), "no label of the data set"]
    study = compare_variants(explainers, {**record, "label": unknown}, place="here")
    assert study.gold == known.gold
    del record["paper"]
    record |= {"label": [], "history": ["of no type"], "objects": [{"a": 1}, 2], "venue": "v1"}
    study = compare_variants(explainers, record, top_k=3, place="new.csv:2")
    assert study.metadata.keys() == known.metadata.keys()
    assert study.metadata["venue"] == ["v1"]
    study = compare_variants(
        explainers, {**record, "venue": known.metadata["venue"]}, 3, "new.csv:2"
    )
    assert (study.document, study.gold) == ("new.csv:2", [])
    for variant, other in zip(study.variants, known.variants, strict=True):
        assert {one.is_right for one in variant.predictions} == {None}
        assert [one.label for one in variant.predictions] == [
            one.label for one in other.predictions[:3]
        ]
        assert variant.missed == []


def test_compare_variants_of_a_row_with_a_column_x(tmp_path: Path) -> None:
    """A row is translated once, also where a column of its table has the name of features."""
    frame = pd.DataFrame(
        {"key": [f"p{n}" for n in range(40)], "x": [f"w{n % 4} w{n % 3}" for n in range(40)],
         "who": [["Bo"], ["Li"]] * 20, "tags": [[f"l{n % 4}"] for n in range(40)]}
    )  # fmt: skip
    columns = {"id": "key", "text": "x", "author": "who", "label": "tags"}
    corpus = from_frames(frame, fields=["author"], columns=columns)
    config = load_config(settings=["model.encoder=tfidf_linear", "data.min_word_count=1"])
    run = start_run(corpus, config, tmp_path / "run", tmp_path / "root")
    run.train()
    study = compare_variants([Explainer(run, "cpu")], frame.loc[2].to_dict())
    assert (study.document, study.text, study.metadata) == ("p2", "w2 w2", {"author": ["Bo"]})
    assert [one.label for one in study.gold] == ["l2"]


@pytest.mark.parametrize("wrong", [["text"], {"venue": "v"}, {"text": "a", "label": "x"}])
def test_compare_variants_refuses_what_is_no_document(
    explainers: list[Explainer], wrong: Any
) -> None:
    """A wrong document is refused with its place."""
    with pytest.raises(CorpusError, match="The documents must be readable: new:1: "):
        compare_variants(explainers, wrong, place="new:1")


def test_compare_variants_long_texts_are_cut(explainers: list[Explainer], trained_run: Run) -> None:
    """Texts are cut at 400 characters."""
    texts = trained_run.dataset.table("document")
    longest = texts.loc[texts["text"].str.len().idxmax()]
    study = compare_variants(explainers[1:2], longest["id"])
    assert len(longest["text"]) > 400
    assert len(study.text) == 400
    assert study.text.endswith("...")


def test_compare_variants_unknown_document_is_one_sentence(explainers: list[Explainer]) -> None:
    """An unknown id is refused with an example of a known one."""
    with pytest.raises(CorpusError) as caught:
        compare_variants(explainers, "nobody")
    first = explainers[0].run.dataset.names("document")[0]
    assert str(caught.value) == (
        f"A document must be one of the 400 of 'synthetic', found no 'nobody'; its ids are like "
        f"'{first}'."
    )


def test_compare_variants_runs_of_other_data_are_refused(
    trained_run: Run, small_settings, tmp_path, explainers: list[Explainer]
) -> None:
    """Runs on other data are refused, also where only an option differs."""
    config = small_settings(
        "data.options={num_documents: 300, num_labels: 24, num_layers: 3, num_words: 600}",
        "model.encoder=prior", "model.encoder_config={}",
    )  # fmt: skip
    run = start_run("synthetic", config, tmp_path / "other", tmp_path / "root")
    run.train()
    with pytest.raises(CheckpointError) as caught:
        compare_variants([explainers[0], Explainer(run, "cpu")], "d1")
    here, there = trained_run.dataset.checksum[:8], run.dataset.checksum[:8]
    assert str(caught.value) == (
        f"Runs that are compared must be made from the same data, but '{trained_run.folder}' has "
        f"synthetic ({here}) and '{run.folder}' has synthetic ({there}); compare runs of one data "
        f"set with the same options."
    )


def test_open_explainers_gives_each_run_its_own_code(
    trained_run: Run, small_settings, document: str, tmp_path: Path
) -> None:
    """The caller's encoder goes to the run trained with it; one of no run is refused."""
    code = tmp_path / "mine.py"
    code.write_text("from match_graph import LabelPrior\n\n\nclass Mine(LabelPrior):\n    pass\n")
    name = f"{code}:Mine"
    dataset = trained_run.dataset
    config = small_settings(f"model.encoder={name}", "model.encoder_config={}")
    own = start_run(trained_run.config.dataset, config, tmp_path / "own", dataset.root)
    own.train()
    own.evaluate()
    folders, root = [trained_run.folder, own.folder], dataset.root
    opened = open_explainers(folders, root=root, device="cpu", encoder=name)
    study = compare_variants(opened, document)
    assert [one.encoder for one in study.variants] == ["match", name]
    with pytest.raises(CheckpointError, match=r"with the encoder 'match', .*; load it with"):
        open_explainers(folders, root=root, device="cpu", encoder="other:Mine")
