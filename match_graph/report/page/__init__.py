"""Result pages as self-contained HTML."""

from match_graph.report.page.blocks import Block, Case, Code, Headline, Note, Page, Section
from match_graph.report.page.charts import Bar, BarChart, LineChart, Series
from match_graph.report.page.label_rows import LabelRows
from match_graph.report.page.render import render_page, write_page

__all__ = [
    "Bar",
    "BarChart",
    "Block",
    "Case",
    "Code",
    "Headline",
    "LabelRows",
    "LineChart",
    "Note",
    "Page",
    "Section",
    "Series",
    "render_page",
    "write_page",
]
