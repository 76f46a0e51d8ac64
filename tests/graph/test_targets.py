"""Gold labels beside the graph."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from match_graph.graph import Targets

NUM_LABELS = 6
label_sets = st.lists(st.sets(st.integers(0, NUM_LABELS - 1)), min_size=1, max_size=6)


def make_targets(sets: list[set[int]]) -> Targets:
    ptr, index = [0], []
    for labels in sets:
        index += sorted(labels)
        ptr.append(len(index))
    return Targets(torch.tensor(ptr), torch.tensor(index, dtype=torch.int32), NUM_LABELS)


@given(st.data(), label_sets)
def test_Targets_select_and_count_equal_loops(data: st.DataObject, sets: list[set[int]]) -> None:
    """Labels of chosen documents, and how many of these carry each label; documents may repeat."""
    chosen = data.draw(st.lists(st.integers(0, len(sets) - 1), max_size=7))
    documents = torch.tensor(chosen, dtype=torch.int64)
    targets = make_targets(sets)
    ptr, index = targets.select(documents)
    assert (ptr.dtype, index.dtype) == (torch.int64, torch.int64)
    assert [part.tolist() for part in index.split(ptr.diff().tolist())] == [
        sorted(sets[document]) for document in chosen
    ]
    assert targets.count(documents).tolist() == [
        sum(label in sets[document] for document in chosen) for label in range(NUM_LABELS)
    ]


def test_Targets_to_dict_gives_what_the_class_takes() -> None:
    """Saving and loading by a dictionary keeps everything."""
    targets = make_targets([{1, 3}, set(), {0}])
    again = Targets(**targets.to_dict())
    assert torch.equal(again.ptr, targets.ptr)
    assert torch.equal(again.index, targets.index)
    assert again.num_labels == NUM_LABELS


def test_Targets_merged_labels_count_once_per_document() -> None:
    """Groups ascending, empty documents empty; all counts as a loop has them."""
    targets = Targets(torch.tensor([0, 3, 3, 5]), torch.tensor([0, 2, 4, 1, 2]).int(), 5)
    merged = targets.merge(torch.tensor([1, 0, 1, 0, 2]), 4)
    assert merged.ptr.tolist() == [0, 2, 2, 4]
    assert merged.index.tolist() == [1, 2, 0, 1]
    assert (merged.num_labels, merged.index.dtype) == (4, torch.int32)
    assert merged.count(torch.arange(3)).tolist() == [1, 2, 1, 0]
