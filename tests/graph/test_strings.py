"""Merged dictionaries of fragments, against a count of all strings at once."""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from match_graph.corpus_builder import CorpusBuilder
from match_graph.graph import strings
from match_graph.graph.fragments import Fragment, write_fragment
from match_graph.graph.strings import (
    cut_ranges,
    iter_ordered,
    merge_range,
    place_counts,
    rank_range,
)

LISTS = st.lists(st.lists(st.sampled_from("abcdeéz\u20ac\U0001f600"), max_size=6), max_size=6)


@given(st.lists(LISTS, min_size=1, max_size=4), st.integers(1, 40))
def test_rank_range_order_by_count_then_id(fragments, size) -> None:
    """In whatever ranges; every string of every fragment finds its place."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(strings, "RANGE", size)
        patch.setattr(strings, "_BLOCK", 3)
        folder, count = Path(name), Counter[str]()
        for number, lists in enumerate(fragments):
            builder = CorpusBuilder("it", [], "", tokenizer="whitespace", is_part=True)
            for row, words in enumerate(lists):
                split = "train" if row % 2 else "test"
                builder.add(f"{number}.{row}", split, " ".join(words), {}, [], "")
                count.update(dict.fromkeys(words, 0) | (Counter(words) if row % 2 else {}))
            write_fragment(folder / str(number), builder, {})
        opened = [Fragment(folder / str(number)) for number in range(len(fragments))]
        (ranges,) = cut_ranges(opened, ["word"], folder)
        counted = [merge_range(cut) for cut in ranges]
        for task in zip(ranges, counted, place_counts(counted), strict=True):
            rank_range(task)
        found = [
            pair
            for table in iter_ordered(ranges)
            for pair in zip(table["id"].to_pylist(), table["count"].to_pylist(), strict=True)
        ]
        assert found == sorted(count.items(), key=lambda pair: (-pair[1], pair[0]))
        places = [np.load(cut.path("place.npy")) for cut in ranges]
        strings_by_range = [
            fragment.strings("word")["id"].to_pylist()[first:end]
            for cut in ranges
            for fragment, (first, end) in zip(opened, cut.slices, strict=True)
        ]
        given_strings = [value for values in strings_by_range for value in values]
        assert [found[place][0] for values in places for place in values] == given_strings


@pytest.mark.parametrize("size", [64, 100, 1000])
def test_cut_ranges_are_about_equal(tmp_path: Path, size: int, monkeypatch) -> None:
    """However small the fragments; each of strings that are spread over the alphabet."""
    monkeypatch.setattr(strings, "RANGE", 4000)
    rng = np.random.default_rng(0)
    opened = []
    for number in range(20_000 // size):
        builder = CorpusBuilder("it", [], "", tokenizer="whitespace", is_part=True)
        builder.add("d", "train", " ".join(map(str, rng.integers(10**9, 10**10, size))), {}, [], "")
        write_fragment(tmp_path / str(number), builder, {})
        opened.append(Fragment(tmp_path / str(number)))
    (ranges,) = cut_ranges(opened, ["word"], tmp_path)
    lengths = [sum(end - first for first, end in cut.slices) for cut in ranges]
    assert sum(lengths) == pytest.approx(20_000, rel=0.02)
    assert len(lengths) == 5
    assert max(lengths) < 1.5 * 4000
