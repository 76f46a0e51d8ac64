"""What tests of reports share: benchmarks, a hostile case study, and a parser of pages."""

from html.parser import HTMLParser

import pytest
from benchmark.conftest import (
    benchmark_folder,
    benchmark_results,
    make_experiment,
    toy_folder,
)
from export.conftest import toy_dataset

from match_graph.predict.case_study import (
    CaseLabel,
    CaseStudy,
    Evidence,
    Missed,
    Prediction,
    Pull,
    Variant,
    WordEvidence,
)

__all__ = ["benchmark_folder", "benchmark_results", "make_experiment", "toy_dataset", "toy_folder"]

HOSTILE = "<script>alert(\"1\" & '2')</script>"
#: Elements without an end.
VOID = {"meta", "br", "hr", "img", "input", "link"}


class PageParser(HTMLParser):
    """Elements and texts of a page; unbalanced elements are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self.declared = ""
        self.feed(text)
        self.close()
        assert not self.stack

    def handle_decl(self, decl: str) -> None:
        self.declared = decl

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.stack):
            self.texts.setdefault(tag, []).append(data)

    def named(self, tag: str) -> list[dict[str, str]]:
        """The attributes of all elements of a name."""
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="session")
def parse_page():
    """Parses a page."""
    return PageParser


@pytest.fixture(scope="session")
def hostile() -> str:
    """A text that would run if it were not escaped."""
    return HOSTILE


@pytest.fixture(scope="session")
def case_study() -> CaseStudy:
    """One document and variant; a diamond of labels; every text that users give is hostile."""
    token = Evidence(
        field="venue", name=HOSTILE, is_known=False, attention=0.25, effect=0.5, linear=-0.125
    )
    pull = Pull(parent="a", probability=0.5, weight=1.0, output_term=0.25, parameter_term=0.125)
    prediction = Prediction(
        label=HOSTILE, probability=0.75, score=1.0986, is_right=True, metadata=[token],
        words=[WordEvidence(word="<b>", linear=0.5)], carried_by=str(token), attended=str(token),
        verdict=f"Leave-one-out and attention agree on '{token}'.", parents=[pull], pulled_by="a",
    )  # fmt: skip

    def label(name: str, depth: int, *parents: str, gold: bool = False) -> CaseLabel:
        return CaseLabel(
            label=name, name=HOSTILE if gold else None, is_gold=gold, depth=depth,
            parents=list(parents),
        )  # fmt: skip

    labels = [
        label("a", 0), label("b", 1, "a"), label("c", 1, "a"), label("d", 2, "b", "c", gold=True),
        label(HOSTILE, 1, "a", gold=True),
    ]  # fmt: skip
    variant = Variant(
        run=HOSTILE, encoder="match", ablation=["no-venue"], seed=3, predictions=[prediction],
        missed=[Missed(label="d", probability=0.0625, rank=7)],
        probability={"a": 0.5, "b": 0.25, "c": 0.03125, "d": 0.0625, HOSTILE: 0.75},
    )  # fmt: skip
    return CaseStudy(
        dataset="toy", document=HOSTILE, split="test", text=HOSTILE, metadata={"venue": [HOSTILE]},
        labels=labels, variants=[variant],
    )  # fmt: skip
