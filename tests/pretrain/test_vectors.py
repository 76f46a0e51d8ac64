"""Word2vec text: read by gensim, read from GloVe files, broken files named by line."""

from pathlib import Path
from urllib.parse import unquote

import pytest
import torch
from gensim.models import KeyedVectors

from match_graph.errors import CheckpointError, GraphError
from match_graph.pretrain import (
    escape_name,
    random_unit_rows,
    read_word_vectors,
    spread_label_vectors,
    write_word2vec,
)

NAMES = {
    "word": ["graph", "c++", "a/b", "100%"],
    "venue": ["Journal of Toys", "Tab\there", "李 Li\u2028", "graph"],
}
ADVICE = (
    "mend the line, or set model.channels to the file's width, and start the run again "
    "(overwrite=True, --overwrite)."
)


def make_tables(channels: int = 5) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: random_unit_rows(4, channels, generator, torch.device("cpu")) for name in NAMES}


def test_write_word2vec_gensim_reads_what_is_written(tmp_path: Path) -> None:
    tables = make_tables()
    path = tmp_path / "vectors.txt"
    assert write_word2vec(path, tables, NAMES) == 8
    loaded = KeyedVectors.load_word2vec_format(str(path), binary=False)
    assert len(loaded) == 8
    for node_type, names in NAMES.items():
        for row, name in enumerate(names):
            vector = torch.tensor(loaded[escape_name(node_type, name)])
            assert torch.allclose(vector, tables[node_type][row], atol=1e-6)
    assert "graph" in loaded
    assert "venue/graph" in loaded
    assert "venue/Journal%20of%20Toys" in loaded
    assert "a%2Fb" in loaded


@pytest.mark.parametrize("name", NAMES["venue"])
def test_escape_name_escaped_names_are_turned_back_by_unquote(name: str) -> None:
    escaped = escape_name("venue", name)
    assert not any(sign.isspace() for sign in escaped)
    assert unquote(escaped) == f"venue/{name}"


def test_read_word_vectors_what_is_written_is_read_again(tmp_path: Path) -> None:
    tables = make_tables()
    write_word2vec(tmp_path / "v.txt", {"word": tables["word"]}, NAMES)
    read, found = read_word_vectors(tmp_path / "v.txt", ["c++", "graph"], 5)
    assert found == 2
    assert torch.allclose(read, tables["word"][[1, 0]], atol=1e-5)


@pytest.mark.parametrize("size", ["1e-300", "3e38", "1e300"])
def test_read_word_vectors_extreme_lengths_become_one(tmp_path: Path, size: str) -> None:
    """As squares they are 0 or infinite."""
    (tmp_path / "v.txt").write_text(f"graph {size} {size}\n")
    read, found = read_word_vectors(tmp_path / "v.txt", ["graph"], 2)
    assert found == 1
    torch.testing.assert_close(read, torch.full((1, 2), 0.5**0.5))


@pytest.mark.parametrize("header", ["", "3 2\n"])
def test_read_word_vectors_glove_with_and_without_header(tmp_path: Path, header: str) -> None:
    path = tmp_path / "glove.txt"
    path.write_text(f"{header}7 0 5\nthe 3 4\n. . . 1 0\nnaïve 0 -2\nzero 0 0\nthe 9 9\n")
    words = ["naïve", "the", "unseen", ". . .", "zero", "7"]
    table, found = read_word_vectors(path, words, 2)
    assert found == 4  # a zero vector has no direction
    expected = torch.tensor([[0.0, -1.0], [0.6, 0.8], [1.0, 0.0], [0.0, 1.0]])
    assert torch.allclose(table[[0, 1, 3, 5]], expected)
    assert torch.allclose(table.norm(dim=1), torch.ones(6))
    again, _ = read_word_vectors(path, words, 2)
    assert torch.equal(again, table)


@pytest.mark.parametrize(
    ("content", "found", "line"),
    [
        (b"the 1 2 3\ncat 1 2\n", "3 values", 1),
        (b"the 1 2\ncat 1\n", "1 values", 2),
        (b"the 1 2\n\n", "0 values", 2),
        (b"the 1 2\ncat 1 x\n",
         "a value that is no number (could not convert string to float: 'x')", 2),
        (b"the 1 2\ncat 1 nan\n", "a value that is not finite", 2),
        (b"the 1 2\nc\xe9t 1 2\n", "bytes that are not UTF-8 (invalid continuation byte)", 2),
    ],
)  # fmt: skip
def test_broken_files_are_named_by_line(
    tmp_path: Path, content: bytes, found: str, line: int
) -> None:
    path = tmp_path / "broken.txt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_word_vectors(path, ["the", "cat"], 2)
    assert str(caught.value) == (
        "Word vectors must be lines of a word and as many numbers as model.channels says, found "
        f"{found} at {path}:{line}; {ADVICE}"
    )


def test_read_word_vectors_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is none at"):
        read_word_vectors(tmp_path / "no.txt", ["a"], 2)


def test_spread_label_vectors_stand_every_slot_at_norm_replace() -> None:
    """Label vectors stand in every slot at the norm of what they replace."""
    torch.manual_seed(0)
    weight = torch.empty(50, 3 * 12)
    torch.nn.init.xavier_uniform_(weight)
    label = make_tables(8)["word"].repeat(13, 1)[:50]
    given = weight.clone()
    spread = spread_label_vectors(weight, label, 12)
    assert torch.equal(weight, given)
    slots, before = spread.view(50, 3, 12), weight.view(50, 3, 12)
    assert torch.equal(slots[..., 8:], before[..., 8:])
    cosine = torch.nn.functional.cosine_similarity(slots[..., :8], label.unsqueeze(1), dim=2)
    assert torch.allclose(cosine, torch.ones(50, 3))
    assert float(spread.norm()) == pytest.approx(float(weight.norm()), rel=1e-5)


def test_spread_label_vectors_must_fit() -> None:
    for label, slot in ((torch.ones(4, 9), 8), (torch.ones(3, 8), 8), (torch.ones(4, 8), 7)):
        with pytest.raises(GraphError, match="head_from_labels=false"):
            spread_label_vectors(torch.ones(4, 16), label, slot)
