"""MatchClassifier with scikit-learn's tools: on toy documents, and on cacm where available."""

import copy
import pickle
import shutil
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score, ndcg_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer
from sklearn.utils.estimator_checks import check_estimator

from match_graph import MatchClassifier, load
from match_graph.errors import CheckpointError, ConfigError, CorpusError
from match_graph.io.json_lines import read_json_lines
from match_graph.runs.vocabulary import read_hierarchy
from match_graph.testing import toy_documents
from match_graph.testing.toy import TOY_FIELDS, TOY_TAXONOMY

DOCUMENTS = [record for split in toy_documents().values() for record in split]
LABELS = [record["label"] for record in DOCUMENTS]
EDGES = [(child, line.split()[0]) for line in TOY_TAXONOMY for child in line.split()[1:]]
BINARIZER = MultiLabelBinarizer().fit(LABELS)
MATRIX = BINARIZER.transform(LABELS)

_NO_DOCUMENTS = "fits rows of an array of numbers, which are no documents"
_NO_LISTS = "gives a class per row, where labels are lists or an indicator matrix"
#: Checks of scikit-learn that cannot pass, each with the reason.
EXPECTED = {
    **dict.fromkeys([
        "check_fit_score_takes_y", "check_estimators_overwrite_params",
        "check_dont_overwrite_parameters", "check_estimators_fit_returns_self",
        "check_readonly_memmap_input", "check_positive_only_tag_during_fit",
        "check_pipeline_consistency", "check_estimators_pickle",
        "check_f_contiguous_array_estimator", "check_classifier_data_not_an_array",
        "check_classifiers_train", "check_classifier_multioutput",
        "check_classifiers_multilabel_representation_invariance",
        "check_classifiers_multilabel_output_format_predict",
        "check_classifiers_multilabel_output_format_predict_proba",
        "check_classifiers_multilabel_output_format_decision_function",
        "check_methods_sample_order_invariance", "check_methods_subset_invariance",
        "check_dict_unchanged", "check_fit_idempotent", "check_fit_check_is_fitted",
    ], _NO_DOCUMENTS),
    **dict.fromkeys([
        "check_estimators_dtypes", "check_classifiers_one_label", "check_classifiers_classes",
        "check_fit2d_1feature",
    ], _NO_LISTS),
    **dict.fromkeys([
        "check_estimator_sparse_tag", "check_estimator_sparse_array",
        "check_estimator_sparse_matrix",
    ], "fits a sparse matrix, whose rows are no documents"),
    "check_fit2d_1sample": "a single document leaves none for validation; not a ValueError",
    "check_classifier_not_supporting_multiclass": "asks for the message of a binary classifier",
}  # fmt: skip


class ArrayClassifier(MatchClassifier):
    """A subclass that claims to take arrays, as scikit-learn checks no other estimators."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


def make(**parameters: Any) -> MatchClassifier:
    """A linear classifier of the toy documents."""
    given = {"encoder": "tfidf_linear", "fields": TOY_FIELDS, "hierarchy": EDGES, "random_state": 0}
    given |= {"settings": {"data.min_word_count": 1}, "validation_fraction": 0.25}
    return MatchClassifier(**(given | parameters))


@pytest.fixture(scope="module")
def fitted() -> MatchClassifier:
    return make().fit(DOCUMENTS, LABELS)


def test_match_classifier_ignores_a_hierarchy_by_setting() -> None:
    """data.hierarchy=ignore drops a cyclic hierarchy, as the error about it says."""
    settings = {"data.min_word_count": 1, "data.hierarchy": "ignore"}
    estimator = make(hierarchy=[("a", "b"), ("b", "a")], encoder="prior", settings=settings)
    estimator.fit(DOCUMENTS, LABELS)
    assert not read_hierarchy(estimator.folder_, len(estimator.classes_)).edge_index.numel()


def test_match_classifier_reads_texts_by_tokenizer() -> None:
    """The run keeps the tokenizer, and new documents are read by it."""
    words = {"закон": "Recht", "größe": "Maß"}
    documents = [{"text": f"{word} {n}"} for n in range(12) for word in words]
    labels = [[words[one["text"].split()[0]]] for one in documents]
    settings = {"data.tokenizer": "unicode"}
    estimator = make(fields=[], hierarchy=None, settings=settings).fit(documents, labels)
    assert {*words} <= {*load(estimator.folder_, device="cpu").vocabulary.rows["word"]}
    found = estimator.predict_proba([{"text": "закон".upper()}, {"text": "GRO\u0308ße"}])
    assert estimator.classes_[found.argmax(1)].tolist() == ["Recht", "Maß"]


def test_match_classifier_warns_of_keys_that_it_does_not_read() -> None:
    """A warning names unread keys without `fields` or with some; `fields=[]` gives no warning."""
    for fields, unread in ((None, [*TOY_FIELDS]), (TOY_FIELDS[:1], TOY_FIELDS[1:])):
        with pytest.warns(UserWarning, match="of documents are not read; name those") as caught:
            make(encoder="prior", fields=fields).fit(DOCUMENTS, LABELS)
        assert all(f"'{name}'" in str(caught[0].message) for name in unread)
    make(encoder="prior", fields=[]).fit(DOCUMENTS, LABELS)
    make(encoder="prior", fields=iter(TOY_FIELDS)).fit(DOCUMENTS, LABELS)  # read once


@pytest.mark.filterwarnings("ignore")  # of checks that scikit-learn skips
def test_match_classifier_passes_checks_of_scikit_learn() -> None:
    """All checks of scikit-learn pass except those listed, which all fail."""
    done = check_estimator(
        ArrayClassifier(), expected_failed_checks=EXPECTED, on_skip=None, on_fail=None
    )
    status: dict[str, set[str]] = {}
    for check in done:
        status.setdefault(check["status"], set()).add(check["check_name"])
    assert status.get("failed", set()) == set()
    assert status["xfail"] == set(EXPECTED)
    assert len(status["passed"] - set(EXPECTED)) >= 15


def test_match_classifier_fit_keeps_parameters_and_documents() -> None:
    """fit changes no parameter or document; classes_ are sorted as by MultiLabelBinarizer."""
    documents, settings = copy.deepcopy(DOCUMENTS), {"data.min_word_count": 1}
    estimator = make(settings=settings)
    before = estimator.get_params()
    assert is_classifier(estimator)
    assert estimator.fit(documents, LABELS) is estimator
    assert documents == DOCUMENTS
    assert estimator.get_params() == before
    assert estimator.settings is settings
    assert estimator.classes_.tolist() == BINARIZER.classes_.tolist()
    assert not hasattr(estimator, "n_features_in_")


def test_match_classifier_predict_equals_the_run(fitted: MatchClassifier) -> None:
    """Probabilities and labels at thresholds equal those of `Classifier.predict`."""
    probability, chosen = fitted.predict_proba(DOCUMENTS), fitted.predict(DOCUMENTS)
    column = {name: number for number, name in enumerate(fitted.classes_)}
    listed = list(load(fitted.folder_, device="cpu").predict(DOCUMENTS, top_k=100))
    above = list(fitted.classifier_.predict(DOCUMENTS, threshold=True))
    assert probability.shape == chosen.shape == MATRIX.shape
    for row, (all_labels, labels) in enumerate(zip(listed, above, strict=True)):
        for label in all_labels["labels"]:
            found = probability[row, column[label["id"]]]
            assert found == pytest.approx(label["probability"], rel=1e-5)
        names = {label["id"] for label in labels["labels"]}
        assert {fitted.classes_[one] for one in chosen[row].nonzero()[0]} == names
    assert chosen.any()
    assert chosen.dtype == np.int64


def test_match_classifier_predict_is_of_a_document_alone(fitted: MatchClassifier) -> None:
    """Probabilities depend neither on the other documents nor on labels in them."""
    whole = fitted.predict_proba(DOCUMENTS)
    assert np.allclose(fitted.predict_proba(DOCUMENTS[::-1]), whole[::-1], atol=1e-6)
    bare = [{k: v for k, v in one.items() if k != "label"} for one in DOCUMENTS[:2]]
    assert np.allclose(fitted.predict_proba(bare), whole[:2], atol=1e-6)
    assert fitted.predict([]).shape == fitted.predict_proba([]).shape == (0, MATRIX.shape[1])


def test_match_classifier_sparse_output(fitted: MatchClassifier) -> None:
    """sparse_output gives the same matrix, which measures of scikit-learn take."""
    estimator = copy.copy(fitted).set_params(sparse_output=True)
    found = estimator.predict(DOCUMENTS)
    assert sparse.issparse(found)
    assert (found.toarray() == fitted.predict(DOCUMENTS)).all()
    assert f1_score(MATRIX, found, average="micro") > 0.5


def test_match_classifier_score_is_ndcg(fitted: MatchClassifier) -> None:
    """score equals scikit-learn's NDCG; labels unknown to fit count as missed."""
    has = MATRIX.any(axis=1)
    documents = [one for one, kept in zip(DOCUMENTS, has, strict=True) if kept]
    labels = [one for one, kept in zip(LABELS, has, strict=True) if kept]
    found = fitted.score(documents, labels)
    assert found == pytest.approx(ndcg_score(MATRIX[has], fitted.predict_proba(documents), k=5))
    assert found == fitted.score(documents, sparse.csr_array(MATRIX[has]))
    assert fitted.score(documents[:1], [[*labels[0], "new"]]) < fitted.score(
        documents[:1], labels[:1]
    )
    assert fitted.score(DOCUMENTS, LABELS) == pytest.approx(found * has.mean())


@pytest.mark.parametrize("encode", [np.asarray, sparse.csr_matrix, lambda y: y.astype(bool)])
def test_match_classifier_indicator_equals_lists(fitted: MatchClassifier, encode: Any) -> None:
    """An indicator matrix with names for its columns trains the same model."""
    other = make(classes=BINARIZER.classes_).fit(DOCUMENTS, encode(MATRIX))
    assert (other.predict_proba(DOCUMENTS) == fitted.predict_proba(DOCUMENTS)).all()


@pytest.mark.parametrize(
    "hierarchy",
    [
        nx.DiGraph(EDGES),
        {child: [p for c, p in EDGES if c == child] for child, _ in EDGES},
        np.array(EDGES).tolist(),
    ],
    ids=["networkx", "dict", "lists"],
)
def test_match_classifier_hierarchy_in_all_forms(hierarchy: Any) -> None:
    """Every form of a hierarchy gives the same edges; "methods", on no document, is contracted."""
    estimator = make(hierarchy=hierarchy, encoder="prior").fit(DOCUMENTS, LABELS)
    found = load(estimator.folder_, device="cpu")
    names = found.vocabulary.labels["id"].tolist()
    child, parent = read_hierarchy(estimator.folder_, len(names)).edge_index.tolist()
    edges = {(names[c], names[p]) for c, p in zip(child, parent, strict=True)}
    wanted = {edge for edge in EDGES if "methods" not in edge}
    assert edges == wanted | {("kernels", "science")}


def test_match_classifier_frame_equals_dicts() -> None:
    """A DataFrame gives the same as dicts; missing cells and other columns are not read."""
    records = [{key: one[key] for key in ("text", *TOY_FIELDS) if key in one} for one in DOCUMENTS]
    records[0]["venue"] = None
    frame = pd.DataFrame(records, index=[f"row {n}" for n in range(len(records))])
    frame["price"] = np.nan
    there = make(random_state=1).fit(records, MATRIX).predict_proba(records)
    estimator = make(random_state=1).fit(frame, MATRIX)
    assert np.array_equal(estimator.predict_proba(frame), there)
    assert estimator.score(frame, pd.Series(LABELS)) == estimator.score(records, LABELS)
    assert cross_val_score(estimator, frame, MATRIX, cv=2, error_score="raise").shape == (2,)
    with pytest.raises(CorpusError, match=r"X must name every column once, found \['text', 'text'"):
        estimator.predict(pd.concat([frame[["text"]], frame], axis=1))


def test_match_classifier_columns_without_names() -> None:
    """Columns without names are numbered; one that no document has gets probability 0."""
    matrix = np.insert(MATRIX, 2, 0, axis=1)
    estimator = make(hierarchy=[(0, 8), (1, 0)]).fit(DOCUMENTS, matrix)
    assert estimator.classes_.tolist() == list(range(9))
    probability = estimator.predict_proba(DOCUMENTS)
    assert (probability[:, 2] == 0).all()
    assert (np.delete(probability, 2, axis=1) > 0).all()
    assert estimator.predict(DOCUMENTS).shape == matrix.shape


def test_match_classifier_citations_become_edges() -> None:
    """References to documents of the fit are citations, which a graph encoder reads again."""
    settings = {"pretrain.samples": 500, "pretrain.channels": 8, "model.channels": 8}
    settings |= {"train.epochs": 1, "data.min_count": 1, "data.transductive": True}
    estimator = make(encoder="hetero_sage", settings=settings).fit(DOCUMENTS, LABELS)
    known = estimator.classifier_.known
    assert known is not None
    assert {"t1", "x1"} <= set(known.documents)
    assert estimator.predict_proba([{"text": "nets", "reference": ["t1"]}]).shape[1] == 8


@pytest.mark.slow
def test_match_classifier_random_state() -> None:
    """The same int or RandomState repeats a fit, and another one gives another."""
    settings = {"pretrain.channels": 8, "model.channels": 8}
    settings |= {"train.epochs": 1, "data.min_word_count": 1, "pretrain.samples": 100}
    estimator = make(encoder="match", settings=settings)
    found = [
        estimator.set_params(random_state=state).fit(DOCUMENTS, LABELS).predict_proba(DOCUMENTS)
        for state in (1, 1, np.random.RandomState(0), np.random.RandomState(0))
    ]
    assert (found[0] == found[1]).all()
    assert (found[2] == found[3]).all()
    assert (found[0] != found[2]).any()


def test_match_classifier_clone_and_nested_settings() -> None:
    """A clone is not fitted; `settings__KEY` changes one setting, not the dict given."""
    settings = {"data.min_word_count": 1}
    estimator = make(settings=settings)
    other = clone(estimator).set_params(**{"settings__train.epochs": 3})
    assert other.settings == {"data.min_word_count": 1, "train.epochs": 3}
    assert other.get_params()["settings__train.epochs"] == 3
    assert settings == estimator.settings == {"data.min_word_count": 1}
    assert clone(other).settings == other.settings
    with pytest.raises(NotFittedError):
        other.predict(DOCUMENTS)
    with pytest.raises(ValueError, match="Invalid parameter 'epochs'"):
        other.set_params(epochs=3)


@pytest.mark.slow
def test_match_classifier_grid_search_over_a_setting() -> None:
    """A grid search sets numbers of NumPy, also of a step within a Pipeline."""
    rows = [(one["text"], one.get("venue")) for one in DOCUMENTS]
    to_documents = FunctionTransformer(lambda rows: [{"text": t, "venue": v} for t, v in rows])
    estimator = make(fields=["venue"], classes=BINARIZER.classes_)
    pipeline = make_pipeline(to_documents, estimator)
    grid = {"matchclassifier__settings__model.encoder_config": [
        {"cost": np.float64(cost)} for cost in (0.01, 1.0)
    ]}  # fmt: skip
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(rows, MATRIX)
    assert set(search.cv_results_["mean_test_score"] > 0.1) == {True}
    found = search.best_estimator_[-1].classifier_.config.model.encoder_config["cost"]
    assert found == search.best_params_[next(iter(grid))]["cost"]
    assert search.predict(rows).shape == MATRIX.shape


@pytest.mark.slow
def test_match_classifier_cross_validation() -> None:
    """cross_val_score and cross_val_predict work on a matrix and, with a splitter, on lists."""
    folds = KFold(2, shuffle=True, random_state=0)
    lists = cross_val_score(make(), DOCUMENTS, LABELS, cv=folds, error_score="raise")
    named = make(classes=BINARIZER.classes_)
    assert lists == pytest.approx(cross_val_score(named, DOCUMENTS, MATRIX, cv=folds))
    assert (lists > 0.3).all()
    named = named.set_params(encoder="prior")
    for y, method in ((LABELS, "predict"), (MATRIX, "predict_proba")):
        found = cross_val_predict(named, DOCUMENTS, y, cv=folds, method=method)
        assert found.shape == MATRIX.shape
    sets = [set(one) for one in LABELS]
    assert len(cross_val_score(make(encoder="prior"), DOCUMENTS, sets, cv=2)) == 2


def test_match_classifier_folder_lives_with_it(match_graph_home: Path) -> None:
    """A temporary folder is removed by a new fit and with the estimator."""
    estimator = make(encoder="prior").fit(DOCUMENTS, LABELS)
    first = estimator.folder_
    assert not (first.parent / "data").exists()
    second = estimator.fit(DOCUMENTS, LABELS).folder_
    assert second.is_dir()
    assert not first.parent.exists()
    del estimator
    assert not second.parent.exists()
    assert [*match_graph_home.iterdir()] == []


def test_match_classifier_failed_fit_leaves_no_folder() -> None:
    """A failed fit leaves no folder and forgets the fit before."""
    estimator = make(encoder="prior").fit(DOCUMENTS, LABELS)
    folder = estimator.folder_
    with pytest.raises(CorpusError, match="no training document"):
        estimator.fit(DOCUMENTS, np.zeros((12, 1), dtype=int))
    assert not folder.parent.exists()
    assert "_remove" not in vars(estimator)
    with pytest.raises(NotFittedError):
        estimator.score(DOCUMENTS, LABELS)


def test_match_classifier_folder_given_stays(tmp_path: Path) -> None:
    """A folder given holds the run, which the next fit replaces."""
    estimator = make(encoder="prior", folder=tmp_path / "run").fit(DOCUMENTS, LABELS)
    wanted = estimator.fit(DOCUMENTS, LABELS).predict_proba(DOCUMENTS)
    del estimator
    [first, *_] = load(tmp_path / "run", device="cpu").predict(DOCUMENTS)
    assert first["labels"][0]["probability"] == pytest.approx(wanted[0].max(), rel=1e-5)


def test_match_classifier_pickle(tmp_path: Path) -> None:
    """A pickled copy has a folder of its own and predicts the same, fitted or not."""
    estimator = make().fit(DOCUMENTS, LABELS)
    wanted = estimator.predict_proba(DOCUMENTS)
    content, folder = pickle.dumps(estimator), estimator.folder_
    other = copy.deepcopy(estimator)
    del estimator
    assert not folder.exists()
    for found in (pickle.loads(content), other):  # made above, so safe to load
        assert (found.predict_proba(DOCUMENTS) == wanted).all()
        assert found.folder_.is_dir()
        assert found.folder_ != folder
    assert pickle.loads(pickle.dumps(make())).settings == make().settings


def test_match_classifier_pickle_of_a_relative_folder(tmp_path: Path, monkeypatch) -> None:
    """A relative folder is found from elsewhere; pickling is refused where it is gone."""
    monkeypatch.chdir(tmp_path)
    estimator = make(folder="mine").fit(DOCUMENTS, LABELS)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    found = pickle.loads(pickle.dumps(estimator))  # made here, so safe to load
    assert (found.predict_proba(DOCUMENTS) == estimator.predict_proba(DOCUMENTS)).all()
    shutil.rmtree(estimator.folder_)
    with pytest.raises(CheckpointError, match=r"there is no folder '.*mine' any more; restore it"):
        pickle.dumps(estimator)


@pytest.mark.parametrize(
    ("parameters", "documents", "labels", "message"),
    [
        ({}, DOCUMENTS, LABELS[:3], "X and y must be of one length, found 12 documents and"),
        ({}, {"text": "a"}, LABELS, "X must be a list of documents, a dict each, or a DataF"),
        ({}, ["a", "b"], [["x"], ["y"]], "document 1: a document must be a dict, found the stri"),
        ({}, [{"text": 1}, {"text": "b"}], [["x"], ["y"]], "document 1: 'text' must be a string"),
        ({}, [{"text": "a"}] * 2, [["x"], ["y"]], "at least two texts, one of them for validati"),
        ({}, [{"text": "a", "paper": 1}, {"text": "b", "paper": 1}], [["x"]] * 2, "given before"),
        ({"hierarchy": [("a", "b"), ("b", "a")]}, DOCUMENTS, LABELS, "must be acyclic"),
        ({"hierarchy": 3}, DOCUMENTS, LABELS, "must be .child, parent. pairs, a dict or a DiGraph"),
        ({"classes": "ab"}, DOCUMENTS, LABELS, "Classes must be a list of labels, found 'ab'"),
    ],
)
def test_match_classifier_fit_names_faults(
    parameters: dict[str, Any], documents: Any, labels: Any, message: str
) -> None:
    """Faults of documents and labels are named with the document."""
    with pytest.raises(CorpusError, match=message):
        make(**parameters).fit(documents, labels)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"validation_fraction": 1}, "validation_fraction must lie between 0 and 1, found 1;"),
        ({"validation_fraction": "0.1"}, "validation_fraction must lie between 0 and 1, found"),
        ({"fields": 5}, "fields must be a list of names, found 5"),
        ({"settings": {"train.epoch": 1}}, "the nearest is 'train.epochs'"),
        ({"settings": {"train.epochs": object()}}, "must be a number, a string, a list or a dict"),
        ({"encoder": "mach"}, "mach"),
        ({"fields": "author"}, "fields must be a list of names, found 'author'"),
    ],
)
def test_match_classifier_fit_names_wrong_settings(
    parameters: dict[str, Any], message: str
) -> None:
    """Wrong parameters and settings are refused before anything is trained."""
    estimator = make().set_params(**parameters)
    with pytest.raises(ConfigError, match=message):
        estimator.fit(DOCUMENTS, LABELS)


@pytest.mark.slow
def test_match_classifier_pipeline_on_cacm(data_folder: Path) -> None:
    """A cross-validated pipeline from raw rows of cacm ranks far above the label prior."""
    records = []
    for name in ("train.json", "dev.json", "test.json"):
        with (data_folder / "cacm" / name).open("rb") as file:
            records += [record for _, record in read_json_lines(file, name, pytest.fail)]
    rows = [(one["paper"], one["text"], one["author"], one["reference"]) for one in records]
    keys = ("paper", "text", "author", "reference")
    to_documents = FunctionTransformer(
        lambda rows: [dict(zip(keys, row, strict=True)) for row in rows]
    )
    labels = MultiLabelBinarizer().fit_transform([one["label"] for one in records])
    scores = {}
    for encoder in ("tfidf_linear", "prior"):
        classifier = MatchClassifier(encoder, fields=["author", "reference"], random_state=0)
        pipeline = make_pipeline(to_documents, classifier)
        scores[encoder] = cross_val_score(pipeline, rows, labels, cv=3).mean()
    assert scores["prior"] < 0.2
    assert scores["tfidf_linear"] > 0.45
