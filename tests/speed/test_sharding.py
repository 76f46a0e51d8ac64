"""Pre-training and training steps by two processes, against one."""

from multiprocessing import active_children

import pytest

from match_graph.errors import ConfigError, MatchGraphError
from match_graph.speed import Bench, sharding

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def test_measure_sharding_two_processes_hold_half_each(bench: Bench) -> None:
    pretraining, *steps = sharding.measure_sharding(bench)
    content = pretraining.to_dict()
    assert content["stage"] == "sharding"
    assert content["baseline"].startswith("one process: ")
    assert content["rate"] > 0
    assert content["tables_share"] == pytest.approx(0.5, abs=0.01)
    assert content["tables_mib"] > 0
    assert [found.stage for found in steps] == ["sharding: step"] * 2
    assert [found.baseline.split(": ")[0] for found in steps] == [
        "one process", "two processes, a table each",
    ]  # fmt: skip
    assert all(found.rate > 0 for found in steps)


def test_measure_sharding_steps_are_of_both_processes(bench: Bench) -> None:
    """Two processes train the documents of one batch, and start no further processes."""
    alone = sharding._make_steps(sharding._on_cpu(bench, 1))()
    with sharding._start_pair(bench) as (ask, _):
        processes = active_children()
        assert ask(sharding._SHARED) == ask(sharding._WHOLE) == alone
    assert len(processes) == 2


def test_measure_sharding_processes_end_by_themselves(bench: Bench) -> None:
    """Both exit with 0 when there are no more requests, and are not killed."""
    with sharding._start_pair(bench) as (ask, _):
        processes = active_children()
        ask(sharding._PRETRAIN)
    assert [process.exitcode for process in processes] == [0, 0]


def test_measure_sharding_process_that_ends_is_one_sentence(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharding, "_serve", lambda *_: None)
    with pytest.raises(MatchGraphError) as caught:
        list(sharding.measure_sharding(bench))
    assert str(caught.value) == (
        "Both processes of a measurement must come to its end, but one of them ended before, as "
        "happens where memory runs out; choose a smaller data set."
    )


def test_measure_sharding_beside_a_gpu_is_one_sentence(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forked processes would fail with CUDA errors, since importing PyG initializes CUDA."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(ConfigError) as caught:
        next(sharding.measure_sharding(bench))
    assert str(caught.value) == (
        "Two processes on the CPU are forked, which takes a machine without a GPU or with none "
        "visible, but torch finds one; set CUDA_VISIBLE_DEVICES to nothing for this command."
    )
