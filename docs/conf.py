"""Settings of the documentation's build; `make docs` and `make docs-check` run it."""

import sys
import warnings
from pathlib import Path

from sphinx.deprecation import RemovedInSphinx10Warning

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import match_graph  # noqa: E402  (after the path, as a worktree may stand before an installation)

project = "match-graph"
author = "the match-graph contributors"
project_copyright = "the match-graph contributors; MIT licence"
version = release = match_graph.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_autodoc_typehints",
    "api_pages",
    "settings_page",
    "commands_page",
    "mathml",
]
exclude_patterns = ["_build", "_ext"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

# A reference that leads nowhere fails the build (`-W`). Names of other libraries are not looked up:
# that takes their inventories from the network. Names of match-graph are, see `api_pages`.
nitpicky = True
OTHERS = (
    r"torch|torch_geometric|numpy|np|pandas|scipy|sklearn|pyarrow|networkx|pydantic|lightning\w*|"
    r"optuna|rich|yaml"
)
STANDARD = (
    "abc|argparse|collections|contextlib|dataclasses|datetime|enum|pathlib|threading|types|typing"
)
nitpick_ignore_regex = [
    (r"py:.*", rf"({OTHERS}|{STANDARD})\..*"),
    (r"py:(class|obj|data|exc)", r"[a-z]+|Any|Path|Tensor|None|Ellipsis|UnionType|[A-Z]\w*Error"),
    (r"py:obj", r"self\..*"),  # in docstrings that PyG's data sets hand down
    (r"py:class", r"\d+\W*"),  # numbers in the default of a dataclass's field
]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Raised inside sphinx-autodoc-typehints, not by us:
warnings.filterwarnings("ignore", category=RemovedInSphinx10Warning)

default_role = "name"  # of `api_pages`: a link if the name is documented, code otherwise
toc_object_entries_show_parents = "hide"
autodoc_preserve_defaults = True  # names of constants, not their values
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
typehints_use_rtype = False
always_use_bars_union = True

html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_title = "match-graph"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": [], "getting_started": [], "differences": []}

# The gallery: every script of examples/ runs, unless plot_gallery=0.
if any((HERE.parent / "examples").glob("*.py")):
    extensions.append("sphinx_gallery.gen_gallery")
    sphinx_gallery_conf = {
        "examples_dirs": "../examples",
        "gallery_dirs": "generated/gallery",
        "filename_pattern": r"\.py$",
        "download_all_examples": False,
        "show_memory": False,
        "show_signature": False,
        "abort_on_example_error": True,
        "doc_module": ("match_graph",),
        "reference_url": {"match_graph": None},
    }
else:
    extensions.append("no_gallery")
