"""Sentences of errors: faults listed, and long ones shortened."""

from match_graph.errors import list_faults


def test_list_faults_shows_both_ends_fault_quotes_long_value() -> None:
    """List faults shows both ends of a fault that quotes a long value."""
    fault = f"a.json:6: the tree number {'[' * 20_000} must be dotted; mend it."
    assert list_faults("Trees must be right", ["short", fault]) == (
        "Trees must be right, but 2 faults were found:\n  short\n"
        f"  {fault[:400]} ... ({len(fault) - 800:,} characters more) ... {fault[-400:]}"
    )
    assert list_faults("Trees must be right", ["short"]) == "Trees must be right: short"
    assert len(list_faults("Trees must be right", [fault])) < 1000
