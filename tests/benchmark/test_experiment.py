"""Experiment files: strict, all faults at once, rows expanded, settings in their order."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from match_graph import Run
from match_graph.baselines import BASELINES
from match_graph.benchmark import MEASURES, Experiment, load_experiment
from match_graph.benchmark.experiment import LOWER_IS_BETTER, OF_SLICE, write_value
from match_graph.benchmark.experiment_file import find_experiment, list_experiments
from match_graph.errors import ConfigError

CONTENT = {
    "question": "Is it better?",
    "datasets": ["synthetic"],
    "measures": ["P@1", "NDCG@5"],
    "settings": {"train.batch_size": None, "train.learning_rate": 0.01},
    "reference": "MATCH",
    "rows": [
        {"name": "XML-CNN", "encoder": "xml_cnn", "preset": "paper"},
        {"name": "MATCH"},
    ],
    "expected": {"mag-cs": {"XML-CNN": {"P@1": [0.8656, 0.0006]}}},
}


@pytest.fixture
def write(tmp_path: Path):
    """Writes an experiment file, CONTENT with changes."""

    def make(**changes: object) -> Path:
        path = tmp_path / "trial.yaml"
        path.write_text(yaml.safe_dump({**CONTENT, **changes}, sort_keys=False))
        return path

    return make


def message(path: Path, **given) -> str:
    with pytest.raises(ConfigError) as caught:
        load_experiment(path, **given)
    return str(caught.value)


def test_load_experiment_file_read_and_changed_by_command_line(write) -> None:
    """Its name is the file's; data sets, runs, seed and settings of the call win."""
    experiment = load_experiment(write())
    assert (experiment.name, experiment.seeds, experiment.budget) == ("trial", [0, 1, 2], "equal")
    experiment = load_experiment(write(), ["toy"], 2, 5, ["train.epochs=1"])
    assert (experiment.datasets, experiment.seeds) == (["toy"], [5, 6])
    assert experiment.overrides == {"train.epochs": 1}


def test_load_experiment_settings_win_in_their_order(write) -> None:
    """Preset < experiment < row < point of the grid < overrides; null resets a setting."""
    rows = [
        {
            "name": "XML-CNN",
            "encoder": "xml_cnn",
            "preset": "paper",
            "settings": {"train.warmup": 0.5, "train.patience": 5},
        },
    ]
    grid = {"train.patience": [6, 7], "train.average": [0.5]}
    path = write(rows=rows, grid=grid, reference=None, expected={})
    experiment = load_experiment(path, settings=["train.average=0.25"])
    row = experiment.expand([])[1]
    assert row.name == "XML-CNN, patience=7, average=0.5"
    assert row.point == {"train.patience": 7, "train.average": 0.5}
    config = experiment.configure(row, seed=4)
    assert (config.model.encoder, config.seed) == ("xml_cnn", 4)
    assert config.model.blend is False  # the encoder's own
    assert config.train.batch_size is None  # 256 there, given back by the experiment
    assert config.train.learning_rate == 0.01
    assert (config.train.warmup, config.train.patience, config.train.average) == (0.5, 7, 0.25)


def test_Experiment_parts_of_features_change_rows_that_have_them(write) -> None:
    """An override of a model gives no features to other rows; that of a source does."""
    rows = [
        {"name": "MATCH"},
        {"name": "MATCH + LM", "settings": {"data.features.document": {"model": "far/away"}}},
    ]
    path = write(rows=rows, expected={})

    def features(*settings: str) -> list[dict[str, dict]]:
        experiment = load_experiment(path, settings=settings)
        found = [experiment.configure(row, 0).data for row in experiment.expand([])]
        return [data.model_dump(exclude_none=True)["features"] for data in found]

    assert features("data.features.document.model=near") == [{}, {"document": {"model": "near"}}]
    both = ["data.features.document={path: x.npy}", "data.features.label.path=y.npy"]
    assert features(both[0]) == [{"document": {"path": "x.npy"}}] * 2
    assert message(path, settings=both[1:]) == (
        f"The experiment '{path}' must be valid: 'overrides': 'data.features.label.path' changes "
        f"features that rows have, but no row has any of 'label'; set data.features.label to give "
        f"them to all rows."
    )


def test_load_experiment_row_stands_for_each_metadata_field(write) -> None:
    """{field} is replaced in name and ablation; without fields there is no row."""
    rows = [*CONTENT["rows"], {"name": "No-{field}", "ablation": ["no-{field}"]}]
    experiment = load_experiment(write(rows=rows))
    found = experiment.expand(["venue", "author"])
    assert [row.name for row in found] == ["XML-CNN", "MATCH", "No-venue", "No-author"]
    assert found[-1].ablation == ["no-author"]
    assert [row.name for row in experiment.expand([])] == ["XML-CNN", "MATCH"]


def test_load_experiment_every_fault_comes_in_one_message(write) -> None:
    """Wrong types come first, each with its path; then what does not fit together."""
    text = message(write(runs=0, measures=["P@1", "NDCG@7"], rows=[{"nam": "x"}]))
    lines = text.splitlines()
    assert lines[0].endswith("trial.yaml' must be valid, but 4 faults were found:")
    assert lines[1] == "  'runs': Input should be greater than or equal to 1, found 0."
    assert lines[2].startswith("  'measures': must be different ones of ['P@1', 'P@3',")
    assert lines[2].endswith(
        "or SLICE/MEASURE, such as tail/R@5, not ['NDCG@7']; the nearest is 'NDCG@5', found "
        "['P@1', 'NDCG@7']."
    )
    of_slice = message(write(measures=["depth_12/R@5", "tail/F1_macro", "depht_9/R@5"]))
    assert "not ['depht_9/R@5']; the nearest is 'depth_N/R@5', found [" in of_slice
    assert lines[3] == "  'rows.0.name': Field required, found {'nam': 'x'}."
    assert lines[4] == "  'rows.0.nam' is not a setting; the nearest is 'rows.0.name'."
    rows = [
        {"name": "A", "settings": {"train.epoch": 1}},
        {"name": "a"},
        {"name": "B", "encoder": "c"},
    ]
    text = message(write(rows=rows, reference="C", figure="grid"))
    assert "over two settings in 'grid', found ['A', 'a', 'B'] and 0." in text
    assert message(write(rows=rows, reference="C")).splitlines()[1:] == [
        "  'rows': the names 'A' and 'a' must differ in letters or digits, as they name folders.",
        "  'expected.mag-cs.XML-CNN': there is no such row; check the name.",
    ]
    lines = message(write(rows=[rows[0], rows[2]], reference="A", expected={})).splitlines()[1:]
    assert lines[0] == (
        "  'rows', A: 'train.epoch' is not a setting; the nearest is 'train.epochs'."
    )
    assert lines[1].startswith("  'rows', B: The encoder must be one of [")


def test_load_experiment_name_that_no_folder_can_have(write) -> None:
    """Names of rows and of points of a grid have a largest number of bytes."""
    long = message(write(rows=[{"name": "é" * 101}], reference=None, expected={}))
    assert long.endswith(
        "trial.yaml' must be valid: 'rows': a name must be at most 200 bytes long, as it names a "
        f"folder, found 202 in '{'é' * 101}'; shorten it."
    )
    grid = {"model.word_vectors": ["short", "x" * 200]}
    long = message(write(rows=[{"name": "M"}], grid=grid, reference=None, expected={}))
    assert "at most 200 bytes long, as it names a folder, found 215 in 'M, word_" in long


def test_load_experiment_fault_of_all_rows_is_one_sentence() -> None:
    """A fault by --set of ten rows is one sentence, also beside others."""
    settings = [
        "train.epoch=1", "model.encoder_config.dropuot=0", "data.option.path=x",
        "data.features.document.modle=y",
    ]  # fmt: skip
    lines = message("comparison", settings=settings).splitlines()
    assert lines[0].endswith("comparison.yaml' must be valid, but 4 faults were found:")
    assert sorted(lines[1:]) == [
        "  'data.option' is not a setting; the nearest is 'data.options'.",
        "  'model.encoder_config.dropuot' is not a setting of the encoder 'xml_cnn'; the nearest "
        "is 'model.encoder_config.dropout'.",
        "  'overrides': 'data.features.document.modle' changes features that rows have, but no row "
        "has any of 'document'; set data.features.document to give them to all rows.",
        "  'train.epoch' is not a setting; the nearest is 'train.epochs'.",
    ]


def test_load_experiment_faults_name_their_rows(write) -> None:
    """Faults of a row's own settings, or of some encoders, presets or options, name rows."""
    rows = [
        {"name": "A", "encoder": "xml_cnn", "preset": "papper", "settings": {"train.epoch": 1}},
        {"name": "B", "settings": {"train": {"epoch": 1}, "model.encoder_config.num_cls": 0}},
        {"name": "C", "encoder": "tfidf_linear", "settings": {"model.encoder_config": {"a": 1}}},
    ]
    settings = {"model.encoder_config.num_layers": 1, "data.options.num_document": 5}
    path = write(rows=rows, settings=settings, reference=None, expected={})
    assert message(path).splitlines()[1:] == [
        "  'rows', A: The preset of the encoder 'xml_cnn' must be one of ['own', 'paper'], found "
        "'papper'; the nearest is 'paper'.",
        "  'rows', A, B: 'train.epoch' is not a setting; the nearest is 'train.epochs'.",
        "  'rows', A: 'model.encoder_config.num_layers' is not a setting of the encoder "
        "'xml_cnn'; the nearest is 'model.encoder_config.num_filters'.",
        "  'data.options.num_document' is not a setting of the data set 'synthetic'; the nearest "
        "is 'data.options.num_documents'.",
        "  'rows', B: 'model.encoder_config.num_cls': Input should be greater than or equal to 1, "
        "found 0.",
        f"  'rows', C: 'model.encoder_config.a' is not a setting of the encoder 'tfidf_linear'; "
        f"choose from {sorted(BASELINES['tfidf_linear'].Config.model_fields)}.",
    ]


def test_find_experiment_by_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file wins over a shipped name, a folder does not; the nearest name is suggested."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "encoders").mkdir()
    found = list_experiments()
    assert [find_experiment(name) for name in found] == [*found.values()]
    assert load_experiment("encoders").name == "encoders"
    assert find_experiment(str(found["encoders"])) == found["encoders"]
    (tmp_path / "comparison").write_text("question: what?\n")
    assert find_experiment("comparison") == Path("comparison")
    for name, clause in (
        ("comparision", "the nearest is 'comparison'"),
        ("experiments/features.yaml", "the nearest is 'features'"),
        ("mine.yaml", "check the name"),
    ):
        assert message(name) == (
            f"An experiment must be a YAML file or one of {[*found]}, but there is no '{name}'; "
            f"{clause}."
        )


def test_load_experiment_what_expected_must_be_rows_and_columns(write) -> None:
    """What is expected must be of rows and columns."""
    expected = {"x": {"MATCH": {"R@5": [0.1], "P@1": [0.1, 0.2, 0.3]}}}
    assert message(write(expected=expected)).splitlines()[1:] == [
        "  'expected.x.MATCH': 'R@5' is not one of 'measures'.",
        "  'expected.x.MATCH.P@1': must be a mean and, if known, a standard deviation, found 3 "
        "numbers.",
    ]


def test_load_experiment_row_has_the_encoder_of_its_base(write) -> None:
    """Another model would read the settings otherwise, or not at all."""
    rows = [
        {"name": "HGT", "encoder": "hgt"},
        {"name": "HGT-NoMetadata", "base": "HGT", "ablation": ["no-metadata"]},
        {"name": "paper", "base": "HGT", "encoder": "hgt", "preset": "paper"},
    ]
    text = message(write(rows=rows, reference=None, expected={}))
    about = "'encoder' and 'preset' must be those of its 'base', hgt and none, found"
    assert text.splitlines()[1:] == [
        f"  'rows', HGT-NoMetadata: {about} match and none.",
        f"  'rows', paper: {about} hgt and paper.",
    ]


def test_load_experiment_reference_is_a_row(write) -> None:
    """The error suggests the nearest row."""
    path = write(reference="MATHC")
    assert message(path) == (
        f"The experiment '{path}' must be valid: 'reference' must be one of the rows ['XML-CNN', "
        f"'MATCH'], found 'MATHC'; the nearest is 'MATCH'."
    )


def test_load_experiment_name_twice_and_an_empty_grid(write) -> None:
    path = write(rows=[{"name": "MATCH"}] * 2, grid={"train.epochs": []}, expected={})
    assert message(path).splitlines()[1:] == [
        "  'grid' must give every setting values, found none for ['train.epochs'].",
        "  'rows': the name 'MATCH' must be that of one row only.",
    ]


def test_load_experiment_points_of_a_grid_have_different_names(write) -> None:
    """Two equal values would be two cells in one folder."""
    path = write(rows=[{"name": "M"}], grid={"train.epochs": [1, 1]}, reference=None, expected={})
    assert message(path) == (
        f"The experiment '{path}' must be valid: 'rows': the name 'M, epochs=1' must be that of "
        f"one row only."
    )


@pytest.mark.parametrize("names", [["MATCH", "XML-CNN"], ["No-{field}"]])
def test_load_experiment_grid_is_drawn_of_one_row(write, names: list[str]) -> None:
    """Points of several rows would be averaged, or hide each other."""
    grid = {"train.lambda_parameter": [0.0], "train.lambda_output": [0.0]}
    rows = [{"name": name} for name in names]
    path = write(rows=rows, grid=grid, figure="grid", reference=None, expected={})
    assert message(path) == (
        f"The experiment '{path}' must be valid: 'figure': a grid is drawn of one row, without "
        f"{{field}} in its name, over two settings in 'grid', found {names} and 2."
    )


def test_load_experiment_valid_does_not_fault_before_anything(write) -> None:
    """What valid does not have is a fault before anything runs.

    Thresholds and slices are of test; the others are of both.
    """
    path = write(measures=["P@1", "F1_macro", "tail/R@5"], split="valid")
    assert message(path) == (
        f"The experiment '{path}' must be valid: 'measures': ['F1_macro', 'tail/R@5'] are measured "
        f"on test only, but 'split' is valid."
    )
    assert load_experiment(write(measures=["P@1", "ECE@5"], split="valid")).split == "valid"


def test_load_experiment_nothing_is_chosen_on_what_is_reported(write) -> None:
    """A data set is for tuning or for reporting, not for both."""
    assert load_experiment(write(tuned_on=["a"], report_on=["b"])).report_on == ["b"]
    text = message(write(tuned_on=["a", "b"], report_on=["b"]))
    assert text.endswith("'report_on': ['b'] are in 'tuned_on', too; take them out of one.")


def test_load_experiment_takes_the_measures_of_oaxmlc_bench(write) -> None:
    """They are known by name, so that a wrong one is refused before training."""
    measures = ["at_least_k/P@1", "at_least_k/NDCG@3", "at_least_k/RankedSum@3",
                "shared_threshold/F1_micro", "hierarchical_P", "tail/R@5"]  # fmt: skip
    assert load_experiment(write(measures=measures, expected={})).measures == measures
    text = message(write(measures=["P@1", "at_least_k/P@5"], expected={}))
    assert "not ['at_least_k/P@5']; the nearest is 'at_least_k/P@3'" in text


@pytest.mark.parametrize("key", ["model.encoder", "ablation", "seed"])
@pytest.mark.parametrize("place", ["settings", "overrides", "grid", "rows", "space"])
def test_load_experiment_what_has_a_place_of_its_own(write, place: str, key: str) -> None:
    """Encoder, ablation and seed are refused in settings, overrides, grids and search spaces."""
    changes: dict[str, Any] = {"reference": None, "expected": {}}
    shown = place
    if place == "grid":
        changes["grid"] = {key: ["match", "rgcn"]}
    elif place == "rows":
        changes["rows"] = [{"name": "A", "settings": {key: "match"}}]
        shown = "rows, A, settings"
    elif place == "space":
        changes["search"] = {"space": {f"train.epochs, {key}": ["match"]}}
        shown = "search.space"
    else:
        changes[place] = {"model": {"encoder": "match"}} if "." in key else {key: 1}
    text = message(write(**changes))
    assert f"'{shown}': {key} is not set here but by" in text
    assert "move it there." in text


def test_load_experiment_measures_of_slices_by_name(write) -> None:
    """A misspelt slice or measure is refused when the experiment is read."""
    measures = ["tail/R@5", "depth_2/F1_micro", "head/num_gold"]
    assert load_experiment(write(measures=measures, expected={})).measures == measures
    for wrong in ("tial/R@5", "tail/R@4", "depth/R@1"):
        assert f"not ['{wrong}']" in message(write(measures=["P@1", wrong], expected={}))


def test_load_experiment_searches_by_a_measure_that_grows(write) -> None:
    """A search maximises: a measure of which less is better is refused."""
    text = message(write(search={"measure": "violation_rate"}))
    assert "must be measured on valid, more of it being better, found 'violation_rate'" in text
    assert "the nearest is 'violation_rate'" not in text


def test_load_experiment_seeds_stay_below_their_bound(write) -> None:
    """The last seed, first seed plus runs less one, must be below 2^32 too."""
    assert "must give seeds below 2^32, found 4,294,967,296" in message(
        write(seed=2**32 - 1, runs=2)
    )


def test_load_experiment_overrides_that_are_no_mapping_are_fault(write) -> None:
    """With settings of the command line too."""
    path = write(overrides=None)
    assert message(path, settings=["train.epochs=1"]) == message(path)
    assert "'overrides': Input should be a valid dictionary" in message(path)


def test_load_experiment_other_formats_broken_files_one_sentence(write, tmp_path: Path) -> None:
    """Other formats and broken files are one sentence."""
    path = write(format=9)
    assert message(path) == (
        f"An experiment must be of format 1, which this version of match-graph reads, "
        f"found format 9 in '{path}'; "
        f"use the version that wrote it."
    )
    path.write_text("- a\n")
    assert message(path) == (
        f"An experiment must be a mapping of keys to values, found list in '{path}'; see "
        f"'{list_experiments()['comparison']}'."
    )
    assert message(tmp_path).startswith(
        f"An experiment must be a readable YAML file, but '{tmp_path}' is not ("
    )
    assert message(write(), settings=["epochs"]) == "A setting must be key=value, found 'epochs'."


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    )
)
def test_write_value_values_are_written_as_they_are_read(value: object) -> None:
    """Numbers such as 1e-05 too, which YAML would take for a word."""
    assert yaml.safe_load(write_value(value)) == value


def test_load_experiment_survives_json(write) -> None:
    experiment = load_experiment(write())
    assert Experiment.model_validate_json(experiment.model_dump_json()) == experiment


def test_load_experiment_sizes_are_counted(write) -> None:
    """A grid of 10^16 points or more is refused without being expanded."""
    grid = {f"train.k{number}": [*range(10)] for number in range(16)}
    path = write(grid=grid, figure="grid")
    text = (
        f"The experiment '{path}' must be valid: 'rows', 'grid', 'datasets' and 'runs' must give "
        f"at most 1,000 rows, found 20,000,000,000,000,000."
    )
    assert message(path) == text
    more = {f"train.k{number}": [*range(10)] for number in range(600)}
    assert message(write(grid=more)).endswith("1,000 rows, found more than 10^18.")
    assert message(write(runs=10_000, datasets=["a"] * 10)).endswith(
        "must give at most 100,000 runs, found 200,000."
    )
    assert message(write(runs=10**9)).endswith(
        "'runs': Input should be less than or equal to 10000, found 1000000000."
    )


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "..", "a\\b", "a\x1b[2Jb", "n" * 201])
def test_load_experiment_names_stay_inside(write, name: str) -> None:
    assert "must be valid: 'name': must be a " in message(write(name=name))
    assert "name" in message(write(name=name))


EVIL = {
    "row": {"rows": [{"name": "E", "encoder": "evil:Evil"}]},
    "preset": {"rows": [{"name": "E", "encoder": "evil:Evil", "preset": "paper"}]},
    "head": {"rows": [{"name": "E", "settings": {"model": {"head": "evil:Evil"}}}]},
    "settings": {"settings": {"model.head": "evil:Evil"}},
    "grid": {"grid": {"model.head": ["linear", "evil:Evil"]}},
    "key": {"settings": {"model.head=evil:Evil #": 1}},
    "field": {"rows": [{"name": "no-{field}", "encoder": "evil:Evil"}]},
    "dataset": {"datasets": ["synthetic", "evil:Evil"]},
}


@pytest.mark.parametrize("kind", EVIL)
def test_load_experiment_imports_only_code_that_the_caller_names(
    write, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the current folder is imported, wherever the file names it."""
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    path = write(**{"rows": [{"name": "M"}], "reference": None, "expected": {}, **EVIL[kind]})
    what = "encoder" if kind in ("row", "preset", "field") else "head"
    what = "dataset" if kind == "dataset" else what
    assert message(path) == (
        f"The experiment '{path}' names the {what} 'evil:Evil', and code is imported only by "
        f"request; if you trust it, name it on the command line too: --{what} evil:Evil"
    )
    assert not (tmp_path / "ran").exists()
    if what == "encoder":
        assert "evil.py' has no 'Evil'" in message(path, code=["evil:Evil"])
        assert (tmp_path / "ran").exists()


def test_Experiment_measures_on_valid_are_those_of_a_run(trained_run: Run) -> None:
    """A measure is accepted on valid, and for a search, if a run has it there."""
    there = trained_run.read_metrics()["valid"].keys()
    found, searched = set(), set()
    for name in MEASURES:
        rows = {"question": "?", "datasets": ["synthetic"], "rows": [{"name": "MATCH"}]}
        with suppress(ValidationError):
            found.add(Experiment(**rows, measures=[name], split="valid").measures[0])
        with suppress(ValidationError):
            searched.add(Experiment(**rows, measures=["P@1"], search={"measure": name}).name + name)
    assert found == {*MEASURES} & there
    assert searched == found - LOWER_IS_BETTER
    on_test = trained_run.read_metrics()["test"]
    slices = {name for name in on_test if OF_SLICE.fullmatch(name)}
    assert on_test.keys() - slices == {*MEASURES}


def test_LOWER_IS_BETTER_errors_and_ranks() -> None:
    """They are violations, calibration errors and sums of ranks."""
    falling = ("violation_", "ECE", "at_least_k/RankedSum@")
    assert {name for name in MEASURES if name.startswith(falling)} == LOWER_IS_BETTER


def test_Experiment_expand_row_lies_over_its_base() -> None:
    """A row has the settings of its base, which its own override."""
    base = {"train.epochs": 2, "train.patience": 5}
    rows = [
        {"name": "MATCH", "settings": base},
        {"name": "flat", "base": "MATCH", "settings": {"train.patience": 6}},
    ]
    experiment = Experiment(question="?", datasets=["synthetic"], measures=["P@1"], rows=rows)
    assert experiment.expand([])[1].settings == {"train.epochs": 2, "train.patience": 6}


def test_load_experiment_base_is_a_row_of_its_own(write) -> None:
    """A base has no base, and a row that has one is not searched for itself."""
    rows = [
        {"name": "MATCH"},
        {"name": "flat", "base": "MATCH", "space": {"train.patience": [5, 6]}},
        {"name": "deep", "base": "flat"},
    ]
    assert message(write(rows=rows, expected={})).splitlines()[1:] == [
        "  'rows', flat: it has the settings of 'base', so no 'space'.",
        "  'rows', deep: 'base' must be a row that has none itself, found 'flat'; the nearest is "
        "'flat'.",
    ]


def test_load_experiment_measure_twice_is_refused(write) -> None:
    assert "'measures': must be different ones of" in message(write(measures=["P@1", "P@1"]))


def test_load_experiment_command_line_wins_over_overrides(write) -> None:
    """Settings and seed of the call replace those of the file, the seed 0 too."""
    path = write(overrides={"train.epochs": 2, "train.patience": 5}, seed=5)
    experiment = load_experiment(path, seed=0, settings=["train.epochs=1"])
    assert experiment.overrides == {"train.epochs": 1, "train.patience": 5}
    assert experiment.seeds == [0, 1, 2]


def test_load_experiment_settings_that_a_baseline_ignores(write) -> None:
    """A row of a baseline with a network's setting would be another row in name only."""
    rows = [{"name": "prior", "encoder": "prior", "settings": {"train.learning_rate": 0.1}}]
    text = message(write(rows=rows, reference=None, expected={}))
    assert "'rows', prior: The baseline 'prior' must be given settings that it uses, found" in text
    assert "train.learning_rate" in text


def test_Experiment_parts_of_features_of_all_rows_are_changed(write) -> None:
    """Features in the experiment's settings are each row's."""
    path = write(settings={"data.features.document": {"model": "far"}}, expected={})
    experiment = load_experiment(path, settings=["data.features.document.model=near"])
    models = [
        experiment.configure(row, 0).data.features["document"].model
        for row in experiment.expand([])
    ]
    assert models == ["near", "near"]
