"""Weight of metadata beside words, against a slow loop and planted labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from match_graph.baselines import metadata_weight
from match_graph.baselines.metadata_weight import (
    choose_metadata_weight,
    draw_documents,
    weigh_metadata,
)


def draw(generator: np.random.Generator, documents: int, width: int, share: float) -> np.ndarray:
    """Rows with a share of values, [documents, width]; some are empty."""
    values = generator.random((documents, width))
    return np.where(generator.random((documents, width)) < share, values, 0)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.5, 2.0]))
def test_weigh_metadata_equals_the_formula(seed: int, weight: float) -> None:
    """Both parts scaled to their lengths and added, in rows of unit length; empty ones stay so."""
    generator = np.random.default_rng(seed)
    is_word = generator.random(10) < 0.6
    rows = draw(generator, 6, 10, 0.4)
    rows[0, is_word] = rows[1, ~is_word] = rows[2] = 0
    found = weigh_metadata(sparse.csr_matrix(rows), is_word, weight).toarray()
    for row, given_row in zip(found, rows, strict=True):
        expected = np.zeros(10)
        for columns, factor in ((is_word, 1.0), (~is_word, weight)):
            part = np.where(columns, given_row, 0)
            if part.any():
                expected += factor * part / np.sqrt((part**2).sum())
        if expected.any():
            expected /= np.sqrt((expected**2).sum())
        np.testing.assert_allclose(row, expected, atol=1e-12)


IS_WORD = np.arange(400) < 200


def plant(documents: int, decides: str) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Rows of words and metadata, and labels, which one of the two decides.

    A document has 20 of 200 words and 4 of 200 metadata, and one of 10 labels. In the part that
    decides a quarter of its tokens are drawn from the 20 of its label.
    """
    generator = np.random.default_rng(0)
    label = generator.integers(10, size=documents)
    rows = np.zeros((documents, 400))
    for name, first, number in (("words", 0, 20), ("metadata", 200, 4)):
        for document in range(documents):
            chosen = first + generator.choice(200, number, replace=False)
            if name == decides:
                own = 10 * generator.choice(20, number // 4, replace=False) + label[document]
                chosen[: number // 4] = first + own
            rows[document, chosen] = 1
    return sparse.csr_matrix(rows), sparse.csr_matrix(np.eye(10)[label])


@pytest.mark.parametrize(("decides", "weights"), [("words", (0.25, 0.5)), ("metadata", (1.0, 2.0))])
def test_choose_metadata_weight_follows_what_decides(
    decides: str, weights: tuple[float, float]
) -> None:
    """High where metadata tell the labels, low where words do, whatever documents choose."""
    rows, gold = plant(600, decides)
    for seed in range(3):
        drawn = np.random.default_rng(seed).permutation(600)[:400]
        assert choose_metadata_weight(rows[drawn], IS_WORD, gold[drawn]) in weights


def test_choose_metadata_weight_few_documents_take_the_usual() -> None:
    """Below 100 documents, and where a part is empty; labels of all documents decide nothing."""
    rows, gold = plant(100, "metadata")
    assert choose_metadata_weight(rows, IS_WORD, gold) != 0.5
    assert choose_metadata_weight(rows[:99], IS_WORD, gold[:99]) == 0.5
    rows, gold = plant(200, "metadata")
    for column in (True, False):
        assert choose_metadata_weight(rows, np.full(400, column), gold) == 0.5
    everywhere = sparse.csr_matrix(np.ones((200, 2)))
    assert choose_metadata_weight(rows, IS_WORD, everywhere) == 0.5


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([0.300, 0.296, 0.200, 0.100], 0.5),
        ([0.300, 0.294, 0.200, 0.100], 0.25),
        ([0.100, 0.200, 0.296, 0.300], 1.0),
        ([0.100, 0.200, 0.294, 0.300], 2.0),
        ([0.300, 0.299, 0.299, 0.299], 0.5),
    ],
)
def test_choose_metadata_weight_takes_the_nearest_of_the_best(
    found: list[float], expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To .5, of those within .005 of the best."""
    values = iter(found)
    monkeypatch.setattr(metadata_weight, "_evaluate", lambda *_: next(values))
    rows, gold = plant(200, "metadata")
    assert choose_metadata_weight(rows, IS_WORD, gold) == expected


def test_choose_metadata_weight_holds_documents_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter judges what the others fit, by the 256 most frequent labels."""
    seen = []

    def judge(rows, is_gold, held, judged) -> float:
        seen.append((rows, is_gold, held, judged))
        return 0.1 * len(seen)

    monkeypatch.setattr(metadata_weight, "_evaluate", judge)
    given_rows, gold = plant(400, "metadata")
    rare = sparse.csr_matrix(np.eye(400))
    wide = sparse.hstack([rare, gold], format="csr")
    assert choose_metadata_weight(given_rows, IS_WORD, wide) == 2.0
    for weight, (rows, is_gold, held, judged) in zip((0.25, 0.5, 1.0, 2.0), seen, strict=True):
        expected = weigh_metadata(given_rows, IS_WORD, weight)
        assert abs(held - expected[:100]).max() < 1e-12
        assert abs(rows - expected[100:]).max() < 1e-12
        assert (is_gold.shape, judged.shape) == ((300, 256), (100, 256))
        assert is_gold[:, :10].sum() == 300  # the planted labels come first
        assert judged[:, :10].sum() == 100


def test_draw_documents_draws_no_more_than_it_says() -> None:
    """Each document once, 4,000 of more, others with another seed."""
    assert sorted(draw_documents(50, 0)) == [*range(50)]
    drawn = draw_documents(5000, 0)
    assert len({*drawn.tolist()}) == 4000
    assert (drawn == draw_documents(5000, 0)).all()
    assert (drawn != draw_documents(5000, 1)).any()
