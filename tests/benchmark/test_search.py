"""Search of settings: equal budgets, by validation alone, pruned, continued after kills."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml

from match_graph.benchmark import load_experiment, row_search, run_benchmark, run_search
from match_graph.benchmark.experiment import PlannedRow
from match_graph.benchmark.plan import PlannedCell, make_plan
from match_graph.benchmark.row_search import (
    JOURNAL,
    RowSearch,
    _find_spaces,
    begin,
    change_row,
    list_trials,
    open_searches,
)
from match_graph.benchmark.search import RECORDS, TRIALS, TUNED, _Searcher
from match_graph.benchmark.space import Range
from match_graph.benchmark.trial import (
    PRUNED_ON,
    SECONDS,
    TrialWork,
    open_study,
    read_pruned,
    run_trial,
    watch_trial,
)
from match_graph.config import Config
from match_graph.errors import CheckpointError, ConfigError
from match_graph.io import Reporter
from match_graph.io.cluster import Cluster
from match_graph.runs.record import find_git_hash
from match_graph.testing import toy_documents, write_match_folder

optuna = pytest.importorskip("optuna", reason="no Optuna (extra: tune)")

SMALL = {"model.encoder_config": {"num_layers": 1, "num_cls": 1, "position_channels": 4}}
NETWORK = [{"name": "MATCH", "settings": SMALL, "space": {"model.token_dropout": [0.0, 0.1]}}]
RATES = {"train.learning_rate": {"low": 1e-4, "high": 0.1, "log": True}}


@pytest.fixture
def make_search(make_experiment):
    """A search of a network, a linear model and an ablation of the first, changed by keywords."""

    def make(**changes):
        rows = [
            *NETWORK,
            {"name": "flat", "base": "MATCH", "ablation": ["no-hierarchy"]},
            {
                "name": "linear",
                "encoder": "tfidf_linear",
                "space": {"model.encoder_config.cost": [0.5, 2.0]},
            },
            {"name": "paper", "preset": "paper"},
            {"name": "prior", "encoder": "prior"},
        ]
        search = {"trials": 3, "space": RATES}
        return make_experiment(**{"rows": rows, "search": search, "runs": 1, **changes})

    return make


def read_trials(out: Path) -> pd.DataFrame:
    """Trials without their times."""
    return pd.read_csv(out / RECORDS).drop(columns="seconds")


@pytest.mark.slow
def test_run_search_best_settings_become_rows(make_search, tmp_path: Path, capsys) -> None:
    """The first trial has the settings as they are; the best, and rows based on it, are run."""
    out, root = tmp_path / "out", tmp_path / "root"
    searches = run_search(make_search(runs=2), out, root, reporter=Reporter())
    assert "search of MATCH, linear: 3 trials each, by NDCG@5 on valid" in capsys.readouterr().err
    trials = pd.read_csv(out / RECORDS)
    assert trials["row"].tolist() == ["MATCH"] * 3 + ["linear"] * 3
    assert set(trials["state"]) == {"complete"}
    first = trials.iloc[0]
    assert (first["train.learning_rate"], first["model.token_dropout"]) == (1e-3, 0.1)
    assert trials.iloc[3]["model.encoder_config.cost"] == 0.5
    assert trials["train.learning_rate"].nunique() == 3
    tuned = load_experiment(out / TUNED)
    assert (tuned.tuned_on, tuned.runs) == (["toy"], 2)
    best = {search.row.name: search.best for search in searches}
    for name, trial in best.items():
        assert trial.value == trials[trials["row"] == name]["value"].max()
    rows = {row.name: row.settings for row in tuned.expand([])}
    rate = best["MATCH"].params["train.learning_rate"]
    assert rows["MATCH"]["train.learning_rate"] == rows["flat"]["train.learning_rate"] == rate
    one = tuned.model_copy(update={"runs": 1})
    results = run_benchmark(one, tmp_path / "benchmark", root)
    cells = {cell.row: cell for cell in results.cells}
    assert {cell.status for cell in cells.values()} == {"done"}
    assert cells["flat"].config["train"]["learning_rate"] == rate
    assert cells["MATCH"].metrics["valid"]["NDCG@5"] == pytest.approx(best["MATCH"].value)


@pytest.mark.slow
def test_run_search_never_reads_test(make_search, toy_folder: Path, tmp_path: Path) -> None:
    """Other gold labels of test documents change no trial, and no file has a measure of them."""
    experiment = make_search()
    run_search(experiment, tmp_path / "one", tmp_path / "root")
    documents = toy_documents()
    labels = [document["label"] for document in documents["test"]]
    for document, other in zip(documents["test"], reversed(labels), strict=True):
        document["label"] = other
    assert labels != labels[::-1]
    write_match_folder(toy_folder, documents)
    run_search(experiment, tmp_path / "two", tmp_path / "root")
    pd.testing.assert_frame_equal(read_trials(tmp_path / "one"), read_trials(tmp_path / "two"))
    files = [*(tmp_path / "one" / TRIALS).rglob("metrics.json")]
    assert len(files) == 6
    assert all(yaml.safe_load(file.read_text()).keys() == {"valid"} for file in files)


@pytest.mark.slow
def test_run_search_killed_search_goes_on(make_search, tmp_path: Path) -> None:
    """`kill -9` in two trainings: the same trials as of a search that was left alone."""
    overrides = {"train.epochs": 20, "train.patience": 20}
    search = {"trials": 2, "space": RATES}
    experiment = make_search(overrides=overrides, search=search, rows=NETWORK)
    path, out, root = tmp_path / "e.yaml", tmp_path / "out", tmp_path / "root"
    path.write_text(yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False))
    script = (
        "from match_graph.benchmark import load_experiment, run_search\n"
        f"run_search(load_experiment({str(path)!r}), {str(out)!r}, {str(root)!r})\n"
    )
    for number in (0, 1):
        process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ})
        state = out / TRIALS / "MATCH" / f"{number:04d}" / "toy" / "checkpoint" / "state.pt"
        while not state.is_file():
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.wait()
    run_search(experiment, out, root)
    run_search(experiment, tmp_path / "whole", root)
    pd.testing.assert_frame_equal(read_trials(out), read_trials(tmp_path / "whole"))


def test_RowSearch_ask_tries_all_of_a_finite_space() -> None:
    """No point twice before each has a trial, and the same ones from the same seeds."""
    space = {"cost": [0.2, 0.5, 1.0], "a, b": Range(low=1, high=2)}
    drawn = []
    for _ in range(2):
        search = RowSearch(PlannedRow(name="row"), space, optuna.create_study(direction="maximize"))
        for seed in range(7):
            sampler = optuna.samplers.TPESampler(n_startup_trials=3, multivariate=True, seed=seed)
            search.study.tell(search.ask(sampler), seed % 3)
        drawn.append([tuple(trial.params.values()) for trial in search.trials])
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 7
    assert len({*drawn[0][:6]}) == 6


def test_RowSearch_ask_last_point_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler whose draws all have a trial does not keep the search from other points."""
    monkeypatch.setattr(row_search, "_DRAWS", 0)
    study = optuna.create_study(direction="maximize")
    search = RowSearch(PlannedRow(name="row"), {"a": [1, 2, 3]}, study)
    for _ in range(3):
        search.ask(optuna.samplers.RandomSampler(seed=0))
    assert [trial.params["a"] for trial in search.trials] == [1, 2, 3]


def test_RowSearch_ask_takes_what_a_killed_call_has_put_in_line() -> None:
    """Killed between the choice of a point and its trial, a search tries that point once."""
    study = optuna.create_study(direction="maximize")
    study.enqueue_trial({"a": 2})
    search = RowSearch(PlannedRow(name="row"), {"a": [1, 2, 3]}, study)
    for seed in range(3):
        search.ask(optuna.samplers.RandomSampler(seed=seed))
    assert search.trials[0].params == {"a": 2}
    assert sorted(trial.params["a"] for trial in search.trials) == [1, 2, 3]


@pytest.mark.slow
def test_run_search_on_cluster(make_search, tmp_path: Path) -> None:
    """Two trials at a time, as many as the budget says."""
    pytest.importorskip("distributed", reason="no Dask (extra: scale)")
    experiment, cluster = make_search(rows=NETWORK), Cluster(workers=2)
    [search] = run_search(experiment, tmp_path / "out", tmp_path / "root", cluster)
    assert search.count("COMPLETE") + search.count("PRUNED") == 3


@pytest.mark.slow
def test_run_search_trial_behind_others_is_pruned(make_search, tmp_path: Path) -> None:
    """A rate that learns nothing is given up after a third, once four trials have run whole."""
    space = {"train.learning_rate": [1e-3, 1e-9]}
    rows = [{"name": "MATCH", "settings": SMALL}]
    overrides = {
        **{
            "train.epochs": 6,
            "train.patience": 6,
            "model.label_prior": False,
            "model.blend": False,
        },
        "data.options": {"num_documents": 300, "num_labels": 24},
    }
    search = {"trials": 6, "space": space}
    experiment = make_search(rows=rows, datasets=["synthetic"], search=search, overrides=overrides)
    (search,) = run_search(experiment, tmp_path / "out", tmp_path / "root")
    trials = pd.read_csv(tmp_path / "out" / RECORDS)
    pruned = trials[trials["state"] == "pruned"]
    assert search.count("PRUNED") == len(pruned) > 0
    assert set(pruned["train.learning_rate"]) == {1e-9}
    assert set(pruned["epochs"]) == {2}
    assert set(pruned["pruned_on"]) == {"synthetic"}
    assert pruned["value"].isna().all()
    assert pruned["pruned_at"].between(0, trials["value"].max()).all()
    assert search.best.params == {"train.learning_rate": 1e-3}


def test_watch_trial_compares_on_each_data_set() -> None:
    """Behind on the second one, where all are worse than on the first; not before a third of it,
    and not behind its last epoch, when nothing is saved any more.
    """
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(4))
    for _ in range(4):
        trial = study.ask()
        for place, value in enumerate((0.9, 0.5)):
            for epoch in (1, 2, 3):
                watch_trial(study, trial, place, 4)({"NDCG@5": value, "epoch": epoch})
        study.tell(trial, 0.7)
    trial = study.ask()
    for epoch in (1, 2, 3):
        watch_trial(study, trial, 0, 4)({"NDCG@5": 0.95, "epoch": epoch})
    for epochs, epoch in ((4, 1), (2, 2)):
        watch_trial(study, trial, 1, epochs)({"NDCG@5": 0.4, "epoch": epoch})
    again = watch_trial(study, trial, 1, 4)
    with pytest.raises(optuna.TrialPruned):
        again({"NDCG@5": 0.4, "epoch": 2})
    study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    assert read_pruned(study.trials[-1]) == pytest.approx(0.4)  # not 1.4
    assert read_pruned(study.trials[0]) is None
    table = list_trials([RowSearch(PlannedRow(name="row"), {}, study)])
    assert table["epochs"].tolist() == [6, 6, 6, 6, 5]  # of both data sets


def test_run_search_minutes_are_of_a_row(make_search, tmp_path: Path) -> None:
    """No trial begins once a row has had its minutes; the first one always does."""
    search = {"trials": 3, "space": RATES, "minutes": 1e-4}
    searches = run_search(make_search(search=search), tmp_path / "out", tmp_path / "root")
    assert [len(search.trials) for search in searches] == [1, 1]


def test_run_search_failed_trials_say_why(make_search, tmp_path: Path) -> None:
    """A row whose trials fail has none that is best; the others go on."""
    (tmp_path / "out").mkdir()
    rows = [
        {"name": "linear", "encoder": "tfidf_linear", "space": {"model.encoder_config.cost": [1]}},
        {"name": "MATCH", "settings": SMALL},
    ]
    search = {"trials": 1, "space": {"model.token_dropout": [0.1]}}
    place = tmp_path / "out" / TRIALS / "MATCH" / "0000" / "toy"
    place.parent.mkdir(parents=True)
    place.write_text("in the way")
    searches = run_search(
        make_search(rows=rows, search=search), tmp_path / "out", tmp_path / "root"
    )
    assert [search.count("FAIL") for search in searches] == [0, 1]
    assert searches[1].trials[0].user_attrs[SECONDS] == searches[1].seconds > 0
    assert searches[1].best is None
    reasons = pd.read_csv(tmp_path / "out" / RECORDS)["reason"]
    assert reasons.isna().tolist() == [True, False]


def test_run_search_settings_that_do_not_go_together(make_search, tmp_path: Path) -> None:
    """A trial with two values that exclude each other fails; the search goes on and can resume."""
    space = {"model.init": ["random"], "model.head_from_labels": [False, True]}
    rows = [{"name": "MATCH", "settings": SMALL, "space": space}]
    experiment = make_search(rows=rows, search={"trials": 4})
    [search] = run_search(experiment, tmp_path / "out", tmp_path / "root")
    assert search.count("FAIL") > 0
    assert search.count("FAIL") + search.count("COMPLETE") == 4
    trials = pd.read_csv(tmp_path / "out" / RECORDS)
    failed = trials["model.head_from_labels"]
    assert (trials["state"] == "fail").equals(failed.astype(bool))
    assert trials["reason"][failed].str.contains("needs pre-trained label vectors").all()
    [again] = run_search(experiment, tmp_path / "out", tmp_path / "root")
    assert len(again.trials) == 4


def test_run_search_row_at_a_preset_has_its_own_space_alone(make_search, tmp_path: Path) -> None:
    """The space of all networks is not searched for it: it would replace the paper's settings."""
    row = {"name": "paper", "preset": "paper", "space": {"train.clip_norm": [1.0, 2.0]}}
    search = {"trials": 1, "space": RATES}
    experiment = make_search(rows=[row], search=search, reference=None)
    assert dict(_find_spaces(experiment)) == {"paper": {"train.clip_norm": [1.0, 2.0]}}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"search": {}, "rows": [{"name": "MATCH"}]}, "A search must have a space"),
        (
            {"search": {"space": {"train.learning_rate": [0.0, 1.0]}}},
            r"'rows', MATCH, 'train.learning_rate': .*greater than 0",
        ),
        (
            {"search": {"space": {"train.warmup": {"low": 0.1, "high": 2.0}}}},
            r"'rows', MATCH, 'train.warmup': .*less than",
        ),
        ({"search": {"space": {"train.rate": [1.0]}}}, "'train.rate' is not a setting"),
        (
            {"overrides": {"train": {"learning_rate": 0.1}}},
            r"'rows', MATCH, 'train.learning_rate': '.*' is given by 'overrides' or --set",
        ),
        ({"grid": {"train.epochs": [1]}, "reference": None}, "takes the place of a grid"),
        ({"report_on": ["toy"]}, "chosen on, found 'toy' in 'report_on' of the experiment; search"),
    ],
)
def test_run_search_faults(make_search, tmp_path: Path, changes, fault: str) -> None:
    """One sentence before anything is trained."""
    with pytest.raises(ConfigError, match=fault):
        run_search(make_search(**changes), tmp_path / "out", tmp_path / "root")
    assert not (tmp_path / "out").exists()


def test_run_search_of_another_space_is_refused(make_search, tmp_path: Path) -> None:
    """A folder has one search."""
    out, root = tmp_path / "out", tmp_path / "root"
    rows = ["linear"]
    run_search(make_search(search={"trials": 1}), out, root, rows=rows)
    run_search(make_search(search={"trials": 2}), out, root, rows=rows)  # more of the same
    assert len(pd.read_csv(out / RECORDS)) == 2
    with pytest.raises(CheckpointError, match="must go on with the space, settings, defaults"):
        run_search(make_search(search={"trials": 2}, seed=1), out, root, rows=rows)


def test_run_search_keeps_the_record_of_other_rows(make_search, tmp_path: Path) -> None:
    """Rows that are searched by one call each: all trials, and the best settings of both."""
    out, root = tmp_path / "out", tmp_path / "root"
    space = {"model.encoder_config.cost": [0.5, 2.0]}
    rows = [{"name": name, "encoder": "tfidf_linear", "space": space} for name in ("a", "b")]
    experiment = make_search(rows=rows, search={"trials": 2}, reference=None)
    for name in ("b", "a"):
        [search] = run_search(experiment, out, root, rows=[name])
        assert search.row.name == name
    assert pd.read_csv(out / RECORDS)["row"].tolist() == ["a", "a", "b", "b"]
    tuned = {row.name: row.settings for row in load_experiment(out / TUNED).rows}
    assert all("model.encoder_config.cost" in tuned[name] for name in ("a", "b"))
    other = make_search(rows=rows, search={"trials": 1}, reference=None, seed=1)
    with pytest.raises(CheckpointError):
        run_search(other, out, root, rows=["a"])


def test_run_search_drops_no_trials_of_other_rows(make_search, tmp_path: Path) -> None:
    """One record cannot have rows of two experiments: other settings, or a row that is no more."""
    out, root = tmp_path / "out", tmp_path / "root"
    space = {"model.encoder_config.cost": [0.5, 2.0]}
    rows = [{"name": name, "encoder": "tfidf_linear", "space": space} for name in ("a", "b")]
    common = {"search": {"trials": 1}, "reference": None}
    run_search(make_search(rows=rows, **common), out, root, rows=["a"])
    before = (out / RECORDS).read_bytes(), (out / TUNED).read_bytes()
    changed = [{**rows[0], "settings": {"model.coherent": False}}, rows[1]]
    for others in (changed, rows[1:]):
        with pytest.raises(CheckpointError, match="has trials of 'a' with others"):
            run_search(make_search(rows=others, **common), out, root, rows=["b"])
    assert before == ((out / RECORDS).read_bytes(), (out / TUNED).read_bytes())
    run_search(make_search(rows=rows, **common), out, root, rows=["b"])  # goes on as it began
    assert pd.read_csv(out / RECORDS)["row"].tolist() == ["a", "b"]


def test_run_search_tells_of_unequal_budgets(make_search, tmp_path: Path, capsys) -> None:
    """Numbers of trials by row, where no minutes limit them; the commit of each trial is there."""
    out, root = tmp_path / "out", tmp_path / "root"
    space = {"model.encoder_config.cost": [0.5, 2.0]}
    rows = [{"name": name, "encoder": "tfidf_linear", "space": space} for name in ("a", "b")]
    for name, trials in (("a", 2), ("b", 1)):
        experiment = make_search(rows=rows, search={"trials": trials}, reference=None)
        run_search(experiment, out, root, rows=[name])
    assert "warning: rows have different numbers of trials, not equal budgets: a 2, b 1\n" in (
        capsys.readouterr().err
    )
    commits = {*pd.read_csv(out / RECORDS)["commit"].dropna()}
    assert commits == {find_git_hash()} - {None}  # none outside a checkout


def test_run_search_leaves_out_rows_that_make_no_sense(make_search, tmp_path: Path, capsys) -> None:
    """As a benchmark does; asked for by name, or where none is left, it is an error."""
    out, root = tmp_path / "out", tmp_path / "root"
    space = {"model.encoder_config.cost": [0.5, 2.0]}
    rows = [
        {"name": "a", "encoder": "tfidf_linear", "space": space},
        {"name": "b", "encoder": "tfidf_linear", "space": space, "ablation": ["no-colour"]},
    ]
    experiment = make_search(rows=rows, search={"trials": 1}, reference=None)
    [search] = run_search(experiment, out, root, reporter=Reporter(quiet=True))
    assert search.row.name == "a"
    assert "warning: no search of 'b' on toy: An ablation must leave out" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"sense for every data set, found 'b' on toy: An abl"):
        run_search(experiment, out, root, rows=["b"])


def test_run_search_of_other_defaults_is_refused(
    make_search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search is not resumed if a new version resolves the default batch size differently."""
    out, root = tmp_path / "out", tmp_path / "root"
    search = {"trials": 1, "space": RATES}
    experiment = make_search(search=search, rows=NETWORK)
    settings = {**experiment.settings}
    del settings["train.batch_size"]
    experiment = make_search(search=search, rows=NETWORK, settings=settings)
    run_search(experiment, out, root)
    monkeypatch.setattr("match_graph.runs.configure.derive_batch_size", lambda _: 8)
    with pytest.raises(CheckpointError, match="with the space, settings, defaults, data and seed"):
        run_search(experiment, out, root)


def test_run_search_journal_that_was_cut_off(make_search, tmp_path: Path) -> None:
    """Half a last line, of a full disk, goes; what is no journal is named."""
    out, root = tmp_path / "out", tmp_path / "root"
    one = make_search(search={"trials": 1})
    run_search(one, out, root, rows=["linear"])
    journal = out / JOURNAL
    with journal.open("a") as file:
        file.write('{"op_code": 4, "wor')
    run_search(make_search(search={"trials": 2}), out, root, rows=["linear"])
    assert len(pd.read_csv(out / RECORDS)) == 2
    journal.write_text("[]\n")
    with pytest.raises(CheckpointError, match=r"search\.journal' cannot be read"):
        run_search(one, out, root, rows=["linear"])


def test_run_search_of_other_own_code_is_refused(make_search, tmp_path: Path) -> None:
    """Trials of a search are of one code."""
    out, root, code = tmp_path / "out", tmp_path / "root", tmp_path / "own_prior.py"
    text = "from match_graph import LabelPrior\n\n\nclass Mine(LabelPrior):\n    pass\n"
    code.write_text(text)
    space = {"model.coherent": [False, True]}
    rows = [{"name": "mine", "encoder": f"{code}:Mine", "space": space}]
    experiment = make_search(search={"trials": 1}, rows=rows, reference=None)
    for _ in range(2):
        run_search(experiment, out, root)
    code.write_text(f"{text}    offset = 1\n")
    with pytest.raises(CheckpointError, match="must go on with the space, settings, defaults"):
        run_search(experiment, out, root)


@pytest.mark.parametrize("changed", ["features", "documents"])
def test_run_search_of_other_files_of_a_row_is_refused(
    make_search, tmp_path: Path, changed: str
) -> None:
    """Files that a row alone reads: vectors, and documents by an option of its own."""
    shared, own = tmp_path / "shared.jsonl", tmp_path / "own.jsonl"
    vectors, out, root = tmp_path / "vectors.npy", tmp_path / "out", tmp_path / "root"
    documents = [(split, one) for split, some in toy_documents().items() for one in some]
    lines = [
        json.dumps({"id": one["paper"], "fold": split, "text": one["text"], "label": one["label"]})
        for split, one in documents
    ]
    for path in (shared, own):
        path.write_text("\n".join(lines))
    np.save(vectors, np.ones((len(lines), 2), np.float32))
    columns = {"split": "fold"}
    settings = {
        "data.options": {"path": str(own), "columns": columns},
        "data.features.document": str(vectors),
    }
    row = {"name": "linear", "encoder": "tfidf_linear", "settings": settings}
    experiment = make_search(
        datasets=["custom"], reference=None, search={"trials": 1},
        rows=[{**row, "space": {"model.encoder_config.cost": [0.5, 2.0]}}],
        settings={"data.options": {"path": str(shared), "columns": columns}},
    )  # fmt: skip
    for _ in range(2):
        run_search(experiment, out, root)
    assert pd.read_csv(out / RECORDS)["state"].tolist() == ["complete"]
    if changed == "features":
        np.save(vectors, np.zeros((len(lines), 2), np.float32))
    else:
        own.write_text("\n".join(lines).replace("deep", "shallow"))
    with pytest.raises(CheckpointError, match="must go on with the space, settings, defaults"):
        run_search(experiment, out, root)


def test_RowSearch_best_is_the_highest_of_complete_trials() -> None:
    """The first of equal trials wins; values that a pruned trial reported do not count."""
    study, state = optuna.create_study(direction="maximize"), optuna.trial.TrialState
    for value in (0.5, 0.7, 0.7, 0.6):
        study.add_trial(optuna.trial.create_trial(state=state.COMPLETE, value=value))
    pruned = {"value": 1.9, "intermediate_values": {10**6: 1.9}}
    study.add_trial(optuna.trial.create_trial(state=state.PRUNED, **pruned))
    search = RowSearch(PlannedRow(name="row"), {}, study)
    assert search.best.number == 1
    assert list_trials([search])["value"].dropna().tolist() == [0.5, 0.7, 0.7, 0.6]


def test_find_spaces_of_rows_that_are_searched(make_search) -> None:
    """The networks' space is for networks, below a row's own; a row with a base has its base's."""
    assert dict(_find_spaces(make_search())) == {
        "MATCH": {"train.learning_rate": Range(**RATES["train.learning_rate"]),
                  "model.token_dropout": [0.0, 0.1]},
        "linear": {"model.encoder_config.cost": [0.5, 2.0]},
    }  # fmt: skip
    rows = [{"name": "MATCH", "space": {"train.learning_rate": [0.01, 0.1]}}]
    assert dict(_find_spaces(make_search(rows=rows))) == {
        "MATCH": {"train.learning_rate": [0.01, 0.1]}
    }


def test_change_row_takes_the_place_of_its_settings() -> None:
    row = PlannedRow(name="row", settings={"train.epochs": 1, "train.patience": 5})
    changed = change_row(row, {"train.epochs": 2})
    assert changed.settings == {"train.epochs": 2, "train.patience": 5}


LINEAR = [
    {
        "name": name,
        "encoder": "tfidf_linear",
        "settings": {"model.encoder_config.cost": 0.5},
        "space": {"model.encoder_config.cost": {"low": 0.1, "high": 9.0}},
    }
    for name in ("a", "b")
]


@pytest.fixture
def make_searcher(make_search, tmp_path: Path):
    """Makes the object that runs trials, for two linear models, before their first trial."""

    def make(folder: str = "out", **changes) -> _Searcher:
        out, root, quiet = tmp_path / folder, str(tmp_path / "root"), Reporter(quiet=True)
        out.mkdir(exist_ok=True)
        experiment = make_search(**{"rows": LINEAR, "reference": None, **changes})
        plan = make_plan(experiment, root, quiet)
        searches = open_searches(plan, out, None, quiet)
        for search in searches:
            begin(plan, search)
        return _Searcher(plan, out, root, None, quiet, searches, [], 3)

    return make


def submit_all(searcher: _Searcher) -> list[TrialWork]:
    """Work orders of all trials, in their order; none is done."""
    works: list[TrialWork] = []
    calls = SimpleNamespace(submit=lambda _key, _function, work, _gpu: works.append(work))
    while (due := searcher._find_due([], [])) and len(works) < 20:
        searcher._submit(*due, calls)
    return works


def find_costs(works: list[TrialWork]) -> list[float]:
    return [work.cell.config.model.encoder_config["cost"] for work in works]


def test_run_search_trials_take_turns_and_differ(make_searcher) -> None:
    """Rows in turn, from their own settings on; drawn by seed, row and number of the trial."""
    works = submit_all(make_searcher())
    assert [work.row for work in works] == ["a", "b"] * 3
    costs = find_costs(works)
    assert costs[:2] == [0.5, 0.5]
    assert len({*costs[2:]}) == 4
    assert find_costs(submit_all(make_searcher("again"))) == costs
    other = find_costs(submit_all(make_searcher("other", seed=1)))
    assert not {*costs[2:]} & {*other[2:]}


def test_run_search_trials_of_all_data_sets(make_searcher, tmp_path: Path) -> None:
    """Each has a run folder on each data set, and the measure that is asked for."""
    folders = [str(write_match_folder(tmp_path / name)) for name in ("toy", "twin")]
    search = {"trials": 2, "measure": "P@1"}
    works = submit_all(make_searcher(datasets=folders, search=search))
    assert {work.measure for work in works} == {"P@1"}
    assert [cell.dataset for cell in works[0].cells] == ["toy", "twin"]
    assert len({cell.folder for work in works for cell in work.cells}) == 4 * 2


def test_run_search_trials_begin_within_the_minutes(make_searcher) -> None:
    """The seconds of all trials of a row add up; beyond the limit none begins."""
    searcher = make_searcher(search={"trials": 3, "minutes": 1.5})
    state = optuna.trial.TrialState.COMPLETE
    for search, seconds in zip(searcher.searches, (40.0, 50.0), strict=True):
        for _ in range(2):
            attributes = {SECONDS: seconds}
            search.study.add_trial(
                optuna.trial.create_trial(state=state, value=0.5, user_attrs=attributes)
            )
    search, _ = searcher._find_due([], [])
    assert search.row.name == "a"
    assert not submit_all(make_searcher("none", search={"trials": 1, "minutes": 1e-9}))[2:]


def test_run_search_tuned_rows_have_the_best_settings(make_searcher) -> None:
    """They win over the row's; the data sets join those of earlier tuning."""
    searcher = make_searcher(tuned_on=["far", "toy"])
    costs = find_costs(submit_all(searcher))[::2]
    for search, values in zip(searcher.searches, ((0.2, 0.9, 0.4), (0.9, 0.2, 0.4)), strict=True):
        for number, value in enumerate(values):
            search.study.tell(number, value)
    searcher._write()
    tuned = load_experiment(searcher.out / TUNED)
    found = [row.settings["model.encoder_config.cost"] for row in tuned.rows]
    assert found == [pytest.approx(costs[1]), 0.5]
    assert (tuned.tuned_on, tuned.runs) == (["far", "toy"], 3)


def test_run_search_keeps_vectors_that_others_start_from(make_searcher) -> None:
    """The first trial with its vectors keeps all files, later ones their records alone."""
    searcher = make_searcher(rows=NETWORK, search={"trials": 2})
    [search] = searcher.searches
    submit_all(searcher)
    names = ("config.yaml", "model.safetensors", "vectors.safetensors")
    for [cell] in search.planned.values():
        folder = searcher.out / cell.folder
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
    left = []
    for cells in search.planned.values():
        searcher._remove_weights(cells)
        left.append(sorted(path.name for path in (searcher.out / cells[0].folder).iterdir()))
    assert left == [[*names], ["config.yaml"]]


@pytest.mark.parametrize(
    "changes",
    [
        {"search": {"trials": 3, "measure": "P@1"}},
        {"rows": [{**row, "space": {"model.encoder_config.cost": [0.5]}} for row in LINEAR]},
        {"settings": {"data.hierarchy": "ignore"}},
        {"seed": 1},
    ],
    ids=["measure", "space", "settings", "seed"],
)
def test_open_searches_refuses_trials_of_another_search(make_searcher, changes: dict) -> None:
    """Their values could not be compared."""
    assert len(make_searcher().searches) == 2
    assert len(make_searcher().searches) == 2
    with pytest.raises(CheckpointError, match="must go on with the space, settings, defaults"):
        make_searcher(**changes)


def test_open_searches_refuses_another_space_of_all_networks(make_searcher) -> None:
    make_searcher(rows=NETWORK)
    search = {"trials": 3, "space": {"train.learning_rate": [1e-3, 1e-2]}}
    with pytest.raises(CheckpointError, match="must go on with the space, settings, defaults"):
        make_searcher(rows=NETWORK, search=search)


def test_RowSearch_find_settings_gives_one_value_to_several_keys() -> None:
    """And none to keys of the space that the trial has not drawn."""
    study = optuna.create_study()
    study.enqueue_trial({"a, b": 2})
    search = RowSearch(PlannedRow(name="row"), {"a, b": [1, 2]}, study)
    search.ask(optuna.samplers.RandomSampler(seed=0))
    later = RowSearch(search.row, {"a, b": [1, 2], "c": [3]}, study)
    assert later.find_settings(study.trials[0]) == {"a": 2, "b": 2}


def test_run_trial_value_is_the_mean_over_data_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean of the measure on valid is maximized; test is not evaluated."""
    evaluated = []

    def open_here(_work: TrialWork, cell: PlannedCell, _vectors: None) -> SimpleNamespace:
        found = {"P@1": {"a": 0.2, "b": 0.6}[cell.dataset], "NDCG@5": 0.9}
        return SimpleNamespace(
            is_finished=False,
            train=lambda _: None,
            evaluate=lambda **given: evaluated.append(given),
            read_metrics=lambda: {"valid": found, "test": {"P@1": 1.0}},
        )

    monkeypatch.setattr("match_graph.benchmark.trial.open_cell", open_here)
    study = open_study(tmp_path / JOURNAL, "row")
    assert study.direction.name == "MAXIMIZE"
    run_trial(make_trial_work(tmp_path, study))
    [trial] = study.get_trials()
    assert trial.value == pytest.approx(0.4)
    assert evaluated == [{"with_test": False}] * 2


def make_trial_work(folder: Path, study: optuna.Study) -> TrialWork:
    """Work order of a new trial on the data sets a and b."""
    row = PlannedRow(name="row")
    cells = tuple(PlannedCell(name, name, row, 0, name, Config(), "") for name in ("a", "b"))
    return TrialWork(
        cells[0], folder, None, None, 1, {}, run_trial, cells, (None, None), folder / JOURNAL,
        "row", study.ask()._trial_id, "P@1",
    )  # fmt: skip


def test_run_trial_names_the_data_set_that_it_was_pruned_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one, where the first was finished by a call that was killed."""

    def prune(_watch) -> None:
        raise optuna.TrialPruned

    def open_here(_work: TrialWork, cell: PlannedCell, _vectors: None) -> SimpleNamespace:
        return SimpleNamespace(
            is_finished=cell.dataset == "a",
            train=prune,
            read_metrics=lambda: {"valid": {"P@1": 0.5}},
        )

    monkeypatch.setattr("match_graph.benchmark.trial.open_cell", open_here)
    study = open_study(tmp_path / JOURNAL, "row")
    run_trial(make_trial_work(tmp_path, study))
    [trial] = study.get_trials()
    assert (trial.state.name, trial.user_attrs[PRUNED_ON]) == ("PRUNED", "b")
