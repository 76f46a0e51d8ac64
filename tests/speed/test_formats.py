"""One corpus in every reader's format: each reader finds the same, count by count."""

from pathlib import Path

import pytest

from match_graph.datasets import MatchFolder, Synthetic
from match_graph.graph import build_graph, describe_graph
from match_graph.speed.formats import COMMON_FIELDS, WRITERS, Sample, take_sample
from match_graph.speed.read import READERS
from match_graph.testing import write_match_folder
from match_graph.typing import SPLITS


@pytest.fixture(scope="module")
def sample(synthetic: Synthetic) -> Sample:
    """Sample of all documents."""
    return take_sample(synthetic, 50_000)


def test_WRITERS_every_reader_has_a_format() -> None:
    """The readers that are measured are those that have a writer."""
    assert set(WRITERS) == set(READERS)


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_Sample_every_reader_gives_back_every_count(
    synthetic: Synthetic, sample: Sample, tmp_path: Path, name: str
) -> None:
    """Nodes and edges by type, splits, labels per document and hierarchy agree."""
    WRITERS[name](sample, tmp_path)
    built = build_graph(READERS[name].read(tmp_path, list(COMMON_FIELDS), "whitespace"))
    found = describe_graph(built.data, built.targets)
    expected = describe_graph(synthetic[0], synthetic.targets)
    if name == "maple graph":  # it has neither splits nor dates
        by_split = (*(f"{split} documents" for split in SPLITS), "labels never in training",
                    "document tagged label edges", "P(parent | child) in training")  # fmt: skip
        for row in by_split:
            del found[row], expected[row]
    assert found == pytest.approx(expected)
    READERS[name].parse(tmp_path)


def test_take_sample_is_spread_over_the_data_set(synthetic: Synthetic, sample: Sample) -> None:
    """It has documents of every split, among them the first and the last one."""
    ids, splits = synthetic.table("document")[["id", "split"]].to_numpy(dtype=object).T
    assert [record["paper"] for record in sample.records] == ids.tolist()
    assert [record["split"] for record in sample.records] == splits.tolist()
    few = take_sample(synthetic, 40).records
    assert len(few) == 40
    assert [few[0]["paper"], few[-1]["paper"]] == [ids[0], ids[-1]]


def test_take_sample_of_other_fields_has_those_that_formats_have(
    tmp_path: Path,
) -> None:
    """Texts are one line without control characters, as formats require."""
    record = {"paper": "a", "text": "two\n\x1flines", "author": ["x"], "topic": ["y"], "label": []}
    folder = write_match_folder(tmp_path / "own", {"train": [record]}, [], ["author", "topic"])
    sample = take_sample(MatchFolder(folder, root=tmp_path), 10)
    assert sample.fields == ["author"]
    assert sample.records[0]["text"] == "two lines"
