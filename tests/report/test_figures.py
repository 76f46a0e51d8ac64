"""Figures as SVG of a page and as PNG."""

import xml.etree.ElementTree as ET
from pathlib import Path

from match_graph.report.figures import PALETTE, draw_svg, make_figure, save_figure, tooltip


def draw(figure) -> None:
    axis = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    axis.plot([1, 2], [3, 4], "o", color=PALETTE["c0"], gid=tooltip("two <dots>"))
    axis.text(1, 3, "here", color=PALETTE["ink"])


def test_draw_svg() -> None:
    """Shapes and texts have no ids, links and fonts, and colours are variables."""
    text = draw_svg(draw, 300, 200, "A title")
    root = ET.fromstring(text)
    assert root.attrib == {"viewBox": "0 0 300 200", "role": "img", "aria-label": "A title"}
    assert {one.tag for one in root} == {"path", "text"}
    for forbidden in (" id=", "href", "url(", "font-family", PALETTE["c0"], "<style"):
        assert forbidden not in text
    dots = [one for one in root if one.findtext("title") == "two <dots>"]
    assert len(dots) == 2
    assert all("fill: var(--c0)" in one.attrib["style"] for one in dots)
    [here] = [one for one in root.iter("text") if one.text == "here"]
    assert "fill: var(--ink)" in here.attrib["style"]
    assert draw_svg(draw, 300, 200, "A title") == text


def test_PALETTE_is_of_the_style_sheet() -> None:
    """Colours are distinct, so that each has a variable of its own."""
    assert {"ground", "ink", "muted", "rule", "bad", "c0", "c5"} <= PALETTE.keys()
    assert len(set(PALETTE.values())) == len(PALETTE)


def test_save_figure(tmp_path: Path) -> None:
    """The PNG is the same byte by byte."""
    for name in ("a.png", "b.png"):
        figure = make_figure(3, 2)
        draw(figure)
        save_figure(figure, tmp_path / name)
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert content == (tmp_path / "b.png").read_bytes()
