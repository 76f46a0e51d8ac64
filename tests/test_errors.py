"""Sentences of errors: faults listed, long ones shortened, the nearest name."""

import shlex

import pytest
from pydantic import BaseModel

from match_graph.benchmark.space import Search
from match_graph.config import Config
from match_graph.errors import (
    ConfigError,
    ExportError,
    find_faults,
    find_nearest,
    format_command,
    import_extra,
    list_faults,
    list_fields,
    suggest,
)


def test_format_command_quotes_its_arguments(tmp_path) -> None:
    """Blanks and quotes; numbers and paths are taken too."""
    folder = tmp_path / "a b" / "it's"
    found = format_command("benchmark", folder, "--runs", 5)
    assert shlex.split(found) == ["match-graph", "benchmark", str(folder), "--runs", "5"]


def test_import_extra_chains_the_cause_of_a_torn_installation(tmp_path, monkeypatch) -> None:
    """A package that is installed but fails to import gives the same sentence, with the cause."""
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "__init__.py").touch()
    (tmp_path / "torn" / "part.py").write_text("from torn import nothing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as caught:
        import_extra("torn.part", "A part", "more")
    assert str(caught.value) == (
        "A part needs the package torn, which is not installed; run: "
        "pip install 'match-graph[more]'"
    )
    assert "cannot import name 'nothing'" in str(caught.value.__cause__)
    with pytest.raises(ExportError):
        import_extra("no_such_package", "A part", "more", ExportError)


def test_list_faults_shows_both_ends_fault_quotes_long_value() -> None:
    """A fault that quotes a long value is shortened in its middle."""
    fault = f"a.json:6: the tree number {'[' * 20_000} must be dotted; mend it."
    assert list_faults("Trees must be right", ["short", fault]) == (
        "Trees must be right, but 2 faults were found:\n  short\n"
        f"  {fault[:400]} ... ({len(fault) - 800:,} characters more) ... {fault[-400:]}"
    )
    assert list_faults("Trees must be right", ["short"]) == "Trees must be right: short"
    assert len(list_faults("Trees must be right", [fault])) < 1000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            {"data": {"features": {"document": {"model": "x", "colunm": "name"}}}},
            "'data.features.document.colunm' is not a setting; the nearest is "
            "'data.features.document.column'.",
        ),
        (
            {"data": {"features": {"path": {"model": "x", "kye": "name"}}}},  # a type of that name
            "'data.features.path.kye' is not a setting; the nearest is 'data.features.path.key'.",
        ),
        (
            {"max_pieces": 3},
            "'max_pieces' is not a setting; the nearest is 'data.features.TYPE.max_pieces'.",
        ),
        ({"TRAIN": {}}, "'TRAIN' is not a setting; the nearest is 'train'."),
        (
            {"train": {"lambda": 1}},
            "'train.lambda' is not a setting; the nearest is 'train.lambda_output'.",
        ),
    ],
)
def test_find_faults_names_the_nearest_key(content: dict, text: str) -> None:
    """Also within a mapping by a name of the user's; letters' case does not count."""
    (fault,) = find_faults(Config, content)
    assert fault.text == text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            {"model": {"blend": "forest"}},
            "'model.blend': Input should be a valid boolean; or Input should be 'tree', found "
            "'forest'.",
        ),
        ({"data": {"fields": 1}}, "'data.fields': Input should be a valid list, found 1."),
        ({"data": {"fields": [1]}}, "'data.fields.0': Input should be a valid string, found 1."),
        (
            {"data": {"features": {"document": {"latent": "x"}}}},
            "'data.features.document.latent': Input should be a valid integer, found 'x'.",
        ),
    ],
)
def test_find_faults_of_one_value_are_one(content: dict, text: str) -> None:
    """One message for all types of a union; elements of a list keep their index."""
    (fault,) = find_faults(Config, content)
    assert (fault.path, fault.text) == (text.split("'")[1], text)


def test_find_faults_of_one_value_name_keys_inside() -> None:
    """Missing and unknown keys of a model in a union are named in its one message."""
    (fault,) = find_faults(Search, {"space": {"train.epochs": {"low": 1, "hihg": 2}}})
    assert fault.text.startswith(
        "'space.train.epochs': 'high': Field required; or 'hihg': Extra inputs are not permitted; "
        "or Input should be a valid list, found "
    )


def test_find_faults_of_a_part_names_the_whole_key() -> None:
    """With what the keys are of."""
    prefix = "data.options."
    (fault,) = find_faults(type(Config().train), {"epoch": 1}, prefix, "the data set 'x'")
    assert fault == (
        "data.options.epoch",
        "'data.options.epoch' is not a setting of the data set 'x'; the nearest is "
        "'data.options.epochs'.",
    )


def test_find_nearest_is_alike_or_holds_the_name() -> None:
    """None where nothing is near; `suggest` says what to do then."""
    names = ["match", "match_hetero", "tfidf_linear", "MATCH, defaults"]
    found = [find_nearest(name, names) for name in ("macth", "tfidf", "match, default", "x", "")]
    assert found == ["match", "tfidf_linear", "MATCH, defaults", None, None]
    assert suggest("macth", names) == "the nearest is 'match'"
    assert suggest("x", names) == "check the name"
    assert suggest("x", names, "leave it out") == "leave it out"


def test_list_fields_goes_into_lists_and_mappings() -> None:
    """What the user names there is TYPE, or N for a place."""

    class Inner(BaseModel):
        x: int

    class Outer(BaseModel):
        one: Inner
        by_name: dict[str, Inner]
        listed: list[Inner]

    assert [key for key, _ in list_fields(Outer)] == [
        "one.x", "by_name", "by_name.TYPE.x", "listed", "listed.N.x",
    ]  # fmt: skip
