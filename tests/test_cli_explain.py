"""`match-graph predict --explain`: a case study as text and as JSON."""

import json
from functools import partial
from pathlib import Path

import pytest

from match_graph import Run
from match_graph.cli.show import _explain
from match_graph.predict.case_study import CaseStudy, Evidence, Prediction
from match_graph.typing import MASKS


@pytest.fixture
def call(trained_run: Run, call):
    """Runs `predict` with the trained run: (exit code, standard output, standard error)."""
    options = "--device", "cpu", "--root", trained_run.dataset.root
    return partial(call, "predict", trained_run.folder, *options)


def test_explain_as_text_and_as_json(call, trained_run: Run, baseline_run: Run) -> None:
    """Both variants are printed with their labels, right or wrong, or as a `CaseStudy`."""
    number = int(trained_run.dataset.documents(MASKS["test"])[3])
    document = str(trained_run.dataset.names("document")[number])
    given = "--explain", "--document", document, "--against", str(baseline_run.folder)
    code, out, err = call(*given, "--json", "--top-k", "2")
    assert (code, err) == (0, "")
    study = CaseStudy.model_validate_json(out)
    assert [len(variant.predictions) for variant in study.variants] == [2, 2]
    assert json.loads(out)["document"] == document
    code, out, err = call(*given, "--top-k", "2")
    assert (code, err) == (0, "")
    assert f"{document} (test of synthetic)" in out
    assert "run: match, seed 0" in out
    assert "tfidf: tfidf_linear, seed 0" in out
    for variant in study.variants:
        for one in variant.predictions:
            mark = "right" if one.is_right else "wrong"
            assert f"  {one.probability:.3f}  {mark}  {one.label}\n" in out
            assert one.verdict in out
        for missed in variant.missed:
            assert f"missed, rank {missed.rank}  {missed.label}\n" in out


def test_explain_zero_has_no_minus() -> None:
    """A token whose leaving out changes nothing has an effect of +0.00."""
    token = Evidence(
        field="venue", name="A", is_known=True, attention=None, effect=0.0, linear=-0.001
    )
    prediction = Prediction(
        label="a", probability=0.5, score=0.0, is_right=True, metadata=[token], words=[],
        carried_by=None, attended=None, verdict="None.", parents=[], pulled_by=None,
    )  # fmt: skip
    assert [*_explain(prediction)] == ["None.", "venue A: left out +0.00, linear +0.00"]


def test_explain_new_documents_of_a_file(call, trained_run: Run, tmp_path: Path) -> None:
    """Each document of a file has a study, with --json an object a line."""
    (record,) = trained_run.dataset.as_json(trained_run.dataset.documents(MASKS["test"])[3:4])
    gold = record.pop("label")
    lines = [record, {"text": record["text"], "label": gold}]
    path = tmp_path / "new.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    code, out, err = call("--explain", "--input", str(path), "--json", "--top-k", "2")
    assert (code, err) == (0, "")
    first, second = map(CaseStudy.model_validate_json, out.splitlines())
    assert (first.document, first.split, first.gold) == (record["paper"], "new", [])
    nothing = {"venue": [], "author": [], "reference": []}
    assert (second.document, second.metadata) == ("new.jsonl:2", nothing)
    assert {label.label for label in second.gold} == {*gold}
    code, out, err = call("--explain", "--input", str(path), "--top-k", "2")
    assert (code, err) == (0, "")
    for one in first.variants[0].predictions:
        assert f"  {one.probability:.3f}  {one.label}\n" in out
    for one in second.variants[0].predictions:
        assert (
            f"  {one.probability:.3f}  {'right' if one.is_right else 'wrong'}  {one.label}" in out
        )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--explain"], "--explain needs --document or --input, one of them"),
        (["--document", "d1"], "--document belongs to --explain"),
        (
            ["--explain", "--document", "d1", "--input", "new.jsonl"],
            "--explain needs --document or --input, one of them",
        ),
        (
            ["--explain", "--input", "a.jsonl", "--input", "b.jsonl"],
            "--explain takes one file of --input, found several or a folder",
        ),
        (
            ["--explain", "--input", "."],
            "--explain takes one file of --input, found several or a folder",
        ),
    ],
)
def test_explain_needs_one_document_or_file(call, given: list[str], sentence: str) -> None:
    """--explain without exactly one document or file is wrong usage."""
    code, _, err = call(*given)
    assert code == 2
    assert sentence in " ".join(err.replace("│", "").split())


@pytest.mark.parametrize(
    "given", [["--against", "runs/x"], ["--json"], ["--dataset", "toy"], ["--root", "there"]]
)
def test_predict_without_explain_refuses_its_options(call, given: list[str]) -> None:
    """Options of --explain are refused without it."""
    code, _, err = call(*given)
    assert code == 2
    assert "--against, --dataset, --root and --json belong to --explain" in err


@pytest.mark.parametrize(
    "given",
    [
        ["--output", "case.json"], ["--threshold"],
        ["--batch-size", "7"], ["--workers", "2"],
    ],
    ids=lambda given: given[0],
)  # fmt: skip
def test_explain_refuses_options_of_predictions(call, given: list[str]) -> None:
    """Options of predictions are refused beside --explain."""
    code, out, err = call("--explain", "--document", "d1", *given)
    assert (code, out) == (2, "")
    assert "--explain prints a study of --document" in " ".join(err.replace("│", "").split())


def test_explain_unknown_document_is_one_sentence(call) -> None:
    """An unknown document exits with code 1 and no traceback."""
    code, out, err = call("--explain", "--document", "nobody")
    assert (code, out) == (1, "")
    assert err.startswith("Error: A document must be one of the 400 of 'synthetic', found no ")
