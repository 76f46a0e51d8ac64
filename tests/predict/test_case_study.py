"""Case studies as data: derived properties, and JSON that is refused."""

import pytest
from pydantic import ValidationError

from match_graph.predict.case_study import CaseLabel, CaseStudy, Evidence, Pull


def make_pull(output_term: float | None, parameter_term: float | None) -> Pull:
    return Pull(
        parent="a", probability=0.5, weight=1.0, output_term=output_term,
        parameter_term=parameter_term,
    )  # fmt: skip


def test_Pull_terms_of_an_edge_add_up() -> None:
    """The total of a pull is the sum of its terms; terms that a baseline lacks count as 0."""
    assert make_pull(0.25, 0.5).total == 0.75
    assert make_pull(None, None).total == 0


def test_Evidence_token_is_named_by_field_and_instance() -> None:
    """Evidence prints as field and instance, the form that verdicts use."""
    token = Evidence(
        field="venue", name="A", is_known=True, attention=None, effect=0.5, linear=None
    )
    assert str(token) == "venue A"


def test_CaseLabel_gold_labels_are_those_of_the_document() -> None:
    """Gold labels keep the order of labels; JSON with an unknown key is refused."""
    labels = [
        CaseLabel(label=name, name=None, is_gold=gold, depth=0, parents=[])
        for name, gold in (("a", True), ("b", False), ("c", True))
    ]
    study = CaseStudy(
        dataset="toy", document="d", split="test", text="", metadata={}, labels=labels, variants=[]
    )
    assert [label.label for label in study.gold] == ["a", "c"]
    text = study.model_dump_json()
    assert CaseStudy.model_validate_json(text) == study
    with pytest.raises(ValidationError):
        CaseStudy.model_validate_json(text.replace("dataset", "other"))


def test_CaseStudy_shows_names_beside_ids() -> None:
    """Labels, parents and metadata are shown by name and id, or by id where no name is known."""
    labels = [
        CaseLabel(label=one, name=name, is_gold=True, depth=0, parents=[])
        for one, name in (("C1", "Graphs"), ("C2", None))
    ]
    study = CaseStudy(
        dataset="toy", document="d", split="test", text="", labels=labels, variants=[],
        metadata={"author": ["a1", "a2"], "venue": []}, names={"author": {"a1": "Jane Doe"}},
    )  # fmt: skip
    assert study.show_labels(["C1", "C2"]) == "Graphs (C1), C2"
    assert study.show_metadata("author") == "Jane Doe (a1), a2"
    assert study.show_metadata("venue") == "-"
    token = Evidence(
        field="author", name="a1", title="Jane Doe", is_known=True, attention=None, effect=0.5,
        linear=None,
    )  # fmt: skip
    assert str(token) == "author Jane Doe (a1)"
    assert make_pull(0.5, 0.5).shown == "a"
