"""A page as HTML: its structure, its escaping, nothing from elsewhere, the same every time."""

import sys
from pathlib import Path

import pytest

from match_graph.errors import MatchGraphError
from match_graph.predict.case_study import CaseStudy
from match_graph.report.charts import Bar, BarChart, LineChart, Series
from match_graph.report.label_rows import LabelRows
from match_graph.report.page import (
    Case,
    Code,
    Headline,
    Note,
    Page,
    Section,
    render_page,
    write_page,
)
from match_graph.report.tables import Table


@pytest.fixture(scope="module")
def page(case_study: CaseStudy, hostile: str) -> Page:
    """Page with a block of every kind, and hostile text everywhere."""
    table = Table(
        [hostile, "x"],
        [[hostile, "1"], ["b", hostile]],
        frozenset({(0, 1)}),
        {(0, 1): hostile},
        hostile,
    )
    lines = LineChart(hostile, hostile, hostile, [
        Series(hostile, [1, 2], [0.1, 0.2], [0.05, 0.05]), Series("b", [1, 2], [0.3, 0.2]),
    ])  # fmt: skip
    bars = BarChart(hostile, hostile, [Bar(hostile, 0.5, hostile, 0.1)])
    case = Case(case_study, [LabelRows(case_study.labels, case_study.variants[0])])
    return Page(hostile, hostile, [Headline(hostile, hostile, hostile)], [
        Section(hostile, hostile, [table, lines, bars]),
        Section("Nothing", "", []),
        Section("Cases", "", [
            case, Note([hostile, "second"]), Code(hostile, f"a:\n\n  {hostile}\n"),
        ]),
    ])  # fmt: skip


def test_render_page_structure(page: Page, hostile: str, parse_page) -> None:
    """It has one main heading, a section per title with blocks, links to them and unique ids."""
    found = parse_page(render_page(page))
    assert found.declared == "DOCTYPE html"
    assert found.named("html") == [{"lang": "en"}]
    assert found.named("meta")[1]["name"] == "viewport"
    assert found.texts["h1"] == [hostile]
    assert found.texts["h2"] == [hostile, "Cases"]
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert ids == ["section-1", "section-2"]
    assert [link["href"] for link in found.named("a")] == ["#section-1", "#section-2"]
    assert len(found.named("figure")) == 3
    assert len(found.named("figcaption")) == 3
    assert all(svg.get("aria-label") or svg.get("aria-hidden") for svg in found.named("svg"))
    folded = [one for one in found.named("details") if one.get("class") == "data"]
    assert len(folded) == 3  # the data of every figure
    assert [cell["class"] for cell in found.named("td") if "class" in cell] == ["best"]


def test_render_page_zero_has_no_minus(case_study: CaseStudy) -> None:
    """A token whose leaving out changes nothing has an effect of +0.000."""
    content = case_study.model_dump_json().replace('"effect":0.5', '"effect":0.0')
    study = CaseStudy.model_validate_json(content)
    case = Case(study, [LabelRows(study.labels, study.variants[0])])
    text = render_page(Page("a", "", [], [Section("b", "", [case])]))
    assert "<td>+0.000</td>" in text
    assert "-0.000" not in text


def test_render_page_all_text_is_escaped(page: Page, hostile: str, parse_page) -> None:
    """Users' text is shown whole and as text everywhere."""
    found = parse_page(render_page(page))
    assert not found.named("script")
    assert not found.named("b")
    for tag in (
        "title", "h1", "h2", "h3", "h4", "p", "dd", "td", "th", "summary", "pre", "figcaption",
        "text", "strong", "caption",
    ):  # fmt: skip
        assert hostile in "".join(found.texts[tag]), tag
    assert f"a:\n\n  {hostile}\n" in "".join(found.texts["pre"])
    assert {hostile} <= {svg.get("aria-label") for svg in found.named("svg")}


def test_render_page_nothing_is_loaded_and_nothing_runs(page: Page, parse_page) -> None:
    """It has links within the page alone, no handlers, and a policy against both."""
    text = render_page(page)
    found = parse_page(text)
    for tag, attributes in found.elements:
        assert tag not in {"script", "link", "img", "iframe", "object"}
        assert not attributes.keys() & {"src", "srcset", "onload", "onerror", "xlink:href"}
        assert attributes.get("href", "#").startswith("#")
    assert "url(" not in text
    assert "@import" not in text
    policy = [one["content"] for one in found.named("meta") if "http-equiv" in one]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "prefers-color-scheme: dark" in text


def test_write_page_same_page_gives_the_same_bytes(page: Page, tmp_path: Path) -> None:
    """The file is written as a whole."""
    for name in ("a.html", "b.html"):
        write_page(page, tmp_path / "deep" / name)
    first, second = sorted((tmp_path / "deep").iterdir())
    assert first.read_bytes() == second.read_bytes()
    assert first.read_text(encoding="utf-8") == render_page(page)


@pytest.mark.parametrize("name", ["jinja2", "matplotlib"])
def test_write_page_missing_package_is_named(
    page: Page, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error names the extra that installs it, and nothing is written."""
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MatchGraphError) as caught:
        write_page(page, tmp_path / "page.html")
    assert str(caught.value) == (
        f"A page needs the package {name}, which is not installed; run: "
        f"pip install 'match-graph[report]'"
    )
    assert not list(tmp_path.iterdir())
