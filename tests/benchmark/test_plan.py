"""Plans: equal budgets, the order of work, what shares vectors, what is refused."""

from pathlib import Path

import pytest

from match_graph.benchmark.plan import make_plan
from match_graph.errors import ConfigError
from match_graph.graph import count_twins
from match_graph.io import Reporter
from match_graph.runs.configure import derive_epochs


@pytest.fixture
def plan(make_experiment, tmp_path: Path):
    """Plan of a changed experiment on the toy folder."""

    def make(**changes):
        return make_plan(make_experiment(**changes), tmp_path / "root", Reporter(quiet=True))

    return make


def epochs(found) -> dict[str, int]:
    return {cell.row.name: cell.config.train.epochs for cell in found.cells if cell.seed == 0}


ROWS = [
    {"name": "MATCH"},
    {"name": "plain", "settings": {"model.blend": False}},
    {"name": "own", "encoder": "xml_cnn", "preset": "own"},
    {"name": "probes", "encoder": "mesh_probe_net", "preset": "own"},
    {"name": "short", "settings": {"train.epochs": 2}},
    {"name": "prior", "encoder": "prior"},
]


def test_make_plan_every_network_gets_most_size_gives_to_one(plan) -> None:
    """It overrides an encoder's preset, but not a row's own epochs."""
    settings = {"train.accelerator": "cpu"}
    found = plan(rows=ROWS, settings=settings)
    most = derive_epochs(8)
    networks = {name: number for name, number in epochs(found).items() if name != "prior"}
    assert networks == {"MATCH": most, "plain": most, "own": most, "probes": most, "short": 2}
    assert found.datasets[0].epochs == most


def test_make_plan_baselines_alone_have_no_budget(plan) -> None:
    """Baselines have no epochs."""
    rows, settings = [{"name": "prior", "encoder": "prior"}], {"train.accelerator": "cpu"}
    found = plan(rows=rows, settings=settings, reference=None)
    assert found.datasets[0].epochs is None


def test_make_plan_given_number_of_epochs_is_the_budget(plan) -> None:
    """That of the experiment is overridden by a row's, and both by --set."""
    found = plan(rows=ROWS, settings={"train.epochs": 7, "train.accelerator": "cpu"})
    assert found.datasets[0].epochs == 7
    assert epochs(found) == {**dict.fromkeys([row["name"] for row in ROWS], 7), "short": 2}
    found = plan(rows=ROWS, overrides={"train.epochs": 3})
    assert set(epochs(found).values()) == {3}


def test_make_plan_settings_of_all_rows_of_another_encoder(plan) -> None:
    """Shared settings may be of an encoder other than MATCH."""
    rows = [{"name": "linear", "encoder": "tfidf_linear"}]
    found = plan(rows=rows, reference=None, overrides={"model.encoder_config.cost": 2.0})
    assert found.cells[0].config.model.encoder_config["cost"] == 2.0


def test_make_plan_nested_settings_are_a_budget_too(plan) -> None:
    """Epochs in a section of the experiment or a row count as dotted ones."""
    rows = [{"name": "MATCH"}, {"name": "short", "settings": {"train": {"epochs": 2}}}]
    found = plan(rows=rows, settings={"train": {"epochs": 7, "accelerator": "cpu"}})
    assert epochs(found) == {"MATCH": 7, "short": 2}


def test_Experiment_sets_what_its_configuration_takes(make_experiment) -> None:
    """A row's section is split into keys, and leaves other keys of the experiment's."""
    rows = [{"name": "MATCH", "settings": {"train": {"patience": 3}}}, {"name": "plain"}]
    experiment = make_experiment(rows=rows, settings={"train.epochs": 7})
    own, plain = experiment.expand([])
    assert [experiment.configure(one, 0).train.epochs for one in (own, plain)] == [7, 7]
    assert experiment.configure(own, 0).train.patience == 3
    assert experiment.sets(own, "train.epochs")
    assert experiment.sets(plain, "train.epochs")
    assert not experiment.sets(plain, "train.patience")


def test_make_plan_section_of_the_experiment_is_a_budget(plan) -> None:
    """It is recorded, and holds for a row whose own section has no epochs."""
    rows = [{"name": "MATCH"}, {"name": "own", "settings": {"train": {"patience": 3}}}]
    for given in ({"train": {"epochs": 7}}, {"train.epochs": 7}):
        for layer in ("settings", "overrides"):
            layers = {"settings": {"train.accelerator": "cpu"}}
            layers[layer] = {**layers.get(layer, {}), **given}
            found = plan(rows=rows, **layers)
            assert epochs(found) == {"MATCH": 7, "own": 7}
            assert found.datasets[0].epochs == 7


def test_make_plan_budgets_of_their_own(plan) -> None:
    """Epochs follow from the size, or from an encoder's preset."""
    found = plan(rows=ROWS, settings={"train.accelerator": "cpu"}, budget="own")
    assert found.datasets[0].epochs is None
    assert epochs(found)["probes"] == 5
    assert epochs(found)["MATCH"] == derive_epochs(8)


def test_make_plan_all_rows_come_with_the_first_seed_first(plan) -> None:
    found = plan()
    assert [(cell.row.name, cell.seed) for cell in found.cells] == [
        ("prior", 0), ("MATCH", 0), ("prior", 1), ("MATCH", 1),
    ]  # fmt: skip
    assert [cell.folder for cell in found.cells][1] == "cells/toy/MATCH/seed0"
    assert found.cells[3].config.seed == 1


def test_make_plan_cells_share_vectors_seed_data_pre_training(plan) -> None:
    """Ablations of the loss share vectors; other metadata, seeds and inits do not."""
    found = plan(
        rows=[
            {"name": "MATCH"},
            {"name": "No-hierarchy", "settings": {"train.lambda_output": 0.0}},
            {"name": "No-venue", "ablation": ["no-venue"]},
            {"name": "No-pretrain", "ablation": ["no-pretrain"]},
            {"name": "text", "encoder": "transformer", "preset": "paper",
             "settings": {"model.channels": 16, "pretrain.channels": 16}},
            {"name": "prior", "encoder": "prior"},
        ]
    )  # fmt: skip
    keys = {(cell.row.name, cell.seed): cell.vectors_key for cell in found.cells}
    assert keys["MATCH", 0] == keys["No-hierarchy", 0]
    assert keys["No-pretrain", 0] is None
    assert keys["prior", 0] is None
    different = [keys[name, 0] for name in ("MATCH", "No-venue", "text")] + [keys["MATCH", 1]]
    assert len({*different}) == 4


def test_make_plan_several_processes_for_a_cell_are_refused(plan) -> None:
    found = plan(overrides={"train.devices": 2})
    assert not found.cells
    assert {cell.reason for cell in found.refused} == {
        "A cell of a benchmark must be one process, found train.devices=2 and "
        "train.num_nodes=1; leave them out and use --workers."
    }


def test_make_plan_row_stands_for_each_field_of_the_data_set(plan) -> None:
    found = plan(rows=[{"name": "MATCH"}, {"name": "No-{field}", "ablation": ["no-{field}"]}])
    names = [row.name for row in found.datasets[0].rows]
    assert names == ["MATCH", "No-venue", "No-author", "No-reference"]
    assert found.cells[1].config.data.drop_fields == ["venue"]


def test_make_plan_of_rows_for_fields_alone(plan) -> None:
    """The data set is opened before its fields, and so its rows, are known."""
    found = plan(rows=[{"name": "No-{field}", "ablation": ["no-{field}"]}], reference=None)
    assert {cell.row.name for cell in found.cells} == {"No-venue", "No-author", "No-reference"}


def test_make_plan_counts_twins_of_the_data_set(plan, monkeypatch) -> None:
    """They are counted once, for all rows and seeds."""
    calls = []

    def count(data):
        calls.append(data)
        return count_twins(data)

    monkeypatch.setattr("match_graph.benchmark.plan.count_twins", count)
    [record] = plan(rows=ROWS).datasets
    assert record.twins == count_twins(calls[0])
    assert record.twins.keys() == {"valid", "test"}
    assert len(calls) == 1


def test_make_plan_rows_one_name_are_refused_when_fields_known(plan) -> None:
    """Rows of one name are refused when the fields are known."""
    rows = [{"name": "MATCH"}, {"name": "No-venue"}, {"name": "No-{field}"}]
    with pytest.raises(ConfigError) as caught:
        plan(rows=rows)
    assert str(caught.value) == (
        "The experiment must be valid for 'toy': 'rows': the name 'No-venue' must be that of one "
        "row only."
    )


def test_make_plan_equal_budget_is_the_largest(plan) -> None:
    """Every row has the epochs of the row with the smallest corpus, which needs most."""
    sizes = {"small": 200, "large": 600}
    rows = [
        {"name": name, "settings": {"data.options.num_documents": number}}
        for name, number in sizes.items()
    ]
    found = plan(
        rows=rows, datasets=["synthetic"], reference=None, settings={"train.accelerator": "cpu"}
    )
    of_own = plan(
        rows=rows, datasets=["synthetic"], reference=None, budget="own",
        settings={"train.accelerator": "cpu"},
    )  # fmt: skip
    own = epochs(of_own)
    assert own["small"] > own["large"]
    assert epochs(found) == dict.fromkeys(sizes, own["small"])
    assert found.datasets[0].epochs == own["small"]


def test_make_plan_override_is_the_budget_of_the_data_set(plan) -> None:
    """``--set train.epochs`` wins over the experiment's number, also as a section."""
    found = plan(settings={"train.epochs": 7}, overrides={"train.epochs": 3})
    assert found.datasets[0].epochs == 3
    found = plan(settings={}, overrides={"train": {"epochs": 3, "accelerator": "cpu"}})
    assert set(epochs(found).values()) == {3}


def test_DatasetPlanner_plan_trial_has_the_equal_budget(plan) -> None:
    """A trial has the epochs of the data set's budget, unless its row sets them."""
    found = plan(rows=ROWS, settings={"train.accelerator": "cpu"})
    record = found.datasets[0].model_copy(update={"epochs": 3})
    trials = {
        row.name: found.planners["toy"].plan_trial(record, row, "trials").config.train.epochs
        for row in record.rows
    }
    assert (trials["MATCH"], trials["own"], trials["short"]) == (3, 3, 2)


def test_Experiment_sets_values_alone(make_experiment) -> None:
    """A null gives epochs back to the size of the corpus, so that the budget is equal again."""
    rows = [{"name": "MATCH", "settings": {"train.epochs": None}}]
    experiment = make_experiment(rows=rows, settings={"train.epochs": 7})
    assert not experiment.sets(experiment.expand([])[0], "train.epochs")
