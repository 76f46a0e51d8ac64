"""`MatchClassifier`: a run as a scikit-learn estimator."""

import json
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from match_graph.config import Config
from match_graph.corpus import Corpus
from match_graph.errors import CheckpointError, ConfigError, CorpusError, shorten
from match_graph.graph.csr import check_not_nan, make_ptr
from match_graph.io.names import read_path
from match_graph.io.progress import Reporter
from match_graph.metrics import RankingMeter, rank_labels
from match_graph.predict.classifier import load
from match_graph.predict.documents import KEYS, list_rows, name_documents
from match_graph.predict.label_sets import (
    HierarchyLike,
    encode_labels,
    find_classes,
    list_edges,
)
from match_graph.predict.training_documents import make_corpus, split_documents
from match_graph.runs import start_run
from match_graph.runs.configure import load_preset_config

#: Documents of `MatchClassifier`: dicts, or rows of a DataFrame.
Documents: TypeAlias = Sequence[Mapping[str, Any]] | pd.DataFrame
_NESTED = "settings__"
#: Folders of the run and of its built data in the temporary folder of an estimator.
_RUN, _DATA = "run", "data"
_K = 5  # of NDCG@k


class MatchClassifier(ClassifierMixin, BaseEstimator):
    """Multi-label classifier of documents, with text and metadata, into a label hierarchy.

    A scikit-learn estimator around a run: `fit` builds a graph of the documents,
    trains the model and chooses a threshold per label; any encoder or baseline can be used.

    A document is a dict, or a row of a DataFrame, with ``text``, metadata fields (a string or a
    list of strings each) and, if need be, its id as ``paper``; other keys, which a warning names,
    and missing cells but those of ``text`` are not read. Ids in the field ``reference`` that are
    those of other documents of `fit` become citations.

    Labels are a list of lists (or sets) of labels, or an indicator matrix [n, L], dense or sparse,
    as MultiLabelBinarizer makes it. scikit-learn itself cannot tell how to split lists of lists:
    with them name a splitter, ``cross_val_score(..., cv=KFold(5))``; `cross_val_predict` needs
    ``classes`` too, as not every fold has every label.

    Args:
        encoder: Encoder or baseline, as ``model.encoder``; None takes that of settings, or the
            default.
        fields: Metadata fields to read from the documents; None reads none, and warns of others.
        hierarchy: Label hierarchy: (child, parent) pairs, a dict from a label to its parent or
            parents, or a networkx DiGraph with edges from child to parent; it must be acyclic.
        classes: Classes in the order of the columns; None sorts the labels of `fit`, takes the
            columns of a DataFrame, or numbers those of an indicator matrix.
        settings: Settings by dotted key, ``{"train.epochs": 3}``. One of them is also the
            parameter ``settings__train.epochs`` of `set_params` and of a grid.
        validation_fraction: Share of the documents of `fit`, by text, on which the weights and the
            thresholds are chosen.
        random_state: Seed of the validation documents and the training, an int or a RandomState;
            None draws one.
        sparse_output: Whether `predict` gives a sparse matrix.
        verbose: Whether to report progress on standard error.
        folder: Run folder, which stays, and is replaced by the next `fit`; None takes a temporary
            one that is removed with the estimator.

    Attributes:
        classes_: Classes, [L].
        classifier_: `Classifier` of the run, which also gives the most probable labels by name.
        folder_: Run folder; copy it to keep it.

    A pickle or deep copy holds the files of the run folder. Load no pickle of others: a run folder
    is the safe form to give away, see `load`.
    """

    classes_: np.ndarray[Any, np.dtype[Any]]
    folder_: Path

    def __init__(
        self,
        encoder: str | None = None,
        *,
        fields: Sequence[str] | None = None,
        hierarchy: HierarchyLike | None = None,
        classes: Sequence[Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        validation_fraction: float = 0.1,
        random_state: Any = None,
        sparse_output: bool = False,
        verbose: bool = False,
        folder: str | Path | None = None,
    ) -> None:
        self.encoder = encoder
        self.fields = fields
        self.hierarchy = hierarchy
        self.classes = classes
        self.settings = settings
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.sparse_output = sparse_output
        self.verbose = verbose
        self.folder = folder

    def fit(self, X: Documents, y: Any) -> Self:  # noqa: N803
        """Trains a run on documents and their labels.

        Args:
            X: Documents.
            y: Labels of each: lists of labels, or an indicator matrix [n, L].

        Raises:
            CorpusError: With every fault of the documents; or labels or hierarchy are wrong.
            ConfigError: A parameter or setting is unknown or impossible.
        """
        config = self._make_config()
        fields = () if self.fields is None else self.fields
        if isinstance(fields, str) or not isinstance(fields, Iterable):
            raise ConfigError(f"fields must be a list of names, found {fields!r:.60}.")
        documents, fields = _list_documents(X), [*fields]
        _warn_of_unread(documents, fields, self.fields is None)
        classes = find_classes(y, self.classes)
        labels = encode_labels(y, classes)
        _check_lengths(documents, labels)
        names = [*map(str, classes)]
        gold = [[names[column] for column in row] for row in labels]
        splits = split_documents(documents, self.validation_fraction, config.seed)
        edges = list_edges(None if config.data.hierarchy == "ignore" else self.hierarchy)
        tokenizer = config.data.tokenizer or "regex"
        corpus = make_corpus(documents, gold, splits, fields, edges, tokenizer)
        config = config.change("data", hierarchy=None, tokenizer=None)  # as the corpus is made
        self._drop_folder()
        try:
            self._train(corpus, config)
        except BaseException:
            self._drop_folder()
            raise
        self.classes_ = classes
        return self

    def predict(self, X: Documents) -> Any:  # noqa: N803
        """Labels at or above their thresholds, as an indicator matrix [n, L].

        Args:
            X: Documents; labels in them are not read.

        Returns:
            0 or 1, int64, columns in the order of ``classes_``: an array, or a CSR matrix with
            ``sparse_output``.
        """
        check_is_fitted(self, "classifier_")
        documents, columns = _list_documents(X), self._find_columns()
        thresholds = self.classifier_.thresholds
        assert thresholds is not None, "fit evaluates the run, which chooses them"
        places = [torch.empty(0, 2, dtype=torch.int64)]
        for rows, logits in self._compute(documents):
            chosen = (torch.sigmoid(logits) >= thresholds).nonzero()
            places.append(torch.stack([rows[chosen[:, 0]], columns[chosen[:, 1]]], dim=1))
        row, column = torch.cat(places).numpy().T
        shape = (len(documents), len(self.classes_))
        matrix = sparse.csr_matrix((np.ones(len(row), dtype=np.int64), (row, column)), shape=shape)
        return matrix if self.sparse_output else matrix.toarray()

    def predict_proba(self, X: Documents) -> np.ndarray[Any, np.dtype[Any]]:  # noqa: N803
        """Probability of each class, [n, L], float32; 0 for a class that no document of fit had."""
        check_is_fitted(self, "classifier_")
        documents, columns = _list_documents(X), self._find_columns()
        probability = torch.zeros(len(documents), len(self.classes_))
        for rows, logits in self._compute(documents):
            probability[rows[:, None], columns] = torch.sigmoid(logits)
        return probability.numpy()

    def score(self, X: Documents, y: Any) -> float:  # noqa: N803
        """NDCG@5 of the ranked labels, the mean over documents, in 0..1.

        The ideal is that of min(5, gold labels); a document without labels counts 0, and a label
        that is no class stays in the denominator.

        Args:
            X: Documents.
            y: Gold labels, as for `fit`.
        """
        check_is_fitted(self, "classifier_")
        documents, columns = _list_documents(X), self._find_columns()
        gold = encode_labels(y, self.classes_, allow_unknown=True)
        _check_lengths(documents, gold)
        meter = RankingMeter((_K,))
        for rows, logits in self._compute(documents):
            ranked = columns[rank_labels(logits, _K, self.classifier_.label_rank)]
            lists = [gold[row] for row in rows.tolist()]
            ptr = make_ptr(torch.tensor([*map(len, lists)]))
            index = torch.tensor([one for row in lists for one in row], dtype=torch.int64)
            meter.update(ranked, ptr, index)
        return meter.compute()[f"NDCG@{_K}"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; if deep, with each of the settings as ``settings__KEY``."""
        params: dict[str, Any] = super().get_params(deep=deep)
        nested = self.settings if deep and isinstance(self.settings, Mapping) else {}
        return params | {f"{_NESTED}{key}": value for key, value in nested.items()}

    def set_params(self, **params: Any) -> Self:
        """Sets parameters; ``settings__KEY`` sets one of the settings."""
        nested = {key: params.pop(key) for key in [*params] if key.startswith(_NESTED)}
        super().set_params(**params)
        if nested:
            changed = {key.removeprefix(_NESTED): value for key, value in nested.items()}
            self.settings = {**(self.settings or {}), **changed}
        return self

    def __sklearn_tags__(self) -> Any:
        """Documents are dicts; labels are several per document."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.dict = False, True
        tags.target_tags.single_output, tags.target_tags.multi_output = False, True
        tags.classifier_tags.multi_class, tags.classifier_tags.multi_label = False, True
        tags.no_validation = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {**super().__getstate__()}
        state.pop("_remove", None)
        if state.pop("classifier_", None) is not None:
            folder = state.pop("folder_")
            if not folder.is_dir():
                raise CheckpointError(
                    f"A fitted model is kept with the files of its run, but there is no folder "
                    f"'{folder}' any more; restore it, or fit again."
                )
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            state["_files"] = {str(path.relative_to(folder)): path.read_bytes() for path in files}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.pop("_files", None)
        super().__setstate__(state)
        if files is not None:
            folder = self._make_folder() / _RUN
            for name, content in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            self._open(folder)

    def _make_config(self) -> Config:
        """Configuration of the run; ``settings`` override what other parameters imply."""
        share = self.validation_fraction
        if not isinstance(share, Real) or not 0 < share < 1:
            raise ConfigError(
                f"validation_fraction must lie between 0 and 1, found "
                f"{share!r:.60}; give a share such as 0.1."
            )
        seed, settings = self.random_state, {} if self.settings is None else self.settings
        if not isinstance(settings, Mapping):
            raise ConfigError(
                f"settings must be a dict of values by dotted key, found {settings!r:.60}."
            )
        if not isinstance(seed, int | np.integer):
            try:
                seed = check_random_state(seed).randint(2**31 - 1)
            except ValueError:
                raise ConfigError(
                    f"random_state must be a whole number, a RandomState or None, found "
                    f"{seed!r:.60}."
                ) from None
        given: dict[str, Any] = {"seed": int(seed), "train.logger": "none"}
        given |= {} if self.encoder is None else {"model.encoder": self.encoder}
        given |= settings
        lines = [f"{key}={json.dumps(value, default=_simplify)}" for key, value in given.items()]
        return load_preset_config(None, lines)

    def _train(self, corpus: Corpus, config: Config) -> None:
        """Trains a run in the folder given or in a temporary one, and loads it."""
        folder, root = read_path(self.folder or "", "A run folder"), None
        if self.folder is None:
            parent = self._make_folder()
            folder, root = parent / _RUN, parent / _DATA
        reporter = Reporter() if self.verbose else None
        run = start_run(corpus, config, folder, root, overwrite=True, reporter=reporter)
        run.train()
        run.evaluate(with_test=False)
        self._code = {kind: getattr(run.config.model, kind) for kind in ("encoder", "head")}
        self._device = run.config.train.accelerator
        del run
        if root is not None:  # a trained run needs its data no longer
            shutil.rmtree(root, ignore_errors=True)
        self._open(folder)

    def _compute(self, documents: Sequence[Any]) -> Iterator[tuple[Tensor, Tensor]]:
        """(rows [B], logits [B, labels of the run]) by batch."""
        classifier, start = self.classifier_, 0
        read = (classifier.read(one, place) for place, one in name_documents(documents))
        done = classifier.stream(read, lambda batch, _: classifier.compute(batch), 256)
        for buffer, found in done:
            for rows, logits in found:
                check_not_nan(logits, "Label scores")
                yield rows + start, logits
            start += len(buffer)

    def _find_columns(self) -> Tensor:
        """Column in ``classes_`` of each label of the run, [labels of the run]."""
        column = {str(name): number for number, name in enumerate(self.classes_)}
        return torch.tensor([column[name] for name in self.classifier_.vocabulary.labels["id"]])

    def _open(self, folder: Path) -> None:
        """Loads the run of a folder."""
        self.classifier_ = load(folder, device=self._device, **self._code)
        self.folder_ = folder.absolute()

    def _make_folder(self) -> Path:
        """New temporary folder, removed with this estimator."""
        folder = tempfile.mkdtemp(prefix="match-graph-")
        self._remove = weakref.finalize(self, _remove_folder, folder, os.getpid())
        return Path(folder)

    def _drop_folder(self) -> None:
        """Forgets the fit before, and removes its temporary folder."""
        for name in ("classifier_", "classes_", "folder_"):
            self.__dict__.pop(name, None)
        if (remove := self.__dict__.pop("_remove", None)) is not None:
            remove()


def _list_documents(documents: Any) -> list[Any]:
    if not isinstance(documents, Iterable) or isinstance(documents, str | bytes | Mapping):
        raise CorpusError(
            f"X must be a list of documents, a dict each, or a DataFrame, found {documents!r:.60}; "
            f"put them in a list."
        )
    if not isinstance(documents, pd.DataFrame):
        return list(documents)
    return list_rows(documents, "X")


def _warn_of_unread(documents: Sequence[Any], fields: list[str], by_default: bool) -> None:
    """Warns of keys of documents that are not read, unless no field is read by choice."""
    if not fields and not by_default:
        return
    keys = {str(key) for one in documents if isinstance(one, Mapping) for key in one}
    if unread := sorted(keys - {*KEYS, *fields}):
        warnings.warn(
            f"the keys {shorten(unread)} of documents are not read; name those that are metadata "
            f"in fields, or give fields=[] for none",
            stacklevel=3,
        )


def _check_lengths(documents: Sequence[Any], labels: Sequence[Any]) -> None:
    if len(documents) != len(labels):
        raise CorpusError(
            f"X and y must be of one length, found {len(documents):,} documents and the labels of "
            f"{len(labels):,}; give each document its labels."
        )


def _simplify(value: Any) -> Any:
    """A value of NumPy as one of Python, for JSON."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise ConfigError(
        f"The value of a setting must be a number, a string, a list or a dict, found "
        f"{value!r:.60}; change it."
    )


def _remove_folder(folder: str, process: int) -> None:
    """Removes a temporary folder, unless this is a copy of the process that made it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
