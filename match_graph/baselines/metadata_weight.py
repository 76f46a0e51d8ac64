"""Weight of metadata beside words in the rows of linear models."""

import warnings
from typing import Any

import numpy as np
import torch
from scipy import sparse

from match_graph.metrics.ranking import find_hits, ndcg_at_k, rank_labels

#: Candidate weights, and the default where documents are too few to choose by.
_WEIGHTS, _DEFAULT = (0.25, 0.5, 1.0, 2.0), 0.5
#: Most and fewest training documents to choose by, of which one in so many is held out.
_MOST, _LEAST, _HELD_OUT = 4000, 100, 4
#: Loss of NDCG@5 against the best that a weight nearer to the default may have.
_NEAR = 0.005
#: Labels to choose by: the most frequent ones decide NDCG@5, and the time does not grow with the
#: others.
_LABELS = 256
#: LIBLINEAR's C, the default of `TfidfLinear`.
_COST = 0.5


def weigh_metadata(rows: Any, is_word: np.ndarray, weight: float) -> Any:
    r"""Scales the words and the metadata of each document to lengths of 1 : w, in unit rows.

    .. math:: x \propto \frac{x^{words}}{\|x^{words}\|} + w \frac{x^{metadata}}{\|x^{metadata}\|}

    In plain TF-IDF a venue and a few authors weigh little beside a hundred words, and the less the
    longer the text, however informative they are (experiments/metadata_weight). A part that a
    document does not have is left out.

    Args:
        rows: Rows of words and metadata, [D, F], compressed.
        is_word: Whether each column is of a word, [F], bool.
        weight: Weight w.
    """
    number, words = rows.shape[0], is_word[rows.indices]
    document = np.repeat(np.arange(number), np.diff(rows.indptr))  # of each value
    square = np.square(rows.data, dtype=np.float64)
    lengths = [
        np.sqrt(np.bincount(document, square * part, minlength=number)) for part in (words, ~words)
    ]
    whole = np.sqrt((lengths[0] > 0) + weight**2 * (lengths[1] > 0))
    length = np.where(words, lengths[0][document], lengths[1][document] / weight)
    return sparse.csr_matrix(
        (rows.data / (length * whole[document]), rows.indices, rows.indptr), rows.shape
    )


def draw_documents(number: int, seed: int) -> np.ndarray:
    """Draws up to 4,000 training documents for `choose_metadata_weight`, in random order.

    Args:
        number: Number of training documents.
        seed: Random seed.
    """
    return np.random.default_rng(seed).permutation(number)[:_MOST]


def choose_metadata_weight(rows: Any, is_word: np.ndarray, gold: Any) -> float:
    """Chooses the weight of metadata by NDCG@5 of held-out training documents.

    For each of .25, .5, 1 and 2 linear classifiers of the 256 most frequent labels are fitted to
    three quarters of the documents and evaluated on the others, so that no validation document is
    read. Of the weights within .005 of the best the one nearest to .5 is taken: with more documents
    more words are learned, and the best weight is less extreme. Below 100 documents it is
    .5.

    Args:
        rows: Rows of words and metadata of training documents, [D, F], compressed.
        is_word: Whether each column is of a word, [F], bool.
        gold: Gold labels of the documents, [D, L], ones, likewise compressed.
    """
    if gold.shape[0] < _LEAST or len(np.unique(is_word[rows.indices])) < 2:
        return _DEFAULT
    number = gold.shape[0] // _HELD_OUT
    held, kept = gold[:number], gold[number:]
    count = np.asarray(kept.sum(axis=0)).ravel()
    labels = np.argsort(-count, kind="stable")[:_LABELS]
    labels = labels[(count[labels] > 0) & (count[labels] < kept.shape[0])]
    is_gold, held_gold = kept[:, labels].toarray() > 0, held[:, labels].tocsr()
    if not held_gold.nnz:
        return _DEFAULT
    found = []
    for weight in _WEIGHTS:
        weighed = weigh_metadata(rows, is_word, weight)
        found.append(_evaluate(weighed[number:], is_gold, weighed[:number], held_gold))
    near = [one for one, value in zip(_WEIGHTS, found, strict=True) if value >= max(found) - _NEAR]
    return min(near, key=lambda weight: abs(np.log(weight / _DEFAULT)))


def _evaluate(rows: Any, is_gold: np.ndarray, held: Any, held_gold: Any) -> float:
    """Mean NDCG@5 of held-out documents by classifiers of each label.

    Args:
        rows: Rows to fit, [D, F].
        is_gold: Their labels, [D, L], bool.
        held: Rows of the held-out documents, [H, F].
        held_gold: Their labels, [H, L].
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    scores = np.empty(held_gold.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # near enough to choose by
        for label in range(held_gold.shape[1]):
            model = LinearSVC(C=_COST, dual=True, random_state=0).fit(rows, is_gold[:, label])
            scores[:, label] = model.decision_function(held)
    ptr, index = (torch.from_numpy(part).long() for part in (held_gold.indptr, held_gold.indices))
    hits = find_hits(rank_labels(torch.from_numpy(scores), 5), ptr, index)
    return float(ndcg_at_k(hits, ptr.diff(), 5).mean())
