"""Arguments of public functions that are of another type: one sentence, and no traceback."""

from collections.abc import Callable
from typing import Any

import pytest

import match_graph as mg

NO_PATH = "must be a path, found None; give a string or a Path."
DOCUMENTS = [{"text": "toys"}, {"text": "small toys"}]


def classify(**parameters: Any) -> Any:
    given = {"encoder": "tfidf_linear", "random_state": 0, **parameters}
    return mg.MatchClassifier(**given).fit(DOCUMENTS, [["a"], ["b"]])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: mg.load(None), f"A run folder {NO_PATH}"),
        (lambda: mg.open_run(None), f"A run folder {NO_PATH}"),
        (lambda: mg.share_run(None, "out"), f"A run folder {NO_PATH}"),
        (lambda: mg.share_run("run", None), f"A shared folder {NO_PATH}"),
        (lambda: mg.write_report(None), f"A run or a benchmark {NO_PATH}"),
        (lambda: mg.load_experiment(None), f"An experiment {NO_PATH}"),
        (lambda: mg.load_config(3), f"A configuration {NO_PATH.replace('None', '3')}"),
        (lambda: mg.run_benchmark(None, None), f"A folder of results {NO_PATH}"),
        (
            lambda: mg.start_run("synthetic", mg.load_config(), 3),
            f"A run folder {NO_PATH.replace('None', '3')}",
        ),
        (
            lambda: mg.start_run("synthetic", mg.load_config(), reporter=True),
            "A reporter must be a match_graph.Reporter, found True; make one with "
            "match_graph.Reporter(), or leave it out.",
        ),
        (
            lambda: mg.start_run("synthetic", mg.load_config(), overwrite="false"),
            "overwrite must be True or False, found 'false'.",
        ),
        (
            lambda: mg.load_config(settings="train.epochs=2"),
            "Settings must be a list of key=value, found 'train.epochs=2'; put them into a list.",
        ),
        (
            lambda: mg.load_config(settings=3),
            "Settings must be a list of key=value, found 3; put them into a list.",
        ),
        (lambda: mg.load_config(settings=[3]), "A setting must be key=value, found '3'."),
        (
            lambda: mg.load_experiment("comparison", settings="a=b"),
            "Settings must be a list of key=value, found 'a=b'; put them into a list.",
        ),
        (
            lambda: mg.load_experiment("comparison", datasets="cacm"),
            "datasets must be a list of names, found 'cacm'.",
        ),
        (
            lambda: classify(random_state="a"),
            "random_state must be a whole number, a RandomState or None, found 'a'.",
        ),
        (
            lambda: classify(settings=["a=b"]),
            "settings must be a dict of values by dotted key, found ['a=b'].",
        ),
        (lambda: classify(folder=3), f"A run folder {NO_PATH.replace('None', '3')}"),
        (lambda: classify(classes=3), "Classes must be a list of labels, found 3."),
        (
            lambda: classify(classes=[["a"]]),
            "Classes must be strings or whole numbers, found ['a']; make a string of it.",
        ),
        (
            lambda: classify(fields=[3]),
            "The documents of a fit must be dicts in the MATCH format: a metadata field must be "
            "named by a string, found 3.",
        ),
    ],
)
def test_public_functions_say_what_an_argument_must_be(
    call: Callable[[], Any], expected: str
) -> None:
    """The sentence names the argument and what was found."""
    with pytest.raises(mg.MatchGraphError) as caught:
        call()
    assert str(caught.value) == expected


@pytest.mark.parametrize("documents", [None, 3, "toys", {"text": "toys"}])
def test_Classifier_predict_documents_that_are_no_list(trained_run: mg.Run, documents: Any) -> None:
    """A document alone, too: its keys are no documents."""
    with pytest.raises(mg.CorpusError) as caught:
        mg.load(trained_run.folder).predict(documents)
    assert str(caught.value) == (
        f"The documents must be a list of them, a dict each, found {documents!r}; put them in a "
        f"list."
    )


@pytest.mark.parametrize("open_folder", [mg.open_run, mg.load])
def test_open_run_and_load_code_that_is_no_name(
    trained_run: mg.Run, open_folder: Callable[..., Any]
) -> None:
    """A class in the place of its name."""
    with pytest.raises(mg.CheckpointError) as caught:
        open_folder(trained_run.folder, encoder=mg.MatchEncoder)
    assert str(caught.value) == (
        f"The run in '{trained_run.folder}' was trained with the encoder 'match', and code is "
        f"imported only by request, found encoder={mg.MatchEncoder!r}; load it with "
        f"encoder='match' (--encoder in the shell)."
    )


def test_Classifier_predict_batch_size_is_a_number(trained_run: mg.Run) -> None:
    """None has a meaning for top_k alone."""
    with pytest.raises(mg.ConfigError) as caught:
        mg.load(trained_run.folder).predict(DOCUMENTS, top_k=None, batch_size=None)
    assert str(caught.value) == "batch_size must be a whole number of 1 or more, found None."
